"""How long records waited, as far as a journal can tell.

The lab's `Score` knows every record; a journal knows how many were processed between two turns,
and the age of the oldest waiting record at each. Records are processed in the order in which they
arrive, so the delays of those between two turns range from the one age to the other. Records that
still wait at the end count with their age.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil

from msgspec import Struct

from penstock.core.model import Snapshot, Step

#: Ranges of delays are split into about this many points in all.
POINTS = 4000


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


def _ranges(seen: Sequence[Snapshot]) -> Iterator[tuple[float, float, float]]:
    """The delays of the records processed between two turns: of the first, of the last, how many.

    The first is the oldest that waited at the earlier turn, the last is a little older than the
    oldest that waits at the later one. Those that wait at the end count with their age.
    """
    if not seen:
        return
    for before, after in pairwise([seen[0], *seen]):
        rps = after.throughput_rps if after.throughput_rps is not None else after.arrival_rps
        records = (rps or 0.0) * max(0.0, after.at_s - before.at_s)
        yield before.delay_s or 0.0, after.delay_s or 0.0, records
    last = seen[-1]
    yield 0.0, last.delay_s or 0.0, last.backlog_records or 0.0
