"""An engine fitted to a journal: on its first part, judged on the rest.

The prediction of the rest is given what arrived and how many executors there were, nothing else.
A journal of a job with a trigger gives a micro-batch job, any other a continuous one.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.model import Step
from penstock.simulation.calibration import fit_batches, fit_continuous
from penstock.simulation.calibration import rows as recordings
from penstock.simulation.calibration.rows import FEWEST_ROWS, Errors, Rows, averaged
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.microbatch import MicroBatchJob

#: The fields of a job that a fit looks for.
_CONTINUOUS: tuple[str, ...] = (
    "contention", "late_contention", "late_after_s", "late_for_s", "restart_s", "join_s",
    "cold_fraction", "warmup_s", "catch_up_fraction", "busy_at_saturation", "busy_exponent",
    "idle_cpu_fraction", "full_cpu_fraction",
)  # fmt: skip
_MICRO_BATCH: tuple[str, ...] = (
    "trigger_interval_s", "planning_s", "launch_s", "commit_s", "contention", "noise_fraction",
    "join_s", "batch_core_s",
)  # fmt: skip

_WINDOW_S = 60.0  #: Batches come in lumps: throughput is judged by its mean over this time.


class Fitted(Struct, frozen=True):
    """A simulated job, what was found, and how far off it is on what it has not seen."""

    engine: str
    job: ContinuousJob | MicroBatchJob
    fitted_rows: int
    judged_rows: int
    found: dict[str, float]
    capacity_rps: dict[int, float]
    errors: Errors


def calibrated(steps: Sequence[Step], part: float = 0.5) -> Fitted:
    """Fit a job to the first part of a journal, and judge it on the rest."""
    rows = recordings.rows_of(steps)
    middle = int(len(rows) * part)
    if middle < FEWEST_ROWS or len(rows) - middle < FEWEST_ROWS:
        raise ConfigError(
            f"a calibration needs at least {FEWEST_ROWS} samples with arrivals and executors on "
            f"each side of the split, not {middle} and {len(rows) - middle}"
        )
    seen = [step for step in steps if step.at_s < rows[middle].at_s]
    job: ContinuousJob | MicroBatchJob
    if any(step.snapshot is not None and step.snapshot.trigger_interval_s for step in steps):
        job = fit_batches.fit(seen)
        off = _off(rows[middle:], fit_batches.predicted(job, rows, middle, seen))
        names, core_s = _MICRO_BATCH, job.stages[0].core_s_per_record
        found = {"core_s_per_record": core_s}
        if job.max_batch_s is not None:
            found["max_batch_s"] = job.max_batch_s
    else:
        job = fit_continuous.fit(ContinuousJob(), [rows[:middle]])
        predicted = averaged(fit_continuous.replay(job, rows), _WINDOW_S)
        off = recordings.errors(averaged(rows, _WINDOW_S)[middle:], predicted[middle:])
        names, found = _CONTINUOUS, {"rps_per_worker": job.capacity_rps(1)}
    found |= {name: float(getattr(job, name)) for name in names}
    capacity_rps = {size: job.capacity_rps(size) for size in sorted({row.workers for row in rows})}
    judged = len(rows) - middle
    return Fitted(job.engine_name, job, middle, judged, found, capacity_rps, off)


def _off(judged: Rows, shown: Rows) -> Errors:
    """Errors of a part of a run; throughput by those windows that lie in it as a whole."""
    every_s = (judged[-1].at_s - judged[0].at_s) / (len(judged) - 1)
    first = min(len(judged), max(1, round(_WINDOW_S / every_s))) - 1
    smooth = averaged(judged, _WINDOW_S)[first:], averaged(shown, _WINDOW_S)[first:]
    windows = recordings.errors(*smooth)
    return msgspec.structs.replace(recordings.errors(judged, shown), throughput=windows.throughput)
