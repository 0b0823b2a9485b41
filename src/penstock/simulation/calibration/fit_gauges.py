"""The gauges of a continuous job fitted to recorded ones: cpu, busy time and backpressure.

How records move must be known already: what is looked for is how the use that a job makes of its
capacity shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.simulation.calibration.fit_search import Parameters, Space, descend
from penstock.simulation.calibration.rows import RecordedSample
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Dataflow
from penstock.simulation.engines.gauges import LEAST_SEEN

Array = NDArray[np.float64]

_CPU: Space = {
    "idle_cpu_fraction": (0.08, 0.04, 0.0, 0.5),
    "full_cpu_fraction": (1.0, 0.05, 0.3, 1.1),
    "calm_loss_in_cpu": (0.5, 0.25, 0.0, 1.0),
    "pressed_loss_in_cpu": (0.5, 0.25, 0.0, 1.0),
    "cpu_exponent": (1.0, 0.2, 0.4, 2.0),
}
_BUSY: Space = {
    "full": (0.6, 0.1, 0.05, 1.0),
    "busy_exponent": (1.2, 0.3, 0.5, 3.0),
    "calm_loss_in_busy": (0.0, 0.5, -2.0, 1.0),
    "pressed_loss_in_busy": (0.5, 0.25, 0.0, 1.0),
}
#: Gauges are quickly worked out, and policies act on a percent more or less.
_GAUGE_HALVINGS = 7
_LEAST_GAUGE_GAIN = 1e-5
#: Records that wait longer are late.
LATE_S = 2.0
#: A fleet that has not changed for so many rows, and still falls behind, is at full load.
_SETTLED_ROWS = 6


def plain(job: ContinuousJob) -> ContinuousJob:
    """The job with a busy gauge that shows how much of its capacity it uses, and nothing else."""
    return msgspec.structs.replace(
        job,
        busy_at_saturation=1.0,
        busy_exponent=1.0,
        calm_loss_in_busy=1.0,
        pressed_loss_in_busy=1.0,
    )


def with_gauges(
    job: ContinuousJob,
    runs: Sequence[Sequence[RecordedSample]],
    shown: Sequence[Sequence[RecordedSample]],
) -> ContinuousJob:
    """Fit what the gauges show to how much of its capacity the job used.

    `shown` is what the `plain` job shows, given the arrivals and workers of the recorded `runs`.
    """
    shares = _busy_shares(job)
    rows_of_both = [
        (theirs, mine)
        for rows, replayed in zip(runs, shown, strict=True)
        for theirs, mine in zip(rows, replayed, strict=True)
    ]
    # A plain job shows its use of the capacity as busy time, the same for all operators but for
    # their share of the work.
    used = np.array(
        [min(1.0, (mine.busy_fraction or 0.0) / fmean(shares)) for _, mine in rows_of_both]
    )
    pressed = np.array([float((mine.delay_s or 0.0) > 0.5) for _, mine in rows_of_both])
    kept = np.array([_efficiency(job, theirs.workers) for theirs, _ in rows_of_both])
    found: Parameters = {}

    cpu, there = _column(rows_of_both, lambda row: row.cpu_fraction)
    if len(cpu):
        u, p, e = used[there], pressed[there], kept[there]
        full = np.array([flag for rows in runs for flag in _overloaded(rows)])[there]
        # What cpu shows at full load decides whether a policy grows: those few rows count for as
        # much as all the others.
        weights = 1.0 + full * (len(full) / max(1, full.sum()))

        def cpu_loss(v: Parameters) -> float:
            seen = u * _part_seen(e, v["calm_loss_in_cpu"], v["pressed_loss_in_cpu"], p)
            idle = v["idle_cpu_fraction"]
            shown = idle + (v["full_cpu_fraction"] - idle) * seen ** v["cpu_exponent"]
            shown = np.minimum(1.0, shown)
            return float(np.average(np.abs(shown - cpu), weights=weights))

        found |= descend(_CPU, cpu_loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
        found["restart_cpu_fraction"] = _restart_cpu(runs, found["full_cpu_fraction"])

    busy, there = _column(rows_of_both, lambda row: row.busy_fraction)
    if len(busy):
        u, p, e = used[there], pressed[there], kept[there]

        def busy_loss(v: Parameters) -> float:
            seen = u * _part_seen(e, v["calm_loss_in_busy"], v["pressed_loss_in_busy"], p)
            return float(np.abs(v["full"] * seen ** v["busy_exponent"] - busy).mean())

        best = descend(_BUSY, busy_loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
        found["busy_at_saturation"] = min(1.0, best.pop("full") / fmean(shares))
        found |= best

    held, there = _column(rows_of_both, lambda row: row.backpressured_fraction)
    calm = (pressed[there] == 0.0) & (used[there] > 0.3)
    if calm.any():
        ratio = held[calm] / used[there][calm] ** 2
        found["calm_backpressure_fraction"] = float(np.clip(np.median(ratio), 0.0, 1.0))
    if (part := _held_back(job, runs)) is not None:
        found["pressed_backpressure_fraction"] = part
    return msgspec.structs.replace(job, **found)


def _held_back(job: ContinuousJob, runs: Sequence[Sequence[RecordedSample]]) -> float | None:
    """Of the time without work of what feeds the fullest operator, the part that is not idle.

    Told by rows of late records. ``None`` if there are none, or if nothing feeds that operator.
    """
    flow = Dataflow(job.operators)
    fullest = flow.regime([1.0], cores=job.cores_per_executor).bottleneck
    feeding = len(flow.ancestors[fullest]) / len(job.operators)
    parts = [
        (1.0 - row.busy_fraction - row.idle_fraction) / (feeding * (1.0 - row.busy_fraction))
        for rows in runs
        for row in rows
        if feeding and row.idle_fraction is not None and (row.delay_s or 0.0) > LATE_S
        if row.busy_fraction is not None and row.busy_fraction < 1.0
    ]
    return min(1.0, max(0.0, median(parts))) if parts else None


def _overloaded(rows: Sequence[RecordedSample]) -> list[bool]:
    """In which rows a settled fleet did all that it can, and it was not enough."""
    flags = [False] * len(rows)
    for place in range(_SETTLED_ROWS, len(rows)):
        row, before = rows[place], rows[place - _SETTLED_ROWS : place]
        done, late_s, was_late_s = row.throughput_rps, row.delay_s, before[-1].delay_s
        if done is None or late_s is None or was_late_s is None:
            continue
        settled = all(one.workers == row.workers for one in before)
        behind = late_s > max(1.0, was_late_s) and done < 0.985 * row.arrival_rps
        flags[place] = settled and behind
    return flags


def _part_seen(efficiency: Array, calm: float, pressed: float, held_back: Array) -> Array:
    loss_seen = calm + (pressed - calm) * held_back
    part: Array = np.maximum(LEAST_SEEN, efficiency + (1.0 - efficiency) * loss_seen)
    return part


def _column(
    both: Sequence[tuple[RecordedSample, RecordedSample]],
    metric: Callable[[RecordedSample], float | None],
) -> tuple[Array, NDArray[np.bool_]]:
    """What was recorded of a metric, and in which rows."""
    values = [metric(theirs) for theirs, _ in both]
    there = np.array([value is not None for value in values], dtype=bool)
    return np.array([value for value in values if value is not None]), there


def _busy_shares(job: ContinuousJob) -> tuple[float, ...]:
    """How busy each operator is relative to the fullest."""
    return Dataflow(job.operators).regime([1.0], cores=job.cores_per_executor).busy


def _efficiency(job: ContinuousJob, workers: int) -> float:
    return 1.0 / (1.0 + job.contention * (workers - 1))


def _restart_cpu(runs: Sequence[Sequence[RecordedSample]], otherwise: float) -> float:
    """Mean cpu in the first sample after each rescale."""
    seen = [
        after.cpu_fraction
        for rows in runs
        for before, after in pairwise(rows)
        if before.workers != after.workers and after.cpu_fraction is not None
    ]
    return min(1.0, fmean(seen) if seen else otherwise)
