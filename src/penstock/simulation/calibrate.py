"""An engine fitted to a recorded run: given the same arrivals and workers, it does the same.

`replay` feeds a job on paper with the arrivals and the worker counts of a recording and gives the
rows that it would have shown. `fit` looks for the parameters with which that comes nearest to what
was recorded: first those that move records (capacity, contention, downtime, cold workers), then
those of the gauges (cpu, busy time, backpressure). What it is fitted on and what it is judged on
are different rows; `errors` says how far off it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import log1p
from statistics import fmean, median

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.model import Snapshot, Step
from penstock.simulation.continuous import ContinuousJob
from penstock.simulation.dataflow import Dataflow
from penstock.simulation.fleet import Startup

Array = NDArray[np.float64]
Parameters = dict[str, float]

#: Fewer rows say too little about a job.
FEWEST_ROWS = 40
#: Records that wait so long are late: what departs then is what the fleet can do.
LATE_S = 2.0

#: Where the search starts, its first step, and the bounds of each parameter that moves records.
#: The capacity of a worker is relative to a first guess.
_FLOW: dict[str, tuple[float, float, float, float]] = {
    "capacity": (1.0, 0.08, 0.2, 5.0),
    "contention": (0.05, 0.03, 0.0, 1.0),
    "coherence": (0.002, 0.004, 0.0, 0.2),
    "late_coherence": (0.0, 0.008, 0.0, 0.2),
    "restart_s": (8.0, 3.0, 0.0, 120.0),
    "join_s": (6.0, 3.0, 0.0, 120.0),
    "cold_fraction": (0.9, 0.1, 0.3, 1.0),
}
_CPU: dict[str, tuple[float, float, float, float]] = {
    "idle_cpu_fraction": (0.08, 0.04, 0.0, 0.5),
    "full_cpu_fraction": (1.0, 0.05, 0.3, 1.2),
    "calm_loss_in_cpu": (0.5, 0.25, 0.0, 1.0),
    "pressed_loss_in_cpu": (0.5, 0.25, 0.0, 1.0),
}
_BUSY: dict[str, tuple[float, float, float, float]] = {
    "full": (0.6, 0.1, 0.05, 1.0),
    "busy_exponent": (1.2, 0.3, 0.5, 3.0),
    "calm_loss_in_busy": (0.5, 0.25, 0.0, 1.0),
    "pressed_loss_in_busy": (0.5, 0.25, 0.0, 1.0),
}
#: How often the steps of a search are halved.
_HALVINGS = 4
#: A cold worker is one for so long, where a recording cannot tell duration from depth.
_WARMUP_S = 120.0


class Row(Struct, frozen=True, gc=False):
    """One sample of a recorded run; ``None`` is what was not measured.

    `busy_fraction` is the mean over operators, `backpressured_fraction` the largest of them.
    """

    at_s: float
    arrival_rps: float
    workers: int
    throughput_rps: float | None = None
    backlog_records: float | None = None
    delay_s: float | None = None
    cpu_fraction: float | None = None
    busy_fraction: float | None = None
    backpressured_fraction: float | None = None


class Errors(Struct, frozen=True):
    """How far a simulated run is off a recorded one.

    `throughput` is the sum of all deviations over the sum of what was recorded, `delay` how far
    the mean delay is off, as a fraction; `cpu` and `busy` are mean deviations of a fraction.
    ``None`` where nothing was recorded.
    """

    throughput: float | None
    delay: float | None
    cpu: float | None
    busy: float | None


def rows_of(steps: Iterable[Step]) -> list[Row]:
    """The rows of a journal: its snapshots with arrivals and at least one worker."""
    rows = []
    for step in steps:
        seen = step.snapshot
        if seen is not None and seen.arrival_rps is not None and seen.fleet.active > 0:
            rows.append(row_of(seen, seen.arrival_rps))
    return rows


def row_of(seen: Snapshot, arrival_rps: float) -> Row:
    cpu = [one.cpu_fraction for one in seen.executors if one.cpu_fraction is not None]
    busy = [one.busy_fraction for one in seen.operators if one.busy_fraction is not None]
    held = [
        one.backpressured_fraction
        for one in seen.operators
        if one.backpressured_fraction is not None
    ]
    return Row(
        seen.at_s,
        arrival_rps,
        seen.fleet.active,
        seen.throughput_rps,
        seen.backlog_records,
        seen.delay_s,
        fmean(cpu) if cpu else None,
        fmean(busy) if busy else None,
        max(held) if held else None,
    )


def replay(job: ContinuousJob, rows: Sequence[Row], window_s: float = 0.0) -> list[Row]:
    """What the job on paper shows, given the arrivals and the workers of a recording.

    `window_s` is the time over which the recorded rates and busy times are means: arrivals are
    led by half of it, and what comes out is averaged over as much. Nothing is left to chance.
    """
    even = msgspec.structs.replace(
        job,
        startup=Startup(0.0, 0.0),
        wait_for_workers_s=0.0,
        speed_spread=0.0,
        capacity_noise=0.0,
        measurement_noise=0.0,
        restart_spread=0.0,
    )
    begin_s = rows[0].at_s
    run = even.start(_rates(rows, window_s), executors=rows[0].workers, seed=1)
    shown = [rows[0]]
    for before, row in pairwise(rows):
        if row.workers != before.workers:
            run.apply(row.workers, (before.at_s + row.at_s) / 2.0 - begin_s)
        seen = row_of(run.read(row.at_s - begin_s), row.arrival_rps)
        shown.append(msgspec.structs.replace(seen, at_s=row.at_s))
    return _averaged(shown, window_s)


def errors(recorded: Sequence[Row], simulated: Sequence[Row]) -> Errors:
    """How far the simulated rows are off the recorded ones."""
    return Errors(
        throughput=_weighted(recorded, simulated, lambda row: row.throughput_rps),
        delay=_of_means(recorded, simulated, lambda row: row.delay_s),
        cpu=_absolute(recorded, simulated, lambda row: row.cpu_fraction),
        busy=_absolute(recorded, simulated, lambda row: row.busy_fraction),
    )


def fit(
    template: ContinuousJob, runs: Sequence[Sequence[Row]], window_s: float = 0.0
) -> ContinuousJob:
    """The job of that shape which comes nearest to the recorded runs.

    The template gives the operators, how their work compares, and all that is not looked for.
    """
    for rows in runs:
        if len(rows) < FEWEST_ROWS:
            raise ConfigError(
                f"a calibration needs at least {FEWEST_ROWS} rows with arrivals and workers, "
                f"not {len(rows)}"
            )
    guess_rps = _first_guess_rps(runs)
    template = msgspec.structs.replace(template, state_bytes=0.0, warmup_s=_WARMUP_S)

    def with_flow(values: Parameters) -> ContinuousJob:
        others = {name: value for name, value in values.items() if name != "capacity"}
        return _scaled(msgspec.structs.replace(template, **others), guess_rps * values["capacity"])

    def flow_loss(values: Parameters) -> float:
        job = with_flow(values)
        return fmean([_flow_loss(rows, replay(job, rows, window_s)) for rows in runs])

    job = with_flow(_descend(_FLOW, flow_loss))
    return _with_gauges(job, runs, window_s)


def halves(rows: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
    """A run as what it is fitted on and what it is judged on."""
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]


def _rates(rows: Sequence[Row], window_s: float) -> list[float]:
    """One arrival rate per second; a mean over a window tells of the time half of it ago."""
    at_s = np.array([row.at_s for row in rows]) - rows[0].at_s
    lead_s = max(0.0, (window_s - float(np.median(np.diff(at_s)))) / 2.0)
    seconds = np.arange(int(at_s[-1]) + 1) + 0.5 + lead_s
    arrivals = np.array([row.arrival_rps for row in rows])
    if lead_s > 0.0:
        rates: list[float] = np.interp(seconds, at_s, arrivals).tolist()
        return rates
    # What is measured since the last sample holds for all the time since then.
    index = np.clip(np.searchsorted(at_s, seconds), 0, len(rows) - 1)
    since: list[float] = arrivals[index].tolist()
    return since


def _averaged(rows: list[Row], window_s: float) -> list[Row]:
    """Throughput and busy time as means over a trailing window, as some recordings have them."""
    if window_s <= 0.0 or len(rows) < 2:
        return rows
    width = max(1, round(window_s / median(b.at_s - a.at_s for a, b in pairwise(rows))))
    throughput = _trailing([row.throughput_rps or 0.0 for row in rows], width)
    busy = _trailing([row.busy_fraction or 0.0 for row in rows], width)
    held = _trailing([row.backpressured_fraction or 0.0 for row in rows], width)
    return [
        msgspec.structs.replace(
            row, throughput_rps=rps, busy_fraction=part, backpressured_fraction=back
        )
        for row, rps, part, back in zip(rows, throughput, busy, held, strict=True)
    ]


def _trailing(values: Sequence[float], width: int) -> list[float]:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - width)
    means: list[float] = ((sums[ends] - sums[begins]) / (ends - begins)).tolist()
    return means


def _first_guess_rps(runs: Sequence[Sequence[Row]]) -> float:
    """The rate of one worker: what the hardest working ones did, or what busy time promises."""
    every = [row for rows in runs for row in rows]
    done = [row.throughput_rps / row.workers for row in every if row.throughput_rps]
    if not done:
        raise ConfigError("a calibration needs rows with a throughput, and there are none")
    seen = float(np.quantile(done, 0.95))
    if any(row.delay_s is not None and row.delay_s > LATE_S for row in every):
        return seen
    # Nothing ever waited: how much more they could do, only their gauges tell.
    promised = [
        row.throughput_rps / row.workers / row.busy_fraction
        for row in every
        if row.throughput_rps and row.busy_fraction and row.busy_fraction > 0.05
    ]
    return max(seen, median(promised)) if promised else seen


def _scaled(job: ContinuousJob, rps_per_worker: float) -> ContinuousJob:
    """The job with service times such that one worker does so much."""
    factor = job.capacity_rps(1) / rps_per_worker
    operators = tuple(
        msgspec.structs.replace(one, service_s=one.service_s * factor) for one in job.operators
    )
    return msgspec.structs.replace(job, operators=operators)


def _flow_loss(recorded: Sequence[Row], simulated: Sequence[Row]) -> float:
    """Delays span decades, so it is their logarithms that are compared; plus the throughput."""
    late = [
        abs(log1p(mine.delay_s) - log1p(theirs.delay_s))
        for theirs, mine in zip(recorded, simulated, strict=True)
        if theirs.delay_s is not None and mine.delay_s is not None
    ]
    rate = _weighted(recorded, simulated, lambda row: row.throughput_rps)
    return (fmean(late) if late else 0.0) + (rate or 0.0)


def _with_gauges(
    job: ContinuousJob, runs: Sequence[Sequence[Row]], window_s: float
) -> ContinuousJob:
    """Fit what the gauges show to how much of its capacity the job used."""
    plain = msgspec.structs.replace(
        job,
        busy_at_saturation=1.0,
        busy_exponent=1.0,
        calm_loss_in_busy=1.0,
        pressed_loss_in_busy=1.0,
    )
    shares = _busy_shares(job)
    pairs = [
        (theirs, mine)
        for rows in runs
        for theirs, mine in zip(rows, replay(plain, rows, window_s), strict=True)
    ]
    # A plain job shows its use of the capacity as busy time, the same for all operators but for
    # their share of the work.
    used = np.array([min(1.0, (mine.busy_fraction or 0.0) / fmean(shares)) for _, mine in pairs])
    pressed = np.array([float((mine.delay_s or 0.0) > 0.5) for _, mine in pairs])
    kept = np.array([_efficiency(job, theirs.workers) for theirs, _ in pairs])
    found: Parameters = {}

    cpu, there = _column(pairs, lambda row: row.cpu_fraction)
    if len(cpu):
        u, p, e = used[there], pressed[there], kept[there]

        def cpu_loss(v: Parameters) -> float:
            seen = u * (e + (1 - e) * _mixed(v["calm_loss_in_cpu"], v["pressed_loss_in_cpu"], p))
            idle = v["idle_cpu_fraction"]
            shown = np.minimum(1.0, idle + (v["full_cpu_fraction"] - idle) * seen)
            return float(np.abs(shown - cpu).mean())

        found |= _descend(_CPU, cpu_loss)
        found["restart_cpu_fraction"] = _restart_cpu(runs, found["full_cpu_fraction"])

    busy, there = _column(pairs, lambda row: row.busy_fraction)
    if len(busy):
        u, p, e = used[there], pressed[there], kept[there]

        def busy_loss(v: Parameters) -> float:
            seen = u * (e + (1 - e) * _mixed(v["calm_loss_in_busy"], v["pressed_loss_in_busy"], p))
            return float(np.abs(v["full"] * seen ** v["busy_exponent"] - busy).mean())

        best = _descend(_BUSY, busy_loss)
        found["busy_at_saturation"] = min(1.0, best.pop("full") / fmean(shares))
        found |= best

    held, there = _column(pairs, lambda row: row.backpressured_fraction)
    calm = (pressed[there] == 0.0) & (used[there] > 0.3)
    if calm.any():
        ratio = held[calm] / used[there][calm] ** 2
        found["calm_backpressure_fraction"] = float(np.clip(np.median(ratio), 0.0, 1.0))
    return msgspec.structs.replace(job, **found)


def _mixed(calm: float, pressed: float, held_back: Array) -> Array:
    return calm + (pressed - calm) * held_back


def _column(
    pairs: Sequence[tuple[Row, Row]], metric: Callable[[Row], float | None]
) -> tuple[Array, NDArray[np.bool_]]:
    """What was recorded of a metric, and in which rows."""
    values = [metric(theirs) for theirs, _ in pairs]
    there = np.array([value is not None for value in values], dtype=bool)
    return np.array([value for value in values if value is not None]), there


def _busy_shares(job: ContinuousJob) -> tuple[float, ...]:
    """How busy each operator is relative to the fullest."""
    return Dataflow(job.operators).regime([1.0], cores=job.cores_per_executor).busy


def _efficiency(job: ContinuousJob, workers: int) -> float:
    return 1.0 / (1.0 + (job.contention + job.coherence * workers) * (workers - 1))


def _restart_cpu(runs: Sequence[Sequence[Row]], otherwise: float) -> float:
    """Mean cpu in the first sample after each rescale."""
    seen = [
        after.cpu_fraction
        for rows in runs
        for before, after in pairwise(rows)
        if before.workers != after.workers and after.cpu_fraction is not None
    ]
    return min(1.0, fmean(seen) if seen else otherwise)


def _descend(
    space: Mapping[str, tuple[float, float, float, float]], loss: Callable[[Parameters], float]
) -> Parameters:
    """The parameters of least loss: step along each axis while that helps, then halve the steps.

    >>> found = _descend({"x": (0.0, 0.8, -5.0, 5.0)}, lambda v: abs(v["x"] - 2.0))
    >>> round(found["x"], 1)
    2.0
    """
    best = {name: start for name, (start, _, _, _) in space.items()}
    least = loss(best)
    steps = {name: step for name, (_, step, _, _) in space.items()}
    for _ in range(_HALVINGS + 1):
        improved = True
        while improved:
            improved = False
            for name, (_, _, low, high) in space.items():
                for sign in (1.0, -1.0):
                    moved = min(max(best[name] + sign * steps[name], low), high)
                    if moved == best[name]:
                        continue
                    tried = {**best, name: moved}
                    if (value := loss(tried)) < least - 1e-9:
                        best, least, improved = tried, value, True
                        break
        steps = {name: step / 2.0 for name, step in steps.items()}
    return best


def _weighted(
    recorded: Sequence[Row], simulated: Sequence[Row], metric: Callable[[Row], float | None]
) -> float | None:
    """The sum of deviations over the sum of what was recorded."""
    pairs = _both(recorded, simulated, metric)
    total = sum(theirs for theirs, _ in pairs)
    return sum(abs(mine - theirs) for theirs, mine in pairs) / total if total > 0.0 else None


def _of_means(
    recorded: Sequence[Row], simulated: Sequence[Row], metric: Callable[[Row], float | None]
) -> float | None:
    pairs = _both(recorded, simulated, metric)
    total = sum(theirs for theirs, _ in pairs)
    return abs(sum(mine for _, mine in pairs) - total) / total if total > 0.0 else None


def _absolute(
    recorded: Sequence[Row], simulated: Sequence[Row], metric: Callable[[Row], float | None]
) -> float | None:
    pairs = _both(recorded, simulated, metric)
    return fmean([abs(mine - theirs) for theirs, mine in pairs]) if pairs else None


def _both(
    recorded: Sequence[Row], simulated: Sequence[Row], metric: Callable[[Row], float | None]
) -> list[tuple[float, float]]:
    return [
        (left, right)
        for theirs, mine in zip(recorded, simulated, strict=True)
        if (left := metric(theirs)) is not None and (right := metric(mine)) is not None
    ]
