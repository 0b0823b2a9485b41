"""A micro-batch job fitted to a recorded run: what a batch costs, from the batches themselves.

The duration of a batch is a straight line over its records for as long as the fleet does not
change: ``fixed + cost x records x waves / tasks``. Both numbers, and how much dearer a record gets
among more executors, come from the batches that were recorded with their size and duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.errors import ConfigError
from penstock.model import Snapshot, Step
from penstock.simulation.fleet import Startup
from penstock.simulation.microbatch import MicroBatchJob
from penstock.simulation.recorded import Row, rates, row_of
from penstock.simulation.stages import Stage

#: Fewer batches say too little about their cost.
FEWEST_BATCHES = 20
#: Of the fixed cost, the part before the stages.
_PLANNING_PART = 0.4
#: Contention is looked for in steps up to this.
_CONTENTIONS = np.linspace(0.0, 0.2, 41)


class Seen(NamedTuple):
    """A batch with the fleet that ran it."""

    records: float
    duration_s: float
    executors: int


def batches_of(steps: Iterable[Step]) -> list[Seen]:
    """All batches of a journal that had records, each with the fleet of its time."""
    return [
        Seen(float(batch.input_records), batch.duration_s, step.snapshot.fleet.active)
        for step in steps
        if step.snapshot is not None and step.snapshot.fleet.active > 0
        for batch in step.snapshot.batches
        if batch.input_records > 0
    ]


def fit(steps: Sequence[Step]) -> MicroBatchJob:
    """The job whose batches cost what the recorded ones did."""
    batches = batches_of(steps)
    if len(batches) < FEWEST_BATCHES:
        raise ConfigError(
            f"a calibration needs at least {FEWEST_BATCHES} batches with records, "
            f"not {len(batches)}"
        )
    snapshots = [step.snapshot for step in steps if step.snapshot is not None]
    triggers = [one.trigger_interval_s for one in snapshots if one.trigger_interval_s]
    cores = snapshots[-1].fleet.cores_per_executor
    tasks = _tasks(snapshots, cores)
    contention = 0.0
    if len({batch.executors for batch in batches}) > 1:
        contention = min(_CONTENTIONS, key=lambda c: _line(batches, tasks, cores, float(c))[2])
    fixed_s, core_s, _ = _line(batches, tasks, cores, float(contention))
    off = [
        batch.duration_s / (fixed_s + core_s * _work(batch, tasks, cores, float(contention)))
        for batch in batches
    ]
    noise = float(np.clip(1.4826 * np.median(np.abs(np.array(off) - 1.0)), 0.0, 0.5))
    return MicroBatchJob(
        trigger_interval_s=median(triggers),
        planning_s=max(1e-3, _PLANNING_PART * fixed_s),
        commit_s=(1.0 - _PLANNING_PART) * fixed_s,
        stages=(Stage("batch", tasks, core_s, task_overhead_s=0.0),),
        cores_per_executor=cores,
        contention=float(contention),
        noise_fraction=noise,
        straggler_probability=0.0,
        state_bytes=0.0,
        cold_s=0.0,
    )


def replay(job: MicroBatchJob, rows: Sequence[Row]) -> list[Row]:
    """What the job on paper shows, given the arrivals and the executors of a recording."""
    even = msgspec.structs.replace(
        job, startup=Startup(0.0, 0.0), decommission_s=0.0, speed_spread=0.0, noise_fraction=0.0
    )
    begin_s = rows[0].at_s
    run = even.start(rates(rows, 0.0), executors=rows[0].workers, seed=1)
    shown = [rows[0]]
    for before, row in pairwise(rows):
        if row.workers != before.workers:
            run.apply(row.workers, (before.at_s + row.at_s) / 2.0 - begin_s)
        seen = row_of(run.read(row.at_s - begin_s), row.arrival_rps)
        shown.append(msgspec.structs.replace(seen, at_s=row.at_s))
    return shown


def _tasks(snapshots: Sequence[Snapshot], cores: int) -> int:
    """Tasks of the widest stage; where none is known, enough for an even spread."""
    known = [
        operator.tasks for one in snapshots for operator in one.operators if operator.tasks
    ] or [one.partitions for one in snapshots if one.partitions]
    if known:
        return max(known)
    return 8 * cores * max(one.fleet.active for one in snapshots)


def _work(batch: Seen, tasks: int, cores: int, contention: float) -> float:
    """Records that one slot works through one after the other, contention included."""
    waves = ceil(tasks / (batch.executors * cores))
    return batch.records * waves / tasks * (1.0 + contention * (batch.executors - 1))


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
            slope = float(
                np.average((work - mean_work) * (took - mean_took), weights=weights) / spread
            )
        slope = max(slope, 0.0)
        fixed_s = float(mean_took - slope * mean_work)
        if fixed_s < 0.0:
            fixed_s, slope = 0.0, float(mean_took / mean_work)
        weights = 1.0 / np.maximum(np.abs(took - fixed_s - slope * work), 1e-3)
    off = np.abs(took - fixed_s - slope * work)
    return fixed_s, slope, float(off.mean())
