"""A running demo: a real job under load, with Penstock attached to it and a journal to watch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.clock import WallClock
from penstock.core.journal import FileJournal, JournalHeader
from penstock.core.model import Step
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header
from penstock.settings.policy_spec import PolicySpec
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.environment import (
    WARM_UP_TIMEOUT_S,
    DemoEnvironment,
    Producer,
    Say,
    demo_environment,
)
from penstock.testbed.demo.plan import DemoPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.attach import Attachment


class WatchedJournal(FileJournal):
    """A journal whose steps can be looked at while it is written: what is shown is what it says."""

    def __init__(self, path: Path, header: JournalHeader) -> None:
        super().__init__(path, header)
        self.steps: list[Step] = []

    def write(self, step: Step) -> None:
        super().write(step)
        self.steps.append(step)


class WarningLog(logging.Handler):
    """The warnings of Penstock, for a view that owns the screen."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    @contextmanager
    def taken(self) -> Iterator[WarningLog]:
        ours = logging.getLogger("penstock")
        ours.addHandler(self)
        ours.propagate = False
        try:
            yield self
        finally:
            ours.removeHandler(self)
            ours.propagate = True


@dataclass(frozen=True)
class AttachedDemo:
    """A running demo."""

    plan: DemoPlan
    journal: WatchedJournal
    log: WarningLog
    handle: Attachment
    environment: DemoEnvironment

    @property
    def steps(self) -> list[Step]:
        return self.journal.steps

    @property
    def warnings(self) -> list[str]:
        """What Penstock warned of since the start."""
        return self.log.lines

    def is_over(self) -> bool:
        """Whether all of the load is out; an error if the job or the producer broke."""
        return self.environment.is_over()

    @property
    def producer(self) -> Producer:
        return self.environment.producer


@contextmanager
def attached_demo(
    plan: DemoPlan,
    entry: PolicySpec,
    journal: Path,
    say: Say,
    *,
    kafka_port: int | None = None,
    admission: bool = True,
    warmup_s: float = WARM_UP_TIMEOUT_S,
) -> Iterator[AttachedDemo]:
    """Start everything, hand it over when the load begins, and end everything."""
    with ExitStack() as stack:
        log = stack.enter_context(WarningLog().taken())
        environment = stack.enter_context(
            demo_environment(plan, say, kafka_port=kafka_port, warmup_s=warmup_s)
        )
        workload = f"wave of {plan.load_s} s, {sizes.LOW_RPS:g} to {plan.peak_rps:g} records/s"
        facts = {"workload": workload, "job": plan.job, "pace": f"{plan.pace_s:g} s per record"}
        header = journal_header(entry, Goal(slo_s=sizes.SLO_S), engine="spark", **facts)
        book = WatchedJournal(journal, header)
        handle = _attach(environment.spark, plan, entry, book, admission)
        stack.callback(handle.stop)
        yield AttachedDemo(plan, book, log, handle, environment)


def _attach(
    spark: SparkSession, plan: DemoPlan, entry: PolicySpec, book: WatchedJournal, admission: bool
) -> Attachment:
    from penstock.settings.toml import LiveSettings
    from penstock.spark.actuator.actuator import Patience
    from penstock.spark.attach import Attachment

    return Attachment(
        spark,
        entry,
        goal=Goal(slo_s=sizes.SLO_S),
        # A backlog in one batch would hide for minutes what new executors are good for.
        live=LiveSettings(every_s=plan.every_s, admission=admission),
        journal=book,
        # Short batches leave a gap soon; a demo of minutes cannot wait a minute for one.
        patience=Patience(look_every_s=0.5, quiet_s=5.0),
    )


def elapsed() -> Callable[[], float]:
    """Seconds since this was called."""
    clock = WallClock()
    start_s = clock.now()
    return lambda: clock.now() - start_s
