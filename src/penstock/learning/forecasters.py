"""What the load will be: a few simple forecasters, chosen by how they would have done so far.

All work on equally spaced values (bins of 15-30 s) and are pure. `forecast` fits them, lets each
of them predict the recent past from what lay before it, and takes the one that was nearest; its
own errors at each step ahead are the uncertainty of its forecast.

Why an autoregression over half-minute bins: fitted by ridge least squares it costs a third of a
millisecond, sees a quarter of an hour back, and on periodic loads beats automatic ARIMA at one
second, which sees half a minute back and takes a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: With fewer values than this nothing can be tried.
FEWEST = 7
#: How many steps ahead forecasters are tried on; beyond, errors are taken to stay.
FARTHEST_TRIED = 20
#: How many past instants the forecasters are tried on.
ORIGINS = 24
#: A step between two bins that is so many times the usual one and a fifth of the level is a shift.
SHIFT_FACTOR = 8.0
SHIFT_FRACTION = 0.2


class Forecast(Struct, frozen=True):
    """Mean and standard deviation for each step ahead, and which forecaster said so."""

    mean: list[float]
    deviation: list[float]
    model: str

    def quantile(self, z: float) -> list[float]:
        """The load that lies `z` standard deviations from the mean, never negative."""
        return [max(0.0, m + z * d) for m, d in zip(self.mean, self.deviation, strict=True)]


class Forecaster(Protocol):
    """Predicts from several origins at once: a row of the past each, oldest value first."""

    def predict(self, pasts: Array, steps: int) -> Array:
        """One row of `steps` values per row of `pasts`."""
        ...


class Naive:
    """It stays as it is: the mean of the last two bins."""

    def predict(self, pasts: Array, steps: int) -> Array:
        return np.repeat(pasts[:, -2:].mean(axis=1, keepdims=True), steps, axis=1)


class Drift:
    """It goes on as it goes: a line through the last bins that flattens with time.

    The slope fades by `damping` per step, since no load rises for ever.
    """

    def __init__(self, bins: int = 6, damping: float = 0.9) -> None:
        self._damping = damping
        at = np.arange(bins) - (bins - 1) / 2.0
        self._slope = at / (at @ at)
        self._half = (bins - 1) / 2.0
        self._bins = bins

    def predict(self, pasts: Array, steps: int) -> Array:
        recent = pasts[:, -self._bins :]
        slope = recent @ self._slope[-recent.shape[1] :]
        level = recent.mean(axis=1) + slope * self._half
        ahead = np.cumsum(self._damping ** np.arange(1, steps + 1))
        return np.asarray(level[:, None] + slope[:, None] * ahead)


class Seasonal:
    """It was like this one period ago, shifted to where it is now."""

    def __init__(self, period: int) -> None:
        self._period = period

    def predict(self, pasts: Array, steps: int) -> Array:
        before = pasts[:, -self._period :]
        ahead = before[:, np.arange(steps) % self._period]
        shift = pasts[:, -2:].mean(axis=1) - np.roll(before, 1, axis=1)[:, :2].mean(axis=1)
        return np.asarray(ahead + shift[:, None])


class Autoregression:
    """A weighted sum of the last `order` bins, fitted by ridge least squares.

    Examples
    --------
    A sine is exactly predictable from its own past:

    >>> wave = 100.0 + 50.0 * np.sin(np.arange(200) / 5.0)
    >>> model = Autoregression.fit(wave[:160], order=12)
    >>> bool(np.abs(model.predict(wave[None, :160], 40)[0] - wave[160:]).max() < 2.0)
    True
    """

    def __init__(self, weights: Array, mean: float, low: float, high: float) -> None:
        self._weights = weights
        self._mean = mean
        self._low, self._high = low, high

    @classmethod
    def fit(cls, values: Array, order: int, ridge: float = 1e-3) -> Autoregression:
        mean = float(values.mean())
        centred = values - mean
        windows = np.lib.stride_tricks.sliding_window_view(centred, order + 1)
        past, target = windows[:, :-1], windows[:, -1]
        gram = past.T @ past
        gram[np.diag_indices(order)] += ridge * np.trace(gram) / order + 1e-9
        weights = np.asarray(np.linalg.solve(gram, past.T @ target), dtype=np.float64)
        # Far outside of what was ever seen no forecast is to be believed.
        return cls(weights, mean, 0.5 * float(values.min()), 1.5 * float(values.max()))

    def predict(self, pasts: Array, steps: int) -> Array:
        order = len(self._weights)
        rows = np.empty((pasts.shape[0], order + steps))
        rows[:, :order] = pasts[:, -order:] - self._mean
        low, high = self._low - self._mean, self._high - self._mean
        for step in range(steps):
            ahead = rows[:, step : step + order] @ self._weights
            np.clip(ahead, low, high, out=rows[:, order + step])
        return np.asarray(rows[:, order:] + self._mean)


def forecast(
    values: Sequence[float], steps: int, *, order: int = 24, period: int | None = None
) -> Forecast:
    """Predict `steps` bins ahead with the forecaster that did best on what was seen.

    The last value may be of a bin that still fills: fitting and trying use those before it, so
    that they are done once per bin however often a forecast is asked for.

    Examples
    --------
    A load that has not moved will not move; with two values there is nothing to try on:

    >>> forecast([100.0, 100.0], 3).mean, forecast([100.0] * 30, 2).deviation
    ([100.0, 100.0, 100.0], [0.0, 0.0])
    """
    seen = since_shift(np.asarray(values, dtype=float))
    if len(seen) < FEWEST:
        level = float(seen[-2:].mean()) if len(seen) else 0.0
        # Nothing is known of how it moves: a tenth of itself per step is a guess on the safe side.
        spread = [0.1 * level * min(1.0 + 0.2 * step, 3.0) for step in range(steps)]
        steady = len(seen) > 1 and float(np.ptp(seen)) == 0.0
        return Forecast([level] * steps, [0.0] * steps if steady else spread, "naive")
    best = choose(tuple(seen[:-1].tolist()), min(steps, FARTHEST_TRIED), order, period)
    mean = np.maximum(0.0, best.forecaster.predict(seen[None, :], steps)[0])
    deviation = [*best.deviation, *[best.deviation[-1]] * steps][:steps]
    return Forecast(mean.tolist(), deviation, best.model)


class Choice(NamedTuple):
    """The forecaster that did best, and how far off it was at each step ahead."""

    forecaster: Forecaster
    deviation: list[float]
    model: str


@lru_cache(maxsize=64)
def choose(values: tuple[float, ...], ahead: int, order: int, period: int | None) -> Choice:
    """Fit all forecasters, let them predict what is known, and take the one that was nearest."""
    seen = np.asarray(values)
    tries: dict[str, Forecaster] = {"naive": Naive()}
    if len(seen) >= 12:
        tries["drift"] = Drift()
    fitted = min(order, len(seen) // 4)
    if fitted >= 3:
        tries["autoregression"] = Autoregression.fit(seen, fitted)
    if period is not None and len(seen) >= period + 8:
        tries["seasonal"] = Seasonal(period)
    needed = max(3, min(30, len(seen) // 2))
    last = len(seen) - 1
    origins = np.unique(np.linspace(needed, last, min(ORIGINS, last - needed + 1)).astype(int))
    if period is not None and "seasonal" in tries:
        needed = max(needed, period)
        origins = origins[origins >= needed]
    pasts = np.stack([seen[origin - needed : origin] for origin in origins])
    truth = np.full((len(origins), ahead), np.nan)
    for row, origin in enumerate(origins):
        known = seen[origin : origin + ahead]
        truth[row, : len(known)] = known
    counted = np.sum(~np.isnan(truth), axis=0)
    # Nearer steps count for more: a plan acts on them, and makes the rest anew.
    weight = np.where(counted > 0, 1.0 / np.sqrt(1.0 + np.arange(ahead)), 0.0)
    best, best_error = Choice(tries["naive"], [0.0] * ahead, "naive"), np.inf
    for name, model in tries.items():
        squares = np.nan_to_num((model.predict(pasts, ahead) - truth) ** 2)
        errors = np.sqrt(squares.sum(axis=0) / np.maximum(1, counted))
        # A fitted model has seen what it is tried on: it must be clearly better to be taken.
        error = float((errors * weight).sum()) * (1.1 if name == "autoregression" else 1.0)
        if error < best_error:
            # Errors grow with the distance; a dip in the tried ones is luck.
            best_error = error
            best = Choice(model, np.maximum.accumulate(errors).tolist(), name)
    return best


def since_shift(values: Array) -> Array:
    """What came after the last sudden change of level; all of it if there was none.

    >>> since_shift(np.array([10.0, 11, 10, 11, 10, 11, 90, 91, 90])).tolist()
    [90.0, 91.0, 90.0]
    """
    if len(values) < 6:
        return values
    jumps = np.abs(np.diff(values))
    level = np.maximum(values[:-1], values[1:])
    usual = float(np.median(jumps))
    shifts = np.flatnonzero((jumps > SHIFT_FACTOR * usual) & (jumps > SHIFT_FRACTION * level))
    return values[shifts[-1] + 1 :] if len(shifts) else values
