"""Where time comes from; the only file that may read a clock.

Time arrives as iteration: a clock hands out the instants at which to take a turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from penstock.core.alarm import LOOK_AGAIN_S


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    """Instants of a simulated run, as fast as they are asked for.

    Each is computed from its number, not added up, so that no rounding error grows.

    >>> list(SimulatedClock(end_s=45.0).ticks(every_s=15.0))
    [0.0, 15.0, 30.0]
    """

    end_s: float
    start_s: float = 0.0

    def ticks(self, every_s: float) -> Iterator[float]:
        turn = 0
        while (now_s := self.start_s + turn * every_s) < self.end_s:
            yield now_s
            turn += 1


@dataclass(frozen=True, slots=True)
class AlarmedClock:
    """Simulated instants, and those at which an alarm rings; after one the next comes early.

    Alarms that ring sooner than `again_s` after an instant wait for so long.

    >>> list(AlarmedClock(end_s=45.0, alarms_s=(16.0, 33.0)).ticks(every_s=15.0))
    [0.0, 15.0, 17.0, 19.0, 33.0, 35.0]
    """

    end_s: float
    start_s: float = 0.0
    alarms_s: Sequence[float] = ()
    again_s: float = LOOK_AGAIN_S

    def ticks(self, every_s: float) -> Iterator[float]:
        alarms = [*self.alarms_s, inf]
        now_s, gap_s, place = self.start_s, every_s, 0
        while now_s < self.end_s:
            yield now_s
            while alarms[place] <= now_s:
                place += 1
            regular_s = now_s + gap_s
            rings_s = max(alarms[place], now_s + self.again_s)
            gap_s = self.again_s if rings_s < regular_s else every_s
            now_s = min(rings_s, regular_s)


@dataclass(frozen=True, slots=True)
class WallClock:
    """Instants of the real world, on the grid ``start + k * every_s``.

    A turn that took too long skips the instants that it missed instead of bunching them.
    """

    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep

    def ticks(self, every_s: float) -> Iterator[float]:
        start_s = self.now()
        turn = 0
        while True:
            yield start_s + turn * every_s
            elapsed_s = self.now() - start_s
            turn = max(turn + 1, int(elapsed_s / every_s) + 1)
            self.sleep(max(0.0, start_s + turn * every_s - self.now()))
