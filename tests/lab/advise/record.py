"""Records the event logs of the tests again: a real job, once with a fixed fleet, once scaled.

    make setup                      # once; also needs Java 17
    rm -r tests/lab/advise/recorded tests/lab/advise/recorded_scaled
    .venv/bin/python -m tests.lab.advise.record static tests/lab/advise/recorded
    .venv/bin/python -m tests.lab.advise.record penstock tests/lab/advise/recorded_scaled
    .venv/bin/python -m pytest tests/lab/advise/test_advice.py
    .venv/bin/penstock advise tests/lab/advise/recorded --master 'local[1]' --max 8 --policy TEXT
    .venv/bin/penstock advise tests/lab/advise/recorded_scaled --master 'local[1]' --max 8

Run the two recordings one after the other, from the root of the repository, ten minutes each, with
nothing else on the machine: what else runs makes batches longer in one of them, and the pair says
nothing (`uptime` before each: a load under 0.5). TEXT is `QUICK` of test_advice.py: the policy that
the second recording runs, in the time of the demo. The first call of `advise` says what was
promised ("needed", "then late"), the second what was really used ("executors paid", "late"). The
goal is executor-seconds within 15 % and a late share within one percentage point. With numbers as
good as that, tighten the bounds of `test_what_was_promised_is_near_what_a_real_run_then_used`, and
put the numbers into docs/advise.md, "How far to trust it".

Records wait 6 ms each, so that a small machine can stand for a cluster. The log is thinned: events
that nobody reads are left out, and nine of ten ends of tasks.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.core.clock import WallClock
from penstock.lab.advise.logs import lines
from penstock.testbed.demo.attached import attached_demo
from penstock.testbed.demo.environment import DemoEnvironment, demo_environment
from penstock.testbed.demo.plan import DemoPlan, with_scaled_time

EXECUTORS = 6
WARM_UP_S = 60.0
LEFT_OUT = (
    "SQLExecutionStart", "SQLExecutionEnd", "SQLAdaptive", "DriverAccumUpdates",
    "SparkListenerJobStart", "SparkListenerJobEnd", "SparkListenerTaskStart",
)  # fmt: skip
TASK_ENDS = 10


class QuietPlan(DemoPlan, frozen=True):
    """Fewer and longer records and batches than in the demo: little work for this machine."""

    @property
    def trigger_s(self) -> float:
        return 4.0

    @property
    def pace_s(self) -> float:
        return 0.006

    @property
    def low_rps(self) -> float:
        return 70.0

    @property
    def partitions(self) -> int:
        return 12


PLAN = QuietPlan("q1", load_s=260, full_peak_rps=600.0)


def record(mode: str, logs: Path) -> None:
    """Run the job; Spark writes its log."""
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": logs.as_uri()}
    if mode == "static":
        with demo_environment(
            PLAN, print, executors=EXECUTORS, settings=settings, warmup_s=WARM_UP_S
        ) as environment:
            wait(environment)
        return
    entry, journal = with_scaled_time("penstock", PLAN), logs / "journal.jsonl"
    with attached_demo(
        PLAN, entry, journal, print, settings=settings, executors=EXECUTORS, warmup_s=WARM_UP_S
    ) as live:
        wait(live.environment)
    journal.unlink()


def wait(environment: DemoEnvironment) -> None:
    for _ in WallClock().ticks(0.5):
        if environment.is_over():
            return


def thinned(log: Path, target: Path) -> None:
    """A log without what nobody reads."""
    kept, ends = [], 0
    with log.open("rb") as file:
        for line in lines(file):
            name = line[10 : line.find(b'"', 10)].decode()
            if any(each in name for each in LEFT_OUT):
                continue
            if name == "SparkListenerTaskEnd":
                ends += 1
                if ends % TASK_ENDS:
                    continue
            kept.append(line + b"\n")
    target.parent.mkdir(parents=True, exist_ok=True)
    codec = pa.Codec("zstd", compression_level=19)
    target.write_bytes(codec.compress(b"".join(kept), asbytes=True))


def main(mode: str, directory: str) -> None:
    with tempfile.TemporaryDirectory() as logs:
        record(mode, Path(logs))
        (log,) = Path(logs).glob("eventlog_v2_*/events_*")
        thinned(log, Path(directory, log.parent.name, log.name))


if __name__ == "__main__":
    main(*sys.argv[1:])
