"""Sudden rises of the load: how often they come, how high they go and how long they last.

No forecast of a level predicts a burst, but a job that has seen a few knows that there will be
more. What was seen is a frozen `Surges` that a policy keeps in its memory: `watch` takes in one
measurement, and the chance that a surge begins or ends in the next seconds follows from the past.

Surges that come at random are as likely at any time. Where the times between them are similar they
follow Weibull's law with the mean and the deviation that were seen; some weight stays with "at
random", less the longer the regularity has held. And there may be a clock behind them, which is
exact: its probability follows by Bayes' rule from how well each interval is predicted by those
before it.

All time spans are for bins of `BIN_S`; with other bins they are `pace` times as long.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import exp, gamma, log, pi, sqrt

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

Array = NDArray[np.float64]

BIN_S = 30.0  #: The bins of a load whose surges last for minutes.
#: A rise is sudden if the load exceeds its calm level by this fraction, and by this many times the
#: largest deviation of the last hours.
RISE_FRACTION, USUAL_FACTOR, USUAL_S = 0.2, 2.0, 7200.0
FOLLOW_S = 40.0  #: How fast the calm level follows the load, in seconds.
RISING_S = 60.0  #: A surge may rise for this long.
LONGEST_S = 1200.0  #: What lasts longer is no surge but the new level.
LONGEST_GAP_S = 600.0  #: After a longer gap between two measurements the load is taken to be calm.
FLAT = 0.75  #: A surge whose mean rise is below this part of its highest is no plateau.
ENOUGH = 3  #: After this many surges their shape is known.
#: How many surges are remembered, and for how long.
MOST, MEMORY_S = 16, 86_400.0
AT_RANDOM = 0.01  #: The least probability of "at random", however regular surges have been.
#: The relative deviation of a clock's intervals as they are seen: at first, and at the least. And
#: the probability of a clock: before a second interval confirms it, and at the most.
CLOCK, CLOCK_LEAST, CLOCK_FIRST, CLOCK_MOST = 0.04, 0.01, 0.3, 0.95
REGULAR = 0.45  #: Intervals with a smaller relative deviation are regular.
#: A surge seen once comes again before its age has doubled with a chance of 1 - 2 ** -ONCE, 3 %:
#: to insure against it for hours would cost more than it saves.
ONCE = 0.05


class Surge(Struct, frozen=True, gc=False, array_like=True):
    """One that is over. `filled` is its mean rise as a fraction of the highest: 1 is a plateau."""

    began_s: float
    rise_rps: float
    lasted_s: float
    filled: float = 1.0


class Surges(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of the surges of a load."""

    past: tuple[Surge, ...] = ()
    calm_rps: float = 0.0
    usual_rps: float = 0.0  #: The largest deviation from the calm level, slowly forgotten.
    off_rps: float = 0.0  #: The last deviation.
    last_rps: float = 0.0
    last_s: float | None = None
    began_s: float | None = None  #: Set during a surge, as what follows.
    top_rps: float = 0.0  #: The highest load so far, at `top_s`.
    top_s: float = 0.0
    area_records: float = 0.0  #: What came beyond the calm level.

    @property
    def recur(self) -> bool:
        """Whether there were surges, and they were plateaus: no other shape can be planned for."""
        filled = sorted(surge.filled for surge in self.past)
        return bool(filled) and filled[len(filled) // 2] >= FLAT

    @property
    def shapeless(self) -> bool:
        """Whether enough were seen to know that they are no plateaus: forecasters do better."""
        return len(self.past) >= ENOUGH and not self.recur

    def is_rising(self, pace: float = 1.0) -> bool:
        """Whether a surge has just begun and its load was never higher than now."""
        if self.began_s is None or self.last_s is None:
            return False
        return self.last_s - self.began_s <= RISING_S * pace and self.top_s >= self.last_s

    def rise_rps(self) -> float:
        """By how much the next will rise: as much as most of those before."""
        rises = sorted(surge.rise_rps for surge in self.past)
        return rises[int(0.8 * (len(rises) - 1) + 0.5)] if rises else 0.0

    def begins(self, now_s: float, edges_s: Array, pace: float = 1.0) -> Array:
        """The chance that one begins between two edges (seconds from now), if none did before."""
        present = () if self.began_s is None else (self.began_s,)
        begins = [*(surge.began_s for surge in self.past), *present]
        if not begins:
            return np.zeros(len(edges_s) - 1)
        gaps = [after - before for before, after in pairwise(begins)]
        return chances(gaps, max(0.0, now_s - begins[-1]), edges_s, pace)

    def ends(self, now_s: float, edges_s: Array, pace: float = 1.0) -> Array:
        """The chance that the present one, or one that begins now, ends between two edges."""
        age_s = 0.0 if self.began_s is None else max(0.0, now_s - self.began_s)
        return chances([surge.lasted_s for surge in self.past], age_s, edges_s, pace)


def chances(spans_s: Sequence[float], age_s: float, edges_s: Array, pace: float = 1.0) -> Array:
    """The chance of an event in each interval if it has not come before, from past spans.

    Five times it took ten minutes, so that it is due 600 s after the last:

    >>> chances([600.0] * 5, 480.0, np.array([0.0, 60.0, 120.0, 180.0])).round(2).tolist()
    [0.01, 0.43, 0.99]

    After one span of ten minutes it may be due, or not:

    >>> chances([600.0], 480.0, np.array([0.0, 60.0, 120.0, 180.0])).round(2).tolist()
    [0.04, 0.24, 0.41]

    Of irregular spans only the mean counts, and the time since the last event.
    """
    at = age_s + edges_s
    if not spans_s:
        held = np.maximum(at, 60.0 * pace)
        return np.asarray(1.0 - (held[:-1] / held[1:]) ** ONCE)
    count = len(spans_s)
    mean = max(1.0, sum(spans_s) / count)
    variance = sum((span - mean) ** 2 for span in spans_s) / max(1, count - 1)
    left = np.exp(-(age_s / mean + edges_s * count / (mean * count + age_s)))
    # A few similar spans may be similar by chance.
    deviation = max(0.03, sqrt(variance / mean**2 + 1.0 / count**3))
    if deviation < REGULAR:
        random = max(AT_RANDOM, 0.5**count)
        left = random * left + (1.0 - random) * _weibull_left(at, mean, deviation)
    clock = clock_belief(spans_s)
    # The more spans were seen, the better its exactness is known.
    exact = max(CLOCK_LEAST, sqrt(variance / mean**2 + (CLOCK / count) ** 2))
    left = (1.0 - clock) * left + clock * _weibull_left(at, mean, exact)
    return np.asarray(1.0 - left[1:] / np.maximum(left[:-1], 1e-300))


def _weibull_left(at_s: Array, mean_s: float, deviation: float) -> Array:
    """The chance that it has not come by then, by Weibull's law of that mean and deviation."""
    shape = deviation**-1.086  # nearly
    scale = mean_s / gamma(1.0 + 1.0 / shape)
    return np.asarray(np.exp(-np.minimum(700.0, (at_s / scale) ** shape)))


def clock_belief(spans_s: Sequence[float]) -> float:
    """The probability that a clock is behind the spans, rather than chance.

    Each span is compared with the mean of those before: how likely it is for a clock that is off by
    `CLOCK`, against an event that may come at any time.

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


def watch(known: Surges, at_s: float, load_rps: float, pace: float = 1.0) -> Surges:
    """Take in one measurement of the load: a surge is over when half of its rise is gone."""
    if known.last_s is None or not 0.0 < (gap_s := at_s - known.last_s) <= LONGEST_GAP_S * pace:
        return _calm_again(known, known.past, at_s, load_rps)
    known = replace(known, last_rps=load_rps, last_s=at_s)
    if (began_s := known.began_s) is None:
        return _while_calm(known, at_s, load_rps, gap_s, pace)
    beyond_rps = max(0.0, load_rps - known.calm_rps)
    known = replace(known, area_records=known.area_records + gap_s * beyond_rps)
    if load_rps > known.top_rps:
        known = replace(known, top_rps=load_rps, top_s=at_s)
    rise_rps, lasted_s = known.top_rps - known.calm_rps, at_s - began_s
    if beyond_rps >= 0.5 * rise_rps and lasted_s <= LONGEST_S * pace:
        return known
    filled = known.area_records / (rise_rps * lasted_s)
    over = Surge(began_s, rise_rps, lasted_s, round(filled, 3))
    recent = [surge for surge in known.past if at_s - surge.began_s < MEMORY_S * pace]
    return _calm_again(known, (*recent, over)[-MOST:], at_s, load_rps)


def _calm_again(known: Surges, past: tuple[Surge, ...], at_s: float, load_rps: float) -> Surges:
    return Surges(past, load_rps, known.usual_rps, last_rps=load_rps, last_s=at_s)


def _while_calm(known: Surges, at_s: float, load_rps: float, gap_s: float, pace: float) -> Surges:
    calm_rps, off_rps = known.calm_rps, load_rps - known.calm_rps
    limit_rps = max(RISE_FRACTION * calm_rps, USUAL_FACTOR * known.usual_rps)
    if known.past:
        # A surge is recognized sooner where it is known how high they rise.
        limit_rps = min(limit_rps, 0.5 * max(RISE_FRACTION * calm_rps, known.rise_rps()))
    if off_rps > limit_rps and load_rps > 1.0:
        area_records, began_s = gap_s * off_rps, at_s - gap_s
        begun = replace(known, off_rps=0.0, began_s=began_s, area_records=area_records)
        return replace(begun, top_rps=load_rps, top_s=at_s)
    if off_rps < -limit_rps:
        return replace(known, calm_rps=load_rps)
    return replace(
        known,
        calm_rps=calm_rps + (1.0 - exp(-gap_s / (FOLLOW_S * pace))) * off_rps,
        # A deviation just before a surge may be its beginning, so it counts a turn later.
        usual_rps=max(known.off_rps, known.usual_rps * exp(-gap_s / (USUAL_S * pace))),
        off_rps=abs(off_rps),
    )
