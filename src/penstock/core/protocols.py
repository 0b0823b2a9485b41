"""The five interfaces between the loop and the world.

Live, simulated and replayed jobs differ only in what implements `Clock`, `Sensor` and `Actuator`.
Nothing here holds state. Nothing that decides may read a clock: time is an argument.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Receipt, Snapshot, Step

#: Called with the time, as often as the clock wakes up between two turns.
Meanwhile = Callable[[float], object]


class Clock(Protocol):
    """Where time comes from: it arrives as iteration."""

    def ticks(self, every_s: float, meanwhile: Meanwhile = ...) -> Iterator[float]:
        """The instants at which to take a turn, about every `every_s` seconds.

        A clock that really waits calls `meanwhile` while it does; one that does not wait never
        calls it.
        """


class Sensor(Protocol):
    """Reads the job."""

    def read(self, now_s: float) -> Snapshot:
        """What can be seen of the job now. Raises `SensorError` if nothing can."""


class Policy(Protocol):
    """A rule: a frozen dataclass whose fields are its parameters.

    - `period_s`: how often the rule is asked.
    - `default_limits`: the guards that its paper puts around it.
    - `wakes_on_surge`: whether it is also asked at once when the load jumps (`alarm`).
    """

    default_limits: ClassVar[Limits]
    wakes_on_surge: ClassVar[bool]

    @property
    def period_s(self) -> float: ...

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """The size that the job should have. Pure: same arguments, same decision."""


class Actuator(Protocol):
    """Changes the fleet."""

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Ask for a fleet of this size and return at once; asking twice changes nothing.

        Raises `ActuatorError` if the request cannot be made now.
        """

    def observe(self, snapshot: Snapshot) -> None:
        """Take over what the sensor saw this turn: what to know before executors are removed."""

    def reconcile(self, now_s: float) -> None:
        """Move the fleet on towards its target. Called between turns, several times a second."""


class InstantActuator:
    """What simulated and recorded jobs derive from: an `Actuator` that has only `apply` to do."""

    __slots__ = ()

    def observe(self, snapshot: Snapshot) -> None:
        """Nothing to learn."""

    def reconcile(self, now_s: float) -> None:
        """Nothing to do between turns."""


class Journal(Protocol):
    """Keeps the steps."""

    def write(self, step: Step) -> None:
        """Keep one turn of the loop."""
