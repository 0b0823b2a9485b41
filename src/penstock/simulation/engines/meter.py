"""What Spark's status store would show of a micro-batch job: task time per executor and stage.

The engine reports what was run (`Done`) under which plan, and the meter turns it into samples.
What stays the same between readings is laid out in rows once per change of the fleet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.core.model import ExecutorSample, OperatorSample
from penstock.simulation.engines.fleet import Roster, SimulatedExecutor
from penstock.simulation.engines.stages import TaskPlan

if TYPE_CHECKING:
    from penstock.simulation.engines.microbatch import MicroBatchJob

_IDLE_MEMORY_FRACTION = 0.25  # what a JVM without state holds: code, buffers, shuffle


class Done(Struct, frozen=True, gc=False):
    """Work done under one plan; a batch that is still running counts by its elapsed share."""

    batches: float
    load: float
    records: float


#: All that is known of an executor before a reading, in the order in which `executors` names it.
_ExecutorRow = tuple[str, float, bool, float, int, float, float, float, float, float]


class Meter:
    """Task time since the last reading, and the samples made of it."""

    def __init__(self, job: MicroBatchJob) -> None:
        self._cores = job.cores_per_executor
        self._idle_cpu = job.idle_cpu_fraction
        self._cpu_per_busy = job.full_cpu_fraction - job.idle_cpu_fraction
        # All state, as a fraction of one's memory, and the tasks that share it.
        self._state_fraction = job.state_bytes / job.executor_memory_bytes
        self._state_tasks = max(1, sum(stage.tasks for stage in job.stages if stage.stateful))
        self._run_s: dict[str, float] = {}
        self._records: dict[str, float] = {}
        self._stage_run_s = [0.0] * len(job.stages)
        self._past_records = 0.0
        # Of each stage: name, upstream, tasks, and records in and out per record of the job.
        self._stage_facts: list[tuple[str, tuple[str, ...], int, float, float]] = []
        upstream: tuple[str, ...] = ()
        reaching = 1.0
        for stage in job.stages:
            leaving = reaching * stage.selectivity
            self._stage_facts.append((stage.name, upstream, stage.tasks, reaching, leaving))
            upstream, reaching = (stage.name,), leaving

    def book(self, crew: Sequence[SimulatedExecutor], plan: TaskPlan, done: Done) -> None:
        """Write down what was done under a plan that is about to change."""
        run_s, records = self._run_s, self._records
        for one, (base_s, s_per_record, share) in zip(crew, _costs(plan), strict=True):
            spent_s = base_s * done.batches + s_per_record * done.load
            run_s[one.id] = run_s.get(one.id, 0.0) + spent_s
            records[one.id] = records.get(one.id, 0.0) + share * done.records
        for number, (base_s, s_per_record) in enumerate(
            zip(plan.stage_base_s, plan.stage_s_per_record, strict=True)
        ):
            self._stage_run_s[number] += base_s * done.batches + s_per_record * done.load
        self._past_records += done.records

    def lay_out(
        self,
        roster: Roster,
        crew: Sequence[SimulatedExecutor],
        plan: TaskPlan,
        partitions_of: Mapping[str, int],
    ) -> None:
        """Set the rows for the executors of today; `crew` are those that the plan counts on."""
        self._starting = tuple(
            ExecutorSample(one.id, one.requested_at_s, ready=False) for one in roster.starting
        )
        self._slots = max(1, len(crew)) * self._cores
        stage_costs = zip(plan.stage_base_s, plan.stage_s_per_record, strict=True)
        self._stage_rows = [
            (*facts, *costs) for facts, costs in zip(self._stage_facts, stage_costs, strict=True)
        ]
        costs_of = dict(zip(crew, _costs(plan), strict=True))
        self._rows: list[_ExecutorRow] = []
        for one in (*roster.ready, *roster.leaving):
            held = partitions_of.get(one.id, 0)
            memory = _IDLE_MEMORY_FRACTION + self._state_fraction * held / self._state_tasks
            # An executor that is not in the crew costs and reads nothing.
            costs = costs_of.get(one, (0.0, 0.0, 0.0))
            past = self._run_s.get(one.id, 0.0), self._records.get(one.id, 0.0)
            ready = one not in roster.leaving
            self._rows.append((one.id, one.ready_at_s, ready, memory, held, *costs, *past))

    def executors(self, done: Done, wall_s: float) -> tuple[ExecutorSample, ...]:
        """Those that are there, leave or start; over no time only their names are known."""
        if wall_s <= 0.0:
            names = [ExecutorSample(*row[:3]) for row in self._rows]
            return (*names, *self._starting)
        batches, load, records = done.batches, done.load, done.records
        slot_s = self._cores * wall_s
        idle_cpu, cpu_per_busy = self._idle_cpu, self._cpu_per_busy
        samples = []
        for name, since_s, ready, memory, held, base_s, slope, share, past_s, past in self._rows:
            busy = (past_s + base_s * batches + slope * load) / slot_s
            if busy > 1.0:
                busy = 1.0
            cpu = idle_cpu + cpu_per_busy * busy
            rps = (past + share * records) / wall_s
            samples.append(ExecutorSample(name, since_s, ready, cpu, busy, memory, rps, held))
        return (*samples, *self._starting)

    def operators(self, done: Done, wall_s: float) -> tuple[OperatorSample, ...]:
        """The stages: busy is their task time per slot, service time that per record."""
        batches, load = done.batches, done.load
        records = done.records + self._past_records
        rate, slot_s = records / wall_s, self._slots * wall_s
        samples = []
        for (name, upstream, tasks, reaching, leaving, base_s, s_per_record), past_s in zip(
            self._stage_rows, self._stage_run_s, strict=True
        ):
            run_s = past_s + base_s * batches + s_per_record * load
            read = records * reaching
            # Less than a record is no measurement.
            service_s = run_s / read if read >= 1.0 else None
            busy = min(1.0, run_s / slot_s)
            in_rps, out_rps = rate * reaching, rate * leaving
            sample = OperatorSample(
                name, upstream, in_rps, out_rps, busy, service_time_s=service_s, tasks=tasks
            )
            samples.append(sample)
        return tuple(samples)

    def forget(self) -> bool:
        """Begin a new interval; true if there was a past, which the rows still hold."""
        if not self._run_s and not self._past_records:
            return False
        self._run_s.clear()
        self._records.clear()
        self._stage_run_s = [0.0] * len(self._stage_facts)
        self._past_records = 0.0
        return True


def _costs(plan: TaskPlan) -> Iterator[tuple[float, float, float]]:
    """Of each executor: time per batch and per record, and the part of the records."""
    return zip(plan.executor_base_s, plan.executor_s_per_record, plan.record_shares, strict=True)
