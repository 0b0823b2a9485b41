"""What a job can carry at each size of its fleet, learned while it runs.

Two kinds of job, one kind of answer: `Capacity` tells the highest rate of any size, with an
uncertainty. What was learned is a frozen `CapacityEstimate` that a policy keeps in its memory.

- Micro-batch: a batch takes ``fixed + records x work(n)``, where a stage of `tasks` runs in
  ``ceil(tasks / slots)`` waves. The driver reports the fixed part apart from the work, so both
  are measured at any load; rows per second of a quiet job would understate its capacity.
- Dataflow: an operator that is busy for a fraction of its time could do so many times more. The
  busy gauge of a full operator rarely shows 1; what it does show is learned when records wait.

Both extrapolate to other sizes with a mild loss per further executor, unless one key or one task
holds the rest up: that part does not shrink with more executors, and is kept apart (`serial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, sqrt

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Snapshot
from penstock.policies.penstock.capacity_estimate import (
    OUTLIER_SIGMAS,
    CapacityEstimate,
    Wave,
    WorkMeasurement,
    updated,
)

#: What each further executor costs all others, where nothing else is known.
CONTENTION = 0.01
#: So long an executor warms up, unless the user knows better.
WARM_UP_S = 20.0
#: Imbalance up to this comes from executors that differ; what is above does not go away with more.
USUAL_IMBALANCE = 1.3
#: How many times as far as all others from each other the worker with a hot key is from them.
APART = 1.5
#: How many measurements the ones before are worth when a job was seen at its limit.
MORE_THAN_GAUGES = 3.0
#: The relative error of a busy gauge that does not average out.
GAUGE_ERROR = 0.025
#: From so many waves on, tasks of unequal length fill the gap that the last wave leaves.
MANY_WAVES = 6.0


class Capacity(Struct, frozen=True, gc=False):
    """The highest rate that a number of executors carries, without pauses between batches.

    `most` is the number of executors beyond which further ones have nothing to do.
    """

    track: CapacityEstimate
    cores: int
    most: int | None = None

    def rps(self, executors: int) -> float:
        work_s = self.track.work_s
        if self.most is not None and executors > self.most:
            executors = self.most
        if work_s is None or executors < 1:
            return 0.0
        return 1.0 / (
            work_s * spread(self.track.waves, executors, self.cores) + self.track.serial_s
        )

    def fixed_s(self, executors: int) -> float:
        """What a batch costs before its first record."""
        if self.track.fixed_s is None or executors < 1:
            return 0.0
        wave_s = spread(self.track.waves, executors, self.cores)
        return self.track.fixed_s + self.track.overhead.seconds(wave_s)

    def error(self, now_s: float) -> float:
        """The relative standard error; grows again while nothing is measured."""
        age_s = max(0.0, now_s - self.track.at_s)
        chance = self.track.noise / sqrt(max(1.0, self.track.samples))
        # Gauges err the same way for as long as the same workers run; batches are counted.
        gauges = GAUGE_ERROR if self.track.fixed_s == 0.0 else 0.0
        return min(0.5, sqrt(chance**2 + gauges**2) + age_s * 2e-5)


def spread(waves: Sequence[Wave], executors: int, cores: int) -> float:
    """How long one core-second of work takes on so many executors, contention included.

    Five tasks on four slots run in two waves, where 1.25 would do. Of many waves the last is half
    full on average, whichever number of tasks it begins with: 100 tasks on 4 slots take 25.5.

    >>> round(spread([Wave(100, 1.0)], 2, 2) / (1.0 + CONTENTION), 3)
    0.255
    >>> spread([], 4, 1) / (1.0 + 3 * CONTENTION)
    0.25
    """
    slots = executors * cores
    contention = 1.0 + CONTENTION * (executors - 1)
    if not waves:
        return contention / slots
    length = 0.0
    for wave in waves:
        even = wave.tasks / slots
        many = min(1.0, even / MANY_WAVES)
        length += wave.share * (many * (even + 0.5) + (1.0 - many) * ceil(even)) / wave.tasks
    return contention * length


def learn(
    track: CapacityEstimate,
    snapshot: Snapshot,
    previous: Snapshot | None,
    warmup_s: float = WARM_UP_S,
) -> CapacityEstimate:
    """Take in one snapshot; the same track comes back when it tells nothing about capacity.

    Executors that are younger than `warmup_s` are slower than they will be, and do not count.
    """
    fleet = snapshot.fleet
    if fleet.active < 1:
        return track
    settled = _settled(snapshot, previous, warmup_s)
    if snapshot.trigger_interval_s is not None:
        return _learn_batches(track, snapshot, previous, settled)
    return _learn_flow(track, snapshot, previous) if settled else track


def _learn_batches(
    track: CapacityEstimate, snapshot: Snapshot, previous: Snapshot | None, settled: bool
) -> CapacityEstimate:
    batches = [batch for batch in snapshot.batches if batch.input_records >= 100]
    if not batches:
        return track
    works_s = [batch.phases.get("addBatch", batch.duration_s) for batch in batches]
    fixed_s = sum(b.duration_s - w for b, w in zip(batches, works_s, strict=True)) / len(batches)
    waves, core_s = _stages(snapshot)
    track = replace(
        track,
        fixed_s=fixed_s if track.fixed_s is None else 0.9 * track.fixed_s + 0.1 * fixed_s,
        waves=waves or track.waves,
    )
    if not settled and not _growing(snapshot, previous):
        return track
    executors = snapshot.fleet.active
    wave_s = spread(track.waves, executors, snapshot.fleet.cores_per_executor)
    for batch, work_s in zip(batches, works_s, strict=True):
        overhead_s = min(track.overhead.seconds(wave_s), 0.8 * work_s)
        s_per_record = (work_s - overhead_s) / batch.input_records
        if not settled and not _far_below(track, s_per_record, wave_s):
            continue
        parallel_s = s_per_record
        if core_s is not None:
            parallel_s = min(s_per_record, USUAL_IMBALANCE * core_s * wave_s)
        ended_s = batch.started_at_s + batch.duration_s
        rest_s = s_per_record - parallel_s
        work = WorkMeasurement(
            parallel_s / wave_s, rest_s, wave_s, executors, ended_s,
            batch.input_records, work_s,
        )  # fmt: skip
        track = updated(track, work)
        if settled:
            overhead = track.overhead.with_batch(batch.input_records, wave_s, work_s)
            track = replace(track, overhead=overhead)
    return track


def _growing(snapshot: Snapshot, previous: Snapshot | None) -> bool:
    """Whether no more executors than now had a part in what was measured."""
    active = snapshot.fleet.active
    return previous is not None and previous.fleet.active <= active <= snapshot.fleet.target


def _far_below(track: CapacityEstimate, s_per_record: float, wave_s: float) -> bool:
    """Whether records cost far less than was known: who is cold can do no less when warm."""
    if track.work_s is None:
        return False
    known_s = track.work_s * wave_s + track.serial_s
    return s_per_record < known_s * (1.0 - OUTLIER_SIGMAS * max(0.02, track.noise))


def _stages(snapshot: Snapshot) -> tuple[tuple[Wave, ...], float | None]:
    """The stages with their shares of the work, and the work of one record in core-seconds."""
    stages = [(op.tasks, op.service_time_s, op.input_rps) for op in snapshot.operators]
    entering = stages[0][2] if stages else None
    if not entering:
        return (), None
    costs: list[tuple[int, float]] = []
    for tasks, service_s, input_rps in stages:
        if tasks is None or tasks < 1 or service_s is None or input_rps is None:
            return (), None
        costs.append((tasks, service_s * input_rps / entering))
    core_s = sum(cost for _, cost in costs)
    if core_s <= 0.0:
        return (), None
    return tuple(Wave(tasks, cost / core_s) for tasks, cost in costs), core_s


def _learn_flow(
    track: CapacityEstimate, snapshot: Snapshot, previous: Snapshot | None
) -> CapacityEstimate:
    throughput = snapshot.throughput_rps
    busy = max((op.busy_fraction or 0.0 for op in snapshot.operators), default=0.0)
    serial = _hot_share(snapshot)
    if serial:
        # The worker with the hot key holds all others up: the mean over them tells nothing.
        busy = max(busy, *(one.busy_fraction or 0.0 for one in snapshot.executors))
    if throughput is None or throughput <= 0.0 or busy < 0.05:
        return track
    full, samples = track.busy_when_full, track.samples
    if _pressed(snapshot) and previous is not None and _pressed(previous):
        # Who has had records waiting all the time does what it can: no gauge tells it better.
        capacity, samples = throughput, min(samples, MORE_THAN_GAUGES)
        if busy > 0.5:
            full += 0.2 * (busy - full)
    else:
        full += 0.2 * max(0.0, min(1.0, busy) - full)
        capacity = throughput * full / busy
    executors, cores = snapshot.fleet.active, snapshot.fleet.cores_per_executor
    even_s = 1.0 / capacity
    # A worker with the hot key takes share h + (1 - h)/n of all: h of it stays at any n.
    serial_s = even_s * serial / (serial + (1.0 - serial) / executors) if serial else 0.0
    wave_s = spread((), executors, cores)
    work_s = (even_s - serial_s) / wave_s
    known = replace(track, fixed_s=0.0, waves=(), busy_when_full=full, samples=samples)
    return updated(known, WorkMeasurement(work_s, serial_s, wave_s, executors, snapshot.at_s))


def _pressed(snapshot: Snapshot) -> bool:
    """Whether more records wait than come in a second."""
    return (snapshot.backlog_records or 0.0) > (snapshot.arrival_rps or 0.0) > 0.0


def _hot_share(snapshot: Snapshot) -> float:
    """The share of the hottest key, from how much busier its worker is; 0 unless it stands out.

    >>> from penstock.core.model import ExecutorSample, Fleet
    >>> busy = [ExecutorSample(str(i), 0.0, busy_fraction=b) for i, b in enumerate((0.9, 0.3, 0.3))]
    >>> round(_hot_share(Snapshot(60.0, Fleet(3, 3, 3), executors=tuple(busy))), 2)
    0.4
    """
    busy = sorted(
        one.busy_fraction for one in snapshot.executors if one.ready and one.busy_fraction
    )
    if len(busy) < 2:
        return 0.0
    # The others are alike but for what their gauges swing; the one with the key is not.
    *others, highest = busy
    if highest - others[-1] < APART * (others[-1] - others[0]):
        return 0.0
    excess = highest / (sum(busy) / len(busy)) - 1.0
    return min(0.95, excess / (len(busy) - 1)) if excess > 0.2 else 0.0


def _settled(snapshot: Snapshot, previous: Snapshot | None, warmup_s: float) -> bool:
    """Whether the fleet is as it was asked for, was so the last time, and is warm."""
    fleet = snapshot.fleet
    if fleet.active != fleet.target:
        return False
    if previous is not None and previous.fleet.active != fleet.active:
        return False
    newest_s = max((one.started_at_s for one in snapshot.executors), default=-inf)
    begin_s = min((one.started_at_s for one in snapshot.batches), default=snapshot.at_s)
    return begin_s - newest_s >= warmup_s or newest_s <= 0.0
