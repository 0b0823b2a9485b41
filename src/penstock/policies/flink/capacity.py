"""What a vertex could process if it were busy all the time: its true processing rate.

There are two ways to know. Busy time: who does 100 records/s in half of the time could do 200.
And observation: a source that works off a backlog shows what it can do, apart from the time
in which those behind it hold it back. The second is believed when the first promises much more.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from math import inf, isfinite, isinf

from msgspec import Struct

MS_PER_S = 1000.0
_THOUSANDTH = Decimal("0.001")
_WITHOUT_THOUSANDTHS = 1e13  #: From here on a double has no thousandths.
#: The clock of the operator ticks in milliseconds; two samples lie at least one tick apart.
_TICK_S = 0.001


def rate(points: Iterable[tuple[float, float | None]]) -> float | None:
    """How fast a counter grows, per second: from its first to its last known value.

    >>> rate([(1.0, 0.0), (2.0, None), (3.0, 4.0)])
    2.0
    >>> rate([(3.0, 1.0)]) is None
    True
    """
    known = [(at_s, value) for at_s, value in points if value is not None]
    if len(known) < 2:
        return None
    (first_s, first), (last_s, last) = known[0], known[-1]
    return (last - first) / max(last_s - first_s, _TICK_S)


def mean(values: Iterable[float | None], at_least: int = 1) -> float | None:
    """Mean of the known finite values if there are enough; infinite if there are only such.

    >>> mean([1.0, None, 3.0, float("inf")])
    2.0
    >>> mean([1.0, None], at_least=2) is None, mean([None, float("inf")])
    (True, inf)
    """
    known = [value for value in values if value is not None]
    finite = [value for value in known if not isinf(value)]
    if not finite:
        return inf if known else None
    return sum(finite) / len(finite) if len(finite) >= at_least else None


def rounded(value: float | None) -> float | None:
    """As the operator keeps its metrics: three decimals, but never down to zero.

    >>> rounded(588.23529), rounded(0.0001), rounded(0.0005)
    (588.235, 0.0001, 0.001)
    """
    if value is None or not isfinite(value) or abs(value) >= _WITHOUT_THOUSANDTHS:
        return value
    short = float(Decimal(repr(float(value))).quantize(_THOUSANDTH, ROUND_HALF_UP))
    return short or value


class Collected(Struct, frozen=True, gc=False):
    """Which samples are kept (their times, oldest first), and whether they fill the window."""

    at_s: tuple[float, ...]
    is_full: bool


def collect(
    kept_at_s: Sequence[float],
    now_s: float,
    *,
    running_at_s: float,
    stabilization_s: float,
    window_s: float,
) -> Collected:
    """Add a sample taken now. The window's clock starts with the first sample of a settled job.

    A job that was restarted forgets all samples; old ones are dropped only once the window is full.

    >>> collect([50, 60, 150, 180], 260, running_at_s=0, stabilization_s=100, window_s=100)
    Collected(at_s=(180, 260), is_full=True)
    """
    if kept_at_s and running_at_s > kept_at_s[0]:
        kept_at_s = ()
    stable_at_s = running_at_s + stabilization_s
    full_at_s = next((at_s for at_s in kept_at_s if at_s >= stable_at_s), now_s) + window_s
    if now_s < full_at_s:
        return Collected((*kept_at_s, now_s), is_full=False)
    oldest_at_s = now_s - window_s
    kept = tuple(at_s for at_s in kept_at_s if at_s >= oldest_at_s)
    return Collected((*kept, now_s), is_full=True)


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


class SourceSample(Struct, frozen=True, gc=False):
    """What a source showed at one time."""

    records_per_s: float | None
    lag_records: float
    backpressured_ms_per_s: float = 0.0


def observed_rps(
    sample: SourceSample, previous_rps: Callable[[], float | None], *, lag_threshold_s: float
) -> float | None:
    """One sample of a source's capacity; `previous_rps` unless it is catching up."""
    if not sample.records_per_s:
        return None if sample.records_per_s is None else inf
    seen = None
    if sample.lag_records >= lag_threshold_s * sample.records_per_s:
        seen = unhindered_rps(sample.records_per_s, sample.backpressured_ms_per_s)
    return previous_rps() if seen is None else seen


def observed_series_rps(
    samples: Sequence[SourceSample], *, lag_threshold_s: float, min_observations: int
) -> list[float | None]:
    """Capacities seen one after the other; in between, the mean of those that were seen before.

    >>> catching_up, caught_up = SourceSample(500.0, 1e6, 600.0), SourceSample(500.0, 0.0)
    >>> observed_series_rps([catching_up, caught_up], lag_threshold_s=30.0, min_observations=2)
    [1250.0, None]
    """
    series: list[float | None] = []
    mean_so_far = partial(mean, series, min_observations)
    for sample in samples:
        series.append(observed_rps(sample, mean_so_far, lag_threshold_s=lag_threshold_s))
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
