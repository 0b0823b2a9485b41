"""The gauges of a continuous job fitted to recorded ones: cpu, busy time and backpressure.

How records move must be known already: what is looked for is how the use that a job makes of its
capacity shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from statistics import fmean, median
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.simulation.calibration.fit_search import Parameters, Space, descend
from penstock.simulation.calibration.rows import RecordedSample
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Dataflow
from penstock.simulation.engines.gauges import LEAST_SEEN

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

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
#: Gauges are computed quickly, and policies act on a percent more or less.
_GAUGE_HALVINGS = 7
_LEAST_GAUGE_GAIN = 1e-5
#: Records that wait longer are late.
LATE_S = 2.0
#: A fleet that has not changed for this many rows, and still falls behind, is at full load.
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


class _Use(NamedTuple):
    """Row by row: the part of its capacity that a job used, whether records waited, and what
    contention left of a worker's speed."""

    used: Array
    pressed: Array
    efficiency: Array

    def at(self, rows: Mask) -> _Use:
        return _Use(*(column[rows] for column in self))

    def seen(self, calm: float, pressed: float) -> Array:
        """What a gauge counts that sees these parts of what is lost to contention."""
        loss_seen = calm + (pressed - calm) * self.pressed
        kept = np.maximum(LEAST_SEEN, self.efficiency + (1.0 - self.efficiency) * loss_seen)
        return np.asarray(self.used * kept)


def with_gauges(
    job: ContinuousJob,
    runs: Sequence[Sequence[RecordedSample]],
    shown: Sequence[Sequence[RecordedSample]],
) -> ContinuousJob:
    """Fit what the gauges show to how much of its capacity the job used.

    `shown` is what the `plain` job shows, given the arrivals and workers of the recorded `runs`.
    """
    rows, replayed = list(chain.from_iterable(runs)), list(chain.from_iterable(shown))
    share = fmean(Dataflow(job.operators).regime([1.0], cores=job.cores_per_executor).busy)
    # A plain job shows its use of the capacity as busy time, the same for all operators but for
    # their share of the work.
    use = _Use(
        np.array([min(1.0, (mine.busy_fraction or 0.0) / share) for mine in replayed]),
        np.array([float((mine.delay_s or 0.0) > 0.5) for mine in replayed]),
        np.array([1.0 / (1.0 + job.contention * (row.workers - 1)) for row in rows]),
    )
    found = _fit_cpu(runs, *_measured(rows, "cpu_fraction", use))
    found |= _fit_busy(share, *_measured(rows, "busy_fraction", use)[:2])
    held, calm, _ = _measured(rows, "backpressured_fraction", use)
    near_full = (calm.pressed == 0.0) & (calm.used > 0.3)
    if near_full.any():
        ratio = held[near_full] / calm.used[near_full] ** 2
        found["calm_backpressure_fraction"] = float(np.clip(np.median(ratio), 0.0, 1.0))
    if (part := _held_back(job, rows)) is not None:
        found["pressed_backpressure_fraction"] = part
    return msgspec.structs.replace(job, **found)


def _measured(rows: Sequence[RecordedSample], metric: str, use: _Use) -> tuple[Array, _Use, Mask]:
    """What was recorded of a metric, the use of capacity in those rows, and which they are."""
    values = [getattr(row, metric) for row in rows]
    there = np.array([value is not None for value in values], dtype=bool)
    return np.array([value for value in values if value is not None]), use.at(there), there


def _fit_cpu(
    runs: Sequence[Sequence[RecordedSample]], cpu: Array, use: _Use, there: Mask
) -> Parameters:
    if not len(cpu):
        return {}
    full = np.array([flag for rows in runs for flag in _overloaded(rows)])[there]
    # What cpu shows at full load decides whether a policy grows: those few rows count for as
    # much as all the others.
    weights = 1.0 + full * (len(full) / max(1, full.sum()))

    def loss(v: Parameters) -> float:
        seen = use.seen(v["calm_loss_in_cpu"], v["pressed_loss_in_cpu"])
        idle = v["idle_cpu_fraction"]
        shown = idle + (v["full_cpu_fraction"] - idle) * seen ** v["cpu_exponent"]
        return float(np.average(np.abs(np.minimum(1.0, shown) - cpu), weights=weights))

    found = descend(_CPU, loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
    after_rescales = [
        after.cpu_fraction
        for rows in runs
        for before, after in pairwise(rows)
        if before.workers != after.workers and after.cpu_fraction is not None
    ]
    restart = fmean(after_rescales) if after_rescales else found["full_cpu_fraction"]
    return found | {"restart_cpu_fraction": min(1.0, restart)}


def _fit_busy(share: float, busy: Array, use: _Use) -> Parameters:
    if not len(busy):
        return {}

    def loss(v: Parameters) -> float:
        seen = use.seen(v["calm_loss_in_busy"], v["pressed_loss_in_busy"])
        return float(np.abs(v["full"] * seen ** v["busy_exponent"] - busy).mean())

    found = descend(_BUSY, loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
    full = found.pop("full")
    return found | {"busy_at_saturation": min(1.0, full / share)}


def _held_back(job: ContinuousJob, rows: Sequence[RecordedSample]) -> float | None:
    """Of the time without work of what feeds the fullest operator, the part that is not idle.

    Taken from rows of late records. ``None`` if there are none, or if nothing feeds that operator.
    """
    flow = Dataflow(job.operators)
    fullest = flow.regime([1.0], cores=job.cores_per_executor).bottleneck
    feeding = len(flow.ancestors[fullest]) / len(job.operators)
    parts = [
        (1.0 - row.busy_fraction - row.idle_fraction) / (feeding * (1.0 - row.busy_fraction))
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
