"""Records that arrive, wait and depart, first in, first out.

A `RecordStream` holds the arrivals of a run, one rate per second. Records depart at the capacity
that it is given while any wait and as they arrive while none does, so departures are a polyline. It
is exact, with its bends inside a second too.

>>> stream = RecordStream([10.0, 30.0, 0.0, 0.0], swings(4, deviation=0.0, seed=1))
>>> stream.run_on(4.0, can_rps=20.0)
>>> stream.departures()
Curve(at_s=[0.0, 1.0, 2.0, 2.5, 3.0, 4.0], records=[0.0, 10.0, 30.0, 40.0, 40.0, 40.0])
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from penstock.simulation.engines.engine import Curve

#: Swings beyond this many standard deviations do not occur, and capacity never falls to nothing.
_MAX_SWING = 3.0
_MIN_CAPACITY_FRACTION = 0.05

_LOOK_AHEAD_S = 120  #: How far to look for the end of a calm, beyond what is asked for.


#: The relative capacity in each second, and the lowest of all; not to be changed by anyone.
Swings = tuple[list[float], float]


class RecordStream:
    """The records of one run, and counters of the work that was done on them.

    `processed` counts records each time that they are read, `used_s` the time that this takes at
    full capacity, `pressed_s` the time during which some waited though the job ran.
    `catch_up_fraction` is the part of the spare capacity that is used while records wait.
    """

    def __init__(
        self, rates_rps: Sequence[float], swings: Swings, catch_up_fraction: float = 1.0
    ) -> None:
        self.end_s = float(len(rates_rps))
        self.now_s = self.departed = self.last_departure_s = 0.0
        #: Records to be read again: they have departed, and cost capacity once more.
        self.reread = self.last_reread_s = 0.0
        self.processed = self.used_s = self.pressed_s = 0.0
        self._at_s = [0.0]
        self._departures = [0.0]
        #: While records depart as they arrive, the curve is not drawn: from this second on it is
        #: that of the arrivals.
        self._calm_since: int | None = None
        self._calm_until = -1
        self._calm_rps = 0.0
        self._rates = rates_rps
        self._swings, self._deepest = swings
        self._catch_up = catch_up_fraction
        #: Records that have arrived by each whole second.
        self._arrived = list(accumulate(rates_rps, initial=0.0))
        self._seconds = _instants(len(rates_rps) + 1)

    def arrivals(self) -> Curve:
        return Curve(list(self._seconds), self._arrived)

    def departures(self) -> Curve:
        self._draw_calm(int(self.now_s))
        return Curve(self._at_s, self._departures)

    def arrived_by(self, at_s: float) -> float:
        second = int(at_s)
        part_s = at_s - second
        if part_s == 0.0:
            return self._arrived[second]
        # Rounding must not make the curve fall at the next whole second.
        arrived = self._arrived[second] + self._rates[second] * part_s
        return min(arrived, self._arrived[second + 1])

    def delay_s(self) -> float:
        """For how long the oldest of those that wait has been waiting."""
        if self.departed >= self.arrived_by(self.now_s):
            return 0.0
        second = bisect_right(self._arrived, self.departed)
        if second >= len(self._arrived):
            return self.now_s - (len(self._arrived) - 1.0)
        before, after = self._arrived[second - 1], self._arrived[second]
        return self.now_s - (second - 1 + (self.departed - before) / (after - before))

    def departed_by(self, at_s: float) -> float:
        self._draw_calm(int(self.now_s))
        times_s, departures = self._at_s, self._departures
        after = bisect_left(times_s, at_s)
        if times_s[after] == at_s:
            return departures[after]
        part = (at_s - times_s[after - 1]) / (times_s[after] - times_s[after - 1])
        return departures[after - 1] + part * (departures[after] - departures[after - 1])

    def stand_still(self, until_s: float) -> None:
        """Records arrive, none departs."""
        self._draw_calm(int(self.now_s))
        self.now_s = until_s
        self._mark(until_s, self.departed)

    def run_on(self, until_s: float, can_rps: float) -> None:
        """Let records depart at that capacity until then."""
        start_s, before = self.now_s, self.departed
        first, last = int(start_s), int(until_s)
        self.now_s = until_s
        if (
            last <= self._calm_until
            and last == until_s
            and can_rps == self._calm_rps
            and self.reread == 0.0
        ):
            # The calm goes on, as it mostly does.
            self.departed = departed = self._arrived[last]
            self.last_departure_s = until_s
            self.processed += departed - before
            self.used_s += (departed - before) / can_rps
            return
        if self.reread > 0.0:
            start_s = self._read_again(start_s, until_s, can_rps)
            if self.reread > 0.0:
                return
            first = int(start_s)
        if first == last:
            self._part_of_second(start_s, until_s, can_rps)
        else:
            if start_s > first:
                first += 1
                self._part_of_second(start_s, float(first), can_rps)
            if first < last:
                self._whole_seconds(first, last, can_rps)
            if until_s > last:
                self._part_of_second(float(last), until_s, can_rps)
        self.last_departure_s = until_s
        done = self.departed - before
        self.processed += done
        self.used_s += done / can_rps

    def _whole_seconds(self, first: int, last: int, can_rps: float) -> None:
        """Let records depart over whole seconds: as they arrive, if none waits and none will."""
        if self.departed >= self._arrived[first] and (
            self._is_calm(first, last + _LOOK_AHEAD_S, can_rps)
            or self._is_calm(first, last, can_rps)
        ):
            if self._calm_since is None:
                self._calm_since = first
            self.departed = self._arrived[last]
        else:
            self._draw_calm(first)
            self._pressed_seconds(first, last, can_rps)

    def _is_calm(self, first: int, last: int, can_rps: float) -> bool:
        """Whether each second's arrivals fit into its capacity."""
        peak_rps = max(self._rates[first:last])
        # The deepest swing of all settles most cases without checking each.
        if peak_rps > can_rps * self._deepest and peak_rps > can_rps * min(
            self._swings[first:last]
        ):
            return False
        self._calm_until, self._calm_rps = last, can_rps
        return True

    def _draw_calm(self, until: int) -> None:
        """Draw the part of the curve that is the same as that of the arrivals."""
        if self._calm_since is not None:
            self._at_s += self._seconds[self._calm_since + 1 : until + 1]
            self._departures += self._arrived[self._calm_since + 1 : until + 1]
            self._calm_since = None
            self._calm_until = -1

    def _pressed_seconds(self, first: int, last: int, can_rps: float) -> None:
        """The hot loop."""
        departed, before = self.departed, self._arrived[first]
        swings, seconds = self._swings[first:last], self._seconds[first + 1 : last + 1]
        arrived = self._arrived[first + 1 : last + 1]
        pressed_s, catch_up = 0, self._catch_up
        slowly = catch_up < 1.0
        bends: list[tuple[int, float]] = []
        departures: list[float] = []
        note = departures.append
        for now, swing in zip(arrived, swings, strict=True):
            can = can_rps * swing
            if slowly and departed < before and (spare := can - (now - before)) > 0.0:
                can -= (1.0 - catch_up) * spare
            able = departed + can
            if able < now:
                departed = able
                pressed_s += 1
            else:
                if departed < before:
                    part = (before - departed) / (can - (now - before))
                    if part < 1.0:
                        bends.append((len(departures) - len(bends), part))
                        note(before + (now - before) * part)
                departed = now
            before = now
            note(departed)
        done = 0
        for second, part in bends:
            self._at_s += seconds[done:second]
            self._at_s.append(first + second + part)
            done = second
        self._at_s += seconds[done:]
        self._departures += departures
        self.departed = departed
        self.pressed_s += pressed_s

    def _part_of_second(self, start_s: float, until_s: float, can_rps: float) -> None:
        """The same for a piece of one second."""
        if start_s >= until_s:
            return
        second = int(start_s)
        self._draw_calm(second)
        can_rps, rate_rps = can_rps * self._swings[second], self._rates[second]
        before, now = self.arrived_by(start_s), self.arrived_by(until_s)
        if self.departed < before and can_rps > rate_rps:
            can_rps -= (1.0 - self._catch_up) * (can_rps - rate_rps)
        able = self.departed + can_rps * (until_s - start_s)
        if able < now:
            self.departed = able
            self.pressed_s += until_s - start_s
        else:
            if self.departed < before:
                part_s = (before - self.departed) / (can_rps - rate_rps)
                if start_s + part_s < until_s:
                    self._mark(start_s + part_s, min(now, before + rate_rps * part_s))
            self.departed = now
        self._mark(until_s, self.departed)

    def _read_again(self, start_s: float, until_s: float, can_rps: float) -> float:
        """Work through what was read before; the instant at which that is done, or `until_s`."""
        self._draw_calm(int(start_s))
        at_s, before = start_s, self.reread
        while self.reread > 0.0 and at_s < until_s:
            second = int(at_s)
            end_s = min(second + 1.0, until_s)
            swinging_rps = can_rps * self._swings[second]
            done_s = at_s + self.reread / swinging_rps
            if done_s > end_s:
                self.reread -= swinging_rps * (end_s - at_s)
                at_s = end_s
            else:
                self.reread = 0.0
                self.last_reread_s = at_s = done_s
        self._mark(at_s, self.departed)
        self.pressed_s += at_s - start_s
        self.processed += before - self.reread
        self.used_s += (before - self.reread) / can_rps
        return at_s

    def _mark(self, at_s: float, departed: float) -> None:
        self._at_s.append(at_s)
        self._departures.append(departed)


@lru_cache(maxsize=8)
def swings(seconds: int, deviation: float, seed: int) -> Swings:
    """The swings of a run, for one seed the same whichever policy runs it."""
    if deviation == 0.0:
        return [1.0] * seconds, 1.0
    drawn = np.random.default_rng(abs(seed)).standard_normal(seconds)
    drawn = 1.0 + deviation * drawn.clip(-_MAX_SWING, _MAX_SWING)
    drawn = drawn.clip(_MIN_CAPACITY_FRACTION)
    return drawn.tolist(), float(drawn.min(initial=1.0))


@lru_cache(maxsize=8)
def _instants(count: int) -> list[float]:
    """0.0, 1.0, ...: made once for all runs of the same length, never handed out."""
    return [float(second) for second in range(count)]
