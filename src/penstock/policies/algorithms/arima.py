"""What will arrive: an autoregression on differences, and the line that stands in for it.

`forecast_rps` fits ``ARIMA(p, 1, 0)`` by least squares with the order that the corrected Akaike
criterion chooses, in a fraction of a millisecond; `auto_arima_rps` asks statsforecast instead,
which takes a thousand times as long and needs the extra ``arima``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from math import log
from operator import itemgetter
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from penstock.core.errors import ConfigError
from penstock.core.model import Snapshot

Series: TypeAlias = NDArray[np.float64]

MOST_LAGS = 5  #: Highest order of the autoregression, as in the search of Daedalus.
FEWEST_BINS = 10  #: Fewer bins than this say nothing about how the load moves.
MOST_GROWTH = 2.0  #: A forecast leaves the range of the past by no more than this factor.
#: From this error on a forecast is poor: the next is not believed; this many in a row, and the
#: model is trained again.
POOR_WAPE, MOST_POOR_FORECASTS = 0.25, 15


def mean_rates(history: Sequence[Snapshot], bin_s: float) -> Series:
    """Mean arrival rates of equal intervals that end with the last snapshot, oldest first.

    A rate holds since the snapshot before it, so intervals are cut exactly, and the next one covers
    a gap in the measurements. What lies before a clock that was set back is left out.

    >>> from penstock.core.model import Fleet
    >>> rates = ((0.0, 9.0), (20.0, 100.0), (40.0, 130.0), (60.0, 70.0))
    >>> history = [Snapshot(at_s, Fleet(1, 1, 1), arrival_rps=rps) for at_s, rps in rates]
    >>> mean_rates(history, 30.0).tolist()
    [110.0, 90.0]
    """
    at_s: list[float] = []
    rates: list[float] = []
    for snapshot in reversed(history):
        if at_s and snapshot.at_s > at_s[-1]:
            break
        if snapshot.arrival_rps is not None and snapshot.at_s not in at_s[-1:]:
            at_s.append(snapshot.at_s)
            rates.append(snapshot.arrival_rps)
    if len(at_s) < 2:
        return np.empty(0)
    times = np.array(at_s[::-1])
    arrived = np.concatenate([[0.0], np.cumsum(np.array(rates[-2::-1]) * np.diff(times))])
    bins = int((times[-1] - times[0]) / bin_s)
    edges = times[-1] - bin_s * np.arange(bins, -1, -1.0)
    return np.asarray(np.diff(np.interp(edges, times, arrived)) / bin_s)


def forecast_rps(past_rps: Series, bins: int) -> Series | None:
    """The next rates after equally spaced past ones; ``None`` from too short a past.

    Differences ``d_t = c + a_1 d_{t-1} + ... + a_p d_{t-p}`` with ``p`` from 0 to 5.

    >>> forecast_rps(100.0 + 5.0 * np.arange(20.0), 3).tolist()
    [200.0, 205.0, 210.0]
    """
    if len(past_rps) < FEWEST_BINS:
        return None
    steps = np.diff(past_rps)
    constant, weights = _fit(steps)
    recent = deque(steps[::-1][: len(weights)].tolist(), maxlen=len(weights))
    level, ahead = float(past_rps[-1]), []
    for _ in range(bins):
        step = constant + sum(map(float.__mul__, weights, recent))
        recent.appendleft(step)
        level += step
        ahead.append(level)
    return _within_reason(np.array(ahead), past_rps)


def line_rps(past_rps: Series, bins: int) -> Series:
    """The least-squares line through the past, continued; a single rate stays what it is.

    >>> line_rps(np.array([10.0, 12.0, 14.0]), 2).tolist()
    [16.0, 18.0]
    """
    count = len(past_rps)
    if count < 2:
        return np.full(bins, past_rps[0] if count else 0.0)
    x = np.arange(count) - (count - 1) / 2.0
    slope = float(x @ past_rps) / float(x @ x)
    ahead = past_rps.mean() + slope * ((count - 1) / 2.0 + np.arange(1.0, bins + 1.0))
    return _within_reason(ahead, past_rps)


def wape(actual: Sequence[float], forecast: Sequence[float]) -> float | None:
    """Weighted absolute percentage error: ``sum |actual - forecast| / sum actual``.

    >>> wape([100.0, 100.0, 200.0], [90.0, 110.0, 200.0])
    0.05
    """
    total = sum(actual)
    if total <= 0.0:
        return None
    return sum(abs(a - f) for a, f in zip(actual, forecast, strict=True)) / total


class Trust(Struct, frozen=True, gc=False, array_like=True):
    """How far the model is believed: its last promise is held against what came.

    Before the first promise is due nothing is believed. After too many poor ones in a row the model
    forgets all that was before them.

    >>> trust = Trust(promised_rps=(90.0, 140.0)).judged([100.0, 100.0], now_s=0.0, loop_s=60.0)
    >>> trust.wape, trust.is_earned, trust.poor_forecasts
    (0.25, False, 1)
    """

    promised_rps: tuple[float, ...] = ()
    wape: float | None = None
    poor_forecasts: int = 0
    trained_from_s: float = 0.0

    @property
    def is_earned(self) -> bool:
        return self.wape is not None and self.wape < POOR_WAPE

    def judged(self, actual_rps: Sequence[float], now_s: float, loop_s: float) -> Trust:
        """The trust after a loop in which these rates were measured."""
        promised_rps = self.promised_rps
        if not promised_rps:
            return self
        if len(actual_rps) != len(promised_rps):  # a turn was missed: the means can be compared
            actual_rps, promised_rps = [fmean(actual_rps)], (fmean(promised_rps),)
        error = wape(actual_rps, promised_rps)
        poor = self.poor_forecasts + 1 if error is not None and error >= POOR_WAPE else 0
        if poor < MOST_POOR_FORECASTS:
            return Trust((), error, poor, self.trained_from_s)
        return Trust((), error, 0, now_s - poor * loop_s)

    def with_promise(self, promised_rps: Iterable[float]) -> Trust:
        """The same trust, with one rate for each measurement until it is judged next."""
        return replace(self, promised_rps=tuple(promised_rps))


def per_second(now_rps: float, ahead_rps: Series, bin_s: float, seconds: int) -> Series:
    """Rates of bins as one rate per second, joined by lines through the middles of the bins.

    >>> per_second(10.0, np.array([14.0, 18.0]), 4.0, 8).tolist()
    [11.0, 13.0, 14.5, 15.5, 16.5, 17.5, 18.0, 18.0]
    """
    at_s = [0.0, *(bin_s * (np.arange(len(ahead_rps)) + 0.5))]
    return np.asarray(np.interp(np.arange(seconds) + 0.5, at_s, [now_rps, *ahead_rps]))


def auto_arima_rps(past_rps: Series, bins: int) -> Series | None:
    """The same by the automatic ARIMA of statsforecast: orders up to 5, no season."""
    if len(past_rps) < FEWEST_BINS:
        return None
    require_auto_arima()
    models: Any = import_module("statsforecast.models")
    model = models.AutoARIMA(max_p=MOST_LAGS, max_q=MOST_LAGS, seasonal=False)
    ahead = np.asarray(model.forecast(y=past_rps, h=bins)["mean"], dtype=float)
    return _within_reason(ahead, past_rps)


def require_auto_arima() -> None:
    """One sentence if statsforecast is not there."""
    if find_spec("statsforecast") is None:
        raise ConfigError("auto_arima needs statsforecast: install penstock with the extra 'arima'")


def _within_reason(ahead_rps: Series, past_rps: Series) -> Series:
    """Nothing negative, and nothing far beyond what was ever seen."""
    return np.asarray(np.clip(ahead_rps, 0.0, MOST_GROWTH * float(past_rps.max())))


def _fit(steps: Series) -> tuple[float, list[float]]:
    """Constant and weights of the autoregression whose corrected Akaike criterion is lowest.

    All orders are judged on the same steps, or the shorter ones would seem better.
    """
    most = min(MOST_LAGS, (len(steps) - 2) // 3)
    seen, count = steps[most:], len(steps) - most
    lagged = [steps[most - lag : len(steps) - lag] for lag in range(1, most + 1)]
    design = np.stack([np.ones(count), *lagged], axis=1)
    gram, target = design.T @ design, design.T @ seen
    # A trace of ridge, so that a load without any noise has a solution too.
    gram[np.diag_indices_from(gram)] += 1e-9 * (1.0 + np.trace(gram))
    squares = float(seen @ seen)
    fits: list[tuple[float, list[float]]] = []
    for used in range(1, most + 2):
        weights = np.linalg.solve(gram[:used, :used], target[:used])
        left = squares - float(weights @ target[:used])
        variance = max(left, 1e-12 * squares, 1e-300) / count
        room = max(1.0, count - used - 2.0)
        score = count * log(variance) + 2.0 * (used + 1) * count / room
        fits.append((score, weights.tolist()))
    _, (constant, *rest) = min(fits, key=itemgetter(0))
    return constant, rest
