"""What a workload is, and what all shapes of one have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Protocol, TypeAlias

import numpy as np
from msgspec import Meta, Struct

from penstock.settings import notation
from penstock.simulation.workloads.series import Series, refuse_negative, to_peak

Capacity: TypeAlias = Callable[[int], float]

Rate: TypeAlias = Annotated[float, Meta(ge=0)]
Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Span: TypeAlias = Annotated[float, Meta(gt=0)]
Hold: TypeAlias = Annotated[float, Meta(ge=1)]
Instant: TypeAlias = Annotated[float, Meta(ge=0)]


class Workload(Protocol):
    """What arrives, second by second."""

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        """One mean arrival rate (records/s) for each second, the same for the same seed.

        `capacity_rps` is what a fleet of the job can carry, for workloads that are measured in
        executors. A workload with an end starts over if it is run for longer.
        """
        ...

    def natural_duration_s(self) -> float | None:
        """How long it lasts by itself; ``None`` if it could go on for ever."""
        ...

    def describe(self) -> str:
        """The one line that `parse_workload` reads back."""
        ...


class Shape(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A workload of its own: `series` is its formula, the rest is the same for all."""

    name: ClassVar[str]
    peak_executors: Annotated[int, Meta(ge=1)] | None = None

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        """The rate at each of the seconds `at_s`, 0, 1, 2, ...; each shape has its own."""
        raise TypeError(f"{type(self).__name__} has no formula")

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        series = self.series(np.arange(float(seconds)), np.random.default_rng(seed))
        series = refuse_negative(series, self.describe)
        if self.peak_executors is not None:
            series = to_peak(series, capacity_rps(self.peak_executors), self.describe)
        rates: list[float] = series.tolist()
        return rates

    def natural_duration_s(self) -> float | None:
        return None

    def describe(self) -> str:
        return notation.describe(self, self.name)
