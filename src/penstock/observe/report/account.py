"""What a run cost and how late it was, as far as its journal can tell.

The lab's `Score` knows every record; a journal knows the delay of the oldest waiting record at
each turn. So the delays here are estimates: a record counts with the age of the oldest waiting
one at the turn in which it was processed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from penstock.core.model import Fleet, Snapshot, Step
from penstock.observe.report.decisions import DecisionRow


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


class DelayShares(Struct, frozen=True):
    """Delays in ascending order, and the share of records that stayed within each."""

    delay_s: list[float]
    fraction: list[float]

    def within(self, delay_s: float) -> float:
        """The share of records that waited at most `delay_s`."""
        place = bisect_right(self.delay_s, delay_s)
        return self.fraction[place - 1] if place else 0.0

    def quantile(self, fraction: float) -> float | None:
        """The delay that this share of the records stayed within."""
        if not self.delay_s:
            return None
        # Sums of many shares fall short of 1 by rounding.
        place = bisect_left(self.fraction, fraction - 1e-9)
        return self.delay_s[min(place, len(self.delay_s) - 1)]

    def drawn(self, points: int = 200) -> DelayShares:
        """The same curve with fewer points: even in its height, and finer over the last percent."""
        if len(self.delay_s) <= 2 * points:
            return self
        wanted = [step / points for step in range(points)]
        wanted += [0.99 + 0.01 * step / points for step in range(points + 1)]
        places = sorted({bisect_left(self.fraction, share - 1e-9) for share in wanted} | {0})
        last = len(self.delay_s) - 1
        places = sorted({min(place, last) for place in places} | {last})
        return DelayShares([self.delay_s[p] for p in places], [self.fraction[p] for p in places])


class Account(Struct, frozen=True):
    """The figures of one run."""

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

    >>> from penstock.core.model import Decision, Reason
    >>> wish = Decision.of(3, Reason("load_rises", "load rises"))
    >>> fleets = [(0.0, Fleet(2, 2, 2)), (10.0, Fleet(3, 2, 2)), (20.0, Fleet(3, 3, 3))]
    >>> paid = cost([Step(at_s, Snapshot(at_s, fleet), wish) for at_s, fleet in fleets])
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
        executor_s += _paid(fleet) * span_s
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


def delays(steps: Sequence[Step]) -> DelayShares:
    """How long records waited, each turn with the weight of the records it processed.

    >>> from penstock.core.model import Decision, Reason
    >>> hold = Decision.of(2, Reason("right_size", "holding"))
    >>> def turn(at_s, rps, delay_s):
    ...     seen = Snapshot(at_s, Fleet(2, 2, 2), throughput_rps=rps, delay_s=delay_s)
    ...     return Step(at_s, seen, hold)
    >>> found = delays([turn(0.0, 10.0, 1.0), turn(10.0, 30.0, 5.0), turn(20.0, 40.0, 20.0)])
    >>> found.delay_s, found.fraction, found.within(10.0)
    ([1.0, 5.0, 20.0], [0.125, 0.5, 1.0], 0.5)
    """
    gaps = [later.at_s - step.at_s for step, later in pairwise(steps)]
    gaps = [gaps[0] if gaps else 1.0, *gaps]
    weighed: list[tuple[float, float]] = []
    for step, gap_s in zip(steps, gaps, strict=True):
        seen = step.snapshot
        if seen is not None and seen.delay_s is not None:
            rps = seen.throughput_rps if seen.throughput_rps is not None else seen.arrival_rps
            weighed.append((seen.delay_s, (rps or 0.0) * max(0.0, gap_s)))
    weighed.sort()
    if not weighed:
        return DelayShares([], [])
    total = sum(weight for _, weight in weighed)
    if total == 0.0:  # no record moved or no rate was measured: each turn counts alike
        weighed = [(delay_s, 1.0) for delay_s, _ in weighed]
        total = float(len(weighed))
    sums = accumulate(weight for _, weight in weighed)
    by_delay = {delay_s: upto / total for (delay_s, _), upto in zip(weighed, sums, strict=True)}
    return DelayShares(list(by_delay), list(by_delay.values()))


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
        rescales=len(moves),
        moved_executors=sum(abs(row.after - (row.before or 0)) for row in moves),
        refused=sum(row.turns for row in rows if row.kind == "refused"),
        blind_turns=sum(row.turns for row in rows if row.kind == "blind"),
    )


def _paid(fleet: Fleet) -> int:
    return max(fleet.target, fleet.registered)
