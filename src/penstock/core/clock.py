"""Where time comes from; the only file that may read a clock.

Time arrives as iteration: a clock yields the instants at which to take a turn.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from penstock.core.alarm import next_turn
from penstock.core.protocols import Meanwhile

POLL_S = 0.1  #: How often a live clock wakes up between turns; mostly there is nothing to do then.
#: A wall clock that differs by less from the time that has passed was not set to another time.
JUMP_S = 1.0

Now = Callable[[], float]


def _nothing(now_s: float) -> None:
    """What there is to do between turns, where nothing is."""


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    """Instants of a simulated run, as fast as they are asked for.

    Each is computed from its number, not added up, so that no rounding error grows. For a policy
    that wakes on surges, `surges_s` says when these come.

    >>> list(SimulatedClock(end_s=45.0).ticks(every_s=15.0))
    [0.0, 15.0, 30.0]
    >>> list(SimulatedClock(end_s=45.0, surges_s=(16.0, 33.0)).ticks(every_s=15.0))
    [0.0, 15.0, 17.0, 19.0, 33.0, 35.0]
    """

    end_s: float
    start_s: float = 0.0
    surges_s: Sequence[float] | None = None

    def ticks(self, every_s: float, meanwhile: Meanwhile = _nothing) -> Iterator[float]:
        surges = [*(self.surges_s or ()), inf]
        now_s, gap_s, turn, place = self.start_s, every_s, 0, 0
        while now_s < self.end_s:
            yield now_s
            turn += 1
            if self.surges_s is None:
                now_s = self.start_s + turn * every_s
                continue
            while surges[place] <= now_s:
                place += 1
            now_s, gap_s = next_turn(now_s, gap_s, every_s, surges[place])


class LoopTime:
    """Time that never jumps: that of the wall clock at the start, and what has passed since.

    A live loop counts by it, so a wall clock that is set to another time does not stop it or make
    anything look old. It begins after a journal that is continued.
    """

    def __init__(
        self, not_before_s: float = 0.0, *, wall: Now = time.time, steady: Now = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._start_s = max(wall(), not_before_s) - steady()

    def now(self) -> float:
        return self._start_s + self._steady()

    def ahead_s(self) -> float:
        """How far the wall clock is ahead, if that is more than noise."""
        ahead_s = round(self._wall() - self.now(), 3)
        return ahead_s if abs(ahead_s) >= JUMP_S else 0.0


@dataclass(frozen=True, slots=True)
class WallClock:
    """Instants ``start + k * every_s`` of the real world; a turn that takes too long skips some."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep

    def ticks(self, every_s: float, meanwhile: Meanwhile = _nothing) -> Iterator[float]:
        start_s = self.now()
        turn = 0
        while True:
            yield start_s + turn * every_s
            elapsed_s = self.now() - start_s
            turn = max(turn + 1, int(elapsed_s / every_s) + 1)
            self.sleep(max(0.0, start_s + turn * every_s - self.now()))


@dataclass(frozen=True, slots=True)
class LiveClock:
    """Turns of a running job: at regular times, soon after a surge, none while paused."""

    is_over: Callable[[], bool]
    is_paused: Callable[[], bool] = lambda: False  #: A turn that is due is taken when this ends.
    may_turn: Callable[[], bool] = lambda: True  #: If not, a turn that is due is left out.
    has_surged: Callable[[], bool] = lambda: False  #: Whether the load has jumped since the last.
    wall: WallClock = WallClock()

    def ticks(self, every_s: float, meanwhile: Meanwhile = _nothing) -> Iterator[float]:
        turned_at_s, gap_s, surge_at_s = -inf, every_s, inf
        for now_s in self.wall.ticks(POLL_S):
            if self.is_over():
                return
            meanwhile(now_s)
            if not self.has_surged():
                surge_at_s = inf
            elif surge_at_s == inf:
                surge_at_s = now_s
            due_at_s, next_gap_s = next_turn(turned_at_s, gap_s, every_s, surge_at_s)
            if now_s >= due_at_s and not self.is_paused():
                turned_at_s, gap_s, surge_at_s = now_s, next_gap_s, inf
                if self.may_turn():
                    yield now_s
