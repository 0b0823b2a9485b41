"""What the load does at this time of day: learned over days, used as far as it has proved better.

A day is 96 quarters of an hour, and each weekday has a level. From now on the load is expected to
change as those quarters do. How well that would have done a quarter of an hour ahead, and how well
the forecast from the last hours did, is counted as time passes; the better one weighs more.

Days are those of UTC: when clocks change, the shape is an hour off until it is learned again.
"""

from __future__ import annotations

from math import floor, inf

from msgspec import Struct
from msgspec.structs import replace

from penstock.policies.penstock.forecasters import Forecast

SLOT_S = 900.0
SLOTS = 96
DAY_S = SLOT_S * SLOTS
NEW = 0.4  #: The weight of a new day.
TRIED = 1 / 48  #: The weight of one quarter of an hour in what the errors are: half a day.
#: Nothing is expected before this part of a day was seen and then tried.
SEEN, TRIALS = 0.9, 24
BETTER = 0.95  #: Errors have to be this much smaller to count.


class Days(Struct, frozen=True, gc=False, omit_defaults=True):
    """Means of the quarters of a day, -1 where none was seen, and a level of each weekday."""

    means: tuple[float, ...] = ()
    levels: tuple[float, ...] = (1.0,) * 7
    slot: int = -1  #: The quarter that has begun, with `total` and `count`.
    total: float = 0.0
    count: int = 0
    shape_rps: float = -1.0  #: What was expected of it, as `plain_rps`.
    plain_rps: float = -1.0
    shape_error: float = 0.0  #: How far off that was lately, as `plain_error`.
    plain_error: float = 0.0
    trials: int = 0

    @property
    def is_better(self) -> bool:
        """Whether the time of day has told more than the last hours."""
        return self.trials >= TRIALS and self.shape_error < BETTER * self.plain_error

    def expected_rps(self, at_s: float) -> float | None:
        """The usual load at a moment, between the middles of two quarters."""
        place = at_s / SLOT_S - 0.5
        low = floor(place)
        ends = [self._usual_rps(slot) for slot in (low, low + 1)]
        if ends[0] is None or ends[1] is None:
            return None
        return ends[0] + (ends[1] - ends[0]) * (place - low)

    def _usual_rps(self, slot: int) -> float | None:
        if not self.means or (mean := self.means[slot % SLOTS]) < 0.0:
            return None
        return mean * self.levels[slot // SLOTS % 7]

    def observed(self, at_s: float, load_rps: float, plain: Forecast, bin_s: float) -> Days:
        """With one more measurement; `plain` is the forecast from the last hours."""
        slot = floor(at_s / SLOT_S)
        if slot == self.slot:
            return replace(self, total=self.total + load_rps, count=self.count + 1)
        known = self if self.slot < 0 or not self.count else self._finished()
        # What is expected of this quarter, seen from its beginning: the middle of it.
        ahead = min(len(plain.mean) - 1, int(0.5 * SLOT_S / bin_s))
        usual = known.relative(at_s, load_rps, [0.5 * SLOT_S])
        return replace(
            known,
            slot=slot,
            total=load_rps,
            count=1,
            shape_rps=-1.0 if usual is None else usual[0],
            plain_rps=plain.mean[ahead],
        )

    def _finished(self) -> Days:
        """With the quarter that is over: its mean, and who expected it."""
        mean_rps, place, day = self.total / self.count, self.slot % SLOTS, self.slot // SLOTS % 7
        means = list(self.means or (-1.0,) * SLOTS)
        level = self.levels[day]
        before = means[place]
        levels = list(self.levels)
        if before < 0.0:
            means[place] = rounded(mean_rps / level)
        else:
            means[place] = rounded(before + NEW * (mean_rps / level - before))
            if before > 0.0:
                levels[day] = rounded(level + NEW / SLOTS * (mean_rps / before - level), 6)
        known = replace(self, means=tuple(means), levels=tuple(levels))
        if self.shape_rps < 0.0 or mean_rps <= 0.0:
            return known
        weight = max(TRIED, 1.0 / (self.trials + 1))
        errors = [abs(each / mean_rps - 1.0) for each in (self.shape_rps, self.plain_rps)]
        return replace(
            known,
            shape_error=self.shape_error + weight * (errors[0] - self.shape_error),
            plain_error=self.plain_error + weight * (errors[1] - self.plain_error),
            trials=self.trials + 1,
        )

    def relative(self, at_s: float, load_rps: float, ahead_s: list[float]) -> list[float] | None:
        """The load at these distances if it changes from now on as it usually does."""
        seen = sum(mean >= 0.0 for mean in self.means)
        now = self.expected_rps(at_s) if seen >= SEEN * SLOTS else None
        if now is None or now <= 0.0:
            return None
        found = []
        for each_s in ahead_s:
            later = self.expected_rps(at_s + each_s)
            if later is None:
                return None
            found.append(load_rps * later / now)
        return found

    def improved(self, at_s: float, load_rps: float, plain: Forecast, bin_s: float) -> Forecast:
        """The forecast with what the time of day says, if that has proved better."""
        if not self.is_better:
            return plain
        middles_s = [(place + 0.5) * bin_s for place in range(len(plain.mean))]
        usual = self.relative(at_s, load_rps, middles_s)
        if usual is None:
            return plain
        # Each counts by how small its errors are, the more the further ahead.
        share = self.plain_error**2 / max(1e-12, self.plain_error**2 + self.shape_error**2)
        mean, deviation = [], []
        for place, (own, other) in enumerate(zip(plain.mean, usual, strict=True)):
            part = share * min(1.0, (place + 1) * bin_s / (0.5 * SLOT_S))
            mean.append(own + part * (other - own))
            smaller = 1.0 - part * (1.0 - self.shape_error / self.plain_error)
            deviation.append(plain.deviation[place] * smaller)
        return Forecast(mean, deviation, f"{plain.model} and the time of day")


def rounded(value: float, digits: int = 4) -> float:
    """A few digits are enough: all of this is in each line of a journal.

    >>> rounded(12345.678), rounded(0.98765432, 6)
    (12350, 0.987654)
    """
    short = float(f"{value:.{digits}g}")
    return int(short) if 1e3 <= abs(short) < inf and short.is_integer() else short
