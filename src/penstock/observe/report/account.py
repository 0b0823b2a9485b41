"""What a run cost and how late it was, as far as its journal can tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from penstock.core.model import Snapshot, Step
from penstock.observe.report.decisions import DecisionRow
from penstock.observe.report.delays import DelayShares


class Cost(Struct, frozen=True):
    """Executor-seconds by what they were spent on, and those of a fleet as large as the peak.

    `working_s` and `idle_s` are ``None`` where no executor's busy fraction was measured.
    """

    executor_s: float
    working_s: float | None
    idle_s: float | None
    starting_or_leaving_s: float
    peak_executors: int
    peak_fleet_s: float


class Account(Struct, frozen=True):
    """The figures of one run.

    `waiting_records` is what still waits at the last turn that measured it, `waiting_s` the age of
    the oldest of them.
    """

    turns: int
    span_s: float
    executor_hours: float
    mean_executors: float
    peak_executors: int
    saved_fraction: float
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None
    late_fraction: float | None
    waiting_records: float | None
    waiting_s: float | None
    rescales: int
    moved_executors: int
    refused: int
    blind_turns: int


def cost(steps: Sequence[Step]) -> Cost:
    """The executor-seconds of a run.

    An executor is paid for from its request until it is gone. What was seen at a turn holds until
    the next one; through a blind turn, what was seen last.

    Examples
    --------
    Two executors for 10 s, then three are asked for and the third starts for another 10 s:

    >>> from penstock.core.model import Decision, Fleet, Reason
    >>> grow = Decision.of(3, Reason("load_rises", "load rises"))
    >>> fleets = [(0.0, Fleet(2, 2, 2)), (10.0, Fleet(3, 2, 2)), (20.0, Fleet(3, 3, 3))]
    >>> paid = cost([Step(at_s, Snapshot(at_s, fleet), grow) for at_s, fleet in fleets])
    >>> paid.executor_s, paid.starting_or_leaving_s, paid.peak_fleet_s
    (50.0, 10.0, 60.0)
    """
    executor_s = active_s = working_s = 0.0
    measured = False
    peak = 0
    seen: Snapshot | None = None
    for step, later in pairwise([*steps, steps[-1]]):
        seen = seen if step.snapshot is None else step.snapshot
        if seen is None:
            continue
        fleet, span_s = seen.fleet, max(0.0, later.at_s - step.at_s)
        peak = max(peak, fleet.target)
        executor_s += max(fleet.target, fleet.registered) * span_s
        active_s += fleet.active * span_s
        busy = [one.busy_fraction for one in seen.executors if one.busy_fraction is not None]
        if busy:
            measured = True
            working_s += min(float(fleet.active), sum(busy)) * span_s
    return Cost(
        executor_s=executor_s,
        working_s=working_s if measured else None,
        idle_s=active_s - working_s if measured else None,
        starting_or_leaving_s=executor_s - active_s,
        peak_executors=peak,
        peak_fleet_s=peak * (steps[-1].at_s - steps[0].at_s),
    )


def account(
    steps: Sequence[Step],
    rows: Sequence[DecisionRow],
    paid: Cost,
    waited: DelayShares,
    slo_s: float,
) -> Account:
    """The figures of a run, from what was counted of it."""
    span_s = steps[-1].at_s - steps[0].at_s
    moves = [row for row in rows if row.kind in ("up", "down")]
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    last = next((each for each in reversed(seen) if each.backlog_records is not None), None)
    return Account(
        turns=len(steps),
        span_s=span_s,
        executor_hours=paid.executor_s / 3600.0,
        mean_executors=paid.executor_s / span_s if span_s > 0.0 else float(paid.peak_executors),
        peak_executors=paid.peak_executors,
        saved_fraction=1.0 - paid.executor_s / paid.peak_fleet_s if paid.peak_fleet_s else 0.0,
        p50_s=waited.quantile(0.5),
        p95_s=waited.quantile(0.95),
        p99_s=waited.quantile(0.99),
        max_s=waited.delay_s[-1] if waited.delay_s else None,
        late_fraction=1.0 - waited.within(slo_s) if waited.delay_s else None,
        waiting_records=None if last is None else last.backlog_records,
        waiting_s=None if last is None else last.delay_s,
        rescales=len(moves),
        moved_executors=sum(abs(row.after - (row.before or 0)) for row in moves),
        refused=sum(row.turns for row in rows if row.kind == "refused"),
        blind_turns=sum(row.turns for row in rows if row.kind == "blind"),
    )
