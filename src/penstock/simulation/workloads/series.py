"""Arithmetic on a series of rates, one per second, that several workloads share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import exp, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.core.errors import ConfigError

Series: TypeAlias = NDArray[np.float64]

PEAK_PERCENTILE = 99.9
SLOW_NOISE_STEP_S = 10.0
SLOW_NOISE_TIME_CONSTANT_S = 300.0


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
    scaled: Series = series * (peak_rps / peak)
    return scaled


def slow_noise(at_s: Series, random: np.random.Generator) -> Series:
    """Noise of mean 0 and variance 1 that wanders: an AR(1) process, joined by lines."""
    knots = int(len(at_s) / SLOW_NOISE_STEP_S) + 2
    keep = exp(-SLOW_NOISE_STEP_S / SLOW_NOISE_TIME_CONSTANT_S)
    shocks = random.standard_normal(knots)
    # The first value is drawn from the process at rest, the shocks after it keep it there.
    shocks[1:] *= sqrt(1.0 - keep * keep)
    values = list(accumulate(shocks.tolist(), lambda value, shock: keep * value + shock))
    wandering: Series = np.interp(at_s, np.arange(knots) * SLOW_NOISE_STEP_S, values)
    return wandering


def intervals(at_s: Series, every_s: float) -> NDArray[np.int64]:
    """The number of the interval that each second lies in."""
    return np.floor_divide(at_s, every_s).astype(np.int64)


def count(interval: NDArray[np.int64]) -> int:
    """How many intervals there are."""
    return int(interval[-1]) + 1 if len(interval) else 0
