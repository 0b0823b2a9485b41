"""What is known of the work of a job, and what one more measurement changes about it."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from penstock.policies.penstock.overhead import Overhead

#: Seconds after which a measurement counts for a third.
FORGET_S = 90.0
#: What a busy gauge shows of a full operator, before it was seen full.
BUSY_WHEN_FULL = 0.95
#: The relative deviation of one measurement, before it is known.
FIRST_NOISE = 0.06
#: How many deviations off is an outlier. From the second outlier in a row on they are a change of
#: the job, if their sum reaches the second number.
OUTLIER_SIGMAS = 2.5
CHANGE_SIGMAS = 10.0
#: Outliers that are further apart are not in a row.
IN_A_ROW_S = 30.0
#: How many measurements confirm a change.
CONFIRMED = 4.0
#: How many measurements the ones before are worth after a change of the fleet: executors differ.
AFTER_CHANGE = 6.0


class Wave(Struct, frozen=True, gc=False, array_like=True):
    """A stage of a batch: its tasks, and its share of the work."""

    tasks: int
    share: float


class CapacityEstimate(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of a job. `work_s` and `serial_s` are core-seconds and seconds per record.

    `noise` is the relative deviation of one measurement, `samples` how many the estimate is worth,
    `outlier_run` the sum of the deviations of outliers in a row, `before` what was known before a
    change that is not confirmed yet.
    """

    work_s: float | None = None
    serial_s: float = 0.0
    fixed_s: float | None = None
    waves: tuple[Wave, ...] = ()
    busy_when_full: float = BUSY_WHEN_FULL
    noise: float = FIRST_NOISE
    samples: float = 0.0
    outlier_run: float = 0.0
    executors: int = 0
    at_s: float = 0.0
    overhead: Overhead = Overhead()
    before: CapacityEstimate | None = None


class WorkMeasurement(NamedTuple):
    """The work of a record by one measurement, at a size where a core-second takes `wave_s`.

    `records` is how many a batch had, `batch_s` how long all its work took.
    """

    work_s: float
    serial_s: float
    wave_s: float
    executors: int
    at_s: float
    records: float = 0.0
    batch_s: float = 0.0


def updated(known: CapacityEstimate, one: WorkMeasurement) -> CapacityEstimate:
    """The estimate with one more measurement, which counts more the fewer there were.

    A single outlier is a straggler and is clipped. Several in a row mean that the job has changed,
    and what was known before is dropped, unless the next measurements confirm it.
    """
    work_s, serial_s, executors, at_s = one.work_s, one.serial_s, one.executors, one.at_s
    known = _confirm_or_revert(known, one)
    if known.work_s is None:
        return replace(
            known, work_s=work_s, serial_s=serial_s, samples=1.0, executors=executors, at_s=at_s
        )
    off = _off(known, one)
    far = OUTLIER_SIGMAS * max(0.02, known.noise)
    deviations = OUTLIER_SIGMAS * off / far if abs(off) > far else 0.0
    again = known.outlier_run * deviations > 0.0 and at_s - known.at_s < IN_A_ROW_S
    outlier_run = deviations + known.outlier_run if again else deviations
    samples, overhead, before = known.samples, known.overhead, known.before
    if executors != known.executors:
        samples = min(samples, AFTER_CHANGE)
    if again and abs(outlier_run) >= CHANGE_SIGMAS:
        samples, outlier_run, before = 0.0, 0.0, replace(known, outlier_run=0.0, before=None)
        if overhead.is_typical(one.records):
            overhead = overhead.rescaled_to(one.records, one.wave_s, one.batch_s)
    else:
        # In the same proportion: a straggler says nothing about what is serial.
        shrink = (1.0 + max(-far, min(far, off))) / (1.0 + off)
        work_s, serial_s = work_s * shrink, serial_s * shrink
    # After a gap one measurement alone must not replace all that was known.
    gap_s = min(max(0.0, at_s - known.at_s), FORGET_S / 4.0)
    weight = max(gap_s / FORGET_S, 1.0 / (samples + 1.0))
    clipped = min(off * off, 36.0 * known.noise**2)
    return replace(
        known,
        work_s=known.work_s + weight * (work_s - known.work_s),
        serial_s=known.serial_s + weight * (serial_s - known.serial_s),
        noise=max(0.01, sqrt(known.noise**2 + 0.005 * (clipped - known.noise**2))),
        samples=min(samples + 1.0, 2.0 / weight - 1.0),
        outlier_run=outlier_run,
        executors=executors,
        at_s=max(at_s, known.at_s),
        overhead=overhead,
        before=before,
    )


def _confirm_or_revert(known: CapacityEstimate, one: WorkMeasurement) -> CapacityEstimate:
    """The estimate before its last change if `one` contradicts that change."""
    if known.before is None:
        return known
    if abs(_off(known.before, one)) < abs(_off(known, one)):
        return known.before
    return replace(known, before=None) if known.samples >= CONFIRMED else known


def _off(known: CapacityEstimate, one: WorkMeasurement) -> float:
    """By how much a measurement is off what is known, as a fraction of that."""
    known_s = (known.work_s or 0.0) * one.wave_s + known.serial_s
    return (one.work_s * one.wave_s + one.serial_s) / max(known_s, 1e-12) - 1.0
