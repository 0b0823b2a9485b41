"""What waits at a source, from end offsets over time: arithmetic without a broker."""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from math import sqrt
from operator import itemgetter
from typing import TypeAlias

from msgspec import Struct

from penstock.core.model import TopicSample
from penstock.spark.sensor.progress import Partition

Offsets: TypeAlias = Mapping[Partition, int]

#: With more instants than this, or offsets in all of them, every second one of the older half is
#: dropped.
CURVE_INSTANTS, CURVE_OFFSETS = 1024, 500_000
#: Arrivals vary over this time; of fewer intervals than that nothing is said.
DISPERSION_S = 60.0
FEWEST_INTERVALS = 10


class SourceReading(Struct, frozen=True, repr_omit_defaults=True):
    """What waits at a source. ``None`` is not measured."""

    arrival_rps: float | None = None
    backlog_records: float | None = None
    delay_s: float | None = None
    mean_delay_s: float | None = None  #: Over partitions, of the oldest record in each.
    partition_backlog: tuple[int, ...] = ()  #: In order.
    arrival_cv2: float | None = None  #: How much arrivals vary.
    topics: tuple[TopicSample, ...] = ()  #: Without a query yet.


class ArrivalCounts:
    """How much arrivals vary: the index of dispersion of the counts of the last minute's seconds.

    It is the variance of the records per interval divided by their mean: 1 if records come
    independently of each other (Poisson), 0 if the same number comes in each interval. For arrivals
    with independent gaps it is the squared coefficient of variation of these, which formulas for
    queues ask for. The variance is taken from the differences of neighbours, so that a load that
    rises or falls over the minute does not count as variation.

    80 or 120 records per second: the mean is about 100, the variance 20 * 20.

    >>> counts = ArrivalCounts()
    >>> for second, records in enumerate([80, 120, 120, 80, 80, 120, 120, 80, 80, 120, 120]):
    ...     counts.add(second + 1.0, 1.0, records)
    >>> round(counts.cv2, 1)
    3.9
    """

    def __init__(self) -> None:
        self._intervals: deque[tuple[float, float, float]] = deque()

    def add(self, ended_at_s: float, seconds: float, records: float) -> None:
        """Add an interval; intervals may differ in length."""
        self._intervals.append((ended_at_s, seconds, records))
        while ended_at_s - self._intervals[0][0] > DISPERSION_S:
            self._intervals.popleft()

    @property
    def cv2(self) -> float | None:
        """``None`` after too few intervals, and if nothing arrives."""
        seconds = sum(each[1] for each in self._intervals)
        records = sum(each[2] for each in self._intervals)
        if len(self._intervals) < FEWEST_INTERVALS or records <= 0.0:
            return None
        expected = [(count, records / seconds * length) for _, length, count in self._intervals]
        off_mean = [(count - mean) / sqrt(mean) for count, mean in expected]
        squares = [(after - before) ** 2 for before, after in pairwise(off_mean)]
        return sum(squares) / (2 * len(squares))


class OffsetCurve:
    """End offsets over time, as far back as a record waits.

    >>> curve = OffsetCurve()
    >>> curve.add(100.0, {("bids", 0): 0, ("bids", 1): 0})
    >>> curve.add(110.0, {("bids", 0): 100, ("bids", 1): 50})

    The first 30 of partition 0 are processed: the next one came 7 s before the end.

    >>> processed = {("bids", 0): 30, ("bids", 1): 50}
    >>> curve.backlog(processed), curve.waiting_since_s(processed)
    ({('bids', 0): 70, ('bids', 1): 0}, {('bids', 0): 103.0})
    """

    def __init__(self) -> None:
        self._instants: list[tuple[float, Offsets]] = []

    def __len__(self) -> int:
        return len(self._instants)

    @property
    def last(self) -> tuple[float, Offsets] | None:
        return self._instants[-1] if self._instants else None

    @property
    def first(self) -> tuple[float, Offsets]:
        return self._instants[0]

    def add(self, at_s: float, ends: Offsets) -> None:
        """Add the end offsets of an instant, the newest or an earlier one."""
        place = bisect_right(self._instants, at_s, key=itemgetter(0))
        self._instants.insert(place, (at_s, ends))
        if len(self._instants) > max(16, min(CURVE_INSTANTS, CURVE_OFFSETS // (len(ends) or 1))):
            del self._instants[1 : len(self._instants) // 2 : 2]

    def forget_before(self, processed: Offsets) -> None:
        """Drop instants before the oldest waiting record, except the last of them."""
        del self._instants[: self._waits_after(processed)]

    def halfway_s(self, processed: Offsets) -> float:
        """The middle of the two instants between which the oldest waiting record came."""
        place = self._waits_after(processed)
        return (self._instants[place][0] + self._instants[place + 1][0]) / 2

    def _waits_after(self, processed: Offsets) -> int:
        """Which instant is the last at which no waiting record had come; 0 if none is."""
        kept = 0
        for place, (_, ends) in enumerate(self._instants[:-1]):
            if any(ends.get(name, 0) > offset for name, offset in processed.items()):
                break
            kept = place
        return kept

    def backlog(self, processed: Offsets) -> dict[Partition, int]:
        ends = self._instants[-1][1]
        return {
            name: max(0, ends[name] - offset) for name, offset in processed.items() if name in ends
        }

    def reaches(self, processed: Offsets) -> bool:
        """Whether it begins before the oldest waiting record came."""
        ends = self._instants[0][1]
        return all(ends.get(name, 0) <= offset for name, offset in processed.items())

    def waiting_since_s(self, processed: Offsets) -> dict[Partition, float]:
        """When the oldest waiting record of each partition came, or the curve began."""
        waiting = (name for name, records in self.backlog(processed).items() if records)
        return {name: self._passed_at_s(name, processed[name]) for name in waiting}

    def _passed_at_s(self, name: Partition, offset: int) -> float:
        """When the end of a partition passed an offset, interpolated between two instants."""
        place = bisect_right(self._instants, offset, key=lambda instant: instant[1].get(name, 0))
        after_s, after = self._instants[place]
        if place == 0:
            return after_s
        before_s, before = self._instants[place - 1]
        low, high = before.get(name, 0), after[name]
        return before_s + (offset - low) / (high - low) * (after_s - before_s)


def by_topic(backlog: Offsets, delays_s: Mapping[Partition, float]) -> tuple[TopicSample, ...]:
    """What waits at each topic: the sum over its partitions, the age of the oldest record.

    >>> backlog = {("bids", 0): 70, ("bids", 1): 0, ("asks", 0): 3}
    >>> [(each.topic, each.backlog_records, each.delay_s)
    ...  for each in by_topic(backlog, {("bids", 0): 7.0, ("asks", 0): 1.0})]
    [('asks', 3.0, 1.0), ('bids', 70.0, 7.0)]
    """
    found: dict[str, tuple[float, float]] = {}
    for name, records in backlog.items():
        sum_records, oldest_s = found.get(name[0], (0.0, 0.0))
        found[name[0]] = (sum_records + records, max(oldest_s, delays_s.get(name, 0.0)))
    return tuple(TopicSample("", topic, *found[topic]) for topic in sorted(found))
