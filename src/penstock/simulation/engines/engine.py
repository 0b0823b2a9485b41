"""What a simulated job is, and what is left when it has run.

A `SimulatedJob` is the frozen description; `start` gives an `Engine`, sensor and actuator of a run
that lasts as many seconds as it has rates; `finish` gives the `Outcome`, from which the exact delay
of each record follows (FIFO: the k-th record to arrive is the k-th to depart).
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias

from msgspec import Struct

from penstock.core.protocols import Actuator, Sensor
from penstock.simulation.faults import Faults

Rates: TypeAlias = Sequence[float]


class Curve(Struct, frozen=True, gc=False):
    """A polyline of records over time: vertical at the commit of a batch, level in a silence."""

    at_s: list[float]
    records: list[float]


class Level(Struct, frozen=True, gc=False):
    """A number of executors that holds from an instant on."""

    at_s: float
    executors: int


class Outcome(Struct, frozen=True, gc=False):
    """What a run leaves behind."""

    duration_s: float
    arrivals: Curve
    departures: Curve
    paid: list[Level]  #: What costs money, from the request (or the loss replaced) until gone.
    targets: list[Level]  #: What was asked for.


class Engine(Sensor, Actuator, Protocol):
    """A run: `read` and `apply` first run on to `now_s`; `read` shows its engine's metrics."""

    def finish(self) -> Outcome:
        """Run on to the end of the rates."""
        ...


class SimulatedJob(Protocol):
    """A simulated job: frozen, so that the same seed gives the same run."""

    engine_name: ClassVar[str]

    def capacity_rps(self, executors: int) -> float:
        """The highest arrival rate that a healthy fleet of that size keeps up with."""
        ...

    def start(self, rates_rps: Rates, *, executors: int, seed: int, faults: Faults = ()) -> Engine:
        """A run with one arrival rate per second, warm, with `executors` already there."""
        ...
