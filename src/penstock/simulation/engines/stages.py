"""How long a micro-batch takes: stages in sequence, each a number of tasks on a number of slots.

A stage runs its tasks in waves: with 200 tasks on 24 slots the ninth wave has only eight tasks,
yet takes as long as the others. The duration of a batch is a straight line over its records for as
long as the executors do not change, which `TaskPlan` holds:

    duration = fixed + sum over stages of waves x (overhead + records x cost / tasks)

`BatchScheduler` makes that plan again whenever executors have come or gone or work differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import inf
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from penstock.simulation.engines.fleet import SimulatedExecutor, active
from penstock.simulation.faults import CapacityDrop, Faults, SkewSetsIn

if TYPE_CHECKING:
    from penstock.simulation.engines.microbatch import MicroBatchJob

# Slower than any executor that works, and far from a division by zero.
_SLOWEST = 1e-6


class Stage(Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of the query, as docs/simulated-jobs.md says; all but the first read a shuffle."""

    name: str
    tasks: Annotated[int, Meta(ge=1)]
    core_s_per_record: Annotated[float, Meta(ge=0)]
    selectivity: Annotated[float, Meta(ge=0)] = 1.0
    stateful: bool = False
    task_overhead_s: Annotated[float, Meta(ge=0)] = 0.001


class TaskPlan(Struct, frozen=True):
    """What a batch costs, for executors that do not change."""

    base_s: float  #: The duration of all stages, as `s_per_record`.
    s_per_record: float
    executor_base_s: list[float]  #: Core time, as all up to `stage_s_per_record`.
    executor_s_per_record: list[float]
    stage_base_s: list[float]
    stage_s_per_record: list[float]
    record_shares: list[float]  #: The part that each executor reads.
    span_base_s: list[float] = []  #: The duration of each stage, as `span_s_per_record`.
    span_s_per_record: list[float] = []


def tasks_per_executor(tasks: int, cores: int, speeds: Sequence[float]) -> list[int]:
    """How many tasks each executor gets when every free slot takes the next one.

    Ten tasks on two executors of two cores are three waves, the last one half empty. An executor of
    half the speed takes every third task:

    >>> tasks_per_executor(10, 2, [1.0, 1.0])
    [6, 4]
    >>> tasks_per_executor(12, 2, [1.0, 0.5])
    [8, 4]
    """
    if not speeds:
        return []
    # No slot can be done before this instant, so all full rounds up to it are taken.
    earliest = tasks / (cores * sum(speeds))
    counts = [int(earliest * speed) * cores for speed in speeds]
    left = tasks - sum(counts)
    if left <= 0:
        return counts
    ends = [
        ((count // cores + 1) / speed, place)
        for place, (count, speed) in enumerate(zip(counts, speeds, strict=True))
    ]
    heapify(ends)
    while left > 0:
        _, place = ends[0]
        taken = min(cores, left)
        counts[place] += taken
        left -= taken
        heapreplace(ends, ((counts[place] // cores + 1) / speeds[place], place))
    return counts


def waves(counts: Sequence[int], cores: int, speeds: Sequence[float]) -> float:
    """The length of a stage in tasks: what the last executor to finish needs.

    >>> waves([6, 4], 2, [1.0, 1.0]), waves([6, 6], 2, [1.0, 0.5])
    (3.0, 6.0)
    """
    return max((-(-count // cores) / speed for count, speed in zip(counts, speeds, strict=True)))


def plan(
    stages: Sequence[Stage],
    counts: Sequence[Sequence[int]],
    cores: int,
    speeds: Sequence[float],
    *,
    cost_factor: float = 1.0,
    hot_fraction: float = 0.0,
) -> TaskPlan:
    """The cost of a batch when stage i runs `counts[i][j]` tasks on executor j.

    The hottest key sits in one task of each stage behind a shuffle, on the oldest executor; that
    task starts first, and the stage ends when both it and the waves of the others are done.
    Without executors a batch takes for ever.
    """
    if not speeds:
        return TaskPlan(inf, 0.0, [], [], [0.0] * len(stages), [0.0] * len(stages), [])
    per_task = [1.0 / speed for speed in speeds]
    executor_base_s = [0.0] * len(speeds)
    executor_s_per_record = [0.0] * len(speeds)
    stage_base_s, stage_s_per_record = [], []
    span_base_s, span_s_per_record = [], []
    reaching = cost_factor
    for number, (stage, own) in enumerate(zip(stages, counts, strict=True)):
        hot = hot_fraction if number > 0 else 0.0
        cost_s = stage.core_s_per_record * reaching
        even = (1.0 - hot) / stage.tasks
        length = waves(own, cores, speeds)
        span_base_s.append(length * stage.task_overhead_s)
        span_s_per_record.append(cost_s * max(length * even, (hot + even) * per_task[0]))
        runs = [count * time for count, time in zip(own, per_task, strict=True)]
        stage_base_s.append(sum(runs) * stage.task_overhead_s)
        stage_s_per_record.append((sum(runs) * even + hot * per_task[0]) * cost_s)
        for place, run in enumerate(runs):
            executor_base_s[place] += run * stage.task_overhead_s
            executor_s_per_record[place] += run * even * cost_s
        executor_s_per_record[0] += hot * per_task[0] * cost_s
        reaching *= stage.selectivity
    per_executor = executor_base_s, executor_s_per_record
    per_stage = stage_base_s, stage_s_per_record
    shares = [count / stages[0].tasks for count in counts[0]]
    spans = span_base_s, span_s_per_record
    return TaskPlan(
        sum(span_base_s), sum(span_s_per_record), *per_executor, *per_stage, shares, *spans
    )


class State:
    """Which executor holds how many of a stateful stage's partitions.

    A task runs where its state lies. Partitions follow the executors, as when
    `spark.locality.wait` is 0 around a rescale: those that gain partitions load them, all at once,
    and one batch waits for the slowest. `load_s` is the time to load all of it on one executor.
    """

    def __init__(self, stage: Stage, load_s: float) -> None:
        self._tasks = stage.tasks
        self._load_s = load_s
        self.partitions_of: dict[str, int] = {}

    def follow(self, ids: Sequence[str], cores: int, speeds: Sequence[float]) -> float:
        """Adapt to a changed fleet; returns the seconds that the next batch waits for it.

        Of four that load it all, each has a quarter. When two leave, each of the others gains a
        quarter; when they come back, so do they:

        >>> state = State(Stage("count", 200, 1e-4, stateful=True), load_s=2.4)
        >>> [state.follow(ids, 1, [1.0] * len(ids)) for ids in ("abcd", "ab", "abcd")]
        [0.6, 0.6, 0.6]
        """
        if not ids:
            return 0.0
        held = self.partitions_of
        counts = tasks_per_executor(self._tasks, cores, speeds)
        self.partitions_of = dict(zip(ids, counts, strict=True))
        gain = max(count - held.get(one, 0) for one, count in self.partitions_of.items())
        return max(0, gain) / self._tasks * self._load_s


class BatchScheduler:
    """The executors that take tasks, the state that they hold, and the plan for a batch."""

    def __init__(
        self, job: MicroBatchJob, ready: Sequence[SimulatedExecutor], faults: Faults
    ) -> None:
        self._job = job
        self._faults = [fault for fault in faults if isinstance(fault, CapacityDrop | SkewSetsIn)]
        self._cold: list[bool] = []
        self.executors: list[SimulatedExecutor] = []
        stateful = [stage for stage in job.stages if stage.stateful]
        self._states = {
            stage.name: State(stage, job.state_bytes / len(stateful) / job.state_load_bytes_per_s)
            for stage in stateful
        }
        self.replan(ready, 0.0)

    def replan(self, ready: Sequence[SimulatedExecutor], now_s: float) -> float:
        """Plan for these executors; returns what the next batch waits for their state."""
        job, before, was_cold = self._job, self.executors, self._cold
        self.executors = list(ready)
        # Those that were there when the run began are warm.
        self._cold = [one.ready_at_s > 0.0 and now_s < one.ready_at_s + job.cold_s for one in ready]
        ids, speeds = [one.id for one in ready], self._speeds()
        wait_s = 0.0
        if self.executors != before or self._cold != was_cold:
            for state in self._states.values():
                wait_s += state.follow(ids, job.cores_per_executor, speeds)
        self.plan = self._plan(now_s, ids, speeds)
        return wait_s

    def share_of(self, some: Sequence[SimulatedExecutor]) -> float:
        """The part of a batch that runs on some of the executors."""
        shares = zip(self.executors, self.plan.record_shares, strict=True)
        return min(1.0, sum(share for one, share in shares if one in some))

    def partitions_of(self) -> dict[str, int]:
        """How many partitions of state each executor holds."""
        held: dict[str, int] = {}
        for state in self._states.values():
            for name, partitions in state.partitions_of.items():
                held[name] = held.get(name, 0) + partitions
        return held

    def _speeds(self) -> list[float]:
        cold_fraction = self._job.cold_fraction
        return [
            max(_SLOWEST, one.speed * one.pace * (cold_fraction if cold else 1.0))
            for one, cold in zip(self.executors, self._cold, strict=True)
        ]

    def _plan(self, now_s: float, ids: Sequence[str], speeds: Sequence[float]) -> TaskPlan:
        job = self._job
        counts = [
            [self._states[stage.name].partitions_of[name] for name in ids]
            if stage.stateful
            else tasks_per_executor(stage.tasks, job.cores_per_executor, speeds)
            for stage in job.stages
        ]
        cost_factor = job.cost_factor(len(ids))
        for drop in active(self._faults, CapacityDrop, now_s):
            cost_factor /= max(_SLOWEST, 1.0 - drop.fraction)
        skews = [skew.hot_fraction for skew in active(self._faults, SkewSetsIn, now_s)]
        hot = max(job.hot_fraction, *skews, 0.0)
        cores = job.cores_per_executor
        found = plan(job.stages, counts, cores, speeds, cost_factor=cost_factor, hot_fraction=hot)
        if job.batch_core_s > 0.0 and ids:
            # Executors are busy for what a batch costs besides: no longer than that takes.
            each_s = min(job.batch_core_s / len(ids), cores * job.fixed_s)
            for place in range(len(ids)):
                found.executor_base_s[place] += each_s
            found.stage_base_s[0] += len(ids) * each_s
        return found
