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
from msgspec.structs import replace

from penstock.model import Snapshot

#: What each further executor costs all others, where nothing else is known.
CONTENTION = 0.01
#: Seconds after which a measurement counts for a third.
FORGET_S = 90.0
#: An executor that is younger than this is still warming up.
WARM_UP_S = 20.0
#: Imbalance up to this comes from executors that differ; what is above does not go away with more.
USUAL_IMBALANCE = 1.3
#: How many times as far as all others from each other the worker with a hot key is from them.
APART = 1.5
#: How many measurements the ones before are worth when a job was seen at its limit.
MORE_THAN_GAUGES = 3.0
#: What a busy gauge shows of a full operator, before it was seen full.
BUSY_WHEN_FULL = 0.95
#: The relative deviation of one measurement, before there are enough to tell.
FIRST_NOISE = 0.06
#: The relative error of a busy gauge that does not average out.
GAUGE_ERROR = 0.025
#: How many deviations off is an exception. Exceptions in a row are news from the second on, if
#: together they are so many deviations off.
FAR = 2.5
NEWS = 10.0
#: From so many waves on, tasks of unequal length fill the gap that the last wave leaves.
MANY_WAVES = 6.0
#: How many batches the line of work over records remembers.
LINE_BATCHES = 400.0
#: How many measurements a changed fleet leaves the ones before worth: executors differ.
AFTER_CHANGE = 6.0


class Wave(Struct, frozen=True, gc=False, array_like=True):
    """A stage of a batch: its tasks, and its share of the work."""

    tasks: int
    share: float


class Line(Struct, frozen=True, gc=False, omit_defaults=True):
    """The straight line of work over records, from moments that forget.

    What a batch costs before its first record shows in how much dearer the records of small batches
    are: ``work / records = cost + overhead / records``. While all batches are about as large the
    two cannot be told apart, and the overhead is taken to be 0.
    """

    count: float = 0.0
    inverse: float = 0.0
    cost_s: float = 0.0
    inverse_var: float = 0.0
    both_var: float = 0.0

    def with_point(self, records: float, work_s: float) -> Line:
        weight = max(1.0 / (self.count + 1.0), 1.0 / LINE_BATCHES)
        off, off_s = 1.0 / records - self.inverse, work_s / records - self.cost_s
        return Line(
            min(self.count + 1.0, LINE_BATCHES),
            self.inverse + weight * off,
            self.cost_s + weight * off_s,
            (1.0 - weight) * (self.inverse_var + weight * off * off),
            (1.0 - weight) * (self.both_var + weight * off * off_s),
        )

    def overhead_s(self) -> float:
        """The work of a batch without records.

        >>> line = Line()
        >>> for records in (1_000, 5_000, 2_000, 8_000, 4_000, 6_000):
        ...     line = line.with_point(records, 0.2 + 1e-4 * records)
        >>> round(line.overhead_s(), 2)
        0.2
        """
        if self.count < 3.0:
            return 0.0
        # A spread of a tenth is as good as none: noise alone can make a line of it.
        doubt = 0.01 * self.inverse**2
        return max(0.0, self.both_var / (self.inverse_var + doubt))


class Track(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of a job. `work_s` and `serial_s` are core-seconds and seconds per record.

    `noise` is the relative deviation of one measurement, `samples` how many the estimate is worth,
    `astray` by how many deviations those were off together that lay far off in a row, below zero
    for those that lay below.
    """

    work_s: float | None = None
    serial_s: float = 0.0
    fixed_s: float | None = None
    waves: tuple[Wave, ...] = ()
    busy_when_full: float = BUSY_WHEN_FULL
    noise: float = FIRST_NOISE
    samples: float = 0.0
    astray: float = 0.0
    executors: int = 0
    at_s: float = 0.0
    line: Line = Line()


class Capacity(Struct, frozen=True, gc=False):
    """The highest rate that a number of executors carries, without pauses between batches.

    `most` is the number of executors beyond which further ones have nothing to do.
    """

    track: Track
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
        overhead_s = self.track.line.overhead_s()
        return self.track.fixed_s + overhead_s * spread(self.track.waves, executors, self.cores)

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


def learn(track: Track, snapshot: Snapshot, previous: Snapshot | None) -> Track:
    """Take in one snapshot; the same track comes back when it tells nothing about capacity."""
    fleet = snapshot.fleet
    if fleet.active < 1:
        return track
    if snapshot.trigger_interval_s is not None:
        return _learn_batches(track, snapshot, previous)
    return _learn_flow(track, snapshot, previous)


def _learn_batches(track: Track, snapshot: Snapshot, previous: Snapshot | None) -> Track:
    batches = [batch for batch in snapshot.batches if batch.input_records >= 100]
    if not batches:
        return track
    work = [batch.phases.get("addBatch", batch.duration_s) for batch in batches]
    fixed_s = sum(b.duration_s - w for b, w in zip(batches, work, strict=True)) / len(batches)
    waves, core_s = _stages(snapshot)
    track = replace(
        track,
        fixed_s=fixed_s if track.fixed_s is None else 0.9 * track.fixed_s + 0.1 * fixed_s,
        waves=waves or track.waves,
    )
    settled = _settled(snapshot, previous)
    if not settled and not _growing(snapshot, previous):
        return track
    executors = snapshot.fleet.active
    wave_s = spread(track.waves, executors, snapshot.fleet.cores_per_executor)
    for batch, work_s in zip(batches, work, strict=True):
        line = track.line
        if settled and track.astray == 0.0:
            line = line.with_point(batch.input_records, work_s / wave_s)
            track = replace(track, line=line)
        overhead_s = min(line.overhead_s() * wave_s, 0.8 * work_s)
        s_per_record = (work_s - overhead_s) / batch.input_records
        if not settled and not _far_below(track, s_per_record, wave_s):
            continue
        parallel_s = s_per_record
        if core_s is not None:
            parallel_s = min(s_per_record, USUAL_IMBALANCE * core_s * wave_s)
        ended_s = batch.started_at_s + batch.duration_s
        rest_s = s_per_record - parallel_s
        track = _with(track, parallel_s / wave_s, rest_s, wave_s, executors, ended_s)
    return track


def _growing(snapshot: Snapshot, previous: Snapshot | None) -> bool:
    """Whether no more executors than now had a part in what was measured."""
    active = snapshot.fleet.active
    return previous is not None and previous.fleet.active <= active <= snapshot.fleet.target


def _far_below(track: Track, s_per_record: float, wave_s: float) -> bool:
    """Whether records cost far less than was known: who is cold can do no less when warm."""
    if track.work_s is None:
        return False
    known_s = track.work_s * wave_s + track.serial_s
    return s_per_record < known_s * (1.0 - FAR * max(0.02, track.noise))


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
    if throughput is None or throughput <= 0.0 or busy < 0.05:
        return track
    if not _settled(snapshot, previous):
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
    serial = _hot_share(snapshot)
    even_s = 1.0 / capacity
    # A worker with the hot key takes share h + (1 - h)/n of all: h of it stays at any n.
    serial_s = even_s * serial / (serial + (1.0 - serial) / executors) if serial else 0.0
    wave_s = spread((), executors, cores)
    work_s = (even_s - serial_s) / wave_s
    known = replace(track, fixed_s=0.0, waves=(), busy_when_full=full, samples=samples)
    return _with(known, work_s, serial_s, wave_s, executors, snapshot.at_s)


def _pressed(snapshot: Snapshot) -> bool:
    """Whether more records wait than come in a second."""
    return (snapshot.backlog_records or 0.0) > (snapshot.arrival_rps or 0.0) > 0.0


def _hot_share(snapshot: Snapshot) -> float:
    """The share of the hottest key, from how much busier its worker is; 0 unless it stands out.

    >>> from penstock.model import ExecutorSample, Fleet
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


def _settled(snapshot: Snapshot, previous: Snapshot | None) -> bool:
    """Whether the fleet is as it was asked for, was so the last time, and is warm."""
    fleet = snapshot.fleet
    if fleet.active != fleet.target:
        return False
    if previous is not None and previous.fleet.active != fleet.active:
        return False
    newest_s = max((one.started_at_s for one in snapshot.executors), default=-inf)
    begin_s = min((one.started_at_s for one in snapshot.batches), default=snapshot.at_s)
    return begin_s - newest_s >= WARM_UP_S or newest_s <= 0.0


def _with(
    track: Track, work_s: float, serial_s: float, wave_s: float, executors: int, at_s: float
) -> Track:
    """The track with one more measurement, which counts the more the fewer there were.

    One that lies far off for once is a straggler, and counts as if it lay less far off. When
    several in a row do, the job has changed, and what was known before is worth nothing.
    """
    if track.work_s is None:
        return replace(
            track, work_s=work_s, serial_s=serial_s, samples=1.0, executors=executors, at_s=at_s
        )
    old_s = track.work_s * wave_s + track.serial_s
    off = (work_s * wave_s + serial_s) / old_s - 1.0
    far = FAR * max(0.02, track.noise)
    deviations = FAR * off / far if abs(off) > far else 0.0
    again = track.astray * deviations > 0.0
    astray = deviations + track.astray if again else deviations
    samples = track.samples
    if executors != track.executors:
        samples = min(samples, AFTER_CHANGE)
    if again and abs(astray) >= NEWS:
        samples, astray = 1.0, 0.0
    else:
        # In the same proportion: a straggler says nothing about what is serial.
        shrink = (1.0 + max(-far, min(far, off))) / (1.0 + off)
        work_s, serial_s = work_s * shrink, serial_s * shrink
    # After a silence one measurement alone must not replace all that was known.
    gap_s = min(max(0.0, at_s - track.at_s), FORGET_S / 4.0)
    weight = max(gap_s / FORGET_S, 1.0 / (samples + 1.0))
    heard = min(off * off, 36.0 * track.noise**2)
    return replace(
        track,
        work_s=track.work_s + weight * (work_s - track.work_s),
        serial_s=track.serial_s + weight * (serial_s - track.serial_s),
        noise=max(0.01, sqrt(track.noise**2 + 0.005 * (heard - track.noise**2))),
        samples=min(samples + 1.0, 2.0 / weight - 1.0),
        astray=astray,
        executors=executors,
        at_s=max(at_s, track.at_s),
    )
