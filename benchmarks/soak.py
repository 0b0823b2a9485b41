"""Hours of load that rises and falls, with something breaking every other minute: ``make soak``.

``make soak ARGS="--minutes 5"`` is a short one. Turns are taken and the load moves at ten times the
usual pace (``--pace``), so two hours are nearly a day. At the end every record must have been
counted once, the scaler must still run, and nothing of `VITALS` may surely grow (`slopes`). With
``--job NAME`` it is a job of `penstock jobs` under one long wave, and executors are killed: the
job must survive and read all that was sent.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import pi, sin
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.slopes import is_growth, slope
from tests.drivers import end_driver
from tests.survival.scene import (
    Feed,
    broker_away,
    commit,
    counting,
    new_topic,
    now_s,
    passes_s,
    processed,
    results,
    session,
    truth,
)

import penstock
from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.core.phrases import executors
from penstock.settings.policy_spec import read_policy_spec
from penstock.spark.attach import Attachment
from penstock.spark.internals import Driver
from penstock.testbed import Testbed, wait_until
from penstock.testbed.demo.attached import attached_demo
from penstock.testbed.demo.plan import make_plan, with_scaled_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SLOTS = 8
COST_S = 0.004
#: One executor carries 250 records/s at most; the load goes from half of one to four.
LOW_RPS, HIGH_RPS = 120.0, 900.0
LOAD_PERIOD_S = 900.0
REPORT_EVERY_S = 60.0
FAULT_EVERY_S = (60.0, 180.0)
#: What is sampled each second, and what each may grow by per hour. The history of a policy has
#: 4,096 snapshots: it is full after the first third of two hours at ten times the pace.
VITALS = {
    "MiB of Python": 8.0,
    "MiB of Java": 64.0,
    "threads": 0.5,
    "sockets": 1.0,
    "Java objects that Python holds": 50.0,
    "ms per turn": 5.0,
}


def say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Soak:
    """A job that is scaled for hours, and who breaks it."""

    bed: Testbed
    spark: SparkSession
    query: StreamingQuery
    feed: Feed
    journal: Path
    policy: str
    rng: Random
    pace: float
    handle: Attachment = field(init=False)
    faults: int = 0
    samples: list[tuple[float, ...]] = field(default_factory=list)

    @contextmanager
    def scaled(self) -> Iterator[None]:
        self.attach()
        try:
            yield
        finally:
            self.handle.stop()

    def attach(self) -> None:
        spec = read_policy_spec(self.policy)
        self.handle = penstock.attach(
            self.spark, self.policy, min=1, max=SLOTS, journal=self.journal,
            every_s=max(1.0, spec.policy.period_s / self.pace),
        )  # fmt: skip

    def run(self, seconds: float) -> list[str]:
        """What was found wrong."""
        begun_s = report_at_s = now_s()
        fault_at_s = begun_s + self.rng.uniform(*FAULT_EVERY_S)
        for at_s in WallClock().ticks(1.0):
            elapsed_s = at_s - begun_s
            if elapsed_s >= seconds or not self.query.isActive:
                break
            wave = (1.0 - sin(pi / 2 + 2.0 * pi * self.pace * elapsed_s / LOAD_PERIOD_S)) / 2.0
            self.feed.rate_rps = LOW_RPS + (HIGH_RPS - LOW_RPS) * wave
            self.samples.append((elapsed_s, *vitals(self.handle)))
            if at_s >= report_at_s:
                report_at_s = at_s + REPORT_EVERY_S
                self.report(elapsed_s)
            if at_s >= fault_at_s:
                self.break_something()
                fault_at_s = now_s() + self.rng.uniform(*FAULT_EVERY_S)
        return [*self.complaints(), *grown(self.samples)]

    def report(self, elapsed_s: float) -> None:
        status = self.handle.status()
        say(
            f"{elapsed_s / 60.0:6.1f} min  load {self.feed.rate_rps:4.0f}/s  executors "
            f"{status.active} of {status.target}  delay {status.delay_s or 0.0:5.1f} s  "
            f"rescales {status.rescales}  losses {status.losses}  repairs {status.repairs}  "
            f"faults {self.faults}  {resident_bytes() / 2**20:.0f} MiB  {status.state}"
        )

    def break_something(self) -> None:
        self.faults += 1
        fault = self.rng.choice(["executor", "broker", "target", "scaler"])
        say(f"           breaking: {fault}")
        if fault == "executor" and self.bed.executors():
            self.bed.kill_executor()
        elif fault == "broker":
            with broker_away(self.bed):
                passes_s(self.rng.uniform(3.0, 20.0))
        elif fault == "target":
            Driver(self.spark).request_total_executors(self.rng.randrange(SLOTS + 1))
        elif fault == "scaler":
            self.handle.stop()
            self.attach()

    def complaints(self) -> list[str]:
        found = []
        if not self.query.isActive:
            found.append(f"the query ended: {self.query.exception()}")
        if self.handle.status().state != "running":
            found.append(f"Penstock is {self.handle.status().state}: {self.handle.status().error}")
        return found


def vitals(handle: Attachment) -> tuple[float, ...]:
    """One sample of `VITALS`."""
    from py4j.finalizer import ThreadSafeFinalizer  # type: ignore[import-untyped]
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    totals = handle._loop.outlets.values()
    turns, seconds = (totals.get((name,), 0.0) for name in ("turns_total", "turn_seconds_total"))
    return (
        resident_bytes("self") / 2**20,
        resident_bytes(gateway.proc.pid) / 2**20,
        threading.active_count(),
        open_sockets(),
        len(ThreadSafeFinalizer.finalizers),
        1000.0 * seconds / max(1.0, turns),
    )


def grown(samples: Sequence[Sequence[float]]) -> list[str]:
    """Print the slope of each of `VITALS`; those that grow."""
    found = []
    at_s, *columns = zip(*samples, strict=True)
    for (name, tolerated), values in zip(VITALS.items(), columns, strict=True):
        line = slope(name, at_s, values)
        if line is None:
            return []  # too short to say
        say(line.sentence())
        if is_growth(line, tolerated):
            found.append(f"grows: {line.sentence()}")
    return found


def resident_bytes(process: int | str = "self") -> int:
    """What a process holds of the memory; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def open_sockets() -> int:
    """Of this process."""
    found = 0
    for each in Path("/proc/self/fd").glob("*"):
        with suppress(FileNotFoundError):
            found += each.readlink().name.startswith("socket:")
    return found


def soak(bed: Testbed, directory: Path, options: argparse.Namespace) -> list[str]:
    topic, output = new_topic(bed), new_topic(bed)
    with (
        session(bed, executors=1) as spark,
        Feed(bed, topic, rate_rps=LOW_RPS) as feed,
        counting(bed, spark, topic, output, directory / "state", cost_s=COST_S) as query,
    ):
        commit(query, 3)
        rng = Random(options.seed)
        job = Soak(bed, spark, query, feed, options.journal, options.policy, rng, options.pace)
        with job.scaled():
            found = job.run(60.0 * options.minutes)
            records = feed.end()
            if query.isActive:
                wait_until(lambda: processed(query) == records, 600.0, "records are left over")
            job.report(60.0 * options.minutes)
    counted = results(bed, output)
    wrong = [key for key, total in truth(records).items() if counted.get(key) != total]
    say(f"{records} records, {job.faults} faults, {len(wrong)} keys of 100 counted wrong")
    return [*found, *([f"keys {wrong} were counted wrong"] if wrong else [])]


def soak_job(options: argparse.Namespace) -> list[str]:
    """Run a job of the table as the demo does, and kill an executor now and then."""
    plan = make_plan(options.job, options.minutes, fast=False)
    entry = with_scaled_time(options.policy, plan)
    rng = Random(options.seed)
    losses, fault_at_s = 0, now_s() + rng.uniform(*FAULT_EVERY_S)
    with attached_demo(plan, entry, options.journal, say) as live:
        for at_s in WallClock().ticks(1.0):
            if live.environment.is_over():
                break
            if at_s >= fault_at_s and live.environment.bed.executors():
                live.environment.bed.kill_executor()
                losses, fault_at_s = losses + 1, at_s + rng.uniform(*FAULT_EVERY_S)
        sent = live.environment.producer.report()
        live.environment.query.processAllAvailable()
        steps, warnings = len(live.steps), len(live.warnings)
    say(f"{plan.job}: {steps} decisions, killed {executors(losses)}, {warnings} warnings")
    if sent is None or sent.shortfall_records:
        return ["not all events were sent" if sent is None else sent.sentence()]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description="Runs a scaled job for hours.")
    parser.add_argument("--minutes", type=float, default=120.0, help="how long (default 120)")
    parser.add_argument("--pace", type=float, default=10.0, help="of turns and load (default 10)")
    parser.add_argument("--policy", default="penstock", help="a policy (default penstock)")
    parser.add_argument("--seed", type=int, default=1, help="what breaks when (default 1)")
    parser.add_argument("--journal", type=Path, help="where to keep the journal")
    parser.add_argument("--job", help="a job of `penstock jobs` instead of the one that counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as directory:
        options.journal = options.journal or Path(directory, "soak.jsonl")
        try:
            if options.job is not None:
                return complain(soak_job(options))
            with Testbed(slots=SLOTS, run_directory=Path(directory, "bed")) as bed:
                found = soak(bed, Path(directory), options)
        except ConfigError as error:
            print(f"soak: {error}", file=sys.stderr)
            return 2
        finally:
            end_driver()
    return complain(found)


def complain(found: list[str]) -> int:
    for complaint in found:
        print(f"soak: {complaint}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
