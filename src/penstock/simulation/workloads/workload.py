"""The shapes of workloads: how many records arrive in each second of a run.

`traces.py` has that of a file, `recordings.py` has those that are shipped; `expressions.py` adds,
multiplies and joins them.

The defaults suit a job of about 10,000 records/s per executor. ``peak_executors=12`` scales any
shape so that its 99.9th percentile is just what 12 executors can carry. A rate below zero is an
error; only noise that would dip below zero ends at zero.

>>> StepShape(before_rps=10.0, after_rps=30.0, at_s=2.0).rates(4, seed=0, capacity_rps=float)
[10.0, 10.0, 30.0, 30.0]
"""

from math import ceil, log
from typing import Annotated

import numpy as np
from msgspec import Meta

from penstock.core.errors import ConfigError
from penstock.simulation.workloads import shape
from penstock.simulation.workloads.recordings import Laboratory, RecordedRates
from penstock.simulation.workloads.shape import Fraction, Hold, Instant, Rate, Series, Shape, Span
from penstock.simulation.workloads.traces import Trace

MOST_RPS = 1e15  #: Above this a float no longer counts single records.


class Constant(Shape, frozen=True, tag="constant"):
    """The same rate all the time.

    >>> Constant(rate_rps=5.0).rates(3, seed=0, capacity_rps=float)
    [5.0, 5.0, 5.0]
    """

    rate_rps: Rate = 60_000.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        return np.full_like(at_s, self.rate_rps)


class StepShape(Shape, frozen=True, tag="step"):
    """One rate before an instant, another from then on."""

    before_rps: Rate = 30_000.0
    after_rps: Rate = 90_000.0
    at_s: Instant = 3600.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        return np.where(at_s < self.at_s, self.before_rps, self.after_rps)


class Ramp(Shape, frozen=True, tag="ramp"):
    """A steady climb (or fall) from one rate to another.

    >>> Ramp(before_rps=0.0, after_rps=8.0, at_s=1.0, duration_s=4.0).rates(6, 0, float)
    [0.0, 0.0, 2.0, 4.0, 6.0, 8.0]
    """

    before_rps: Rate = 20_000.0
    after_rps: Rate = 120_000.0
    at_s: Instant = 0.0
    duration_s: Span = 7200.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        ends_s = [self.at_s, self.at_s + self.duration_s]
        return np.interp(at_s, ends_s, [self.before_rps, self.after_rps])


class Sine(Shape, frozen=True, tag="sine"):
    """A smooth wave around a mean, rising first: ``mean + amplitude sin(2 pi t / period)``."""

    mean_rps: Rate = 60_000.0
    amplitude_rps: Rate = 40_000.0
    period_s: Span = 10_800.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        return self.mean_rps + self.amplitude_rps * np.sin(2.0 * np.pi * at_s / self.period_s)


class Cosine(Shape, frozen=True, tag="cosine"):
    """A wave that starts at its top, with a new value and even noise each minute.

    In interval i it is ``mean + amplitude cos(2 pi i every / period) + U(-noise, noise)``: the
    load of Koper (2022), where a new rate is set each minute and a period takes an hour.
    """

    mean_rps: Rate = 100_000.0
    amplitude_rps: Rate = 50_000.0
    noise_rps: Rate = 10_000.0
    period_s: Span = 3600.0
    every_s: Hold = 60.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        interval = shape.intervals(at_s, self.every_s)
        angle = 2.0 * np.pi * interval * self.every_s / self.period_s
        means: Series = self.mean_rps + self.amplitude_rps * np.cos(angle)
        shape.refuse_negative(means, self.describe)
        noise = random.uniform(-self.noise_rps, self.noise_rps, shape.count(interval))
        return np.maximum(means + noise[interval], 0.0)


class Pyramid(Shape, frozen=True, tag="pyramid"):
    """Up and down again in equal steps, each held for a while, over and over.

    >>> shape = Pyramid(low_rps=0.0, high_rps=30.0, step_rps=15.0, hold_s=1.0)
    >>> shape.rates(6, seed=0, capacity_rps=float)
    [0.0, 15.0, 30.0, 15.0, 0.0, 15.0]
    """

    low_rps: Rate = 0.0
    high_rps: Rate = 120_000.0
    step_rps: Annotated[float, Meta(gt=0)] = 30_000.0
    hold_s: Hold = 130.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        _refuse_order(self, self.low_rps, self.high_rps)
        steps = max(1, ceil((self.high_rps - self.low_rps) / self.step_rps))
        # Levels 0 1 2 1 0 1 ...: the distance to the nearest whole period of `2 steps`.
        place = shape.intervals(at_s, self.hold_s) % (2 * steps)
        level = np.minimum(place, 2 * steps - place)
        return np.minimum(self.low_rps + self.step_rps * level, self.high_rps)


class Square(Shape, frozen=True, tag="square"):
    """A low and a high rate in turn, each held equally long, low first."""

    low_rps: Rate = 2_000.0
    high_rps: Rate = 130_000.0
    hold_s: Hold = 370.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        return np.where(shape.intervals(at_s, self.hold_s) % 2 == 0, self.low_rps, self.high_rps)


class Levels(Shape, frozen=True, tag="levels"):
    """Given rates in turn, each held equally long, over and over.

    >>> Levels(levels_rps=(4.0, 8.0), hold_s=2.0).rates(5, seed=0, capacity_rps=float)
    [4.0, 4.0, 8.0, 8.0, 4.0]
    """

    levels_rps: Annotated[tuple[Rate, ...], Meta(min_length=1)] = (30_000.0, 90_000.0, 60_000.0)
    hold_s: Hold = 600.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        place = shape.intervals(at_s, self.hold_s) % len(self.levels_rps)
        return np.array(self.levels_rps)[place]


class Spikes(Shape, frozen=True, tag="spikes"):
    """A flat load with short spikes on top, as regular as a cron job.

    The first spike comes after one full gap.
    """

    base_rps: Rate = 40_000.0
    height_rps: Rate = 80_000.0
    every_s: Hold = 1800.0
    width_s: Span = 60.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        inside = (at_s >= self.every_s) & (at_s % self.every_s < self.width_s)
        return np.where(inside, self.base_rps + self.height_rps, self.base_rps)


class Bursts(Shape, frozen=True, tag="bursts"):
    """A flat load with bursts of random length at random instants.

    Each burst adds `rise_fraction` of the base and lasts between `shortest_s` and `longest_s`;
    the quiet time before it is exponential with mean `every_s`.
    """

    base_rps: Rate = 80_000.0
    rise_fraction: Rate = 0.5
    every_s: Hold = 900.0
    shortest_s: Hold = 30.0
    longest_s: Hold = 120.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        if self.longest_s < self.shortest_s:
            raise ConfigError(
                f"{self.describe()}: longest must be at least shortest "
                f"({self.shortest_s:g} s), not {self.longest_s:g} s"
            )
        series = np.full_like(at_s, self.base_rps)
        start_s = random.exponential(self.every_s)
        while start_s < len(at_s):
            end_s = start_s + random.uniform(self.shortest_s, self.longest_s)
            series[round(start_s) : round(end_s)] *= 1.0 + self.rise_fraction
            start_s = end_s + random.exponential(self.every_s)
        return series


class FlashCrowd(Shape, frozen=True, tag="flash_crowd"):
    """Suddenly everyone comes: a steep rise to a multiple, then a slow decay.

    The rate climbs in a line to `factor` times the base within `rise_s`, then falls back
    exponentially: 95 % of the crowd are gone after `decay_s`.
    """

    base_rps: Rate = 30_000.0
    factor: Annotated[float, Meta(ge=1)] = 4.0
    at_s: Instant = 3600.0
    rise_s: Span = 60.0
    decay_s: Span = 1200.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        rise = np.clip((at_s - self.at_s) / self.rise_s, 0.0, 1.0)
        since_peak_s = np.maximum(at_s - self.at_s - self.rise_s, 0.0)
        # ln 20 = 3.0: after `decay_s` one twentieth is left
        decay: Series = np.exp(-log(20.0) * since_peak_s / self.decay_s)
        return self.base_rps * (1.0 + (self.factor - 1.0) * rise * decay)


class RandomWalk(Shape, frozen=True, tag="random_walk"):
    """A load without memory of its mean: each minute a random step, bouncing off both bounds.

    Steps are normal with standard deviation `step_rps`.
    """

    start_rps: Rate = 60_000.0
    step_rps: Rate = 4_000.0
    low_rps: Rate = 10_000.0
    high_rps: Rate = 140_000.0
    every_s: Hold = 60.0

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        _refuse_order(self, self.low_rps, self.high_rps)
        if not self.low_rps <= self.start_rps <= self.high_rps:
            raise ConfigError(
                f"{self.describe()}: start must be between low ({self.low_rps:g}) and high "
                f"({self.high_rps:g} records/s), not {self.start_rps:g}"
            )
        interval = shape.intervals(at_s, self.every_s)
        steps = random.normal(0.0, self.step_rps, shape.count(interval))
        steps[:1] = 0.0
        free = self.start_rps - self.low_rps + np.cumsum(steps)
        # A walk between two mirrors is a free walk folded back: a triangle wave of its position.
        room = self.high_rps - self.low_rps
        folded = room - np.abs(np.mod(free, 2.0 * room) - room) if room else np.zeros_like(free)
        return (self.low_rps + folded)[interval]


class Diurnal(Shape, frozen=True, tag="diurnal"):
    """Day and night: lowest and highest once a day, with some noise in each second.

    ``low + (high - low) ((1 + cos(2 pi (t - peak_at) / period)) / 2) ** sharpness``; a
    `sharpness` above 1 makes the peak narrow, below 1 the night short. Noise is normal, with
    standard deviation `noise_fraction` of the rate.
    """

    low_rps: Rate = 20_000.0
    high_rps: Rate = 120_000.0
    peak_at_s: Instant = 72_000.0
    period_s: Span = 86_400.0
    sharpness: Annotated[float, Meta(gt=0)] = 1.0
    noise_fraction: Fraction = 0.02

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        _refuse_order(self, self.low_rps, self.high_rps)
        angle = 2.0 * np.pi * (at_s - self.peak_at_s) / self.period_s
        day = ((1.0 + np.cos(angle)) / 2.0) ** self.sharpness
        means: Series = self.low_rps + (self.high_rps - self.low_rps) * day
        shape.refuse_negative(means, self.describe)
        noise = random.standard_normal(len(at_s))
        return np.maximum(means * (1.0 + self.noise_fraction * noise), 0.0)


class Poisson(Shape, frozen=True, tag="poisson"):
    """Whole records that arrive independently, around a new random rate every ten minutes.

    Each interval has its own mean, even between `low_rps` and `high_rps`, or the next of
    `levels_rps` if these are given; each second draws its count around it. The load of Russo
    Russo et al. (2021).
    """

    low_rps: Rate = 20_000.0
    high_rps: Rate = 120_000.0
    every_s: Hold = 600.0
    levels_rps: tuple[Rate, ...] = ()

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        _refuse_order(self, self.low_rps, self.high_rps)
        interval = shape.intervals(at_s, self.every_s)
        if self.levels_rps:
            means = np.array(self.levels_rps)[interval % len(self.levels_rps)]
        else:
            means = random.uniform(self.low_rps, self.high_rps, shape.count(interval))[interval]
        means = shape.refuse_negative(means, self.describe)
        if len(means) and means.max() > MOST_RPS:
            raise ConfigError(
                f"{self.describe()}: rates must be at most {MOST_RPS:g} records/s, "
                f"not {means.max():g}"
            )
        return random.poisson(means).astype(float)


#: Every shape by the name that the command line knows it by.
WORKLOADS: dict[str, type[Shape]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        Constant, StepShape, Ramp, Sine, Cosine, Pyramid, Square, Levels, Spikes, Bursts,
        FlashCrowd, RandomWalk, Diurnal, Poisson, Trace, RecordedRates, Laboratory,
    )
}  # fmt: skip


def _refuse_order(shape: Shape, low_rps: float, high_rps: float) -> None:
    if high_rps < low_rps:
        raise ConfigError(
            f"{shape.describe()}: high must be at least low ({low_rps:g} records/s), "
            f"not {high_rps:g}"
        )
