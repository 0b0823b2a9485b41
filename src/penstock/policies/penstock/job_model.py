"""What a job does with its executors: how its lag grows or shrinks, and which records are late."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.core.model import Snapshot

Array = NDArray[np.float64]

#: The largest lag that a plan distinguishes, in multiples of the SLO.
LARGEST_LAG_SLOS = 12.0
#: No batch is shorter, whatever a job reports of its trigger.
SHORTEST_BATCH_S = 0.01
#: A normal distribution as five points of Gauss and Hermite, in deviations, and their weights.
NORMAL_POINTS = np.array([-2.857, -1.356, 0.0, 1.356, 2.857])
NORMAL_WEIGHTS = np.array([0.01126, 0.22208, 0.53333, 0.22208, 0.01126])


class JobModel(Struct, frozen=True):
    """What a job does with its executors.

    `sizes` are the sizes of the fleet to choose from, rising; `capacity_rps` what each can do when
    it never pauses, or a row of that for each step, if it changes. `fixed_s` is what a batch costs
    besides its records, 0 for a dataflow. A batch never takes less than `trigger_s`, 0 where one
    follows the other; ``None`` for a dataflow. A change of the fleet adds `rescale_s` to the lag.
    Records that wait longer than `slo_s` are late. `noise` is the relative deviation of the work
    of one batch from its mean.
    """

    sizes: Array
    capacity_rps: Array
    fixed_s: float
    trigger_s: float | None
    rescale_s: float
    slo_s: float
    noise: float = 0.0

    @property
    def floor_s(self) -> float:
        """No batch takes less: a job that names no interval runs one batch after the other."""
        return max(self.trigger_s or 0.0, self.fixed_s, SHORTEST_BATCH_S)


def lag_levels(job: JobModel, count: int = 28) -> Array:
    """The lags that a plan distinguishes, in seconds: fine below the SLO, coarse far above it."""
    low = 0.0 if job.trigger_s is None else job.floor_s
    steps = np.linspace(0.0, 1.0, count) ** 3
    return np.asarray(low + (LARGEST_LAG_SLOS * job.slo_s - low) * steps)


def advance(
    job: JobModel, lag_s: Array, load_rps: Array, capacity_rps: Array, step_s: Array
) -> Array:
    """The lag after a step. The arrays are broadcast against each other."""
    use = load_rps / np.maximum(capacity_rps, 1e-9)
    if job.trigger_s is None:
        return np.maximum(0.0, lag_s + (1.0 - 1.0 / np.maximum(use, 1e-9)) * step_s)
    floor = job.floor_s
    begin = np.maximum(lag_s, floor)
    # x follows x -> max(floor, fixed + use x): it approaches its fixed point geometrically, or
    # leaves it geometrically where the load exceeds the capacity.
    use = np.where(np.abs(use - 1.0) < 1e-3, 1.001, use)
    target = job.fixed_s / (1.0 - use)
    away, growth = begin - target, np.log(np.maximum(use, 1e-9))
    # However its batches grow, the lag grows by no more than what arrives beyond the capacity.
    worst = begin + step_s * (np.maximum(0.0, 1.0 - 1.0 / use) + job.fixed_s / begin)
    worst = np.minimum(worst, LARGEST_LAG_SLOS * job.slo_s)

    def after_batches(batches: Array) -> Array:
        grown = target + away * np.exp(np.minimum(batches * growth, 20.0))
        return np.minimum(np.maximum(grown, floor), worst)

    # The number of batches depends on how long they become: between two kinds of mean. A job that
    # catches up finishes its long batches in less time than their records took to arrive.
    quick = np.minimum(use, 1.0)
    first = np.maximum(quick * begin, floor)
    last = np.maximum(quick * after_batches(step_s / first), floor)
    length = 0.25 * (first + last) + 0.5 * np.sqrt(first * last)
    return after_batches(step_s / length)


def late_share(job: JobModel, lag_s: Array) -> Array:
    """The share of records that come out late at a lag.

    In a micro-batch job records wait between one batch and two, evenly. Its batches vary about
    their mean, the more so the closer it runs to its capacity, because what one leaves the next has
    to do: ``x -> fixed + use x (1 + noise)`` deviates by ``noise x / sqrt(1 - use^2)``.
    """
    if job.trigger_s is None:
        return np.asarray(lag_s > job.slo_s, dtype=float)
    mean = np.maximum(lag_s, job.floor_s)
    use = np.clip(1.0 - job.fixed_s / mean, 0.0, 0.97)
    deviation = job.noise / np.sqrt(1.0 - use**2)
    batch = np.maximum(mean * (1.0 + NORMAL_POINTS[:, None] * deviation), job.floor_s)
    share = np.clip(2.0 - job.slo_s / batch, 0.0, 1.0)
    return np.asarray(NORMAL_WEIGHTS @ share)


def part_above(before: Array, after: Array, level: float) -> Array:
    """For which part a straight line from `before` to `after` lies above a level."""
    high, low = np.maximum(before, after), np.minimum(before, after)
    span = np.maximum(high - low, 1e-9)
    return np.asarray(np.minimum(np.maximum((high - level) / span, 0.0), 1.0))


def measured_lag_s(snapshot: Snapshot, load_rps: float | None) -> float:
    """How many seconds of arrivals wait.

    In a micro-batch job a batch's worth always does; what counts is how long a batch lasts.

    >>> from penstock.core.model import Batch, Fleet
    >>> waiting = Snapshot(60.0, Fleet(2, 2, 2), backlog_records=5_000.0)
    >>> measured_lag_s(waiting, load_rps=1_000.0)
    5.0
    >>> last = Batch(7, started_at_s=52.0, duration_s=4.0, input_records=9_000)
    >>> batches = Snapshot(
    ...     60.0, Fleet(2, 2, 2), trigger_interval_s=2.0, batches=(last,), delay_s=7.0
    ... )
    >>> measured_lag_s(batches, load_rps=1_000.0)
    4.0
    """
    delay_s = snapshot.delay_s
    if delay_s is None:
        delay_s = (snapshot.backlog_records or 0.0) / max(load_rps or 0.0, 1e-6)
    if snapshot.trigger_interval_s is None:
        return delay_s
    durations = [batch.duration_s for batch in snapshot.batches[-1:]]
    batch_s = max([snapshot.trigger_interval_s, *durations])
    return max(batch_s, delay_s - batch_s)
