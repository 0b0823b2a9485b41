"""``penstock demo``: a real job, a load that rises and falls, and a fleet that follows."""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from penstock.cli.views.demo_view import LiveView, PlainView
from penstock.cli.views.output import console
from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.core.model import Step
from penstock.observe.formatting import rate, seconds
from penstock.observe.report import page, summary, write
from penstock.policies import DEFAULT_POLICY
from penstock.settings.policy_spec import PolicySpec
from penstock.testbed.demo.attached import AttachedDemo, attached_demo, elapsed
from penstock.testbed.demo.plan import (
    LOW_RPS,
    MAX_EXECUTORS,
    SLO_S,
    DemoPlan,
    make_plan,
    with_scaled_time,
)
from penstock.testbed.jobs.playback import Report

LOOK_EVERY_S = 0.5


def demo(
    *,
    policy: str = DEFAULT_POLICY,
    job: str = "q11",
    minutes: float | None = None,
    fast: bool = False,
    journal: Path | None = None,
    out: Path | None = None,
    kafka_port: int | None = None,
) -> int:
    """Watch the fleet of a real job follow its load: a broker, a Spark cluster, a Nexmark query.

    Parameters
    ----------
    policy
        One of `penstock policies`, with its parameters as name:key=value,...
    job
        q1 (stateless), q3 (a join), q11 (sessions) or wordcount.
    minutes
        How long the load lasts, 5 by default; starting takes half a minute more.
    fast
        About two minutes in all.
    journal
        Write every turn to this file; by default to one of its own under runs.
    out
        Where the page of plots goes; by default beside the journal.
    kafka_port
        The port of the broker; a free one by default.
    """
    plan = make_plan(job, minutes, fast)
    entry = with_scaled_time(policy, plan)
    journal, out = _places(journal, out)
    signal.signal(signal.SIGTERM, _interrupt)
    screen = console()
    since_s = elapsed()

    def say(line: str) -> None:
        screen.print(f"{since_s():6.1f} s  {line}", markup=False)

    for line in _introduction(plan, entry):
        screen.print(line, markup=False)
    steps: list[Step] = []
    sent: Report | None = None
    try:
        with attached_demo(plan, entry, journal, say, kafka_port=kafka_port) as live:
            steps = live.steps
            _watch(live, screen, entry.label)
            sent = live.producer.report()
            say("the load is over; ending everything ...")
    except KeyboardInterrupt:
        say("interrupted; everything has ended")
        raise
    finally:
        if any(step.snapshot is not None for step in steps):
            _conclude(screen, plan, entry, steps, sent, journal, out)
    say("done")
    return 0


def _places(journal: Path | None, out: Path | None) -> tuple[Path, Path]:
    """Where the journal and the page go; refused now rather than at the end."""
    if journal is None:
        stamp = datetime.fromtimestamp(WallClock().now(), UTC).strftime("%Y%m%d-%H%M%S")
        runs = Path("runs")
        try:
            runs.mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make {runs}: {error.strerror}; name a place with --journal"
            ) from error
        journal = runs / f"demo-{stamp}.jsonl"
    out = out or journal.with_suffix(".html")
    if journal.exists():
        raise ConfigError(f"{journal} exists already; remove it or name another place")
    for path in (journal, out):
        if not path.parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no directory {path.parent}")
    if out.resolve() == journal.resolve():
        raise ConfigError(f"--out {out} is the journal: name another place")
    return journal, out


def _introduction(plan: DemoPlan, entry: PolicySpec) -> list[str]:
    """What will be seen, and what of it is a device of the demo."""
    lines = [
        f"{entry.label} keeps {plan.job} within {SLO_S:g} s with 1 to {MAX_EXECUTORS} executors, "
        f"while the load goes from {rate(LOW_RPS)} to {rate(plan.peak_rps)} and back "
        f"in {seconds(float(plan.load_s))}.",
        f"A pace is on: each record waits {plan.pace_s * 1e3:g} ms, so that one machine can play "
        "a cluster. Broker, cluster and query are real.",
    ]
    if plan.speed > 1.0:
        lines.append(
            f"Minutes stand for hours: the time spans of the policy and of its guards are divided "
            f"by {plan.speed:.0f}."
        )
    if (step := entry.limits.max_step) is not None:
        lines.append(
            f"It decides every {plan.every_s:g} s and moves at most {step} executors at a time, "
            "since they all start on this machine."
        )
    return lines


def _watch(live: AttachedDemo, screen: Console, label: str) -> None:
    """Show the run until its load is over."""
    view = LiveView(live, screen, label) if sys.stdout.isatty() else PlainView(live)
    with view:
        for now_s in WallClock().ticks(LOOK_EVERY_S):
            view.update(now_s)
            if live.is_over():
                return


def _conclude(
    screen: Console,
    plan: DemoPlan,
    entry: PolicySpec,
    steps: list[Step],
    sent: Report | None,
    journal: Path,
    out: Path,
) -> None:
    note = (
        f"A pace of {plan.pace_s * 1e3:g} ms per record was on, so that one machine could play a "
        f"cluster. Minutes stand for hours: time spans of the policy divided by {plan.speed:.0f}."
    )
    title = f"Demo: {plan.job} under {entry.label}"
    write(out, page([(entry.label, steps)], title=title, slo_s=SLO_S, note=note))
    screen.print(_table(entry, steps, sent, journal, out))


def _table(
    entry: PolicySpec, steps: list[Step], sent: Report | None, journal: Path, out: Path
) -> Table:
    """The run in figures, all from its journal."""
    found = summary([(entry.label, steps)], SLO_S)[0]
    figures, cost = found.account, found.cost
    late = figures.late_fraction
    facts = {
        "policy": f"{entry.label}, {figures.turns} decisions in {seconds(figures.span_s)}",
        "events": "not all were sent" if sent is None else sent.sentence(),
        "executor-seconds": f"{cost.executor_s:.0f}  (mean {figures.mean_executors:.1f}; a fleet "
        f"of {cost.peak_executors} all the time: {cost.peak_fleet_s:.0f}, "
        f"so {figures.saved_fraction:.0%} saved)",
        "delay p50 / p95": f"{seconds(figures.p50_s)} / {seconds(figures.p95_s)}",
        f"late (> {SLO_S:g} s)": "not measured" if late is None else f"{late:.2%} of records",
        "rescales": f"{figures.rescales}  ({figures.moved_executors} executors moved)",
        "journal": str(journal),
        "page": str(out),
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
