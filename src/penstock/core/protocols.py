"""The seams: six small interfaces between the loop and the world.

Live, simulated and replayed jobs differ only in what stands behind `Clock`, `Sensor` and
`Actuator`. Nothing here holds state; nothing that decides may read a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Receipt, Snapshot, Step


class Clock(Protocol):
    def ticks(self, every_s: float) -> Iterator[float]:
        """The instants at which to take a turn; time arrives as iteration."""
        ...


class Sensor(Protocol):
    def read(self, now_s: float) -> Snapshot:
        """What can be seen of the job now, or `SensorError`."""
        ...


class Policy(Protocol):
    """A rule: a frozen dataclass whose fields are its parameters.

    `period_s` is how often the rule wants to be asked; `default_limits` are the guards that its
    paper puts around it. A rule with a class variable `wakes_on_surge` that is true is also asked
    at once when the load of a live job jumps.
    """

    @property
    def period_s(self) -> float: ...

    default_limits: ClassVar[Limits]

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """The size that the job should have. Pure: same arguments, same decision."""
        ...


class Guard(Protocol):
    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """The decision itself, or a bent one that says why."""
        ...


class Actuator(Protocol):
    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Ask for that many executors and return at once; asking twice changes nothing."""
        ...


class Journal(Protocol):
    def write(self, step: Step) -> None:
        """Keep one turn of the loop."""
        ...
