"""A recorded load as a workload; `traces` reads the file."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from penstock.core.errors import ConfigError
from penstock.settings import notation
from penstock.simulation.workloads.shape import (
    Capacity,
    Fraction,
    Instant,
    Series,
    Shape,
    refuse_negative,
    slow_noise,
    to_peak,
)
from penstock.simulation.workloads.traces import RecordedLoad, read_trace

DEFAULT_PEAK_EXECUTORS = 12


class Trace(Shape, frozen=True):
    """A recorded load from a CSV file, scaled to the job, with noise between its rows.

    Rows are joined by straight lines. Both noises are normal, with these fractions of the rate as
    standard deviations: white noise is new in each second, slow noise wanders with a time constant
    of five minutes. Then the series is scaled: to `peak_executors` (12 by default), by the factor
    `scale`, or so that its largest value is `max_rps`. `start_s` and `hours` cut a piece out.
    """

    name: ClassVar[str] = "trace"
    file: str
    hours: Annotated[float, Meta(gt=0, le=8784)] = 24.0
    start_s: Instant = 0.0
    scale: Annotated[float, Meta(ge=0)] | None = None
    max_rps: Annotated[float, Meta(gt=0)] | None = None
    noise_fraction: Fraction = 0.05
    slow_noise_fraction: Fraction = 0.03
    time: str | None = None
    rate: str | None = None

    def __post_init__(self) -> None:
        options = {"peak_executors": self.peak_executors, "scale": self.scale, "max": self.max_rps}
        given = [option for option, value in options.items() if value is not None]
        if len(given) > 1:
            raise ConfigError(f"{self.describe()}: give either {' or '.join(given)}, not both")

    def natural_duration_s(self) -> float:
        return float(max(2, round(min(self.hours * 3600.0, self._rest_s()))))

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        # The scale is that of the whole piece, also when only a part of it is run.
        length = max(seconds, int(self.natural_duration_s()))
        series = self.series(np.arange(float(length)), np.random.default_rng(seed))
        if self.scale is not None:
            series = series * self.scale
        elif self.max_rps is not None:
            series = to_peak(series, self.max_rps, self.describe, percentile=100.0)
        else:
            peak_executors = self.peak_executors or DEFAULT_PEAK_EXECUTORS
            series = to_peak(series, capacity_rps(peak_executors), self.describe)
        rates: list[float] = refuse_negative(series, self.describe)[:seconds].tolist()
        return rates

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        recording = read_trace(self.file, self.time, self.rate)
        wrapped_s = self.start_s + at_s % self.natural_duration_s()
        means = np.interp(wrapped_s, recording.at_s, recording.rates_rps)
        noise = self.noise_fraction * random.standard_normal(len(at_s))
        noise += self.slow_noise_fraction * slow_noise(at_s, random)
        return np.maximum(means * (1.0 + noise), 0.0)

    def describe(self) -> str:
        return notation.describe(self, self.name, positional=1)

    def piece(self) -> RecordedLoad:
        """The rows between which rates are taken; times count from the first row of the file."""
        recording = read_trace(self.file, self.time, self.rate)
        end_s = self.start_s + self.natural_duration_s()
        first = int(np.searchsorted(recording.at_s, self.start_s, side="right")) - 1
        used = slice(first, int(np.searchsorted(recording.at_s, end_s)) + 1)
        return RecordedLoad(recording.at_s[used], recording.rates_rps[used])

    def _rest_s(self) -> float:
        """How much there is from `start_s` on."""
        recording = read_trace(self.file, self.time, self.rate)
        if self.start_s >= recording.at_s[-1]:
            raise ConfigError(
                f"{self.describe()}: start must be before its last row at "
                f"{recording.at_s[-1]:g} s, not {self.start_s:g} s"
            )
        return recording.duration_s - self.start_s
