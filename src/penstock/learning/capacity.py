"""What a job can carry at each size of its fleet, learned while it runs.

Two kinds of job, one kind of answer: `Capacity` tells the highest rate of any size, with an
uncertainty. What was learned is a frozen `Track` that a policy keeps in its memory.

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

from penstock.model import Snapshot

#: What each further executor costs all others, where nothing else is known.
CONTENTION = 0.01
#: Seconds after which a measurement counts for a third.
FORGET_S = 90.0
#: An executor that is younger than this is still warming up.
WARM_UP_S = 20.0
#: Imbalance up to this comes from executors that differ; what is above does not go away with more.
USUAL_IMBALANCE = 1.12
#: What a busy gauge shows of a full operator, before it was seen full.
BUSY_WHEN_FULL = 0.95
#: The relative error of a first measurement.
FIRST_ERROR = 0.1


class Wave(Struct, frozen=True, gc=False, array_like=True):
    """A stage of a batch: its tasks, and its share of the work."""

    tasks: int
    share: float


class Track(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of a job. `work_s` and `serial_s` are core-seconds and seconds per record."""

    work_s: float | None = None
    serial_s: float = 0.0
    fixed_s: float | None = None
    waves: tuple[Wave, ...] = ()
    busy_when_full: float = BUSY_WHEN_FULL
    error: float = FIRST_ERROR
    samples: float = 0.0
    at_s: float = 0.0


class Capacity(Struct, frozen=True, gc=False):
    """The highest rate that a number of executors carries, without pauses between batches."""

    track: Track
    cores: int

    def rps(self, executors: int) -> float:
        work_s = self.track.work_s
        if work_s is None or executors < 1:
            return 0.0
        return 1.0 / (
            work_s * spread(self.track.waves, executors, self.cores) + self.track.serial_s
        )

    def fixed_s(self) -> float:
        return self.track.fixed_s or 0.0

    def error(self, now_s: float) -> float:
        """The relative standard error; grows again while nothing is measured."""
        age_s = max(0.0, now_s - self.track.at_s)
        return min(0.5, sqrt(self.track.error**2 / max(1.0, self.track.samples)) + age_s * 2e-5)


def spread(waves: Sequence[Wave], executors: int, cores: int) -> float:
    """How long one core-second of work takes on so many executors, contention included.

    Ten tasks on two executors of two cores run in three waves, where 2.5 would do:

    >>> spread([Wave(10, 1.0)], 2, 2) / (1.0 + CONTENTION)
    0.3
    >>> spread([], 4, 1) / (1.0 + 3 * CONTENTION)
    0.25
    """
    slots = executors * cores
    contention = 1.0 + CONTENTION * (executors - 1)
    if not waves:
        return contention / slots
    return contention * sum(wave.share * ceil(wave.tasks / slots) / wave.tasks for wave in waves)


def learn(track: Track, snapshot: Snapshot, previous: Snapshot | None) -> Track:
    """Take in one snapshot; the same track comes back when it tells nothing about capacity."""
    fleet = snapshot.fleet
    if fleet.active < 1:
        return track
    if snapshot.trigger_interval_s is not None:
        return _learn_batches(track, snapshot)
    return _learn_flow(track, snapshot, previous)


def _learn_batches(track: Track, snapshot: Snapshot) -> Track:
    batches = [batch for batch in snapshot.batches if batch.input_records > 0]
    records = sum(batch.input_records for batch in batches)
    if not batches or records < 100:
        return track
    work = [batch.phases.get("addBatch", batch.duration_s) for batch in batches]
    fixed_s = sum(b.duration_s - w for b, w in zip(batches, work, strict=True)) / len(batches)
    waves, core_s = _stages(snapshot)
    if not waves:
        waves = track.waves
    fixed_s = fixed_s if track.fixed_s is None else 0.9 * track.fixed_s + 0.1 * fixed_s
    known = Track(
        track.work_s,
        track.serial_s,
        fixed_s,
        waves,
        track.busy_when_full,
        track.error,
        track.samples,
        track.at_s,
    )
    if not _settled(snapshot):
        return known
    s_per_record = sum(work) / records
    wave_s = spread(waves, snapshot.fleet.active, snapshot.fleet.cores_per_executor)
    parallel_s = s_per_record
    if core_s is not None:
        parallel_s = min(s_per_record, USUAL_IMBALANCE * core_s * wave_s)
    return _with(known, parallel_s / wave_s, s_per_record - parallel_s, snapshot.at_s)


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


def _learn_flow(track: Track, snapshot: Snapshot, previous: Snapshot | None) -> Track:
    throughput = snapshot.throughput_rps
    busy = max((op.busy_fraction or 0.0 for op in snapshot.operators), default=0.0)
    if throughput is None or throughput <= 0.0 or busy < 0.05 or not _settled(snapshot):
        return track
    full = track.busy_when_full
    waits = bool(snapshot.backlog_records) and bool(previous and previous.backlog_records)
    pressed = max((op.backpressured_fraction or 0.0 for op in snapshot.operators), default=0.0)
    if waits and pressed > 0.9 * (1.0 - busy) and busy > 0.5:
        full += 0.3 * (busy - full)
    full = max(full, min(1.0, busy))
    capacity = throughput * full / busy
    executors, cores = snapshot.fleet.active, snapshot.fleet.cores_per_executor
    serial = _hot_share(snapshot)
    even_s = 1.0 / capacity
    # A worker with the hot key takes share h + (1 - h)/n of all: h of it stays at any n.
    serial_s = even_s * serial / (serial + (1.0 - serial) / executors) if serial else 0.0
    known = Track(
        track.work_s, track.serial_s, 0.0, (), full, track.error, track.samples, track.at_s
    )
    work_s = (even_s - serial_s) / spread((), executors, cores)
    return _with(known, work_s, serial_s, snapshot.at_s)


def _hot_share(snapshot: Snapshot) -> float:
    """The share of the hottest key, from how much busier its worker is; 0 unless it stands out.

    >>> from penstock.model import ExecutorSample, Fleet
    >>> busy = [ExecutorSample(str(i), 0.0, busy_fraction=b) for i, b in enumerate((0.9, 0.3, 0.3))]
    >>> round(_hot_share(Snapshot(60.0, Fleet(3, 3, 3), executors=tuple(busy))), 2)
    0.4
    """
    busy = [one.busy_fraction for one in snapshot.executors if one.ready and one.busy_fraction]
    if len(busy) < 2:
        return 0.0
    excess = max(busy) / (sum(busy) / len(busy)) - 1.0
    return min(0.95, excess / (len(busy) - 1)) if excess > 0.2 else 0.0


def _settled(snapshot: Snapshot) -> bool:
    """Whether the fleet is as it was asked for, and warm."""
    fleet = snapshot.fleet
    if fleet.active != fleet.target:
        return False
    newest_s = max((one.started_at_s for one in snapshot.executors), default=-inf)
    return snapshot.at_s - newest_s >= WARM_UP_S


def _with(track: Track, work_s: float, serial_s: float, at_s: float) -> Track:
    """The track with one more measurement, which counts the more the fewer there were."""
    if track.work_s is None:
        return Track(
            work_s,
            serial_s,
            track.fixed_s,
            track.waves,
            track.busy_when_full,
            FIRST_ERROR,
            1.0,
            at_s,
        )
    gap_s = max(1.0, at_s - track.at_s)
    weight = max(min(1.0, gap_s / FORGET_S), 1.0 / (track.samples + 1.0))
    new, old = work_s + serial_s, track.work_s + track.serial_s
    off = abs(new / old - 1.0)
    # Far off for once is noise, far off again is news: then the past is worth little.
    error = track.error + 0.2 * (off - track.error)
    if off > 4.0 * max(0.03, track.error):
        weight = max(weight, 0.5)
    return Track(
        track.work_s + weight * (work_s - track.work_s),
        track.serial_s + weight * (serial_s - track.serial_s),
        track.fixed_s,
        track.waves,
        track.busy_when_full,
        error,
        min(20.0, track.samples + 1.0),
        at_s,
    )
