"""A running demo: a real job under load, with Penstock attached to it and a journal to watch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.core.clock import WallClock
from penstock.core.journal import FileJournal, JournalHeader
from penstock.core.model import Step
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header
from penstock.settings.policy_spec import PolicySpec
from penstock.settings.toml import LiveSettings, Mode, Settings
from penstock.spark.attach import Attachment
from penstock.testbed.demo import environment as parts
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.plan import DemoPlan


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
    """A running demo, its steps so far, and what Penstock warned of."""

    plan: DemoPlan
    steps: list[Step]
    warnings: list[str]
    environment: parts.DemoEnvironment


@contextmanager
def attached_demo(
    plan: DemoPlan,
    entry: PolicySpec,
    journal: Path,
    say: parts.Say,
    *,
    mode: Mode = "act",
    kafka_port: int | None = None,
    executors: int | None = None,
    settings: dict[str, str] | None = None,
    admission: bool = True,
    warmup_s: float = parts.WARM_UP_TIMEOUT_S,
    dashboard: str = "",
) -> Iterator[AttachedDemo]:
    """Start a `demo_environment` and attach; hand both over when the load begins, and end them."""
    goal = Goal(slo_s=sizes.SLO_S)
    facts = {"workload": plan.description, "job": plan.job, "pace": f"{plan.pace_s:g} s per record"}
    if plan.cpu_share is not None:
        facts["cpu_share"] = f"{plan.cpu_share:g} of a core per executor"
    starting = parts.demo_environment(
        plan, say, kafka_port=kafka_port, executors=executors, settings=settings, warmup_s=warmup_s
    )
    with WarningLog().taken() as log, starting as environment:
        from penstock.spark.actuator.actuator import Patience

        book = WatchedJournal(journal, journal_header(entry, goal, engine="spark", **facts))
        # A backlog in one batch would hide for minutes what new executors are good for.
        live = LiveSettings(
            mode=mode, every_s=plan.every_s, admission=admission, dashboard=dashboard
        )
        with Attachment(
            environment.spark,
            Settings(entry, goal, live=live),
            journal=book,
            # Short batches leave a gap soon; a demo of minutes cannot wait a minute for one.
            patience=Patience(look_every_s=0.5, quiet_s=5.0),
        ):
            yield AttachedDemo(plan, book.steps, log.lines, environment)


def elapsed() -> Callable[[], float]:
    clock = WallClock()
    start_s = clock.now()
    return lambda: clock.now() - start_s
