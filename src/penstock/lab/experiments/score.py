"""What a run cost and how late its records were: the numbers by which policies are ranked.

The delay of a record is its departure minus its arrival. Records are served in order, so the
k-th to arrive is the k-th to depart, and the delay of every record follows exactly from the two
curves of an `Outcome`: between any two of their corners it is a straight line.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.core.errors import ConfigError
from penstock.settings.goal import Goal
from penstock.simulation.engines.engine import Curve, Level, Outcome

Array = NDArray[np.float64]


class Score(Struct, frozen=True):
    """The outcome of one run in numbers. Delays are over records, not over time."""

    executor_hours: float
    mean_executors: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    late_fraction: float
    rescales: int
    moved_executors: int
    cost: float


def score(outcome: Outcome, goal: Goal, max_executors: int) -> Score:
    """Rate a run after its warm-up, by the formula of `Goal`."""
    begin_s, end_s = goal.warmup_s, outcome.duration_s
    if end_s <= begin_s:
        raise ConfigError(
            f"a run of {end_s:.0f} s is not longer than the warm-up of {begin_s:.0f} s"
        )
    hours = (end_s - begin_s) / 3600.0
    executor_hours = executor_seconds(outcome.paid, begin_s, end_s) / 3600.0
    rescales, moved = moves(outcome.targets, begin_s)
    delays = Delays.of(outcome, begin_s)
    late = delays.fraction_above(goal.slo_s)
    p50, p95, p99 = delays.quantiles(0.5, 0.95, 0.99)
    late_cost = late * goal.late_price * max_executors * hours
    return Score(
        executor_hours=executor_hours,
        mean_executors=executor_hours / hours,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        max_s=delays.longest(),
        late_fraction=late,
        rescales=rescales,
        moved_executors=moved,
        cost=executor_hours * goal.executor_price + late_cost + moved * goal.move_price,
    )


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of all records as straight pieces: a number of records between two delays.

    Ten records arrive over 10 s and leave together at second 12: the first waited 12 s, the last
    2 s, and 40 % of them longer than 8 s.

    >>> arrivals = Curve([0.0, 10.0], [0.0, 10.0])
    >>> departures = Curve([0.0, 12.0, 12.0], [0.0, 0.0, 10.0])
    >>> delays = Delays.of(Outcome(12.0, arrivals, departures, [], []))
    >>> delays.longest(), delays.mean(), delays.fraction_above(8.0), delays.quantiles(0.5)
    (12.0, 7.0, 0.4, [7.0])
    """

    low_s: Array
    high_s: Array
    records: Array

    @classmethod
    def of(cls, outcome: Outcome, begin_s: float = 0.0) -> Delays:
        """The delays of the records that arrived from `begin_s` on; waiting ones count by age."""
        at, arrived = _arrays(outcome.arrivals)
        gone_at, gone = _arrays(outcome.departures)
        # A record that waits at the end counts as leaving then: its delay is its age.
        gone_at = np.append(gone_at, [outcome.duration_s, outcome.duration_s])
        gone = np.append(gone, [gone[-1], max(gone[-1], arrived[-1])])
        first = np.interp(begin_s, at, arrived)
        corners = np.unique(np.concatenate([arrived, gone, [first]]))
        corners = corners[(corners >= first) & (corners <= arrived[-1])]
        begin, end = corners[:-1], corners[1:]
        came, went = _when(at, arrived, begin, end), _when(gone_at, gone, begin, end)
        delay = np.maximum(went - came, 0.0)
        return cls(delay.min(axis=0), delay.max(axis=0), end - begin)

    def fraction_above(self, delay_s: float) -> float:
        total = self.records.sum()
        if total == 0.0:
            return 0.0
        span = self.high_s - self.low_s
        level = span < 1e-9
        share = np.where(
            level,
            self.high_s > delay_s + 1e-9,
            np.clip((self.high_s - delay_s) / np.where(level, 1.0, span), 0.0, 1.0),
        )
        return float((share * self.records).sum() / total)

    def quantiles(self, *fractions: float) -> list[float]:
        """The delays that these fractions of the records stay within, to a microsecond."""
        if self.records.sum() == 0.0:
            return [0.0 for _ in fractions]
        return [self._quantile(fraction) for fraction in fractions]

    def mean(self) -> float:
        total = float(self.records.sum())
        waited_s = float(((self.low_s + self.high_s) / 2.0 * self.records).sum())
        return waited_s / total if total else 0.0

    def longest(self) -> float:
        return float(self.high_s.max()) if len(self.high_s) else 0.0

    def _quantile(self, fraction: float) -> float:
        low, high = 0.0, self.longest()
        if self.fraction_above(0.0) <= 1.0 - fraction:
            return 0.0
        while high - low > 1e-6:
            middle = (low + high) / 2.0
            if self.fraction_above(middle) > 1.0 - fraction:
                low = middle
            else:
                high = middle
        return round(high, 6)


def _arrays(curve: Curve) -> tuple[Array, Array]:
    return np.asarray(curve.at_s, dtype=float), np.asarray(curve.records, dtype=float)


def _when(at_s: Array, records: Array, begin: Array, end: Array) -> Array:
    """When the curve passes the records `begin` (row 0) and `end` (row 1), seen from between.

    At a level piece of the curve the instant jumps: just above `begin` counts the end of it.
    """
    middle = (begin + end) / 2.0
    piece = np.clip(np.searchsorted(records, middle, side="right") - 1, 0, len(records) - 2)
    rise = records[piece + 1] - records[piece]
    slope = np.divide(
        at_s[piece + 1] - at_s[piece], rise, out=np.zeros_like(rise), where=rise > 0.0
    )
    return at_s[piece] + (np.stack([begin, end]) - records[piece]) * slope


def executor_seconds(paid: Sequence[Level], begin_s: float, end_s: float) -> float:
    """The integral of a number of executors that changes in steps."""
    total = 0.0
    for level, until in zip(paid, [*(later.at_s for later in paid[1:]), end_s], strict=True):
        span = min(until, end_s) - max(level.at_s, begin_s)
        total += max(0.0, span) * level.executors
    return total


def mean_level(levels: Sequence[Level], until_s: float) -> float:
    """The mean over time of a number that changes in steps.

    >>> mean_level([Level(0.0, 2), Level(60.0, 5)], until_s=90.0)
    3.0
    """
    return executor_seconds(levels, 0.0, until_s) / until_s


def moves(targets: Sequence[Level], begin_s: float = 0.0) -> tuple[int, int]:
    """How often the target changed from `begin_s` on, and by how many executors in all."""
    changes = [
        abs(later.executors - earlier.executors)
        for earlier, later in itertools.pairwise(targets)
        if later.at_s >= begin_s and later.executors != earlier.executors
    ]
    return len(changes), sum(changes)
