"""Steps as lines to draw.

A line is two columns, seconds since the start of the run and values; ``None`` is a gap, because
what was not measured must not be drawn. Long lines are thinned to what a screen can show, and a
spike always survives it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from penstock.core.model import Decision, Snapshot, Step
from penstock.observe.formatting import EPOCH_BEGINS_S

#: The most points of one line: two per pixel column of a wide screen.
MOST_POINTS = 2400
#: How far a forecast looks ahead when its evidence does not say it.
HORIZON_S = 900.0
#: The names under which policies give the highest load that they forecast, as evidence.
FORECASTS = ("forecast_peak_rps", "peak_rps")
#: The signals of `Telemetry` with a panel of their own; load, fleet and backlog have one already.
PANELS = (
    "latency_s", "cpu_fraction", "busy_fraction", "idle_fraction", "backpressured_fraction",
    "trigger_fraction",
)  # fmt: skip

Values = Sequence[float | None]


class SeriesLine(Struct, frozen=True):
    """A curve: seconds since the start, and a value or a gap at each."""

    at_s: list[float]
    values: list[float | None]


class Foresight(Struct, frozen=True):
    """The highest load forecast at each decision, and the highest that came within the horizon.

    `low` and `high` are the range around `foreseen` where the policy gave one.
    """

    horizon_s: float
    foreseen: SeriesLine
    came: SeriesLine
    low: SeriesLine
    high: SeriesLine
    error_fraction: float | None


class RunSeries(Struct, frozen=True):
    """All curves of one run."""

    load: SeriesLine
    throughput: SeriesLine
    promised: SeriesLine
    requested: SeriesLine
    registered: SeriesLine
    active: SeriesLine
    delay: SeriesLine
    backlog: SeriesLine


class Telemetry(Struct, frozen=True):
    """What was measured at each turn; ``None`` is what was not. All lists are equally long.

    `cpu_fraction` is a mean over executors, `busy_fraction` and `idle_fraction` are means over
    executors (Spark) or operators (a continuous engine), `backpressured_fraction` is that of the
    operator which is held back most. A stage of Spark is never held back: there `trigger_fraction`
    stands for it, the duration of the last batch over the trigger interval; above 1, batches are
    late.
    """

    at_s: list[float]
    input_rps: list[float | None]
    workers: list[float | None]
    lag_records: list[float | None]
    latency_s: list[float | None]
    cpu_fraction: list[float | None]
    busy_fraction: list[float | None]
    idle_fraction: list[float | None]
    backpressured_fraction: list[float | None]
    trigger_fraction: list[float | None]


def begin_s(steps: Sequence[Step]) -> float:
    """Where the time axis has its zero: simulated runs count from 0, live ones from their start."""
    first = steps[0].at_s
    return first if first >= EPOCH_BEGINS_S else 0.0


def lines(steps: Sequence[Step], most: int = MOST_POINTS) -> RunSeries:
    """The curves of a run, of at most about `most` points each."""
    zero_s = begin_s(steps)
    at_s = [step.at_s - zero_s for step in steps]

    def seen(read: Callable[[Snapshot], float | None]) -> list[float | None]:
        return [None if step.snapshot is None else read(step.snapshot) for step in steps]

    return RunSeries(
        load=thin(at_s, seen(lambda s: s.arrival_rps), most),
        throughput=thin(at_s, seen(lambda s: s.throughput_rps), most),
        promised=levels(at_s, promises(steps), most),
        requested=levels(at_s, seen(lambda s: s.fleet.target), most),
        registered=levels(at_s, seen(lambda s: s.fleet.registered), most),
        active=levels(at_s, seen(lambda s: s.fleet.active), most),
        delay=thin(at_s, seen(lambda s: s.delay_s), most),
        backlog=thin(at_s, seen(lambda s: s.backlog_records), most),
    )


def telemetry(steps: Sequence[Step]) -> Telemetry:
    """The eight signals of a run, in seconds since its start; backpressure has two forms.

    >>> from penstock.core.model import Decision, ExecutorSample, Fleet, Reason
    >>> executors = (ExecutorSample("1", 0.0, True, 0.5, 0.8), ExecutorSample("2", 0.0, True, 0.3))
    >>> seen = Snapshot(0.0, Fleet(2, 2, 2), latency_s=3.0, trigger_interval_s=2.0,
    ...                 executors=executors)
    >>> found = telemetry([Step(0.0, seen, Decision.of(2, Reason("right_size", "holding")))])
    >>> found.workers, found.cpu_fraction, found.busy_fraction, found.trigger_fraction
    ([2], [0.4], [0.8], [1.5])
    """
    zero_s = begin_s(steps)
    rows = [(None,) * 9 if step.snapshot is None else _signals(step.snapshot) for step in steps]
    columns = (list(column) for column in zip(*rows, strict=True))
    return Telemetry([step.at_s - zero_s for step in steps], *columns)


def measured(steps: Sequence[Step]) -> dict[str, SeriesLine]:
    """The signals that a run measured and `lines` does not have, as curves by their names."""
    found = telemetry(steps)
    columns = {name: getattr(found, name) for name in PANELS}
    return {
        name: thin(found.at_s, values, MOST_POINTS // 2)
        for name, values in columns.items()
        if any(value is not None for value in values)
    }


def _signals(seen: Snapshot) -> tuple[float | None, ...]:
    """The fields of `Telemetry` at one turn, in their order."""
    held_back = [each.backpressured_fraction for each in seen.operators]
    backpressured = max((each for each in held_back if each is not None), default=None)
    cpu = _mean(each.cpu_fraction for each in seen.executors)
    busy = _mean(each.busy_fraction for each in seen.executors)
    idle = None if busy is None else max(0.0, 1.0 - busy)
    if backpressured is not None:  # operators run side by side, each in slots of its own
        busy = _mean(each.busy_fraction for each in seen.operators)
        idle = _mean(each.idle_fraction for each in seen.operators)
    trigger_s, latency_s = seen.trigger_interval_s, seen.latency_s
    filled = None if not trigger_s or latency_s is None else latency_s / trigger_s
    input_rps, workers, lag_records = seen.arrival_rps, seen.fleet.registered, seen.backlog_records
    return input_rps, workers, lag_records, latency_s, cpu, busy, idle, backpressured, filled


def _mean(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def promises(steps: Sequence[Step]) -> list[float | None]:
    """The rate that the fleet is promised to carry at each turn.

    A promise is for one size of the fleet and holds while that size does. One that a guard
    overrode or the actuator refused is for a fleet that never existed.
    """
    promised: float | None = None
    size: int | None = None
    found: list[float | None] = []
    for step in steps:
        decision, receipt = step.decision, step.receipt
        target = decision.target_executors
        refused = receipt is not None and not receipt.accepted
        if step.snapshot is not None and not refused:
            if decision.expected_rps is not None and decision.wanted_executors == target:
                promised, size = decision.expected_rps, target
            elif target != size:
                promised = None
        found.append(promised)
    return found


def thin(
    at_s: Sequence[float], values: Values, most: int = MOST_POINTS, like: Values | None = None
) -> SeriesLine:
    """At most about `most` points: of equal spans, each with its lowest, its highest and its gap.

    With `like`, the instants are those that remain of that line.

    >>> thin([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 9.0, 1.0, 0.0, 1.0], most=2)
    SeriesLine(at_s=[0.0, 2.0, 4.0, 5.0], values=[1, 9, 0, 1])
    """
    kept = _kept(values if like is None else like, most)
    return SeriesLine([round(at_s[i], 2) for i in kept], [_rounded(values[i]) for i in kept])


def _kept(values: Values, most: int) -> Sequence[int]:
    """Which points of a line remain when it is thinned."""
    count = len(values)
    if count <= most:
        return range(count)
    kept = {0, count - 1}
    spans = max(1, most // 2)
    for span in range(spans):
        low, high = span * count // spans, (span + 1) * count // spans
        measured = [index for index in range(low, high) if values[index] is not None]
        if len(measured) < high - low:
            kept.add(next(index for index in range(low, high) if values[index] is None))
        if measured:
            kept.add(min(measured, key=lambda index: values[index] or 0.0))
            kept.add(max(measured, key=lambda index: values[index] or 0.0))
    return sorted(kept)


def levels(at_s: Sequence[float], values: Values, most: int = MOST_POINTS) -> SeriesLine:
    """A curve that moves in steps: only where it moves, and its end.

    >>> levels([0.0, 10.0, 20.0, 30.0], [3, 3, 4, 4])
    SeriesLine(at_s=[0.0, 20.0, 30.0], values=[3, 4, 4])
    """
    last = len(values) - 1
    kept = [i for i, value in enumerate(values) if i in (0, last) or value != values[i - 1]]
    return thin([at_s[i] for i in kept], [values[i] for i in kept], most)


def foresight(steps: Sequence[Step]) -> Foresight | None:
    """Forecast against what came, or ``None`` where the policy gave no forecast."""
    given = [(step, evidence) for step in steps if (evidence := _forecast(step.decision))]
    if not given:
        return None
    zero_s = begin_s(steps)
    horizon_s = given[0][1].get("horizon_s", HORIZON_S)
    origins = [step.at_s for step, _ in given]
    foreseen = [evidence["peak"] for _, evidence in given]
    came = peaks_ahead(steps, origins, horizon_s)
    errors = sorted(
        abs(peak - real) / real
        for peak, real in zip(foreseen, came, strict=True)
        if real is not None and real > 0.0
    )
    at_s = [origin - zero_s for origin in origins]

    def edge(name: str) -> SeriesLine:
        values = [evidence.get(name) for _, evidence in given]
        return thin(at_s, values, like=foreseen) if any(values) else SeriesLine([], [])

    return Foresight(
        horizon_s=horizon_s,
        foreseen=thin(at_s, foreseen),
        came=thin(at_s, came),
        low=edge("peak_low_rps"),
        high=edge("peak_high_rps"),
        error_fraction=errors[len(errors) // 2] if errors else None,
    )


def peaks_ahead(
    steps: Sequence[Step], origins_s: Sequence[float], horizon_s: float
) -> list[float | None]:
    """The highest load within `horizon_s` after each origin; ``None`` if the run ends before."""
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    at_s = [each.at_s for each in seen if each.arrival_rps is not None]
    load_rps = [each.arrival_rps for each in seen if each.arrival_rps is not None]
    peaks: list[float | None] = []
    for origin_s in origins_s:
        begin, end = bisect_right(at_s, origin_s), bisect_right(at_s, origin_s + horizon_s)
        is_whole = bool(at_s) and origin_s + horizon_s <= at_s[-1]
        peaks.append(max(load_rps[begin:end], default=None) if is_whole else None)
    return peaks


def _forecast(decision: Decision) -> dict[str, float]:
    """The evidence of the first reason with a forecast, its highest load named ``peak``."""
    for reason in decision.reasons:
        for name in FORECASTS:
            if name in reason.evidence:
                return {**reason.evidence, "peak": reason.evidence[name]}
    return {}


def _rounded(value: float | None) -> float | None:
    """Five digits: finer than any screen, and half the bytes."""
    if value is None or isinstance(value, int):
        return value
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short
