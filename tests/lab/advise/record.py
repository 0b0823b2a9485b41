"""Records the event logs of the tests again: a real job, once with a fixed fleet, once scaled.

    python -m tests.lab.advise.record

One command, about 16 minutes, for a machine on which nothing else runs: what else runs makes
batches longer in one of the two runs, and the pair says nothing. Nothing is replaced before both
runs have succeeded. Then the logs, ``pair.json`` and the paragraph in docs/advise.md are written,
and the last lines say whether the promise was near enough; the exit code is 1 if it was not.

Records wait 6 ms each, so that a small machine can stand for a cluster. The log is thinned: events
that nobody reads are left out, and nine of ten ends of tasks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.core.clock import WallClock
from penstock.lab.advise.logs import lines
from penstock.testbed.demo.attached import attached_demo
from penstock.testbed.demo.environment import DemoEnvironment, demo_environment
from penstock.testbed.demo.plan import MAX_EXECUTORS, MAX_STEP, DemoPlan, with_scaled_time
from tests.lab.advise.pair import (
    ABOUT,
    FIXED,
    MOST_LATE_OFF,
    MOST_OFF,
    SCALED,
    About,
    part_of,
    promise,
    write_docs,
)

#: A fleet for the peak, with some reserve, as people have it who do not scale.
EXECUTORS = MAX_EXECUTORS
WARM_UP_S = 60.0
#: Of one run; it takes about 8 minutes.
MOST_S = 900.0
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


PLAN = QuietPlan("q1", load_s=360, full_peak_rps=600.0)


def about_plan(plan: DemoPlan) -> About:
    """The policy that `record` runs, as a text for `penstock advise`, and the load.

    >>> about_plan(PLAN).policy
    'penstock:period=6s,bin=6s,move_price=0.003333,cooldown=8s,stabilize_down=6s,max_step=2'
    """
    spec = with_scaled_time("penstock", plan)
    spans = {
        "period": f"{plan.every_s:.4g}s",
        "bin": f"{spec.policy.bin_s:.4g}s",  # type: ignore[attr-defined]
        "move_price": f"{spec.policy.move_price:.4g}",  # type: ignore[attr-defined]
        "cooldown": f"{spec.limits.cooldown_s:.4g}s",
        "stabilize_down": f"{spec.limits.stabilize_down_s:.4g}s",
        "max_step": str(MAX_STEP),
    }
    text = "penstock:" + ",".join(f"{key}={value}" for key, value in spans.items())
    return About(text, MAX_EXECUTORS, plan.description, round(plan.speed, 2))


def record(mode: str, logs: Path) -> None:
    """Run the job; Spark writes its log."""
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": logs.as_uri()}
    if mode == "fixed":
        with demo_environment(
            PLAN, print, executors=EXECUTORS, settings=settings, warmup_s=WARM_UP_S
        ) as environment:
            wait(environment)
        return
    entry, journal = with_scaled_time("penstock", PLAN), logs / "journal.jsonl"
    with attached_demo(
        PLAN,
        entry,
        journal,
        print,
        settings=settings,
        executors=EXECUTORS,
        warmup_s=WARM_UP_S,
        admission=False,  # as by default; the simulated job has none either
    ) as live:
        wait(live.environment)


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


def record_pair(place: Path) -> None:
    """Both runs, each in a process of its own; then the logs take the place of the old ones."""
    for number, mode in enumerate(("fixed", "scaled"), 1):
        print(f"run {number} of 2: {mode}, about 8 min", flush=True)
        (place / mode).mkdir(parents=True)
        argv = [sys.executable, "-m", "tests.lab.advise.record", "--run", mode]
        subprocess.run([*argv, "--into", str(place / mode)], check=True, timeout=MOST_S)
    for mode, folder in (("fixed", FIXED), ("scaled", SCALED)):
        (log,) = (place / mode).glob("eventlog_v2_*/events_*")
        shutil.rmtree(folder, ignore_errors=True)
        thinned(log, folder / log.parent.name / log.name)
    ABOUT.write_bytes(msgspec.json.encode(about_plan(PLAN)) + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--anyway", action="store_true", help="also on a machine that is busy")
    parser.add_argument("--run", choices=("fixed", "scaled"), help="one run, into a directory")
    parser.add_argument("--into", type=Path, help="keep whole logs and the journal here")
    given = parser.parse_args()
    if given.run:
        record(given.run, given.into)
        return 0
    if (load := os.getloadavg()[0]) > 0.5 and not given.anyway:
        parser.error(f"other programs use this machine (load {load:.1f}): wait, or --anyway")
    with tempfile.TemporaryDirectory(prefix="penstock-pair-") as place:
        record_pair(given.into or Path(place))
    part_of.cache_clear()
    found = promise()
    if found.promised.cannot_say:
        print(f"advise cannot say: {found.promised.cannot_say}")
        return 1
    write_docs(found.text())
    print(found.text())
    print(f"executors: {found.off:+.1%} of the real ones, goal {MOST_OFF:.0%}")
    print(f"late: {found.late_off:+.2%} of all records, goal {MOST_LATE_OFF:.0%}")
    print("the promise holds" if found.holds else "the promise does not hold")
    print("see the marks of the tests of promises in test_advice.py")
    return int(not found.holds)


if __name__ == "__main__":
    sys.exit(main())
