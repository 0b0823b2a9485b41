"""Simulated executors of every engine: they are requested, start, fail, slow down, leave.

A `Roster` holds them. It is driven by events: an engine runs on to `next_event_s`, calls `advance`
and looks at what has changed.

>>> from random import Random
>>> roster = Roster(2, startup=Startup(10.0, 10.0), rng=Random(1))
>>> roster.ask(3, now_s=60.0)
True
>>> len(roster.ready), len(roster.starting), roster.next_event_s, roster.paid[-1]
(2, 1, 70.0, Level(at_s=60.0, executors=3))
>>> [executor.id for executor in roster.advance(70.0).joined]
['3']
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Annotated, NamedTuple, TypeVar

from msgspec import Meta, Struct

from penstock.core.errors import ConfigError
from penstock.simulation.engines.engine import Level
from penstock.simulation.faults import ExecutorLost, FailedStart, Fault, SlowExecutor, SlowStart

Kind = TypeVar("Kind", bound=Struct)


class Startup(Struct, frozen=True, forbid_unknown_fields=True):
    """How long executors take from the request to being there: uniform between two bounds."""

    shortest_s: Annotated[float, Meta(ge=0)] = 10.0
    longest_s: Annotated[float, Meta(ge=0)] = 30.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.shortest_s <= self.longest_s < inf:
            raise ConfigError(
                "start-up needs 0 <= shortest_s <= longest_s, "
                f"not {self.shortest_s} and {self.longest_s}"
            )

    def mean_s(self) -> float:
        return (self.shortest_s + self.longest_s) / 2


@dataclass(slots=True, eq=False)
class SimulatedExecutor:
    """One executor. `speed` is its own lasting deviation from 1, `pace` what a fault leaves."""

    id: str
    requested_at_s: float
    ready_at_s: float
    speed: float
    dead_on_arrival: bool = False
    pace: float = 1.0


class FleetChange(NamedTuple):
    """Who came and who died at one instant."""

    joined: list[SimulatedExecutor]
    lost: list[SimulatedExecutor]


class Roster:
    """All executors of one run.

    `ready` (oldest first) are there, `starting` are requested, `leaving` are paid for until the
    engine lets them go with `release`. `paid` and `targets` go into the `Outcome`. Each executor's
    speed is uniform in 1 ± `speed_spread`; `faults` of executors are carried out here.
    """

    def __init__(
        self,
        executors: int,
        *,
        rng: Random,
        startup: Startup = Startup(),  # noqa: B008
        speed_spread: float = 0.0,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._rng = rng
        self._startup = startup
        self._speed_spread = speed_spread
        self._start_faults = [f for f in faults if isinstance(f, FailedStart | SlowStart)]
        self._due = sorted(_instants(faults), key=lambda due: due[0], reverse=True)
        self._slowed: list[tuple[SlowExecutor, SimulatedExecutor]] = []
        self._named = 0
        self.target = executors
        self.starting: list[SimulatedExecutor] = []
        self.leaving: list[SimulatedExecutor] = []
        self.ready = [self._hire(0.0, 0.0) for _ in range(executors)]
        self.paid = [Level(0.0, executors)]
        self.targets = [Level(0.0, executors)]
        self.next_event_s = self._due[-1][0] if self._due else inf

    def ask(self, target: int, now_s: float) -> bool:
        """Request a fleet of that size; false if it was requested already.

        To shrink, those that are still starting are cancelled first, newest first, then the
        newest ready ones move to `leaving`.
        """
        target = max(0, target)
        if target == self.target:
            return False
        self.target = target
        self.targets.append(Level(now_s, target))
        surplus = len(self.ready) + len(self.starting) - target
        for _ in range(surplus):
            if self.starting:
                self.starting.pop()
            else:
                self.leaving.append(self.ready.pop())
        self._fill(now_s)
        return True

    def release(self, now_s: float, executors: Sequence[SimulatedExecutor] | None = None) -> None:
        """Let leaving executors go for good: all of them, or those given."""
        if executors is None:
            self.leaving.clear()
        else:
            self.leaving = [one for one in self.leaving if one not in executors]
        self._settle(now_s)

    def advance(self, now_s: float) -> FleetChange:
        """Carry out all that is due by `now_s`: arrivals, failed starts, losses, slow-downs."""
        due = [one for one in self.starting if one.ready_at_s <= now_s]
        self.starting = [one for one in self.starting if one.ready_at_s > now_s]
        joined = [one for one in due if not one.dead_on_arrival]
        self.ready += joined
        lost: list[SimulatedExecutor] = []
        while self._due and self._due[-1][0] <= now_s:
            _, fault, begins = self._due.pop()
            if isinstance(fault, ExecutorLost):
                dying = self._rng.sample(self.ready, min(fault.count, len(self.ready)))
                self.ready = [one for one in self.ready if one not in dying]
                lost += dying
            else:
                self._change_pace(fault, begins)
        self._fill(now_s)
        return FleetChange(joined, lost)

    def _fill(self, now_s: float) -> None:
        """Request as many as are missing: for a new target, a loss or a failed start."""
        for _ in range(self.target - len(self.ready) - len(self.starting)):
            failures = active(self._start_faults, FailedStart, now_s)
            fails = any(self._rng.random() < failure.probability for failure in failures)
            startup_s = self._rng.uniform(self._startup.shortest_s, self._startup.longest_s)
            for slow in active(self._start_faults, SlowStart, now_s):
                startup_s *= slow.factor
            # Even where executors start in no time, it takes a moment to find one dead.
            startup_s = max(startup_s, 1.0) if fails else startup_s
            self.starting.append(self._hire(now_s, startup_s, fails))
        self._settle(now_s)

    def _settle(self, now_s: float) -> None:
        paid = len(self.ready) + len(self.starting) + len(self.leaving)
        if paid != self.paid[-1].executors:
            self.paid.append(Level(now_s, paid))
        next_s = self._due[-1][0] if self._due else inf
        for one in self.starting:
            if one.ready_at_s < next_s:
                next_s = one.ready_at_s
        self.next_event_s = next_s

    def _hire(self, now_s: float, startup_s: float, fails: bool = False) -> SimulatedExecutor:
        self._named += 1
        speed = 1.0 + self._rng.uniform(-self._speed_spread, self._speed_spread)
        return SimulatedExecutor(str(self._named), now_s, now_s + startup_s, speed, fails)

    def _change_pace(self, fault: SlowExecutor, begins: bool) -> None:
        if begins and self.ready:
            self._slowed.append((fault, self.ready[0]))
        elif not begins:
            for _, executor in self._slowed:
                executor.pace = 1.0
            self._slowed = [slow for slow in self._slowed if slow[0] is not fault]
        for slow, executor in self._slowed:
            executor.pace = min(executor.pace, slow.speed_fraction)


def active(faults: Sequence[Fault], kind: type[Kind], now_s: float) -> list[Kind]:
    """The faults of one kind that are under way at an instant.

    >>> slow = SlowStart(at_s=60.0, duration_s=30.0)
    >>> active([slow], SlowStart, 60.0) == [slow], active([slow], SlowStart, 90.0)
    (True, [])
    """
    return [
        fault
        for fault in faults
        if isinstance(fault, kind) and fault.at_s <= now_s < ends_at_s(fault)
    ]


def edges_s(faults: Sequence[Fault], *kinds: type[Fault]) -> list[float]:
    """The instants at which faults of these kinds begin or end, in order, each once."""
    spans = [(fault.at_s, ends_at_s(fault)) for fault in faults if isinstance(fault, kinds)]
    return sorted({edge for span in spans for edge in span if edge < inf})


def ends_at_s(fault: Fault) -> float:
    """When a fault is over; a loss is over at once."""
    return fault.at_s if isinstance(fault, ExecutorLost) else fault.at_s + fault.duration_s


def _instants(faults: Sequence[Fault]) -> list[tuple[float, ExecutorLost | SlowExecutor, bool]]:
    """Losses, and both ends of slow-downs, as they fall due."""
    instants: list[tuple[float, ExecutorLost | SlowExecutor, bool]] = []
    for fault in faults:
        if isinstance(fault, ExecutorLost | SlowExecutor):
            instants.append((fault.at_s, fault, True))
        if isinstance(fault, SlowExecutor) and ends_at_s(fault) < inf:
            instants.append((ends_at_s(fault), fault, False))
    return instants
