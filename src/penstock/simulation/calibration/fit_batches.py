"""A micro-batch job fitted to a recorded run: what a batch costs, from the batches themselves.

The duration of a batch is a straight line over its records for as long as the fleet does not
change: ``fixed + cost x records x waves / tasks``. Batches in which executors joined, and those
right after, are no part of the line: what they took beyond it is what joining costs. Batches that
left records behind show the admission limit.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.core.errors import ConfigError
from penstock.core.model import Batch, Snapshot, Step
from penstock.simulation.calibration.rows import RecordedSample, Rows, followed, rates
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.stages import Stage
from penstock.simulation.faults import SourceOutage

FEWEST_BATCHES = 20  #: Fewer batches say too little about their cost.
_PLANNING_PART = 0.4  #: Of the fixed cost outside of the stages, the part before them.
#: How long a batch may have begun after the oldest record that it left behind, by inexact clocks.
_CLOCKS_S = 0.5
#: As many batches as this have to be held back before it is taken for a rule.
_FEWEST_HELD_BACK = 3
_CONTENTIONS = np.linspace(0.0, 0.2, 41)  #: Contention is looked for in steps up to this.


class Seen(NamedTuple):
    """A batch with the fleet that began it."""

    records: float
    duration_s: float
    executors: int
    joined: int = 0  #: Executors that came while it ran or just before.
    calm: bool = True  #: None did, nor in the batch before it.
    held_back: bool = False  #: It took fewer records than there were.
    helped: float = 0.0  #: Those that came while it ran, each as the part of it that was left.
    around_s: float | None = None  #: Its time outside the stages.


def batches_of(steps: Iterable[Step]) -> list[Seen]:
    """All batches of a journal that had records, each with the fleet of its time."""
    snapshots = [step.snapshot for step in steps if step.snapshot is not None]
    snapshots = [one for one in snapshots if one.fleet.active > 0]
    joins = _joins(snapshots)
    batches: list[Batch] = []
    fleets, held = [], []
    for seen in snapshots:
        for batch in (each for each in seen.batches if each.input_records > 0):
            came = sum(batch.started_at_s < at_s <= seen.at_s for at_s in joins)
            batches.append(batch)
            fleets.append(max(1, seen.fleet.active - came))
            held.append(_held_back(seen))
    return marked(batches, fleets, joins, held)


def marked(
    batches: Sequence[Batch],
    fleets: Sequence[int],
    joined_at_s: Sequence[float],
    held_back: Sequence[bool] | None = None,
) -> list[Seen]:
    """Batches in order, each with the fleet that began it, and who joined when.

    >>> batches = [Batch(n, 2.0 * n, 1.0, 100) for n in range(4)]
    >>> [(one.joined, one.calm) for one in marked(batches, [1, 1, 2, 2], [2.5])]
    [(0, True), (1, False), (0, False), (0, True)]
    """
    found: list[Seen] = []
    before_s = batches[0].started_at_s if batches else 0.0
    for place, (batch, fleet) in enumerate(zip(batches, fleets, strict=True)):
        end_s = batch.started_at_s + batch.duration_s
        joined = sum(before_s < at_s <= end_s for at_s in joined_at_s)
        calm = joined == 0 and (not found or found[-1].joined == 0)
        held = held_back is not None and held_back[place]
        left_s = sum(end_s - at_s for at_s in joined_at_s if batch.started_at_s < at_s < end_s)
        helped = left_s / batch.duration_s if left_s else 0.0
        records = float(batch.input_records)
        stages_s = batch.phases.get("addBatch")
        around_s = None if stages_s is None else batch.duration_s - stages_s
        found.append(Seen(records, batch.duration_s, fleet, joined, calm, held, helped, around_s))
        before_s = end_s
    return found


def _joins(snapshots: Sequence[Snapshot]) -> list[float]:
    """When executors came after the first snapshot: as they say, or as the fleet grew."""
    started = {
        (one.id, one.started_at_s)
        for seen in snapshots
        for one in seen.executors
        if one.ready and one.started_at_s > snapshots[0].at_s
    }
    if any(seen.executors for seen in snapshots):
        return sorted(at_s for _, at_s in started)
    return [
        (before.at_s + seen.at_s) / 2
        for before, seen in pairwise(snapshots)
        for _ in range(seen.fleet.active - before.fleet.active)
    ]


def _held_back(seen: Snapshot) -> bool:
    """Whether records wait that are older than the last batch, which could have had them."""
    if seen.delay_s is None or not seen.batches:
        return False
    return seen.at_s - seen.delay_s < seen.batches[-1].started_at_s - _CLOCKS_S


def fit(steps: Sequence[Step]) -> MicroBatchJob:
    """The job whose batches cost what the recorded ones did."""
    snapshots = [step.snapshot for step in steps if step.snapshot is not None]
    triggers = [one.trigger_interval_s for one in snapshots if one.trigger_interval_s]
    batches = batches_of(steps)
    if len(batches) < FEWEST_BATCHES:
        raise ConfigError(
            f"a calibration needs at least {FEWEST_BATCHES} batches with records, "
            f"not {len(batches)}"
        )
    cores = snapshots[-1].fleet.cores_per_executor
    tasks, task_s = _tasks(snapshots, cores), _task_s(snapshots, cores)
    job = job_of(batches, median(triggers), tasks, cores, task_s)
    samples = [one for seen in snapshots for one in seen.executors if one.cpu_fraction is not None]
    busy = sum(one.busy_fraction or 0.0 for one in samples)
    if busy == 0.0:
        return job
    # Idle executors use next to nothing: cpu is a part of the time that they are busy.
    cpu = sum(one.cpu_fraction or 0.0 for one in samples) / busy
    return msgspec.structs.replace(job, idle_cpu_fraction=0.0, full_cpu_fraction=min(1.0, cpu))


def job_of(
    batches: Sequence[Seen], trigger_s: float, tasks: int, cores: int, task_s: float = 0.0
) -> MicroBatchJob:
    """The job whose batches cost what these did; `task_s` is the time of all of their tasks."""
    calm = [batch for batch in batches if batch.calm]
    if len(calm) < FEWEST_BATCHES:
        calm = list(batches)
    contention = 0.0
    if len({batch.executors for batch in calm}) > 1:
        contention = float(min(_CONTENTIONS, key=lambda c: _line(calm, tasks, cores, float(c))[2]))
    fixed_s, core_s, _ = _line(calm, tasks, cores, contention)

    def expected_s(batch: Seen) -> float:
        return fixed_s + core_s * _work(batch, tasks, cores, contention)

    off = np.array([batch.duration_s / expected_s(batch) for batch in calm])
    over_s: list[float] = []  # for each time that executors joined, per executor
    for batch, after in pairwise([*batches, Seen(0.0, 0.0, 1)]):
        if batch.joined:
            late_s = batch.duration_s - expected_s(batch)
            if not after.calm and not after.joined:
                late_s += after.duration_s - expected_s(after)
            over_s.append(late_s / batch.joined)
    held = [batch.duration_s for batch in calm if batch.held_back]
    around_s = [batch.around_s for batch in calm if batch.around_s is not None]
    outer_s = min(fixed_s, median(around_s)) if around_s else fixed_s
    factors = [1.0 + contention * (batch.executors - 1) for batch in batches]
    records_s = core_s * sum(b.records * f for b, f in zip(batches, factors, strict=True))
    return MicroBatchJob(
        trigger_interval_s=trigger_s,
        max_batch_s=median(held) if len(held) >= _FEWEST_HELD_BACK else None,
        planning_s=max(1e-3, _PLANNING_PART * outer_s),
        launch_s=fixed_s - outer_s,
        commit_s=(1.0 - _PLANNING_PART) * outer_s,
        batch_core_s=max(0.0, task_s - records_s) / len(batches),
        stages=(Stage("batch", tasks, core_s, task_overhead_s=0.0),),
        cores_per_executor=cores,
        contention=contention,
        noise_fraction=float(np.clip(1.4826 * np.median(np.abs(off - 1.0)), 0.0, 0.5)),
        straggler_probability=0.0,
        state_bytes=0.0,
        cold_s=0.0,
        join_s=max(0.0, median(over_s)) if over_s else 0.0,
    )


def replay(job: MicroBatchJob, rows: Rows) -> list[RecordedSample]:
    """What the simulated job shows, given the arrivals and the executors of a recording."""
    run = _even(job).start(rates(rows, 0.0), executors=rows[0].workers, seed=1)
    return [rows[0], *followed(run, rows, rows[0].at_s)]


def predicted(
    job: MicroBatchJob, rows: Rows, middle: int, steps: Iterable[Step]
) -> list[RecordedSample]:
    """What the simulated job shows from row `middle` on, begun with what was seen before that.

    It begins at the last snapshot before with a batch and without executors that have just come:
    what their joining costs is then part of the prediction, and not lost between both parts.
    """
    # By their own time: a sensor may show what is older than the turn.
    snapshots = {one.at_s: one for step in steps if (one := step.snapshot) is not None}
    for place in range(middle - 1, 1, -1):
        seen = snapshots[rows[place].at_s]
        fleets = {row.workers for row in rows[place - 2 : place + 1]}
        if seen.batches and len(fleets) == 1:
            return continued(job, rows[place:], seen)[middle - place :]
    return replay(job, rows)[middle:]


def continued(job: MicroBatchJob, rows: Rows, seen: Snapshot) -> list[RecordedSample]:
    """A replay from a snapshot on, where `rows` begin, with what waited then, as old as it was."""
    begin_s = seen.at_s - (seen.delay_s or 0.0)  # when the oldest record came that waits
    # The batch that takes them has begun, or begins with the next trigger.
    batch_s = max((b.started_at_s + job.trigger_interval_s for b in seen.batches), default=begin_s)
    batch_s = max([batch_s, *(b.started_at_s + b.duration_s for b in seen.batches), begin_s])
    origin_s = batch_s - job.trigger_interval_s * ceil((batch_s - begin_s) / job.trigger_interval_s)
    arrivals = _rates_from(rows, seen.backlog_records or 0.0, begin_s, origin_s)
    hold = [SourceOutage(0.0, batch_s - origin_s)] if batch_s > origin_s else []
    run = _even(job).start(arrivals, executors=rows[0].workers, seed=1, faults=hold)
    run.read(seen.at_s - origin_s)
    return [rows[0], *followed(run, rows, origin_s)]


def _rates_from(rows: Rows, backlog: float, begin_s: float, origin_s: float) -> list[float]:
    """One rate per second from `origin_s` on; the backlog came evenly from `begin_s` on."""
    arrivals = [row.arrival_rps * (row.at_s - before.at_s) for before, row in pairwise(rows)]
    at_s = [begin_s - 1e-3, *(row.at_s for row in rows)]
    came = np.concatenate([[0.0, backlog], backlog + np.cumsum(arrivals)])
    seconds = origin_s + np.arange(ceil(rows[-1].at_s - origin_s) + 2)
    return list(np.diff(np.interp(seconds, at_s, came)).tolist())


def _even(job: MicroBatchJob) -> MicroBatchJob:
    """The same without chance, and with executors that are there when a recording says so."""
    return msgspec.structs.replace(
        job, startup=Startup(0.0, 0.0), decommission_s=0.0, speed_spread=0.0, noise_fraction=0.0
    )


def _task_s(snapshots: Sequence[Snapshot], cores: int) -> float:
    """The time of all tasks, as far as it is known how busy executors were."""
    return sum(
        cores * (one.busy_fraction or 0.0) * (seen.at_s - before.at_s)
        for before, seen in pairwise(snapshots)
        for one in seen.executors
    )


def _tasks(snapshots: Sequence[Snapshot], cores: int) -> int:
    """Tasks of the widest stage; where none is known, enough for an even spread."""
    tasks = [stage.tasks for one in snapshots for stage in one.operators if stage.tasks]
    if known := tasks or [one.partitions for one in snapshots if one.partitions]:
        return max(known)
    return 8 * cores * max(one.fleet.active for one in snapshots)


def _work(batch: Seen, tasks: int, cores: int, contention: float) -> float:
    """Records that one slot works through one after the other, contention included."""
    executors = batch.executors + batch.helped
    waves = ceil(tasks / (executors * cores))
    return batch.records * waves / tasks * (1.0 + contention * (executors - 1))


def _line(
    batches: Sequence[Seen], tasks: int, cores: int, contention: float
) -> tuple[float, float, float]:
    """Fixed cost, cost per record on a core, and the mean deviation of durations from them."""
    work = np.array([_work(batch, tasks, cores, contention) for batch in batches])
    took = np.array([batch.duration_s for batch in batches])
    weights = np.ones_like(took)
    fixed_s = slope = 0.0
    # Least absolute deviations, by weights: a straggler must not bend the line.
    for _ in range(20):
        mean_work, mean_took = np.average(work, weights=weights), np.average(took, weights=weights)
        spread = np.average((work - mean_work) ** 2, weights=weights)
        if spread > 0.0:
            both = np.average((work - mean_work) * (took - mean_took), weights=weights)
            slope = float(both / spread)
        slope = max(slope, 0.0)
        fixed_s = float(mean_took - slope * mean_work)
        if fixed_s < 0.0:
            fixed_s, slope = 0.0, float(mean_took / mean_work)
        weights = 1.0 / np.maximum(np.abs(took - fixed_s - slope * work), 1e-3)
    off = np.abs(took - fixed_s - slope * work)
    return fixed_s, slope, float(off.mean())
