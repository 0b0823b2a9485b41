"""What a job can carry at each size of its fleet, learned while it runs.

`Capacity` gives the highest rate of any size, with an uncertainty, for two kinds of job. What was
learned is a frozen `CapacityEstimate` that a policy keeps in its memory.

- Micro-batch: what a batch costs is measured (`account`): the driver, the overhead of each task,
  the work of its records, which shrinks with the rounds that a stage takes. A batch without its
  stages (journals of earlier versions) counts as one stage that keeps all slots busy.
- Dataflow: an operator that is busy for a fraction of its time could do the inverse of that times
  more. The gauge of a full operator rarely shows 1; what it shows is learned when records wait.

Both extrapolate to other sizes with a mild loss per further executor. What one key or one task
delays does not shrink with more executors and is kept apart (`serial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, sqrt

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Batch, BatchStage, Snapshot
from penstock.policies.penstock.account import (
    StageCost,
    driver_s,
    learn_stages,
    length_s,
    span_s,
)
from penstock.policies.penstock.estimate import (
    AFTER_CHANGE,
    FORGET_S,
    OUTLIER_SIGMAS,
    CapacityEstimate,
    WorkMeasurement,
    updated,
)

CONTENTION = 0.01  #: What each further executor costs all others, where nothing else is known.
WARM_UP_S = 20.0  #: How long an executor warms up, where the user gives no time.
#: Java compiles code while it runs: a batch on executors that are all new may take this part of
#: what records cost too much. It falls to a third in this time.
COLD_EXCESS, COLD_S = 0.5, 30.0
#: However new executors are, a batch on them says something.
COLDEST = 0.8
#: One measurement may be too high by this: batches of one size do not tell overhead from work. And
#: one without stages by this: that all slots were busy is the worst case.
FIRST_DOUBT, BARE_DOUBT = 0.3, 1.0
#: Imbalance up to this comes from executors that differ; more is a slow task or key.
USUAL_IMBALANCE = 1.3
#: The worker with a hot key is further from the others than this times their own range.
APART = 1.5
MORE_THAN_GAUGES = 3.0  #: What the measurements before are worth when a job was seen at its limit.
GAUGE_ERROR = 0.025  #: The relative error of a busy gauge that does not average out.
FEWEST_RECORDS = 10  #: Smaller batches say nothing of what a record costs, however dear it is.
MANY_TASKS = 1000  #: Of a batch whose tasks are not known: as many as make any fleet busy.
PLATFORM = 0.1  #: The weight of a batch in what belongs to the platform.
LEAST_LEFT = 0.5  #: Overhead that one batch shows leaves this part of the work to the records.


class Capacity(Struct, frozen=True, gc=False):
    """The highest rate that a number of executors carries, without pauses between batches."""

    track: CapacityEstimate
    cores: int
    most: int | None = None  #: Executors beyond these have nothing to do.
    of_all: bool = False  #: Count the records of all queries, in the mix that they have.
    hope: float = 0.0  #: The part by which it is taken to be higher than measured.

    def rps(self, executors: int) -> float:
        known = self.track
        if self.most is not None and executors > self.most:
            executors = self.most
        if known.work_s is None or executors < 1:
            return 0.0
        wave_s = wave_seconds(known.stages, executors, self.cores, known.others or 0.0)
        part = known.part if self.of_all and known.part else 1.0
        return (1.0 + self.hope) / part / (known.work_s * wave_s + known.serial_s)

    @property
    def doubt(self) -> float:
        """The part by which it may be higher than believed: it was measured cold, or seldom."""
        first = FIRST_DOUBT if self.track.has_stages else BARE_DOUBT
        seldom = first / max(1.0, self.track.measurements)
        return seldom + COLD_EXCESS * self.track.cold if self.track.fixed_s else 0.0

    def fixed_s(self, executors: int) -> float:
        """What a batch costs before its first record."""
        known = self.track
        if known.fixed_s is None or executors < 1:
            return 0.0
        slots = slots_left(executors * self.cores, known.others)
        each = [(one.tasks, one.tasks * one.overhead_s, one.beside) for one in known.stages]
        return known.fixed_s + known.stretch * length_s(each, slots)

    @property
    def other_error(self) -> float:
        """The relative standard error of a size that was not measured lately: executors differ."""
        return self.track.noise / sqrt(AFTER_CHANGE)

    def error(self, now_s: float) -> float:
        """The relative standard error; grows again while nothing is measured."""
        age_s = max(0.0, now_s - self.track.at_s)
        chance = self.track.noise / sqrt(max(1.0, self.track.samples))
        # Gauges have the same error for as long as the same workers run; batches are counted.
        gauges = GAUGE_ERROR if self.track.fixed_s == 0.0 else 0.0
        return min(0.5, sqrt(chance**2 + gauges**2) + age_s * 2e-5)


def slots_left(slots: int, others: float | None) -> float:
    """The slots that other queries leave: at least a tenth, since they take turns."""
    return max(0.1 * slots, slots - (others or 0.0))


def with_others(known: CapacityEstimate, snapshot: Snapshot) -> CapacityEstimate:
    """The estimate with what a snapshot shows of other queries that share the fleet."""
    if not snapshot.queries or snapshot.queries[0].excluded:
        return replace(known, part=None, others=None)
    own, *rest = snapshot.queries
    part, others = known.part, known.others
    if own.arrival_rps and snapshot.arrival_rps:
        now = own.arrival_rps / snapshot.arrival_rps
        part = now + (1.0 - PLATFORM) * ((part or now) - now)
    busy = [each.busy_slots for each in rest if each.busy_slots is not None]
    if len(busy) == len(rest):
        now = sum(busy)
        others = now + (1.0 - PLATFORM) * ((now if others is None else others) - now)
    return replace(known, part=part, others=others)


def wave_seconds(
    stages: Sequence[StageCost], executors: int, cores: int, others: float = 0.0
) -> float:
    """How long one core-second of work takes on a fleet, contention included.

    A stage counts by what a record costs there. Of 100 tasks each of 4 slots runs 25.5 (`rounds`).

    >>> stage = StageCost(100, last_size=1.0, last_took_s=1.0)
    >>> round(wave_seconds([stage], 2, 2) / (1.0 + CONTENTION), 3)
    0.255
    """
    slots = slots_left(executors * cores, others)
    contention = 1.0 + CONTENTION * (executors - 1)
    work_s = sum(one.record_s for one in stages)
    if work_s <= 0.0:
        return contention / slots
    each = [(one.tasks, one.record_s, one.beside) for one in stages]
    return contention * length_s(each, slots) / work_s


def learn(
    known: CapacityEstimate,
    snapshot: Snapshot,
    previous: Snapshot | None,
    warmup_s: float = WARM_UP_S,
) -> CapacityEstimate:
    """The estimate with one more snapshot; unchanged where that says nothing about capacity.

    Executors that are younger than `warmup_s` are slower than they will be, and do not count.
    """
    if snapshot.fleet.active < 1:
        return known
    settled = _settled(snapshot, previous, warmup_s)
    if snapshot.queries or known.part is not None:
        known = with_others(known, snapshot)
    if snapshot.trigger_interval_s is not None:
        return _learn_batches(known, snapshot, previous, settled)
    return _learn_flow(known, snapshot, previous) if settled else known


def _learn_batches(
    known: CapacityEstimate, snapshot: Snapshot, previous: Snapshot | None, settled: bool
) -> CapacityEstimate:
    fleet = snapshot.fleet
    # Where no more executors than now had a part in a batch, cold ones can prove it cheaper.
    growing = previous is not None and previous.fleet.active <= fleet.active <= fleet.target
    for batch in snapshot.batches:
        if not batch.input_records or not (settled or growing):
            continue
        measured = bool(batch.stages)
        lost = not measured and batch.started_at_s - known.at_s >= FORGET_S
        # What was inferred from durations does not go with what is measured.
        if measured != known.has_stages and (measured or lost):
            known = CapacityEstimate(part=known.part, others=known.others, has_stages=measured)
        if measured == known.has_stages:
            known = _learn_batch(known, with_stages(batch, snapshot), snapshot, settled)
    return known


def coldness(snapshot: Snapshot, at_s: float) -> float:
    """How new the executors are, in the mean: 1 if all have just started, a third after `COLD_S`.

    >>> from penstock.core.model import ExecutorSample, Fleet
    >>> new, old = ExecutorSample("1", 970.0), ExecutorSample("0", 1.0)
    >>> round(coldness(Snapshot(1000.0, Fleet(2, 2, 2), executors=(old, new)), 1000.0), 2)
    0.18
    """
    ages_s = [at_s - one.started_at_s for one in snapshot.executors if one.started_at_s > 0.0]
    cold = sum(exp(-max(0.0, age_s) / COLD_S) for age_s in ages_s)
    return min(COLDEST, cold / max(1, len(snapshot.executors)))


def with_stages(batch: Batch, snapshot: Snapshot) -> Batch:
    """The batch itself; one without stages with a single one that kept all slots busy."""
    if batch.stages:
        return batch
    fleet, took_s = snapshot.fleet, batch.phases.get("addBatch", batch.duration_s)
    slots, tasks = fleet.active * fleet.cores_per_executor, snapshot.partitions or MANY_TASKS
    stage = BatchStage(tasks, took_s * slots, 0.0, took_s)
    return replace(batch, stages=(stage,))


def _learn_batch(
    known: CapacityEstimate, batch: Batch, snapshot: Snapshot, settled: bool
) -> CapacityEstimate:
    fleet, records = snapshot.fleet, batch.input_records
    if _lost_a_stage(known, batch):
        return known
    slots = slots_left(fleet.active * fleet.cores_per_executor, known.others)
    # What a fleet does that grows is better than to know nothing, if its stages were measured.
    first = known.work_s is None and known.has_stages
    # A cold fleet that does more than was thought proves it: that counts in full.
    cold = coldness(snapshot, batch.started_at_s) if settled or first else 0.0
    stages = learn_stages(known.stages, batch, 1.0 - cold)
    core_s = _core_s(stages, batch)
    # How long the stages would take if all tasks were alike.
    pairs = zip(stages, batch.stages, strict=True)
    even_s = length_s([(one.tasks, one.work_s, cost.beside) for cost, one in pairs], slots)
    longer = span_s(batch.stages) / max(even_s, 1e-9)
    # Not even full slots are faster than this.
    full = sum(one.work_s for one in batch.stages) / slots / max(even_s, 1e-9)
    usual = min(max(longer, full), USUAL_IMBALANCE)
    stretch = usual if known.fixed_s is None else known.stretch + PLATFORM * (usual - known.stretch)
    wave_s = wave_seconds(stages, fleet.active, fleet.cores_per_executor, known.others or 0.0)
    work_s = core_s * stretch / (1.0 + CONTENTION * (fleet.active - 1))
    serial_s = max(0.0, longer - usual) * even_s / records
    if not (settled or first) and not _far_below(known, work_s * wave_s + serial_s, wave_s):
        return known
    fixed_s = driver_s(batch)
    if known.fixed_s is not None:
        fixed_s = known.fixed_s + PLATFORM * (fixed_s - known.fixed_s)
    known = _with_overheads(known, stages)
    known = replace(known, fixed_s=fixed_s, stages=stages, stretch=stretch)
    if records < FEWEST_RECORDS or core_s <= 0.0:
        return known
    at_s = batch.started_at_s + batch.duration_s
    # Records that have become cheaper leave more overhead, which does not make them uncertain.
    largest_s = records * max(core_s, known.work_s or 0.0)
    share = min(1.0, largest_s / sum(one.work_s for one in batch.stages))
    overhead_s = sum(one.tasks * one.overhead_s for one in stages) / records
    return updated(
        known,
        WorkMeasurement(work_s, serial_s, wave_s, fleet.active, at_s, share, cold, overhead_s),
    )


def _lost_a_stage(known: CapacityEstimate, batch: Batch) -> bool:
    """Whether the stages of a batch do not add up: one is missing, and its time is the driver's.

    If that lasts for longer than `FORGET_S`, the job itself has changed.
    """
    is_recent = batch.started_at_s - known.at_s < FORGET_S
    if not is_recent or len(batch.stages) >= len(known.stages) or known.fixed_s is None:
        return False
    return driver_s(batch) > known.fixed_s + 0.2 * batch.duration_s


def _with_overheads(known: CapacityEstimate, stages: Sequence[StageCost]) -> CapacityEstimate:
    """The estimate as it would be if the overhead of tasks had always been known as it is now."""
    if known.work_s is None or len(known.stages) != len(stages):
        return known
    pairs = zip(known.stages, stages, strict=True)
    more_s = sum((now.overhead_s - old.overhead_s) * old.inverse for old, now in pairs)
    return replace(known, work_s=max(known.work_s - more_s, LEAST_LEFT * known.work_s))


def _core_s(stages: Sequence[StageCost], batch: Batch) -> float:
    pairs = zip(stages, batch.stages, strict=True)
    works_s = (max(0.0, one.work_s - one.tasks * cost.overhead_s) for cost, one in pairs)
    return sum(works_s) / batch.input_records


def _far_below(known: CapacityEstimate, s_per_record: float, wave_s: float) -> bool:
    """Whether records cost far less than was known: a cold fleet is no faster than a warm one."""
    if known.work_s is None:
        return False
    known_s = known.work_s * wave_s + known.serial_s
    return s_per_record < known_s * (1.0 - OUTLIER_SIGMAS * max(0.02, known.noise))


def _learn_flow(
    known: CapacityEstimate, snapshot: Snapshot, previous: Snapshot | None
) -> CapacityEstimate:
    throughput = snapshot.throughput_rps
    busy = max((op.busy_fraction or 0.0 for op in snapshot.operators), default=0.0)
    hot = _hot_share(snapshot)
    if hot:
        # The worker with the hot key delays all others: their mean says nothing.
        busy = max(busy, *(one.busy_fraction or 0.0 for one in snapshot.executors))
    if throughput is None or throughput <= 0.0 or busy < 0.05:
        return known
    full, samples = known.busy_when_full, known.samples
    if _has_queue(snapshot) and previous is not None and _has_queue(previous):
        # A job that has had records waiting all the time does what it can: better than any gauge.
        capacity, samples = throughput, min(samples, MORE_THAN_GAUGES)
        if busy > 0.5:
            full += 0.2 * (busy - full)
    else:
        full += 0.2 * max(0.0, min(1.0, busy) - full)
        capacity = throughput * full / busy
    executors = snapshot.fleet.active
    even_s = 1.0 / capacity
    # A worker with the hot key takes share h + (1 - h)/n of all: h of it stays at any n.
    serial_s = even_s * hot / (hot + (1.0 - hot) / executors) if hot else 0.0
    wave_s = wave_seconds((), executors, snapshot.fleet.cores_per_executor)
    work_s = (even_s - serial_s) / wave_s
    known = replace(known, fixed_s=0.0, stages=(), busy_when_full=full, samples=samples)
    return updated(known, WorkMeasurement(work_s, serial_s, wave_s, executors, snapshot.at_s))


def _has_queue(snapshot: Snapshot) -> bool:
    """Whether more records wait than come in a second."""
    return (snapshot.backlog_records or 0.0) > (snapshot.arrival_rps or 0.0) > 0.0


def _hot_share(snapshot: Snapshot) -> float:
    """The share of the hottest key, from how much busier its worker is; 0 unless it stands out.

    Of three workers that are busy for 0.9, 0.3 and 0.3 of their time, the first has a key of 0.4.
    """
    busy = sorted(used for one in snapshot.executors if one.ready and (used := one.busy_fraction))
    if len(busy) < 2:
        return 0.0
    *others, highest = busy
    if highest - others[-1] < APART * (others[-1] - others[0]):
        return 0.0
    excess = highest / (sum(busy) / len(busy)) - 1.0
    return min(0.95, excess / (len(busy) - 1)) if excess > 0.2 else 0.0


def _settled(snapshot: Snapshot, previous: Snapshot | None, warmup_s: float) -> bool:
    """Whether the fleet is as it was asked for, was so the last time, and is warm."""
    active, before = snapshot.fleet.active, previous or snapshot
    if not active == snapshot.fleet.target == before.fleet.active:
        return False
    newest_s = max((one.started_at_s for one in snapshot.executors), default=-inf)
    begin_s = min((one.started_at_s for one in snapshot.batches), default=snapshot.at_s)
    return begin_s - newest_s >= warmup_s or newest_s <= 0.0
