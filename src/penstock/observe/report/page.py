"""The page of one or several runs: figures, charts and decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from string import Template

from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.model import Step
from penstock.core.phrases import executors
from penstock.observe.formatting import amount, seconds
from penstock.observe.report import account
from penstock.observe.report.account import Account, Cost, DecisionRow, DelayShares
from penstock.observe.report.frame import figure, framed, template, tiles
from penstock.observe.report.series import (
    Foresight,
    RunSeries,
    SeriesLine,
    begin_s,
    foresight,
    lines,
    measured,
)
from penstock.settings.goal import Goal

#: More lines than this cannot be distinguished by colour.
MOST_JOURNALS = 8


class ReportedRun(Struct, frozen=True):
    """What the page shows of one journal."""

    name: str
    begin_s: float
    end_s: float
    account: Account
    cost: Cost
    delays: DelayShares
    lines: RunSeries
    telemetry: dict[str, SeriesLine]
    foresight: Foresight | None
    rows: list[DecisionRow]
    rows_left_out: int


class Summary(Struct, frozen=True):
    """The figures of one journal, for programs."""

    name: str
    account: Account
    cost: Cost
    forecast_error_fraction: float | None
    money: float | None = None


def page(
    journals: Sequence[tuple[str, Sequence[Step]]],
    *,
    title: str,
    slo_s: float,
    note: str = "",
    goal: Goal | None = None,
) -> str:
    """One self-contained HTML page of one or several runs, each given by its name and its steps.

    With the price of a `goal`, it says what they cost.

    >>> from penstock.core.model import Decision, Fleet, Reason, Snapshot
    >>> seen = Snapshot(0.0, Fleet(2, 2, 2), arrival_rps=900.0, delay_s=1.0)
    >>> step = Step(0.0, seen, Decision.of(2, Reason("right_size", "2 executors are right")))
    >>> html = page([("hpa", [step])], title="A quiet night", slo_s=10.0)
    >>> "<title>A quiet night</title>" in html, "2 executors are right" in html
    (True, True)
    """
    if not slo_s > 0.0:
        raise ConfigError(f"the SLO must be positive, not {slo_s:g} s")
    if not journals:
        raise ConfigError("there is no journal to report on")
    if len(journals) > MOST_JOURNALS:
        raise ConfigError(f"at most {MOST_JOURNALS} journals fit on one page, not {len(journals)}")
    runs = [_run(name, steps, slo_s) for name, steps in journals]
    body = Template(template("page.html")).substitute(
        note=f'<p class="note">{escape(note)}</p>' if note else "", facts=_facts(runs, slo_s, goal)
    )
    return framed(
        title,
        body,
        script="".join(map(template, ("charts.js", "decisions.js", "page.js"))),
        data={"slo_s": slo_s, "runs": runs},
        controls='<button type="button" id="unzoom" hidden>Whole run</button>',
    )


def summary(
    journals: Sequence[tuple[str, Sequence[Step]]], slo_s: float, goal: Goal | None = None
) -> list[Summary]:
    """The figures that the page shows of each journal."""
    found, price = [], goal.executor_price if goal is not None and goal.is_priced else None
    for name, steps in journals:
        run = _run(name, steps, slo_s)
        error = None if run.foresight is None else run.foresight.error_fraction
        money = None if price is None else run.account.executor_hours * price
        found.append(Summary(name, run.account, run.cost, error, money))
    return found


def _run(name: str, steps: Sequence[Step], slo_s: float) -> ReportedRun:
    if not steps:
        raise ConfigError(f"journal {name} holds no step")
    paid, waited, every = account.cost(steps), account.delays(steps), account.rows(steps)
    kept = account.weightiest(every)
    return ReportedRun(
        name=name,
        begin_s=begin_s(steps),
        end_s=steps[-1].at_s - begin_s(steps),
        account=account.figures(steps, every, paid, waited, slo_s),
        cost=paid,
        delays=waited.drawn(),
        lines=lines(steps),
        telemetry=measured(steps),
        foresight=foresight(steps),
        rows=kept,
        rows_left_out=len(every) - len(kept),
    )


def _facts(runs: Sequence[ReportedRun], slo_s: float, goal: Goal | None) -> str:
    """The figures as text: tiles for one run, a table for several."""
    facts: list[tuple[str, Callable[[Account], tuple[str, str]]]] = [
        ("executor-hours", lambda a: (f"{a.executor_hours:.3g}", f"mean {a.mean_executors:.1f}")),
        ("against its peak", _saved),
        ("late records", lambda a: (_share(a.late_fraction), f"waited over {slo_s:g} s")),
        ("median delay", _delay),
        ("longest delay", lambda a: (_seconds(a.max_s), "")),
        ("still waiting", _waiting),
        ("rescales", lambda a: (str(a.rescales), f"{executors(a.moved_executors)} moved")),
        ("trouble", lambda a: (f"{a.blind_turns} blind", f"{a.refused} refused")),
    ]
    if goal is not None and goal.is_priced:
        price = f"{goal.money(1.0)} per executor-hour"
        facts.insert(1, ("cost", lambda a: (goal.money(a.executor_hours), price)))
    if len(runs) == 1:
        return tiles((name, *of(runs[0].account)) for name, of in facts)
    head = "".join(
        f'<th scope="col"><span class="swatch c{index}"></span>{escape(run.name)}</th>'
        for index, run in enumerate(runs)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{figure(*of(run.account))}</td>" for run in runs)
        + "</tr>"
        for name, of in facts
    )
    return (
        '<div class="scroll"><table class="facts"><thead><tr><td></td>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _saved(figures: Account) -> tuple[str, str]:
    saved = figures.saved_fraction
    word = "less" if saved >= 0.0 else "more"
    return f"{abs(saved):.0%} {word}", f"than {figures.peak_executors} all the time"


def _delay(figures: Account) -> tuple[str, str]:
    if figures.p50_s is None:
        return "not measured", ""
    return _seconds(figures.p50_s), f"p95 {_seconds(figures.p95_s)}, p99 {_seconds(figures.p99_s)}"


def _waiting(figures: Account) -> tuple[str, str]:
    if figures.waiting_records is None:
        return "not measured", ""
    oldest = figures.waiting_s
    detail = f"the oldest for {seconds(oldest)}" if oldest and figures.waiting_records else ""
    return f"{amount(figures.waiting_records)} records", detail


def _share(fraction: float | None) -> str:
    return "not measured" if fraction is None else f"{fraction:.2%}"


def _seconds(value: float | None) -> str:
    return "not measured" if value is None else seconds(value)
