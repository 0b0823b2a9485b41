"""What is known of the work of a record, from measurements that vary, come seldom or are wrong.

Each measurement counts more the fewer and vaguer there were. A single outlier is a straggler;
several in a row are a change of the job.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from penstock.policies.penstock.account import StageCost

FORGET_S = 90.0  #: Seconds after which a measurement counts for a third.
BUSY_WHEN_FULL = 0.95  #: What a busy gauge shows of a full operator, before it was seen full.
FIRST_NOISE = 0.06  #: The relative deviation of one measurement, before it is known.
#: How many deviations off is an outlier. From the second outlier in a row on they are a change of
#: the job, if their sum reaches the second number.
OUTLIER_SIGMAS, CHANGE_SIGMAS = 2.5, 10.0
OVERHEAD_NOISE = 0.5  #: The relative deviation of the overhead of tasks.
IN_A_ROW_S = 30.0  #: Outliers that are further apart are not in a row.
CONFIRMED = 4.0  #: How many measurements confirm a change.
AFTER_CHANGE = 6.0  #: What the measurements before are worth in another fleet: executors differ.
WARM = 1e-3  #: What is less cold than this is warm.


class CapacityEstimate(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of a job."""

    work_s: float | None = None  #: Core-seconds per record.
    serial_s: float = 0.0  #: Seconds per record.
    fixed_s: float | None = None
    busy_when_full: float = BUSY_WHEN_FULL
    noise: float = FIRST_NOISE  #: The relative deviation of one measurement.
    samples: float = 0.0  #: How many measurements the estimate is worth.
    outlier_run: float = 0.0  #: The sum of the deviations of outliers in a row.
    executors: int = 0
    at_s: float = 0.0
    stages: tuple[StageCost, ...] = ()  #: Of measured batches.
    stretch: float = 1.0  #: How much longer stages take than the rounds of their mean tasks.
    before: CapacityEstimate | None = None  #: Before a change that is not confirmed yet.
    part: float | None = None  #: Of all records, where several queries share the fleet.
    others: float | None = None  #: The slots that the other queries use.
    cold: float = 0.0  #: How new the executors were that it was measured on: 1 is just started.
    has_stages: bool = False  #: Whether it comes from measured stages.

    @property
    def measurements(self) -> float:
        """How often it was measured at any size: many small batches are enough."""
        return max(self.samples, min((one.count for one in self.stages), default=0.0))


class WorkMeasurement(NamedTuple):
    """The work of a record by one measurement, at a size where a core-second takes `wave_s`.

    `share` is the part of all work that records take, by this measurement or by what was known.
    The rest is overhead; its errors are errors in the work of a record, divided by `share`.
    """

    work_s: float
    serial_s: float
    wave_s: float
    executors: int
    at_s: float
    share: float = 1.0
    cold: float = 0.0
    overhead_s: float = 0.0  #: Core-seconds per record that were taken for overhead.


def updated(known: CapacityEstimate, one: WorkMeasurement) -> CapacityEstimate:
    """The estimate with one more measurement, which counts more the fewer and vaguer there were.

    A single outlier is a straggler and is clipped. Several in a row mean that the job has changed,
    and what was known before is dropped, unless the next measurements confirm it.
    """
    work_s, serial_s, executors, at_s = one.work_s, one.serial_s, one.executors, one.at_s
    known = _confirm_or_revert(known, one)
    worth = one.share * one.share
    if known.work_s is None:
        first = replace(known, work_s=work_s, serial_s=serial_s, samples=worth, cold=one.cold)
        return replace(first, executors=executors, at_s=at_s)
    off = _off(known, one)
    far = _far(known, one, off)
    deviations = OUTLIER_SIGMAS * off / far if abs(off) > far else 0.0
    again = known.outlier_run * deviations > 0.0 and at_s - known.at_s < IN_A_ROW_S
    outlier_run = deviations + known.outlier_run if again else deviations
    samples, before = known.samples, known.before
    if executors != known.executors:
        samples = min(samples, AFTER_CHANGE)
    if again and abs(outlier_run) >= CHANGE_SIGMAS:
        samples, outlier_run, before = 0.0, 0.0, replace(known, outlier_run=0.0, before=None)
    else:
        # In the same proportion: a straggler says nothing about what is serial.
        shrink = (1.0 + max(-far, min(far, off))) / (1.0 + off)
        work_s, serial_s = work_s * shrink, serial_s * shrink
    # After a gap one measurement alone must not replace all that was known.
    gap_s = min(max(0.0, at_s - known.at_s), FORGET_S / 4.0)
    weight = max(worth * gap_s / FORGET_S, worth / (samples + worth))
    cold = known.cold + weight * (one.cold - known.cold)
    clipped = min((off * one.share) ** 2, 36.0 * known.noise**2)
    return replace(
        known,
        work_s=known.work_s + weight * (work_s - known.work_s),
        serial_s=known.serial_s + weight * (serial_s - known.serial_s),
        noise=max(0.01, sqrt(known.noise**2 + 0.005 * (clipped - known.noise**2))),
        samples=min(samples + worth, 2.0 / weight - 1.0),
        outlier_run=outlier_run,
        executors=executors,
        at_s=max(at_s, known.at_s),
        before=before,
        cold=cold if cold > WARM else 0.0,
    )


def _confirm_or_revert(known: CapacityEstimate, one: WorkMeasurement) -> CapacityEstimate:
    """The estimate before its last change if `one` contradicts that change."""
    if known.before is None:
        return known
    off = abs(_off(known, one))
    if abs(_off(known.before, one)) < off and off > _vagueness(known, one):
        return known.before
    return replace(known, before=None) if known.samples >= CONFIRMED else known


def _far(known: CapacityEstimate, one: WorkMeasurement, off: float) -> float:
    """How far off a measurement is an outlier. What makes it vague makes it too high."""
    vague = _vagueness(known, one) if off > 0.0 else 0.0
    return OUTLIER_SIGMAS * (max(0.02, known.noise) / one.share + vague)


def _vagueness(known: CapacityEstimate, one: WorkMeasurement) -> float:
    """Of a small batch little is records: a task that starts slowly makes them seem dear."""
    return OVERHEAD_NOISE * one.overhead_s / max(known.work_s or 0.0, 1e-12)


def _off(known: CapacityEstimate, one: WorkMeasurement) -> float:
    """By how much a measurement is off what is known, as a fraction of that."""
    known_s = (known.work_s or 0.0) * one.wave_s + known.serial_s
    return (one.work_s * one.wave_s + one.serial_s) / max(known_s, 1e-12) - 1.0
