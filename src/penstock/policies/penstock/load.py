"""From what was seen to a forecast of the load, in bins, with surges kept apart."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import Snapshot
from penstock.policies.penstock.forecasters import Forecast, forecast
from penstock.policies.penstock.surges import BIN_S, Surges

#: How much of the past a forecast uses, in bins: an hour and a half of half minutes.
PAST_BINS = 180
#: A surge of unknown shape is assumed to stay as it is for this long; then it is forecast.
UNKNOWN_S = 240.0


def load_ahead(seen: Sequence[Snapshot], surges: Surges, steps: int, bin_s: float) -> Forecast:
    """The forecast in bins from now on; `seen` ends with the present.

    Surges that recur are left out, since a plan has a scenario for them; during one the load is
    assumed to stay where it is.
    """
    now = seen[-1]
    load_rps = now.arrival_rps or 0.0
    spans_s = surges.spans_s() if surges.recur else []
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
        latest = None
        load_rps, at_s = snapshot.arrival_rps, snapshot.at_s
        if load_rps is None:
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
