"""What a vertex could process if it were busy all the time: its true processing rate.

There are two ways to know. Busy time: who does 100 records/s in half of the time could do 200.
And observation: a source that works off a backlog shows what it can do, apart from the time
in which those behind it hold it back. The second is believed when the first promises much more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isinf

from msgspec import Struct

from penstock.policies.flink.options import Aggregator
from penstock.policies.flink.windows import mean, rate

MS_PER_S = 1000.0


def busy_ms_per_s(
    loads: Iterable[float | None],
    busy_ms: Iterable[tuple[float, float | None]],
    aggregator: Aggregator,
    parallelism: int,
) -> float | None:
    """Busy time over the window: mean of the sampled loads, or growth of the counter.

    The counter adds up all instances, so it is divided among them.
    """
    if aggregator != "avg":
        load = mean(loads)
        return None if load is None else load * MS_PER_S
    total = rate(busy_ms)
    return None if total is None else total / parallelism


def input_rps(
    rates_rps: Iterable[float | None],
    records_in: Iterable[tuple[float, float | None]],
    aggregator: Aggregator,
) -> float | None:
    """Input over the window, estimated the same way as the busy time that it is divided by."""
    if aggregator == "avg":
        return rate(records_in)
    sampled = mean(rates_rps)
    return rate(records_in) if sampled is None or isinf(sampled) else sampled


def busy_time_capacity_rps(busy_ms_per_s: float | None, input_rps: float | None) -> float | None:
    """Input over busy fraction; without input there is nothing that would limit it.

    >>> busy_time_capacity_rps(100.0, 35.0), busy_time_capacity_rps(None, 0.0)
    (350.0, inf)
    """
    if input_rps == 0.0:
        return inf
    if input_rps is None or busy_ms_per_s is None:
        return None
    return input_rps / (busy_ms_per_s / MS_PER_S) if busy_ms_per_s else inf


def unhindered_rps(records_per_s: float, backpressured_ms_per_s: float) -> float | None:
    """The rate that a source would have if nothing behind it held it back.

    >>> unhindered_rps(500.0, 600.0), unhindered_rps(100.0, 1000.0)
    (1250.0, None)
    """
    if backpressured_ms_per_s >= MS_PER_S:
        return None
    return records_per_s / (1.0 - backpressured_ms_per_s / MS_PER_S)


def observed_rps(
    lag_records: float,
    records_per_s: float | None,
    backpressured_ms_per_s: float,
    *,
    lag_threshold_s: float,
    previous_rps: float | None,
) -> float | None:
    """One sample of a source's capacity; `previous_rps` unless it is catching up."""
    if records_per_s is None:
        return None
    if records_per_s == 0.0:
        return inf
    if lag_records >= lag_threshold_s * records_per_s:
        seen = unhindered_rps(records_per_s, backpressured_ms_per_s)
        if seen is not None:
            return seen
    return previous_rps


class SourceSample(Struct, frozen=True, gc=False):
    """What a source showed at one time."""

    records_per_s: float | None
    lag_records: float
    backpressured_ms_per_s: float = 0.0


def observed_series_rps(
    samples: Sequence[SourceSample], *, lag_threshold_s: float, min_observations: int
) -> list[float | None]:
    """Capacities seen one after the other; in between, the mean of those that were seen before.

    >>> catching_up, caught_up = SourceSample(500.0, 1e6, 600.0), SourceSample(500.0, 0.0)
    >>> observed_series_rps([catching_up, caught_up], lag_threshold_s=30.0, min_observations=2)
    [1250.0, None]
    """
    series: list[float | None] = []
    for sample in samples:
        previous_rps = None
        is_catching_up = sample.lag_records >= lag_threshold_s * (sample.records_per_s or 0.0)
        if not is_catching_up or sample.backpressured_ms_per_s >= MS_PER_S:
            previous_rps = mean(series, min_observations)
        series.append(
            observed_rps(
                sample.lag_records,
                sample.records_per_s,
                sample.backpressured_ms_per_s,
                lag_threshold_s=lag_threshold_s,
                previous_rps=previous_rps,
            )
        )
    return series


def true_processing_rps(
    busy_ms_per_s: float | None,
    input_rps: float | None,
    observed: Iterable[float | None],
    *,
    switch_threshold: float,
    min_observations: int,
) -> float | None:
    """The capacity to believe: the observed one if busy time promises much more, or nothing.

    >>> true_processing_rps(100.0, 35.0, [200.0, 400.0], switch_threshold=0.1, min_observations=2)
    300.0
    >>> true_processing_rps(100.0, 35.0, [200.0, 400.0], switch_threshold=0.2, min_observations=2)
    350.0
    """
    from_busy_rps = busy_time_capacity_rps(busy_ms_per_s, input_rps)
    seen_rps = mean(observed, min_observations)
    if seen_rps is None:
        return from_busy_rps
    if from_busy_rps is None or isinf(from_busy_rps):
        return seen_rps
    return seen_rps if from_busy_rps > seen_rps * (1.0 + switch_threshold) else from_busy_rps
