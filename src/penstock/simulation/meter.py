"""What Spark's status store would show of a micro-batch job: task time per executor and stage.

The engine tells a `Meter` how much was run (`Done`) under which plan, and the meter turns it into
the samples of a snapshot. Whatever stays the same from one reading to the next is laid out in
columns once, since a reading is taken thousands of times for each time that the fleet changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from penstock.model import ExecutorSample, OperatorSample
from penstock.simulation.fleet import Executor
from penstock.simulation.stages import Plan, Stage

_IDLE_MEMORY_FRACTION = 0.25  # what a JVM without state holds: code, buffers, shuffle


class Done(Struct, frozen=True, gc=False):
    """Work done under one plan; a batch that is still running counts by its elapsed share."""

    batches: float
    load: float
    records: float


class Meter:
    """Task time since the last reading, and the samples made of it."""

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        cores_per_executor: int,
        cpu_per_busy: float,
        state_fraction: float,
    ) -> None:
        self._stages = stages
        self._cores = cores_per_executor
        self._cpu_per_busy = cpu_per_busy
        self._state_fraction = state_fraction  # all state, as a fraction of one's memory
        self._run_s: dict[str, float] = {}
        self._records: dict[str, float] = {}
        self._stage_run_s = [0.0] * len(stages)
        self._past_records = 0.0
        upstream = ((), *((stage.name,) for stage in stages))
        self._stage_names = [(s.name, up, s.tasks) for s, up in zip(stages, upstream, strict=False)]
        # Records into and out of each stage per record that the job reads.
        reaching = [1.0]
        for stage in stages:
            reaching.append(reaching[-1] * stage.selectivity)
        self._ratios = list(pairwise(reaching))

    def book(self, crew: Sequence[Executor], plan: Plan, done: Done) -> None:
        """Write down what was done under a plan that is about to change."""
        run_s, records = self._run_s, self._records
        for one, base_s, s_per_record, share in zip(
            crew,
            plan.executor_base_s,
            plan.executor_s_per_record,
            plan.record_shares,
            strict=True,
        ):
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
        ready: Sequence[Executor],
        leaving: Sequence[Executor],
        crew: Sequence[Executor],
        plan: Plan,
        partitions_of: Mapping[str, int],
    ) -> None:
        """Set the columns for these executors; `crew` are those that the plan counts on."""
        people = [*ready, *leaving]
        place_of = {one.id: place for place, one in enumerate(crew)}
        places = [place_of.get(one.id) for one in people]

        def column(values: Sequence[float]) -> list[float]:
            return [0.0 if place is None else values[place] for place in places]

        tasks = max(1, sum(stage.tasks for stage in self._stages if stage.stateful))
        held = [partitions_of.get(one.id, 0) for one in people]
        self._slots = max(1, len(crew)) * self._cores
        self._plan = plan
        self._ids = [one.id for one in people]
        self._started = [one.ready_at_s for one in people]
        self._ready = [True] * len(ready) + [False] * len(leaving)
        self._memory = [
            _IDLE_MEMORY_FRACTION + self._state_fraction * count / tasks for count in held
        ]
        self._held = held
        self._past = [self._run_s.get(name, 0.0) for name in self._ids]
        self._base = column(plan.executor_base_s)
        self._slope = column(plan.executor_s_per_record)
        self._shares = column(plan.record_shares)
        self._read_before = [self._records.get(name, 0.0) for name in self._ids]

    def executors(self, done: Done, wall_s: float) -> tuple[ExecutorSample, ...]:
        """All executors that Spark lists: those that are there, and those that are leaving."""
        batches, load, records = done.batches, done.load, done.records
        per_slot = 1.0 / (self._cores * wall_s)
        busy = [
            min(1.0, (past + base * batches + slope * load) * per_slot)
            for past, base, slope in zip(self._past, self._base, self._slope, strict=True)
        ]
        cpu_per_busy = self._cpu_per_busy
        return tuple(
            map(
                ExecutorSample,
                self._ids,
                self._started,
                self._ready,
                [fraction * cpu_per_busy for fraction in busy],
                busy,
                self._memory,
                [
                    (before + share * records) / wall_s
                    for before, share in zip(self._read_before, self._shares, strict=True)
                ],
                self._held,
            )
        )

    def operators(self, done: Done, wall_s: float) -> tuple[OperatorSample, ...]:
        """The stages: busy is their task time per slot, service time that per record."""
        plan = self._plan
        records = done.records + self._past_records
        samples = []
        for (name, upstream, tasks), (reaching, leaving), past_s, base_s, s_per_record in zip(
            self._stage_names,
            self._ratios,
            self._stage_run_s,
            plan.stage_base_s,
            plan.stage_s_per_record,
            strict=True,
        ):
            run_s = past_s + base_s * done.batches + s_per_record * done.load
            read = records * reaching
            samples.append(
                OperatorSample(
                    name,
                    upstream,
                    read / wall_s,
                    records * leaving / wall_s,
                    min(1.0, run_s / (self._slots * wall_s)),
                    service_time_s=run_s / read if read > 0.0 else None,
                    tasks=tasks,
                )
            )
        return tuple(samples)

    def forget(self) -> bool:
        """Begin a new interval; true if there was a past, so that the columns have changed."""
        if not self._run_s and not self._past_records:
            return False
        self._run_s.clear()
        self._records.clear()
        self._stage_run_s = [0.0] * len(self._stages)
        self._past_records = 0.0
        return True
