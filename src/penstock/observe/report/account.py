"""What a run decided, what it cost and how late it was, as far as its journal can tell.

The lab's `Score` knows every record; a journal knows how many were processed between two turns,
and the age of the oldest waiting record at each. Records are processed in the order in which they
arrive, so the delays of those between two turns range from the one age to the other. Records that
still wait at the end count with their age.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from math import ceil
from typing import Any, Literal

from msgspec import Struct

from penstock.core.model import Snapshot, Step
from penstock.observe.formatting import codes
from penstock.observe.report.series import begin_s

Kind = Literal["up", "down", "hold", "refused", "blind"]

#: The most rows on a page; holds are left out first.
MOST_ROWS = 3000
#: Ranges of delays are split into about this many points in all.
POINTS = 4000


class DecisionRow(Struct, frozen=True):
    """One or more equal decisions in a row; text, load and delay are those of the first."""

    at_s: float
    until_s: float
    turns: int
    kind: Kind
    before: int | None
    after: int
    wanted: int
    codes: tuple[str, ...]
    text: str
    load_rps: float | None
    delay_s: float | None


def kind_of(step: Step) -> Kind:
    """What a turn did with the fleet.

    >>> from penstock.core.model import Decision, Fleet, Reason, Receipt, Snapshot
    >>> seen = Snapshot(0.0, Fleet(4, 4, 4))
    >>> grow = Decision.of(6, Reason("load_rises", "load rises"))
    >>> [kind_of(Step(0.0, seen, grow, Receipt(accepted))) for accepted in (True, False)]
    ['up', 'refused']
    >>> kind_of(Step(0.0, None, grow))
    'blind'
    """
    if step.snapshot is None:
        return "blind"
    before, after = step.snapshot.fleet.target, step.decision.target_executors
    if before == after:
        return "hold"
    if step.receipt is not None and not step.receipt.accepted:
        return "refused"
    return "up" if after > before else "down"


def rows(steps: Sequence[Step]) -> list[DecisionRow]:
    """All decisions, oldest first; equal ones in a row are one row."""
    zero_s, found = begin_s(steps), []
    for (kind, before, after, wanted, names), group in groupby(steps, _key):
        equal = list(group)
        first, seen = equal[0], equal[0].snapshot
        at_s, until_s = round(first.at_s - zero_s, 2), round(equal[-1].at_s - zero_s, 2)
        measured = (None, None) if seen is None else (seen.arrival_rps, seen.delay_s)
        texts = [reason.text for reason in first.decision.reasons]
        if kind == "refused" and first.receipt is not None and first.receipt.text:
            texts.append(f"refused: {first.receipt.text}")
        decided = (kind, before, after, wanted, names, "; ".join(texts))
        found.append(DecisionRow(at_s, until_s, len(equal), *decided, *measured))
    return found


def _key(step: Step) -> tuple[Any, ...]:
    """What equal decisions have in common: kind, sizes before, after and wanted, codes."""
    decision, seen = step.decision, step.snapshot
    before = None if seen is None else seen.fleet.target
    sizes = (before, decision.target_executors, decision.wanted_executors)
    return (kind_of(step), *sizes, tuple(codes(decision)))


def weightiest(found: Sequence[DecisionRow], most: int = MOST_ROWS) -> list[DecisionRow]:
    """At most `most` rows, oldest first; the latest holds are left out first."""
    if len(found) <= most:
        return list(found)
    by_weight = sorted(range(len(found)), key=lambda place: (found[place].kind == "hold", place))
    return [found[place] for place in sorted(by_weight[:most])]


class DelayShares(Struct, frozen=True):
    """Delays in ascending order, and the share of records that stayed within each."""

    delay_s: list[float]
    fraction: list[float]

    def within(self, delay_s: float) -> float:
        """The share of records that waited at most `delay_s`."""
        place = bisect_right(self.delay_s, delay_s)
        if place == len(self.delay_s):
            return 1.0  # the sum of many shares falls short of 1 by rounding
        return self.fraction[place - 1] if place else 0.0

    def quantile(self, fraction: float) -> float | None:
        """The delay that this share of the records stayed within."""
        if not self.delay_s:
            return None
        place = bisect_left(self.fraction, fraction - 1e-9)
        return self.delay_s[min(place, len(self.delay_s) - 1)]

    def drawn(self, points: int = 200) -> DelayShares:
        """The same curve with fewer points: even in its height, and finer over the last percent."""
        if len(self.delay_s) <= 2 * points:
            return self
        wanted = [step / points for step in range(points)]
        wanted += [0.99 + 0.01 * step / points for step in range(points + 1)]
        last = len(self.delay_s) - 1
        found = {min(bisect_left(self.fraction, share - 1e-9), last) for share in wanted}
        places = sorted(found | {0, last})
        return DelayShares([self.delay_s[p] for p in places], [self.fraction[p] for p in places])


def delays(steps: Sequence[Step]) -> DelayShares:
    """How long records waited.

    The delay falls from 20 s to 0 s while 400 records are processed, and 100 wait at the end, the
    oldest for 10 s:

    >>> from penstock.core.model import Decision, Fleet, Reason
    >>> hold = Decision.of(2, Reason("right_size", "holding"))
    >>> def turn(at_s, delay_s, rps, backlog=0.0):
    ...     seen = Snapshot(at_s, Fleet(2, 2, 2), throughput_rps=rps, backlog_records=backlog,
    ...                     delay_s=delay_s)
    ...     return Step(at_s, seen, hold)
    >>> found = delays([turn(0.0, 20.0, 0.0), turn(10.0, 0.0, 40.0), turn(20.0, 10.0, 0.0, 100.0)])
    >>> found.within(10.0), round(found.quantile(1.0))
    (0.6, 20)
    """
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    measured = [each for each in seen if each.delay_s is not None]
    ranges = list(_ranges(measured))
    total = sum(records for *_, records in ranges)
    if total == 0.0:  # no record moved or no rate was measured: each turn counts alike
        ranges = [(each.delay_s or 0.0, each.delay_s or 0.0, 1.0) for each in measured]
        total = float(len(ranges))
    weighted = sorted(
        (begin_s + (part + 0.5) / parts * (end_s - begin_s), records / parts)
        for begin_s, end_s, records in ranges
        for parts in [1 if begin_s == end_s else ceil(POINTS * records / total)]
        for part in range(parts)
    )
    sums = accumulate(records for _, records in weighted)
    by_delay = {delay_s: upto / total for (delay_s, _), upto in zip(weighted, sums, strict=True)}
    return DelayShares(list(by_delay), list(by_delay.values()))


def processed(before: Snapshot, after: Snapshot) -> tuple[float, float, float]:
    """The delays of the records processed between two turns: of the first, of the last, how many.

    The first is the oldest that waited at the earlier turn, the last is a little older than the
    oldest that waits at the later one.
    """
    rps = after.throughput_rps if after.throughput_rps is not None else after.arrival_rps
    records = (rps or 0.0) * max(0.0, after.at_s - before.at_s)
    return before.delay_s or 0.0, after.delay_s or 0.0, records


def processed_by_query(
    before: Snapshot, after: Snapshot
) -> Iterator[tuple[float | None, tuple[float, float, float]]]:
    """`processed` of each query that counts, with its own SLO; of the whole job where it is one."""
    if not after.queries:
        yield None, processed(before, after)
        return
    earlier_s = {each.name: each.delay_s for each in before.queries if each.delay_s is not None}
    span_s = max(0.0, after.at_s - before.at_s)
    for each in after.queries:
        if not each.excluded and each.delay_s is not None:
            rps = each.arrival_rps if each.throughput_rps is None else each.throughput_rps
            first_s = earlier_s.get(each.name, each.delay_s)
            yield each.slo_s, (first_s, each.delay_s, (rps or 0.0) * span_s)


def share_above(slo_s: float, first_s: float, last_s: float) -> float:
    """The share of delays above the SLO, where they go evenly from the one to the other.

    >>> share_above(10.0, 5.0, 25.0), share_above(10.0, 12.0, 12.0), share_above(10.0, 3.0, 3.0)
    (0.75, 1.0, 0.0)
    """
    low_s, high_s = sorted((first_s, last_s))
    if low_s == high_s:
        return float(low_s > slo_s)
    return min(1.0, max(0.0, high_s - slo_s) / (high_s - low_s))


def late_fraction(seen: Sequence[Snapshot], waited: DelayShares, slo_s: float) -> float | None:
    """The share of late records, each measured against the SLO of its query."""
    if not any(each.queries for each in seen):
        return 1.0 - waited.within(slo_s) if waited.delay_s else None
    late = total = 0.0
    for before, after in pairwise(each for each in seen if each.delay_s is not None):
        for own_s, (first_s, last_s, records) in processed_by_query(before, after):
            total += records
            late += records * share_above(own_s or slo_s, first_s, last_s)
    return late / total if total else None


def _ranges(seen: Sequence[Snapshot]) -> Iterator[tuple[float, float, float]]:
    """`processed` between two turns each. Those that wait at the end count with their age."""
    if not seen:
        return
    for before, after in pairwise([seen[0], *seen]):
        yield processed(before, after)
    last = seen[-1]
    yield 0.0, last.delay_s or 0.0, last.backlog_records or 0.0


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

    Two executors for 10 s, then three are asked for and the third starts for another 10 s:

    >>> from penstock.core.model import Decision, Fleet, Reason
    >>> grow = Decision.of(3, Reason("load_rises", "load rises"))
    >>> fleets = [(0.0, Fleet(2, 2, 2)), (10.0, Fleet(3, 2, 2)), (20.0, Fleet(3, 3, 3))]
    >>> paid = cost([Step(at_s, Snapshot(at_s, fleet), grow) for at_s, fleet in fleets])
    >>> paid.executor_s, paid.starting_or_leaving_s, paid.peak_fleet_s
    (50.0, 10.0, 60.0)
    """
    executor_s = active_s = working_s = 0.0
    measured, peak = False, 0
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


def figures(
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
        late_fraction=late_fraction(seen, waited, slo_s),
        waiting_records=None if last is None else last.backlog_records,
        waiting_s=None if last is None else last.delay_s,
        rescales=len(moves),
        moved_executors=sum(abs(row.after - (row.before or 0)) for row in moves),
        refused=sum(row.turns for row in rows if row.kind == "refused"),
        blind_turns=sum(row.turns for row in rows if row.kind == "blind"),
    )
