"""Tells a surge of the load from its usual variation, and when a surge wakes the policy.

Each second between the jump of a load and the next turn is a second of backlog. So whoever counts
arrivals compares each second with those before it, and a policy with `wakes_on_surge` is asked at
once.

>>> usual = RateBaseline()
>>> for rate_rps in [100.0, 110.0, 95.0, 105.0, 100.0, 90.0, 105.0, 100.0]:
...     usual = usual.updated(rate_rps)
>>> usual.is_surge(140.0), usual.is_surge(400.0)
(False, True)

Producers that write in bursts vary all the time, and one more burst is no surge:

>>> usual = RateBaseline()
>>> for rate_rps in [0.0, 0.0, 300.0] * 6:
...     usual = usual.updated(rate_rps)
>>> usual.is_surge(300.0)
False
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import sqrt

from msgspec import Struct

#: A surge is at least this multiple of the mean, and this many standard deviations above it.
SURGE_RATIO = 1.25
SURGE_DEVIATIONS = 5.0
MIN_SAMPLES = 6  #: With fewer samples than this, nothing is a surge.
SAMPLE_WEIGHT = 0.05  #: The weight of a new sample: about the last twenty count.
#: The least time between two turns, and the time from the turn that a surge causes to the next:
#: the first sees only a part of the surge's first second.
LOOK_AGAIN_S = 2.0


class RateBaseline(Struct, frozen=True):
    """Mean and variance of the rates of the last seconds, each counted less than the next."""

    mean_rps: float = 0.0
    variance: float = 0.0
    samples: int = 0

    def updated(self, rate_rps: float) -> RateBaseline:
        fallen = min(self.mean_rps / SURGE_RATIO, self.mean_rps - self._far_rps)
        if self.samples >= MIN_SAMPLES and rate_rps < fallen:
            return RateBaseline(rate_rps, 0.0, 1)  # what was usual before says nothing of now
        weight = max(SAMPLE_WEIGHT, 1.0 / (self.samples + 1))
        off = rate_rps - self.mean_rps
        variance = (1.0 - weight) * (self.variance + weight * off * off)
        return RateBaseline(self.mean_rps + weight * off, variance, self.samples + 1)

    def is_surge(self, rate_rps: float) -> bool:
        limit = max(SURGE_RATIO * self.mean_rps, self.mean_rps + self._far_rps)
        return self.samples >= MIN_SAMPLES and rate_rps > limit

    @property
    def _far_rps(self) -> float:
        # Records that come one by one vary by the root of their number, however few were seen.
        return SURGE_DEVIATIONS * sqrt(max(self.variance, self.mean_rps))


def alarms_s(rates_rps: Iterable[float]) -> Iterator[float]:
    """The instants at which a surge is noticed: at the end of its first second.

    >>> list(alarms_s([100.0] * 9 + [300.0] * 9 + [100.0] * 30 + [300.0] * 2))
    [10.0, 49.0]
    """
    usual = RateBaseline()
    for second, rate_rps in enumerate(rates_rps, 1):
        if usual.is_surge(rate_rps):
            # Start over: a load that stays at its new rate is no second surge.
            usual = RateBaseline()
            yield float(second)
        else:
            usual = usual.updated(rate_rps)


def next_turn(
    turned_at_s: float, gap_s: float, every_s: float, surge_at_s: float
) -> tuple[float, float]:
    """When the next turn is due, and how long after it the one that follows it.

    A turn was taken at `turned_at_s`, and the regular next one is `gap_s` later. A surge causes one
    at once, but not sooner than `LOOK_AGAIN_S` after the last, and another `LOOK_AGAIN_S` later.

    >>> next_turn(60.0, 10.0, 10.0, surge_at_s=63.0)
    (63.0, 2.0)
    >>> next_turn(60.0, 10.0, 10.0, surge_at_s=60.5)
    (62.0, 2.0)
    >>> next_turn(62.0, 2.0, 10.0, surge_at_s=float("inf"))
    (64.0, 10.0)
    """
    regular_s = turned_at_s + gap_s
    woken_s = max(surge_at_s, turned_at_s + LOOK_AGAIN_S)
    return (woken_s, LOOK_AGAIN_S) if woken_s < regular_s else (regular_s, every_s)
