"""What a workload is, what all shapes of one share, and arithmetic on a series of rates."""

from collections.abc import Callable
from itertools import accumulate
from math import exp, sqrt
from typing import Annotated, Protocol, TypeAlias

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from penstock.core.errors import ConfigError
from penstock.settings import notation

Series: TypeAlias = NDArray[np.float64]
Capacity: TypeAlias = Callable[[int], float]

Rate: TypeAlias = Annotated[float, Meta(ge=0)]
Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Span: TypeAlias = Annotated[float, Meta(gt=0)]
Hold: TypeAlias = Annotated[float, Meta(ge=1)]
Instant: TypeAlias = Annotated[float, Meta(ge=0)]

PEAK_PERCENTILE = 99.9
SLOW_NOISE_STEP_S = 10.0
SLOW_NOISE_TIME_CONSTANT_S = 300.0


class Workload(Protocol):
    """What arrives, second by second."""

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        """One mean arrival rate (records/s) for each second, the same for the same seed.

        `capacity_rps` is what a fleet of the job can carry, for workloads that are measured in
        executors. A workload with an end starts over if it is run for longer.
        """

    def natural_duration_s(self) -> float | None:
        """How long it lasts by itself; ``None`` if it could go on for ever."""

    def describe(self) -> str:
        """The one line that `parse_workload` reads back."""


class Shape(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A workload of its own: `series` is its formula, its tag the name in notations."""

    peak_executors: Annotated[int, Meta(ge=1)] | None = None

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        """The rate at each of the seconds `at_s`, 0, 1, 2, ...; each shape has its own."""
        raise TypeError(f"{type(self).__name__} has no formula")

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        series = self.series(np.arange(float(seconds)), np.random.default_rng(seed))
        series = refuse_negative(series, self.describe)
        if self.peak_executors is not None:
            series = to_peak(series, capacity_rps(self.peak_executors), self.describe)
        return list(series.tolist())

    def natural_duration_s(self) -> float | None:
        return None

    def describe(self) -> str:
        return notation.describe(self, str(self.__struct_config__.tag))


def refuse_negative(series: Series, describe: Callable[[], str]) -> Series:
    """The same series, or one sentence about the first second that no source can have."""
    bad = ~((series >= 0.0) & (series < np.inf))
    if bad.any():
        second = int(np.argmax(bad))
        raise ConfigError(
            f"{describe()}: rates must be finite and not negative, "
            f"not {series[second]:g} records/s at second {second}"
        )
    return series


def to_peak(
    series: Series,
    peak_rps: float,
    describe: Callable[[], str],
    percentile: float = PEAK_PERCENTILE,
) -> Series:
    """The series scaled so that its 99.9th (or another) percentile is `peak_rps`."""
    if not len(series):
        return series
    peak = float(np.percentile(series, percentile))
    if peak <= 0.0:
        raise ConfigError(
            f"{describe()}: cannot be scaled to a peak: its {percentile:g}th percentile is 0"
        )
    return np.asarray(series * (peak_rps / peak))


def slow_noise(at_s: Series, random: np.random.Generator) -> Series:
    """Noise of mean 0 and variance 1 that wanders: an AR(1) process, joined by lines."""
    knots = int(len(at_s) / SLOW_NOISE_STEP_S) + 2
    keep = exp(-SLOW_NOISE_STEP_S / SLOW_NOISE_TIME_CONSTANT_S)
    shocks = random.standard_normal(knots)
    # The first value is drawn from the process at rest, the shocks after it keep it there.
    shocks[1:] *= sqrt(1.0 - keep * keep)
    values = list(accumulate(shocks.tolist(), lambda value, shock: keep * value + shock))
    return np.asarray(np.interp(at_s, np.arange(knots) * SLOW_NOISE_STEP_S, values))


def intervals(at_s: Series, every_s: float) -> NDArray[np.int64]:
    """The number of the interval that each second lies in."""
    return np.floor_divide(at_s, every_s).astype(np.int64)


def count(interval: NDArray[np.int64]) -> int:
    return int(interval[-1]) + 1 if len(interval) else 0
