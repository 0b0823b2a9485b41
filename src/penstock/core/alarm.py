"""Tells a surge of the load from its usual swings, second by second.

A policy is asked every few seconds, and most of the time that is often enough. A load that jumps is
the exception: each second until somebody looks is a second of backlog. So whoever counts arrivals
also watches for a second that does not belong to those before, and a policy that wants to be woken
is asked at once.

>>> usual = RateBaseline()
>>> for rate_rps in [100.0, 110.0, 95.0, 105.0, 100.0, 90.0, 105.0, 100.0]:
...     usual = usual.updated(rate_rps)
>>> usual.is_surge(140.0), usual.is_surge(400.0)
(False, True)

Producers that write in bursts swing all the time, and one burst more is no news:

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

#: A surge is so much more than the mean, and so many deviations away from it.
MORE = 1.25
DEVIATIONS = 5.0
#: Before so many samples nobody knows what is usual.
ENOUGH = 6
#: About the last twenty samples count.
FORGET = 0.05
#: The least time between two turns, and the time to the second look at a surge: its first second
#: is only a part of one.
LOOK_AGAIN_S = 2.0


class RateBaseline(Struct, frozen=True):
    """Mean and variance of the rates of the last seconds, each counted less than the next."""

    mean_rps: float = 0.0
    variance: float = 0.0
    samples: int = 0

    def updated(self, rate_rps: float) -> RateBaseline:
        if self._is_fall(rate_rps):
            return RateBaseline(rate_rps, 0.0, 1)  # what was usual before tells nothing of now
        weight = max(FORGET, 1.0 / (self.samples + 1))
        off = rate_rps - self.mean_rps
        return RateBaseline(
            self.mean_rps + weight * off,
            (1.0 - weight) * (self.variance + weight * off * off),
            self.samples + 1,
        )

    def is_surge(self, rate_rps: float) -> bool:
        limit = max(MORE * self.mean_rps, self.mean_rps + self._far_rps)
        return self.samples >= ENOUGH and rate_rps > limit

    def _is_fall(self, rate_rps: float) -> bool:
        limit = min(self.mean_rps / MORE, self.mean_rps - self._far_rps)
        return self.samples >= ENOUGH and rate_rps < limit

    @property
    def _far_rps(self) -> float:
        # Records that come one by one swing by the root of their number, however few were seen.
        return DEVIATIONS * sqrt(max(self.variance, self.mean_rps))


def alarms_s(rates_rps: Iterable[float]) -> Iterator[float]:
    """The instants at which a surge is noticed: at the end of its first second.

    >>> list(alarms_s([100.0] * 9 + [300.0] * 9 + [100.0] * 30 + [300.0] * 2))
    [10.0, 49.0]
    """
    usual = RateBaseline()
    for second, rate_rps in enumerate(rates_rps, 1):
        if usual.is_surge(rate_rps):
            # What is usual begins anew: a load that stays there is no second surge.
            usual = RateBaseline()
            yield float(second)
        else:
            usual = usual.updated(rate_rps)
