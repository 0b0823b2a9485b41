"""One run of a simulated Structured Streaming job.

At each trigger a batch takes everything that has arrived (up to the admission cap), runs its
stages one after the other, and commits all of its records at once. After a late batch the next one
starts at once, else at the next trigger.

A rescale never stops the query. Executors that leave finish their batch; when one dies in the
middle of a batch, what it had done is done again by the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, repeat
from math import inf
from operator import sub
from random import Random
from typing import TYPE_CHECKING

from penstock.core.model import Batch, BatchStage, Fleet, OperatorSample, Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.engine import Curve, Outcome, Rates
from penstock.simulation.engines.fleet import Roster, SimulatedExecutor, edges_s
from penstock.simulation.engines.meter import Done, Meter
from penstock.simulation.engines.sensors import SimulatedSource
from penstock.simulation.engines.stages import BatchScheduler, TaskPlan
from penstock.simulation.faults import CapacityDrop, Faults, SkewSetsIn, SourceOutage

if TYPE_CHECKING:
    from penstock.simulation.engines.microbatch import MicroBatchJob


#: Tasks, core-seconds of a batch and per record, seconds of a batch and per record.
StageRow = tuple[int, float, float, float, float]


def _draws(rng: Random, table: list[float]) -> Iterator[float]:
    """Endless random factors; drawn in bulk, which is cheaper."""
    while True:
        yield from rng.choices(table, k=1024)


class MicroBatchRun(InstantActuator):
    """One run of a `MicroBatchJob`: sensor and actuator.

    The tight loop is `_run_batches`; it knows only the line `base + s_per_record x records`.
    Everything else happens at the instants at which that line may change.
    """

    def __init__(
        self, job: MicroBatchJob, rates_rps: Rates, *, executors: int, seed: int, faults: Faults
    ) -> None:
        self._job = job
        self._source = SimulatedSource(rates_rps, faults)
        rng = Random(seed)
        self._draw = _draws(Random(rng.getrandbits(64)), job.noise_table()).__next__
        self._roster = Roster(
            executors, rng=rng, startup=job.startup, speed_spread=job.speed_spread, faults=faults
        )
        self._crew = BatchScheduler(job, self._roster.ready, faults)
        # Instants at which a batch begins to cost more or less though no executor comes or goes.
        self._edges_s = edges_s(faults, CapacityDrop, SkewSetsIn, SourceOutage)
        self._departing: list[tuple[float, int, list[SimulatedExecutor]]] = []

        # The batch that is running, or will start at `_start_s`.
        self._running = False
        self._start_s = self._end_s = 0.0
        self._next_s = job.trigger_interval_s  # the instant of the grid after `_start_s`
        self._upto = self._load = 0.0  # records committed once it is; its records times its noise
        self._resumed = (-1.0, 0.0, 0.0)  # which batch (its start), since when, share done then

        # All batches that were committed, and the records that they led up to.
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._offsets: list[float] = [0.0]
        self._loads: list[float] = []
        self._costs: list[tuple[int, list[StageRow]]] = []  # of stages, from which batch on

        # What was done since the last reading or change of plan.
        self._batches_run = self._load_run = self._records_booked = 0.0
        self._base_s = inf  # the cost of a batch before its first record
        self._extra_s = 0.0  # what the next batch pays for state that moves
        self._joining_s = 0.0  # and for executors that have just come
        self._limit = inf  # the most records that a batch can read
        self._plan_is_stale = self._rows_are_stale = True
        self._fleet = Fleet(executors, executors, executors, job.cores_per_executor)
        self._meter = Meter(job)
        self._partitions = max(stage.tasks for stage in job.stages)
        self._read_at_s, self._batches_read = 0.0, 0
        self._latency_s: float | None = None
        self._look_ahead()

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Ask for a fleet of that size; asking for what there is changes nothing."""
        self._run_to(now_s)
        roster = self._roster
        leaving = len(roster.leaving)
        if not roster.ask(target_executors, now_s):
            return Receipt(accepted=True, text=f"{roster.target} executors already asked for")
        victims = roster.leaving[leaving:]
        if victims:
            free_s = self._end_s if self._running and self._end_s < inf else now_s
            gone_s = free_s + self._job.decommission_s
            heappush(self._departing, (gone_s, len(roster.targets), victims))
        self._plan_is_stale = self._rows_are_stale = True
        self._look_ahead()
        return Receipt(accepted=True, text=f"asked for {roster.target} executors")

    def finish(self) -> Outcome:
        end_s = self._source.duration_s
        self._run_to(end_s)
        # From (0, 0): for each commit its foot and its top, then level to the end.
        at_s = [0.0] * (2 * len(self._ends) + 2)
        at_s[1:-1:2] = at_s[2:-1:2] = self._ends
        at_s[-1] = end_s
        records = [0.0] * len(at_s)
        records[::2] = records[1::2] = self._offsets
        curves = self._source.arrivals(), Curve(at_s, records)
        return Outcome(end_s, *curves, list(self._roster.paid), list(self._roster.targets))

    def read(self, now_s: float) -> Snapshot:
        """Run on to `now_s` and report what Spark and Kafka would show."""
        self._run_to(now_s)
        job, roster = self._job, self._roster
        wall_s = now_s - self._read_at_s
        batches = self._batches_since_last_reading()
        if batches:
            self._latency_s = batches[-1].duration_s
        arrival_rps, backlog, delay_s = self._source.look(now_s, self._offsets[-1])
        share = self._share_done(now_s)
        done = self._done(share)
        if self._rows_are_stale:
            crew = self._crew
            self._meter.lay_out(roster, crew.executors, crew.plan, crew.partitions_of())
            ready, there = len(roster.ready), len(roster.ready) + len(roster.leaving)
            self._fleet = Fleet(roster.target, there, ready, job.cores_per_executor)
            self._rows_are_stale = False
        executors = self._meter.executors(done, wall_s)
        throughput_rps: float | None = None
        operators: tuple[OperatorSample, ...] = ()
        if wall_s > 0.0:
            throughput_rps = (self._offsets[-1] - self._offsets[self._batches_read]) / wall_s
            operators = self._meter.operators(done, wall_s)
            self._count_from(share)
            self._rows_are_stale = self._meter.forget()
            self._batches_read = len(self._ends)
            self._read_at_s = now_s
        return Snapshot(
            now_s,
            self._fleet,
            trigger_interval_s=job.trigger_interval_s,
            batches=batches,
            arrival_rps=arrival_rps,
            throughput_rps=throughput_rps,
            backlog_records=backlog,
            delay_s=delay_s,
            latency_s=self._latency_s,
            executors=executors,
            operators=operators,
            partitions=self._partitions,
            state_bytes=job.state_bytes,
        )

    def _batches_since_last_reading(self) -> tuple[Batch, ...]:
        first = self._batches_read
        planning_s, commit_s = self._job.planning_s, self._job.commit_s
        fixed_s = planning_s + commit_s
        starts = self._starts[first:]
        durations = list(map(sub, self._ends[first:], starts))
        # Whole records, cut so that the batches of a run add up to what it has processed.
        offsets = list(map(int, self._offsets[first:]))
        phases = [
            {"queryPlanning": planning_s, "addBatch": took_s - fixed_s, "commitOffsets": commit_s}
            if took_s > fixed_s
            else {"queryPlanning": took_s}
            for took_s in durations
        ]
        records = map(sub, offsets[1:], offsets)
        stages = self._stages_of(first, durations)
        return tuple(
            map(Batch, count(first), starts, durations, records, phases, repeat({}), stages)
        )

    def _stage_rows(self, plan: TaskPlan) -> list[StageRow]:
        """What each stage costs under a plan; tasks start inside of the first."""
        tasks = [stage.tasks for stage in self._job.stages]
        spans_s = list(plan.span_base_s)
        if spans_s:
            spans_s[0] += self._job.launch_s
        works = plan.stage_base_s, plan.stage_s_per_record
        return list(zip(tasks, *works, spans_s, plan.span_s_per_record, strict=False))

    def _stages_of(
        self, first: int, durations: Sequence[float]
    ) -> Iterator[tuple[BatchStage, ...]]:
        """The stages of batches from one on; the last stage ends when the batch is committed.

        What a batch waited for state is in its last stage as well. The hot loop of reading.
        """
        costs, planning_s, commit_s = self._costs, self._job.planning_s, self._job.commit_s
        for number, (load, took_s) in enumerate(
            zip(self._loads[first:], durations, strict=True), first
        ):
            while len(costs) > 1 and costs[1][0] <= number:
                del costs[0]
            rows = costs[0][1]
            if not load or not rows:
                yield ()
                continue
            begin_s, last_s = planning_s, took_s - commit_s
            found: list[BatchStage] = []
            for tasks, base_s, s_per_record, span_s, span_s_per_record in rows:
                end_s = begin_s + span_s + span_s_per_record * load
                latest_s = last_s if last_s > begin_s else begin_s
                if latest_s < end_s or len(found) == len(rows) - 1:
                    end_s = latest_s
                found.append(BatchStage(tasks, base_s + s_per_record * load, begin_s, end_s))
                begin_s = end_s
            yield tuple(found)

    def _run_to(self, now_s: float) -> None:
        now_s = min(now_s, self._source.duration_s)
        while self._change_s <= now_s:
            change_s = self._change_s
            self._run_batches(change_s)
            while self._departing and self._departing[0][0] <= change_s:
                self._roster.release(change_s, heappop(self._departing)[2])
                self._rows_are_stale = True
            if self._edges_s and self._edges_s[0] <= change_s:
                while self._edges_s and self._edges_s[0] <= change_s:
                    heappop(self._edges_s)
                self._plan_is_stale = True
                self._share_out(change_s)
            if self._roster.next_event_s <= change_s:
                self._staff_changes(change_s)
            self._look_ahead()
        self._run_batches(now_s)

    def _look_ahead(self) -> None:
        """Find the next instant at which anything but a batch begins or ends."""
        edge_s = self._edges_s[0] if self._edges_s else inf
        gone_s = self._departing[0][0] if self._departing else inf
        self._change_s = min(self._roster.next_event_s, edge_s, gone_s)

    def _run_batches(self, until_s: float) -> None:
        """Commit all batches that end by `until_s`, and start those that start before it."""
        running, start_s, end_s = self._running, self._start_s, self._end_s
        starts, ends, offsets, loads = self._starts, self._ends, self._offsets, self._loads
        arrived, rates, draw = self._source.arrived, self._source.rates_rps, self._draw
        upto, load, processed = self._upto, self._load, offsets[-1]
        batches_run, load_run = self._batches_run, self._load_run
        base_s, s_per_record = self._base_s, self._crew.plan.s_per_record
        limit, extra_s = self._limit, self._extra_s
        next_s, interval_s = self._next_s, self._job.trigger_interval_s
        planning_s = self._job.planning_s
        while True:
            if running:
                if end_s > until_s:
                    break
                starts.append(start_s)
                ends.append(end_s)
                offsets.append(upto)
                loads.append(load)
                processed = upto
                if load:
                    batches_run += 1.0
                    load_run += load
                running = False
                if next_s > end_s:
                    start_s = next_s
                    next_s += interval_s
                else:
                    start_s = end_s
                    next_s = (int(end_s / interval_s) + 1) * interval_s
            if start_s >= until_s:
                break
            if self._plan_is_stale:
                self._batches_run, self._load_run, self._running = batches_run, load_run, False
                self._replan(start_s)
                batches_run, load_run = self._batches_run, self._load_run
                base_s, s_per_record = self._base_s, self._crew.plan.s_per_record
                limit, extra_s = self._limit, self._extra_s
            second = int(start_s)
            upto = arrived[second] + (start_s - second) * rates[second]
            if upto - processed > limit:
                upto = processed + limit
            if upto > processed:
                load = (upto - processed) * draw()
                end_s = start_s + base_s + s_per_record * load + extra_s
                extra_s = 0.0
            else:
                upto = processed
                load = 0.0
                end_s = start_s + planning_s
            running = True
        self._running, self._start_s, self._end_s = running, start_s, end_s
        self._next_s = next_s
        self._upto, self._load, self._extra_s = upto, load, extra_s
        self._batches_run, self._load_run = batches_run, load_run

    def _staff_changes(self, now_s: float) -> None:
        """Executors came, died with their part of the batch, or changed pace: plan again."""
        change = self._roster.advance(now_s)
        self._plan_is_stale = self._rows_are_stale = True
        for one in change.joined:
            heappush(self._edges_s, one.ready_at_s + self._job.cold_s)
            self._joining_s += self._job.join_s
        if not self._running or not self._load:
            return
        lost = self._crew.share_of(change.lost)
        if lost > 0.0 or (self._end_s == inf and self._roster.ready):
            self._resume(now_s, self._share_done(now_s) * (1.0 - lost))
        elif change.joined:
            self._share_out(now_s)

    def _share_out(self, now_s: float) -> None:
        """Tasks of the running batch that wait go to free executors; those that run stay."""
        slots = self._job.cores_per_executor * len(self._crew.executors)
        if not self._running or not self._load or not slots:
            return
        share = self._share_done(now_s)
        waves = sum(-(-stage.tasks // slots) for stage in self._job.stages)
        if (1.0 - share) * waves > 1.0:
            joining_s, self._joining_s = self._joining_s, 0.0
            self._resume(now_s, share)
            # It is the next batch that waits until the new ones have loaded their code.
            self._joining_s, self._plan_is_stale = joining_s, joining_s > 0.0

    def _resume(self, now_s: float, share_kept: float) -> None:
        """Go on with the batch on the executors that there are, with a share of it done."""
        self._replan(now_s)
        self._count_from(share_kept)
        whole_s = self._base_s + self._crew.plan.s_per_record * self._load
        self._end_s = now_s + (1.0 - share_kept) * whole_s + self._extra_s
        self._extra_s = 0.0
        self._resumed = (self._start_s, now_s, share_kept)

    def _replan(self, now_s: float) -> None:
        """Find out what a batch costs from now on; book what was done before."""
        job, crew, share = self._job, self._crew, self._share_done(now_s)
        self._meter.book(crew.executors, crew.plan, self._done(share))
        self._count_from(share)
        moving_s = max(self._extra_s, crew.replan(self._roster.ready, now_s))
        self._extra_s, self._joining_s = moving_s + self._joining_s, 0.0
        self._base_s = job.fixed_s + crew.plan.base_s
        self._costs.append((len(self._ends), self._stage_rows(crew.plan)))
        self._limit = job.max_offsets_per_trigger or inf
        if job.max_batch_s is not None and crew.plan.s_per_record > 0.0:
            # At least one: a batch whose fixed cost is too long already must not starve.
            most = max(1.0, (job.max_batch_s - self._base_s) / crew.plan.s_per_record)
            self._limit = min(self._limit, most)
        if self._source.is_out(now_s):
            self._limit = 0.0
        self._plan_is_stale, self._rows_are_stale = False, True

    def _share_done(self, now_s: float) -> float:
        """How much of the running batch is done: 0 when none is, or it waits for executors."""
        if not self._running or not self._load:
            return 0.0
        start_s, since_s, share = self._resumed
        if start_s != self._start_s:
            since_s, share = self._start_s, 0.0
        passed = min(1.0, (now_s - since_s) / (self._end_s - since_s))
        return share + (1.0 - share) * passed

    def _done(self, share: float) -> Done:
        """What was run since the count began, with that share of the running batch."""
        processed = self._offsets[-1]
        records = processed + share * (self._upto - processed) - self._records_booked
        # Not negative: what was counted ahead may differ from the end in the last digit.
        return Done(
            max(0.0, self._batches_run + share),
            max(0.0, self._load_run + share * self._load),
            max(0.0, records),
        )

    def _count_from(self, share: float) -> None:
        """Count what is done from here on, without that share of the running batch."""
        processed = self._offsets[-1]
        self._batches_run = -share
        self._load_run = -share * self._load
        self._records_booked = processed + share * (self._upto - processed)
