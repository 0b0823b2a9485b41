"""What the load will be: a few simple forecasters, chosen by how they would have done so far.

All work on equally spaced values (bins of 15-30 s) and are pure. `forecast` fits them, lets each of
them predict the recent past from what came before, and takes the most accurate; its errors at each
step ahead are the uncertainty of the forecast.

Why an autoregression over half-minute bins: fitted by ridge least squares it costs a third of a
millisecond, uses a quarter of an hour of the past, and on periodic loads beats automatic ARIMA at
one second, which uses half a minute of the past and takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from penstock.core.model import Snapshot
from penstock.policies.penstock.surges import BIN_S, Surges

Array = NDArray[np.float64]
#: Predicts from several origins at once: a row of the past each, oldest value first, and how many
#: steps ahead; gives a row of that many values for each.
Forecaster = Callable[[Array, int], Array]

FEWEST = 7  #: With fewer values than this no forecaster can be tried.
FARTHEST_TRIED = 20  #: Steps ahead that are tried; beyond, errors are assumed to stay.
PERIODIC = 0.8  #: The least correlation with one period ago that counts as periodic.
ORIGINS = 24  #: How many past instants the forecasters are tried on.
#: A step between two bins is a shift if it is this many times the usual one and of the level.
SHIFT_FACTOR, SHIFT_FRACTION = 8.0, 0.2
EDGE = 0.2  #: A rise by this fraction from one bin to the next is an edge.
TROUGH = 0.25  #: A fall and a rise by this part of the range of a load are a trough.
RISES = 0.1  #: A load that is higher by this fraction than minutes ago rises.
MANY_SHIFTS = 3  #: With this many shifts, shifts are the nature of the load.
PAST_BINS = 180  #: The past that a forecast uses, in bins: 90 minutes of half minutes.
#: A surge of unknown shape is assumed to stay for this long; then it is forecast.
UNKNOWN_S = 240.0


class Forecast(Struct, frozen=True):
    """Mean and standard deviation for each step ahead, and the name of the forecaster."""

    mean: list[float]
    deviation: list[float]
    model: str

    def quantile(self, z: float) -> list[float]:
        """The load that lies `z` standard deviations from the mean, never negative."""
        return [max(0.0, m + z * d) for m, d in zip(self.mean, self.deviation, strict=True)]

    def from_now(self, current: float, elapsed: float) -> Forecast:
        """The same in bins that begin now, while the `current` bin has only partly elapsed.

        >>> Forecast([40.0, 50.0], [1.0, 2.0], "drift").from_now(30.0, elapsed=0.25).mean
        [32.5, 42.5]
        """
        pairs = zip([current, *self.mean[:-1]], self.mean, strict=True)
        mean = [(1.0 - elapsed) * before + elapsed * after for before, after in pairs]
        return Forecast(mean, self.deviation, self.model)


def naive(pasts: Array, steps: int) -> Array:
    """The load stays as it is: the mean of the last two bins."""
    return np.repeat(pasts[:, -2:].mean(axis=1, keepdims=True), steps, axis=1)


def drift(pasts: Array, steps: int, *, bins: int = 6, damping: float = 0.9) -> Array:
    """A line through the last bins; its slope fades by `damping` per step."""
    recent, half = pasts[:, -bins:], (bins - 1) / 2.0
    at = np.arange(bins) - half
    slope = recent @ (at / (at @ at))[-recent.shape[1] :]
    level = recent.mean(axis=1) + slope * half
    ahead = np.cumsum(damping ** np.arange(1, steps + 1))
    return np.asarray(level[:, None] + slope[:, None] * ahead)


def seasonal(pasts: Array, steps: int, *, period: float, shift_bins: int = 2) -> Array:
    """The load of one period ago, shifted by how far the last bins lie from then.

    The period need not be a whole number of bins: values between two are interpolated.
    """
    count = pasts.shape[1]
    recent = np.arange(count - shift_bins, count + steps)
    # Beyond one period the forecast repeats itself.
    periods = np.maximum(1.0, np.ceil((recent - count + 1) / period))
    at = np.clip(recent - periods * period, 0.0, count - 1.0)
    low = np.minimum(at.astype(int), count - 2)
    then = pasts[:, low] + (pasts[:, low + 1] - pasts[:, low]) * (at - low)
    shift = pasts[:, -shift_bins:] - then[:, :shift_bins]
    # A shift that is not the same in all bins is one in time, not of the level.
    agreed = np.where(np.ptp(shift, axis=1) < np.abs(shift).min(axis=1), shift.mean(axis=1), 0)
    return np.asarray(then[:, shift_bins:] + agreed[:, None])


def autoregression(values: Array, order: int, ridge: float = 1e-3) -> Forecaster:
    """A weighted sum of the last `order` bins, by ridge least squares; exact for a sine."""
    mean = float(values.mean())
    windows = np.lib.stride_tricks.sliding_window_view(values - mean, order + 1)
    past, target = windows[:, :-1], windows[:, -1]
    gram = past.T @ past
    gram[np.diag_indices(order)] += ridge * np.trace(gram) / order + 1e-9
    weights = np.asarray(np.linalg.solve(gram, past.T @ target), dtype=np.float64)
    # No forecast far outside of the loads that were seen is to be trusted.
    lowest, highest = float(values.min()), float(values.max())
    low, high = 0.5 * lowest - mean, highest + 0.5 * (highest - lowest) - mean

    def predict(pasts: Array, steps: int) -> Array:
        rows = np.empty((pasts.shape[0], order + steps))
        rows[:, :order] = pasts[:, -order:] - mean
        for step in range(steps):
            ahead = rows[:, step : step + order] @ weights
            np.clip(ahead, low, high, out=rows[:, order + step])
        return np.asarray(rows[:, order:] + mean)

    return predict


def find_period(values: Array, shortest: int = 8) -> float | None:
    """After how many bins a load repeats itself, if it was seen twice and did so clearly.

    >>> find_period(np.tile([1.0, 1, 1, 5, 9, 9, 5, 1, 1, 1], 3))
    10.0
    """
    count = len(values)
    if count < 2 * shortest + 4 or float(np.ptp(values)) == 0.0:
        return None
    centred = values - values.mean()
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    lags = np.arange(shortest, (count - 4) // 2 + 1)
    # Each lag by its own overlap, so that long ones are not at a disadvantage.
    sums = np.cumsum(np.concatenate([[0.0], centred**2]))
    power = 0.5 * (sums[count - lags] + sums[count] - sums[lags])
    correlation = np.fft.irfft(spectrum, size)[lags] / np.maximum(power, 1e-12)
    best = int(np.argmax(correlation))
    if correlation[best] < PERIODIC or best == 0 or best == len(lags) - 1:
        return None
    before, here, after = correlation[best - 1 : best + 2]
    bend = before - 2.0 * here + after
    return float(lags[best] + (0.5 * (before - after) / bend if bend < -1e-12 else 0.0))


def forecast(values: Sequence[float], steps: int, *, order: int = 24) -> Forecast:
    """Predict `steps` bins ahead with the forecaster that did best on what was seen.

    The last bin may be incomplete: fitting and trying use those before it, so that they are done
    once per bin however often a forecast is asked for.

    >>> forecast([100.0, 100.0], 3).mean, forecast([100.0] * 30, 2).deviation
    ([100.0, 100.0, 100.0], [0.0, 0.0])
    """
    every = np.asarray(values, dtype=float)
    season, ahead = None, min(steps, FARTHEST_TRIED)
    if len(every) > FEWEST:
        season = repeating(tuple(every[:-1].tolist()), ahead)
        if season is not None and not season.expects(every):
            season = None
    seen = since_shift(every)
    if len(seen) < FEWEST:
        if season is not None:
            return season.forecast(every, steps)
        level = float(seen[-2:].mean()) if len(seen) else 0.0
        # Nothing is known of how it changes: a tenth of itself is a guess on the safe side.
        unknown = [0.1 * level * min(1.0 + 0.2 * step, 3.0) for step in range(steps)]
        steady = len(seen) > 1 and float(np.ptp(seen)) == 0.0
        return Forecast([level] * steps, [0.0] * steps if steady else unknown, "naive")
    best = choose(tuple(seen[:-1].tolist()), ahead, order)
    # After a shift there is too little to judge the others by.
    if season is not None and (len(seen) < len(every) or season.error() < best.error()):
        return season.forecast(every, steps)
    ahead_rps = best.forecast(seen, steps)
    if best.model != "autoregression" or is_rising(every) or has_trough(every):
        return ahead_rps
    # A sum of past values that fits one wave promises the next: whatever falls, rises again.
    now = max(float(every[-1]), float(every[-2:].mean()))
    return replace(ahead_rps, mean=[min(now, one) for one in ahead_rps.mean])


def has_trough(values: Array) -> bool:
    """Whether a load was seen to fall and to rise again, by a good part of its range.

    >>> wave = [4.0, 4, 6, 9, 6, 4, 4]
    >>> has_trough(np.array(wave)), has_trough(np.array([*wave, 6, 9]))
    (False, True)
    """
    before = np.maximum.accumulate(values)
    after = np.maximum.accumulate(values[::-1])[::-1]
    return bool(np.max(np.minimum(before, after) - values) >= TROUGH * np.ptp(values))


def is_rising(values: Array) -> bool:
    """Whether the last two bins are clearly above the lowest one of the four before."""
    return bool(values[-2:].mean() > (1.0 + RISES) * values[-6:-2].min())


class Choice(NamedTuple):
    """A forecaster, and how far off it was at each step ahead."""

    forecaster: Forecaster
    deviation: list[float]
    model: str

    def error(self) -> float:
        """One number to choose by. Nearer steps count for more: the next plan is made soon."""
        weights = 1.0 / np.sqrt(1.0 + np.arange(len(self.deviation)))
        return float(np.asarray(self.deviation) @ weights)

    def expects(self, seen: Array) -> bool:
        """Whether the last value was forecast by those before it, or for a bin before or after."""
        around = self.forecaster(seen[None, :-2], 3)[0]
        last = float(seen[-1])
        off = max(float(around.min()) - last, last - float(around.max()))
        return off <= 3.0 * max(self.deviation[0], 0.05 * last)

    def forecast(self, seen: Array, steps: int) -> Forecast:
        mean = np.maximum(0.0, self.forecaster(seen[None, :], steps)[0])
        if self.model == "seasonal":
            # A steep edge may come a bin earlier or later: be ready for the higher of both.
            around = np.maximum(np.append(mean[1:], mean[-1]), np.insert(mean[:-1], 0, mean[0]))
            mean = np.where(around > (1.0 + EDGE) * mean, around, mean)
        deviation = [*self.deviation, *[self.deviation[-1]] * steps][:steps]
        return Forecast(mean.tolist(), deviation, self.model)


@lru_cache(maxsize=64)
def repeating(values: tuple[float, ...], ahead: int) -> Choice | None:
    """The seasonal forecaster of a load that repeats itself, tried on what was seen."""
    seen = np.asarray(values)
    period = find_period(seen)
    if period is None:
        return None
    model, needed = partial(seasonal, period=period), ceil(period) + 2
    season = Choice(model, _errors(model, seen, ahead, needed), "seasonal")
    steady = Choice(naive, _errors(naive, seen, ahead, needed), "naive")
    return season if season.error() < steady.error() else None


@lru_cache(maxsize=64)
def choose(values: tuple[float, ...], ahead: int, order: int) -> Choice:
    """Fit the other forecasters, let them predict what is known, and take the most accurate."""
    seen = np.asarray(values)
    tries: dict[str, Forecaster] = {"naive": naive}
    if len(seen) >= 12:
        tries["drift"] = drift
    fitted = min(order, len(seen) // 4)
    if fitted >= 3:
        tries["autoregression"] = autoregression(seen, fitted)
    needed = max(3, min(30, len(seen) // 2))
    choices = [Choice(one, _errors(one, seen, ahead, needed), name) for name, one in tries.items()]
    if fitted >= 3:
        # It was fitted to what it is tried on: corrected by Akaike's final prediction error.
        count = len(seen) - fitted
        own, factor = choices.pop(), sqrt((count + fitted) / max(1, count - fitted))
        choices.append(own._replace(deviation=[factor * one for one in own.deviation]))
    return min(choices, key=Choice.error)


def _errors(model: Forecaster, seen: Array, ahead: int, needed: int) -> list[float]:
    """The root mean square error at each step ahead, from several origins of the past.

    Errors never fall with the distance: where they seem to, that is chance.
    """
    last = len(seen) - 1
    needed = min(needed, last)
    origins = np.unique(np.linspace(needed, last, min(ORIGINS, last - needed + 1)).astype(int))
    pasts = np.stack([seen[origin - needed : origin] for origin in origins])
    places = origins[:, None] + np.arange(ahead)
    known = places <= last
    squares = (model(pasts, ahead) - seen[np.minimum(places, last)]) ** 2 * known
    means = squares.sum(axis=0) / np.maximum(1, known.sum(axis=0))
    return np.maximum.accumulate(np.sqrt(means)).tolist()  # type: ignore[no-any-return]


def since_shift(values: Array) -> Array:
    """What came after the last sudden change of level; all of it if there was none.

    A load that shifts often will do so again: then its shifts are part of what is to be learned.

    >>> since_shift(np.array([10.0, 11, 10, 11, 10, 11, 90, 91, 90])).tolist()
    [90.0, 91.0, 90.0]
    """
    if len(values) < 6:
        return values
    jumps = np.abs(np.diff(values))
    level = np.maximum(values[:-1], values[1:])
    usual = float(np.median(jumps))
    shifts = np.flatnonzero((jumps > SHIFT_FACTOR * usual) & (jumps > SHIFT_FRACTION * level))
    # A rise that takes a few bins is one shift.
    apart = 1 + int(np.count_nonzero(np.diff(shifts) > 2)) if len(shifts) else 0
    return values[shifts[-1] + 1 :] if 0 < apart < MANY_SHIFTS else values


def load_ahead(seen: Sequence[Snapshot], surges: Surges, steps: int, bin_s: float) -> Forecast:
    """The forecast in bins from now on; `seen` ends with the present.

    Surges that recur are left out, since a plan has a scenario for them; during one the load is
    assumed to stay where it is.
    """
    now = seen[-1]
    load_rps = now.arrival_rps or 0.0
    past = surges.past if surges.recur else ()
    spans_s = [(surge.began_s, surge.began_s + surge.lasted_s) for surge in past]
    if surges.began_s is not None and (
        surges.recur
        or (not surges.shapeless and now.at_s - surges.began_s < UNKNOWN_S * bin_s / BIN_S)
    ):
        bins = binned(seen, bin_s, [*spans_s, (surges.began_s, now.at_s)]) or (load_rps,)
        return Forecast([load_rps] * steps, forecast(bins, steps).deviation, "surge")
    bins = binned(seen, bin_s, spans_s) or (load_rps,)
    period_s = max(0.0, now.at_s - seen[-2].at_s) if len(seen) > 1 else 0.0
    elapsed = min(1.0, (now.at_s % bin_s + period_s) / bin_s)
    return forecast(bins, steps).from_now(bins[-1], elapsed)


def binned(
    seen: Sequence[Snapshot], bin_s: float, without: Sequence[tuple[float, float]] = ()
) -> tuple[float, ...]:
    """Mean loads of the past, oldest first, in bins on a fixed grid; the last may be incomplete.

    What was measured inside one of the spans `without` is left out.

    >>> from penstock.core.model import Fleet
    >>> seen = [Snapshot(10.0 * i, Fleet(1, 1, 1), arrival_rps=100.0 + i) for i in range(9)]
    >>> binned(seen, 30.0), binned(seen, 30.0, [(20.0, 50.0)])
    ((101.0, 104.0, 107.0), (101.0, 101.0, 107.0))
    """
    bins: list[float] = []
    place, total, count, span = -1, 0.0, 0, 0
    latest: float | None = None
    for snapshot in seen:
        latest, at_s = None, snapshot.at_s
        if (load_rps := snapshot.arrival_rps) is None:
            continue
        while span < len(without) and at_s > without[span][1]:
            span += 1
        # A rate is that of the time before it: one measured as a span begins is still outside.
        if span < len(without) and without[span][0] < at_s:
            continue
        now = int(at_s / bin_s)
        if now != place and count:
            # Bins in which nothing was measured keep the load of the one before.
            bins.extend([total / count] * min(max(1, now - place), 20))
            total, count = 0.0, 0
        place, latest = now, load_rps
        total += load_rps
        count += 1
    if count:
        mean = total / count
        # The mean of a bin in which the load jumps is neither the old load nor the new.
        jumped = latest is not None and abs(latest - mean) > 0.25 * max(latest, mean)
        bins.append(latest if latest is not None and jumped else mean)
    return tuple(bins)
