"""What of a run is shown, on a screen and without one."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import cast

from rich.console import Console

from penstock.cli.views.demo_view import PlainView, draw, throughput_rps
from penstock.core.model import Decision, Fleet, Reason, Receipt, Snapshot, Step
from penstock.testbed.demo.attached import AttachedDemo
from penstock.testbed.demo.environment import DemoEnvironment
from penstock.testbed.demo.plan import DemoPlan

START_S = 1_700_000_000.0


@dataclass(frozen=True)
class Run(AttachedDemo):
    """A run on paper."""

    plan: DemoPlan = field(default_factory=lambda: DemoPlan("q11", 300))
    steps: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    environment: DemoEnvironment = field(default=cast(DemoEnvironment, None))


def turn(at_s: float, fleet: int, target: int, delay_s: float | None = 3.0) -> Step:
    seen = Snapshot(
        START_S + at_s,
        Fleet(fleet, fleet, fleet - 1),
        arrival_rps=2_345.0,
        throughput_rps=2_000.0,
        backlog_records=12_345.0,
        delay_s=delay_s,
    )
    wish = Decision.of(target, Reason("load_rises", f"2345 records/s need {target}"))
    return Step(START_S + at_s, seen, wish, None if fleet == target else Receipt(True))


def test_without_a_screen_there_is_a_line_every_five_seconds_and_one_for_each_rescale() -> None:
    run = Run(steps=[turn(0.0, 2, 2), turn(3.0, 2, 4), turn(6.0, 4, 4)])
    lines = PlainView(run).lines()
    assert [line[:8] for line in lines] == ["00:00:00", "00:00:03", "00:00:06"]
    assert lines[1] == "00:00:03   2 → 4  2345 records/s need 4"
    seen = "load 2.3 k/s done 2.0 k/s lag 12,345 delay 3.0 s"
    fleet = "executors 4 wanted 4 registered 3 working"
    assert " ".join(lines[2].split()) == f"00:00:06 {seen} {fleet}"


def test_each_line_is_told_once() -> None:
    run = Run(steps=[turn(0.0, 2, 2)], warnings=["lost executor 3"])
    view = PlainView(run)
    assert len(view.lines()) == 2
    assert view.lines() == []
    run.steps.append(turn(5.0, 2, 2))
    assert len(view.lines()) == 1


def test_a_refused_rescale_says_so() -> None:
    wish = Decision.of(3, Reason("load_rises", "load rises"))
    seen = Snapshot(START_S, Fleet(2, 2, 2))
    run = Run(steps=[Step(START_S, seen, wish, Receipt(False, "the cluster is full"))])
    assert PlainView(run).lines()[1].endswith("load rises (the cluster is full)")


def test_a_blind_turn_says_why() -> None:
    hold = Decision.of(2, Reason("sensor_blind", "holding: the driver does not answer"))
    line = PlainView(Run(steps=[Step(START_S, None, hold)])).lines()[0]
    assert line == "00:00:00  holding: the driver does not answer"


def test_throughput_is_a_mean_over_the_last_seconds_because_batches_come_in_lumps() -> None:
    def done(at_s: float, rps: float | None) -> Step:
        hold = Decision.of(1, Reason("right_size", "holding"))
        return Step(at_s, Snapshot(at_s, Fleet(1, 1, 1), throughput_rps=rps), hold)

    lumps = [done(0.0, None), done(5.0, 9_000.0), done(10.0, 0.0), done(15.0, 800.0)]
    assert throughput_rps(lumps) == 400.0  # the first 9,000 are longer ago
    assert throughput_rps(lumps[:1]) is None


def shown(run: Run, width: int) -> str:
    screen = Console(file=io.StringIO(), width=width, record=True)
    screen.print(draw(run, "penstock", 6.0, width))
    return screen.export_text()


def test_the_screen_shows_numbers_charts_decisions_and_that_records_wait() -> None:
    steps = [turn(0.0, 2, 2), turn(3.0, 2, 4), turn(6.0, 4, 4, delay_s=12.0)]
    text = shown(Run(steps=steps, warnings=["lost executor 3"]), 110)
    for told in (
        "penstock · q11 · 00:00:06 of 00:05:00",
        "2.3 k/s",
        "12,345 records",
        "12.0 s",
        "4 wanted  4 registered  3 working",
        "2 → 4   2345 records/s need 4",
        "lost executor 3",
        "each record waits 1 ms",
    ):
        assert told in text


def test_the_screen_can_be_narrow_and_the_run_empty() -> None:
    lines = shown(Run(), 60).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) == 60
