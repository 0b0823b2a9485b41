"""What the driver's scheduler knows of the fleet: which executors, how fast, with what state.

It plans again (`replan`) whenever executors have come or gone or work differently, and says what a
batch costs until the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.simulation.engines.fleet import SimulatedExecutor, active
from penstock.simulation.engines.stages import State, TaskPlan, plan, tasks_per_executor
from penstock.simulation.faults import CapacityDrop, Fault, SkewSetsIn

if TYPE_CHECKING:
    from penstock.simulation.engines.microbatch import MicroBatchJob

# Slower than any executor that works, and far from a division by zero.
_SLOWEST = 1e-6


class BatchScheduler:
    """The executors that take tasks, the state that they hold, and the plan for a batch."""

    def __init__(
        self, job: MicroBatchJob, ready: Sequence[SimulatedExecutor], faults: Sequence[Fault]
    ) -> None:
        self._job = job
        self._faults = [fault for fault in faults if isinstance(fault, CapacityDrop | SkewSetsIn)]
        self._cold: list[bool] = [False] * len(ready)
        self.executors = list(ready)
        stateful = [stage for stage in job.stages if stage.stateful]
        self._states = {
            stage.name: State(stage, job.state_bytes / len(stateful) / job.state_load_bytes_per_s)
            for stage in stateful
        }
        ids, speeds = [one.id for one in ready], self._speeds()
        for state in self._states.values():
            state.begin(ids, job.cores_per_executor, speeds)
        self.plan = self._plan(0.0, ids, speeds)

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
        found = plan(
            job.stages,
            counts,
            job.cores_per_executor,
            speeds,
            cost_factor=cost_factor,
            hot_fraction=max(job.hot_fraction, *skews, 0.0),
        )
        if job.batch_core_s > 0.0 and ids:
            self._add_batch_core_s(found)
        return found

    def _add_batch_core_s(self, found: TaskPlan) -> None:
        """Keep executors busy for what a batch costs besides: no longer than that takes."""
        job, executors = self._job, len(found.executor_base_s)
        slots_s = job.cores_per_executor * job.fixed_s
        each_s = min(job.batch_core_s / executors, slots_s)
        for place in range(executors):
            found.executor_base_s[place] += each_s
        found.stage_base_s[0] += executors * each_s
