"""Sudden rises of the load: how often they come, how high they go and how long they last.

No forecast of a level sees a burst coming, but a job that has seen a few knows that there will be
more. What was seen is a frozen `Surges` that a policy keeps in its memory: `watch` takes in one
measurement, and what a plan asks (how likely does one begin, or end, within the next seconds?) is
answered from those before.

Surges that come at random are as likely at any time. Where the times between them are alike they
follow Weibull's law with the mean and the spread that were seen; some belief stays with "at
random", the less the longer that has been right, in case that it stops. And there may be a clock
behind them, which is exact: how much that is believed is settled by Bayes' rule from how well each
span would have been foretold by those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, gamma, log, pi, sqrt

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: A rise is sudden if the load exceeds its calm level by this fraction, and by so many times the
#: most that it was off in the last hours.
RISE_FRACTION = 0.2
USUAL_FACTOR = 2.0
USUAL_S = 7200.0
#: How fast the calm level follows the load, in seconds.
FOLLOW_S = 40.0
#: So long after its begin a surge may still rise.
RISING_S = 60.0
#: What lasts longer is no surge but the new level.
LONGEST_S = 1200.0
#: A surge that on average stays below this part of its top is no plateau.
FLAT = 0.75
#: From so many surges on their shape is known.
ENOUGH = 3
#: How many surges are remembered, and for how long.
MOST = 16
MEMORY_S = 86_400.0
#: How likely the clock is to fail that has been right most often.
AT_RANDOM = 0.01
#: How far a clock's spans are from each other as they are seen, as a fraction: at first, and at
#: the least. And how likely there is one: before a second span has shown it, and at the most.
CLOCK = 0.04
CLOCK_LEAST = 0.01
CLOCK_FIRST = 0.3
CLOCK_MOST = 0.95
#: Times that spread by less than this fraction of their mean are taken for a clock's.
REGULAR = 0.45
#: One that was seen once comes again before it has stayed out twice as long with a chance of
#: 1 - 2 ** -ONCE, 3 %: insuring against it for hours would cost more than it would do.
ONCE = 0.05


class Surge(Struct, frozen=True, gc=False, array_like=True):
    """One that is over. `filled` is its mean rise as a fraction of the highest: 1 is a plateau."""

    began_s: float
    rise_rps: float
    lasted_s: float
    filled: float = 1.0


class Surges(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of the surges of a load.

    `began_s` is set while one is under way; then `top_rps` is its highest load so far, seen at
    `top_s`, and `area_records` what came beyond the calm level. `usual_rps` is the most that the
    load was off the calm level otherwise, slowly forgotten; `off_rps` how far it was off just now.
    `pace` is how long all time spans here are, 1 in earnest: a tenth where minutes stand for hours.
    """

    past: tuple[Surge, ...] = ()
    calm_rps: float = 0.0
    usual_rps: float = 0.0
    off_rps: float = 0.0
    last_rps: float = 0.0
    last_s: float | None = None
    began_s: float | None = None
    top_rps: float = 0.0
    top_s: float = 0.0
    area_records: float = 0.0
    pace: float = 1.0

    @property
    def recur(self) -> bool:
        """Whether there were some, and they were plateaus: no other shape can be reckoned with."""
        filled = sorted(surge.filled for surge in self.past)
        return bool(filled) and filled[len(filled) // 2] >= FLAT

    @property
    def shapeless(self) -> bool:
        """Whether enough were seen to know that they are no plateaus: forecasters do better."""
        return len(self.past) >= ENOUGH and not self.recur

    @property
    def rising(self) -> bool:
        """Whether one has just begun and was never higher than now."""
        if self.began_s is None or self.last_s is None:
            return False
        return self.last_s - self.began_s <= RISING_S * self.pace and self.top_s >= self.last_s

    def rise_rps(self) -> float:
        """By how much the next will rise: as much as most of those before."""
        rises = sorted(surge.rise_rps for surge in self.past)
        return rises[int(0.8 * (len(rises) - 1) + 0.5)] if rises else 0.0

    def spans_s(self) -> list[tuple[float, float]]:
        """From when to when the past ones lasted."""
        return [(surge.began_s, surge.began_s + surge.lasted_s) for surge in self.past]

    def begins(self, now_s: float, edges_s: Array) -> Array:
        """How likely one begins between each two of the edges (seconds from now), if none did."""
        begins = [surge.began_s for surge in self.past]
        if self.began_s is not None:
            begins.append(self.began_s)
        if not begins:
            return np.zeros(len(edges_s) - 1)
        gaps = [after - before for before, after in pairwise(begins)]
        return chances(gaps, max(0.0, now_s - begins[-1]), edges_s, self.pace)

    def ends(self, now_s: float, edges_s: Array) -> Array:
        """How likely the one that is under way, or one that begins now, ends between them."""
        age_s = 0.0 if self.began_s is None else max(0.0, now_s - self.began_s)
        return chances([surge.lasted_s for surge in self.past], age_s, edges_s, self.pace)


def chances(spans_s: Sequence[float], age_s: float, edges_s: Array, pace: float = 1.0) -> Array:
    """The chance of an event in each interval if it has not come before, from past spans.

    Five times it took ten minutes, so that it is due 600 s after the last:

    >>> chances([600.0] * 5, 480.0, np.array([0.0, 60.0, 120.0, 180.0])).round(2).tolist()
    [0.01, 0.43, 0.99]

    After one span of ten minutes it may be due, or not:

    >>> chances([600.0], 480.0, np.array([0.0, 60.0, 120.0, 180.0])).round(2).tolist()
    [0.04, 0.24, 0.41]

    Of spans that are not alike, only their mean counts, with the time that it has stayed out:

    >>> chances([60.0, 900.0, 300.0], 0.0, np.array([0.0, 42.0, 84.0])).round(3).tolist()
    [0.095, 0.095]
    """
    at = age_s + edges_s
    if not spans_s:
        held = np.maximum(at, 60.0 * pace)
        return np.asarray(1.0 - (held[:-1] / held[1:]) ** ONCE)
    count = len(spans_s)
    mean = max(1.0, sum(spans_s) / count)
    variance = sum((span - mean) ** 2 for span in spans_s) / max(1, count - 1)
    left = np.exp(-(age_s / mean + edges_s * count / (mean * count + age_s)))
    # Few that are alike may be so by chance.
    spread = max(0.03, sqrt(variance / mean**2 + 1.0 / count**3))
    if spread < REGULAR:
        random = max(AT_RANDOM, 0.5**count)
        left = random * left + (1.0 - random) * _weibull_left(at, mean, spread)
    clock = clock_belief(spans_s)
    # The longer it was watched, the better is known how exact it is.
    exact = max(CLOCK_LEAST, sqrt(variance / mean**2 + (CLOCK / count) ** 2))
    left = (1.0 - clock) * left + clock * _weibull_left(at, mean, exact)
    return np.asarray(1.0 - left[1:] / np.maximum(left[:-1], 1e-300))


def _weibull_left(at_s: Array, mean_s: float, spread: float) -> Array:
    """How likely it has not come by then, from Weibull's law of that mean and relative spread."""
    shape = spread**-1.086  # nearly
    scale = mean_s / gamma(1.0 + 1.0 / shape)
    return np.asarray(np.exp(-np.minimum(700.0, (at_s / scale) ** shape)))


def clock_belief(spans_s: Sequence[float]) -> float:
    """How likely a clock is behind the spans, rather than chance.

    Each is foretold from the mean of those before: as likely as a clock that is off by `CLOCK`
    would bring it, against an event that may come at any time.

    >>> [round(clock_belief(spans), 2) for spans in ([600], [600, 605], [600, 605, 300])]
    [0.3, 0.92, 0.0]
    """
    if not spans_s:
        return 0.0
    odds, total_s = log(CLOCK_FIRST / (1.0 - CLOCK_FIRST)), spans_s[0]
    for count, span_s in enumerate(spans_s[1:], 1):
        off = span_s * count / max(1.0, total_s) - 1.0
        exact = -0.5 * (off / CLOCK) ** 2 - log(CLOCK * sqrt(2.0 * pi))
        odds += exact - (-1.0 - off)
        total_s += span_s
    return min(CLOCK_MOST, 1.0 / (1.0 + exp(-max(-50.0, min(50.0, odds)))))


def watch(known: Surges, at_s: float, load_rps: float) -> Surges:
    """Take in one measurement of the load.

    >>> surges = Surges()
    >>> for turn, load in enumerate([80, 82, 79, 120, 121, 120, 80, 81]):
    ...     surges = watch(surges, 10.0 * turn, 1e3 * load)
    >>> [(one.began_s, one.lasted_s) for one in surges.past]
    [(20.0, 40.0)]
    """
    if known.last_s is None or not 0.0 < (gap_s := at_s - known.last_s) <= 600.0 * known.pace:
        return _calm_again(known, known.past, at_s, load_rps)
    known = replace(known, last_rps=load_rps, last_s=at_s)
    if known.began_s is None:
        return _while_calm(known, at_s, load_rps, gap_s)
    beyond_rps = max(0.0, load_rps - known.calm_rps)
    known = replace(known, area_records=known.area_records + gap_s * beyond_rps)
    if load_rps > known.top_rps:
        known = replace(known, top_rps=load_rps, top_s=at_s)
    rise_rps, lasted_s = known.top_rps - known.calm_rps, at_s - (known.began_s or 0.0)
    if beyond_rps >= 0.5 * rise_rps and lasted_s <= LONGEST_S * known.pace:
        return known
    filled = known.area_records / (rise_rps * lasted_s)
    over = Surge(known.began_s or 0.0, rise_rps, lasted_s, round(filled, 3))
    recent = [surge for surge in known.past if at_s - surge.began_s < MEMORY_S * known.pace]
    return _calm_again(known, (*recent, over)[-MOST:], at_s, load_rps)


def _calm_again(known: Surges, past: tuple[Surge, ...], at_s: float, load_rps: float) -> Surges:
    return Surges(
        past=past,
        calm_rps=load_rps,
        usual_rps=known.usual_rps,
        last_rps=load_rps,
        last_s=at_s,
        pace=known.pace,
    )


def _while_calm(known: Surges, at_s: float, load_rps: float, gap_s: float) -> Surges:
    calm_rps = known.calm_rps
    off_rps = load_rps - calm_rps
    limit_rps = max(RISE_FRACTION * calm_rps, USUAL_FACTOR * known.usual_rps)
    if known.past:
        # Whoever knows how high they rise knows one sooner.
        enough_rps = max(0.5 * RISE_FRACTION * calm_rps, 0.5 * known.rise_rps())
        limit_rps = min(limit_rps, enough_rps)
    if off_rps > limit_rps and load_rps > 1.0:
        return replace(
            known, off_rps=0.0, began_s=at_s - gap_s, top_rps=load_rps, top_s=at_s,
            area_records=gap_s * off_rps,
        )  # fmt: skip
    if off_rps < -limit_rps:
        return replace(known, calm_rps=load_rps)
    return replace(
        known,
        calm_rps=calm_rps + (1.0 - exp(-gap_s / (FOLLOW_S * known.pace))) * off_rps,
        # What comes just before a surge may be its beginning, so it counts a turn later.
        usual_rps=max(known.off_rps, known.usual_rps * exp(-gap_s / (USUAL_S * known.pace))),
        off_rps=abs(off_rps),
    )
