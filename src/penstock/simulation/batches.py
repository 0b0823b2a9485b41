"""Spark Structured Streaming on paper: the run.

At each trigger a batch takes everything that has arrived (up to the admission cap), runs its
stages one after the other, and commits all of its records at once. A batch that ends late is
followed by the next one at once; one that ends in time by the next instant of the trigger's grid.

A rescale never stops the query. New executors take work from the next batch on, at first
slowly; those that leave finish the batch that they are in. When one dies in the middle of a
batch, what it had done of it is done again by the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, count
from math import inf
from operator import sub
from random import Random
from typing import TYPE_CHECKING

from penstock.model import Batch, Fleet, OperatorSample, Receipt, Snapshot
from penstock.simulation.engine import Curve, Outcome
from penstock.simulation.faults import CapacityDrop, Fault, SkewSetsIn, SourceOutage, with_silence
from penstock.simulation.fleet import Executor, Roster, active, edges_s
from penstock.simulation.meter import Done, Meter
from penstock.simulation.stages import Plan, plan, spread

if TYPE_CHECKING:
    from penstock.simulation.microbatch import MicroBatchJob

# Faults that change what a batch costs or can read; the roster carries out the others.
_COSTLY = (CapacityDrop, SkewSetsIn, SourceOutage)


def _draws(lots: Random, table: list[float]) -> Iterator[float]:
    """One factor after the other, for ever; drawn in bulk, which is cheaper."""
    while True:
        yield from lots.choices(table, k=1024)


class MicroBatchRun:
    """One run of a `MicroBatchJob`: sensor and actuator.

    The tight loop is `_run_batches`; it knows only the line `base + s_per_record x records`.
    Everything else happens at the instants at which that line may change.
    """

    def __init__(
        self,
        job: MicroBatchJob,
        rates_rps: Sequence[float],
        *,
        executors: int,
        seed: int,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._job = job
        self._rates = with_silence(rates_rps, faults)
        self._arrivals = list(accumulate(self._rates, initial=0.0))
        self._duration_s = float(len(self._rates))
        lots = Random(seed)
        self._draw = _draws(Random(lots.getrandbits(64)), job.noise_table()).__next__
        self._roster = Roster(
            executors,
            lots=lots,
            startup=job.startup,
            speed_spread=job.speed_spread,
            faults=faults,
        )
        self._faults = [fault for fault in faults if isinstance(fault, _COSTLY)]
        # Instants at which the cost of a batch changes though no executor comes or goes.
        self._edges_s = edges_s(self._faults, *_COSTLY)
        self._departing: list[tuple[float, int, list[Executor]]] = []

        # The batch that is running, or will start at `_start_s`.
        self._running = False
        self._start_s = 0.0
        self._end_s = 0.0
        self._next_s = job.trigger_interval_s  # the instant of the grid after `_start_s`
        self._upto = 0.0  # records committed once it is
        self._load = 0.0  # its records times its noise
        self._resumed = (-1.0, 0.0, 0.0)  # which batch (its start), since when, share done then

        # All batches that were committed, and the records that they led up to.
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._offsets: list[float] = [0.0]

        # What was done since the last reading or change of plan.
        self._batches_run = 0.0
        self._load_run = 0.0
        self._records_booked = 0.0

        self._crew: list[Executor] = []
        self._cold: list[bool] = []
        self._plan = Plan(inf, 0.0, [], [], [0.0] * len(job.stages), [0.0] * len(job.stages), [])
        self._base_s = inf
        self._extra_s = 0.0  # what the next batch pays for state that moves
        self._limit = inf  # the most records that a batch can read
        self._plan_is_stale = True
        self._columns_are_stale = True
        self._states = job.state_holders()
        for state in self._states.values():
            ready = self._roster.ready
            speeds = [one.speed for one in ready]
            state.begin([one.id for one in ready], job.cores_per_executor, speeds)
        self._meter = Meter(
            job.stages,
            cores_per_executor=job.cores_per_executor,
            cpu_per_busy=job.cpu_per_busy,
            state_fraction=job.state_bytes / job.executor_memory_bytes,
        )
        self._partitions = max(stage.tasks for stage in job.stages)
        self._replan(0.0)
        self._look_ahead()

        self._read_at_s = 0.0
        self._batches_read = 0
        self._seen_at_s = 0.0
        self._arrivals_seen = 0.0
        self._latency_s: float | None = None

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
        self._plan_is_stale = self._columns_are_stale = True
        self._look_ahead()
        return Receipt(accepted=True, text=f"asked for {roster.target} executors")

    def finish(self) -> Outcome:
        """Run on to the end of the rates."""
        self._run_to(self._duration_s)
        # From (0, 0): for each commit its foot and its top, then level to the end.
        at_s = [0.0] * (2 * len(self._ends) + 2)
        at_s[1:-1:2] = at_s[2:-1:2] = self._ends
        at_s[-1] = self._duration_s
        records = [0.0] * len(at_s)
        records[::2] = records[1::2] = self._offsets
        return Outcome(
            duration_s=self._duration_s,
            arrivals=Curve(list(map(float, range(len(self._arrivals)))), self._arrivals),
            departures=Curve(at_s, records),
            paid=list(self._roster.paid),
            targets=list(self._roster.targets),
        )

    def read(self, now_s: float) -> Snapshot:
        """Run on to `now_s` and report what Spark and Kafka would show."""
        self._run_to(now_s)
        job, roster = self._job, self._roster
        wall_s = now_s - self._read_at_s
        batches = self._batches_since_last_reading()
        if batches:
            self._latency_s = batches[-1].duration_s
        arrival_rps, backlog, delay_s = self._look_at_source(now_s)
        share = self._share_done(now_s)
        done = self._done(share)
        if self._columns_are_stale:
            self._lay_out_columns()
        executors = self._meter.executors(done, wall_s)
        throughput_rps: float | None = None
        operators: tuple[OperatorSample, ...] = ()
        if wall_s > 0.0:
            throughput_rps = (self._offsets[-1] - self._offsets[self._batches_read]) / wall_s
            operators = self._meter.operators(done, wall_s)
            self._count_from(share)
            self._meter.forget()
            self._batches_read = len(self._ends)
            self._read_at_s = now_s
        ready = len(roster.ready)
        return Snapshot(
            now_s,
            Fleet(roster.target, ready + len(roster.leaving), ready, job.cores_per_executor),
            job.trigger_interval_s,
            batches,
            arrival_rps,
            throughput_rps,
            backlog,
            delay_s,
            self._latency_s,
            executors,
            operators,
            self._partitions,
            job.state_bytes,
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
            {
                "queryPlanning": planning_s,
                "addBatch": duration_s - fixed_s,
                "commitOffsets": commit_s,
            }
            if duration_s > fixed_s
            else {"queryPlanning": duration_s}
            for duration_s in durations
        ]
        records = map(sub, offsets[1:], offsets)
        return tuple(map(Batch, count(first), starts, durations, records, phases))

    def _look_at_source(self, now_s: float) -> tuple[float | None, float | None, float | None]:
        """Arrival rate, backlog and delay, by the end offsets that Kafka tells, if it does."""
        if self._faults and active(self._faults, SourceOutage, now_s):
            return None, None, None
        arrivals, processed = self._arrivals, self._offsets[-1]
        second = min(int(now_s), len(arrivals) - 1)
        arrived = arrivals[second]
        if second < len(self._rates):
            arrived += (now_s - second) * self._rates[second]
        wall_s = now_s - self._seen_at_s
        arrival_rps = None
        if wall_s > 0.0:
            arrival_rps = (arrived - self._arrivals_seen) / wall_s
            self._seen_at_s, self._arrivals_seen = now_s, arrived
        if arrived <= processed:
            return arrival_rps, 0.0, 0.0
        # The oldest record that waits came in the last second that began with all processed.
        second = bisect_right(arrivals, processed) - 1
        since_s = second + (processed - arrivals[second]) / self._rates[second]
        return arrival_rps, arrived - processed, max(0.0, now_s - since_s)

    def _run_to(self, now_s: float) -> None:
        now_s = min(now_s, self._duration_s)
        while self._change_s <= now_s:
            change_s = self._change_s
            self._run_batches(change_s)
            while self._departing and self._departing[0][0] <= change_s:
                self._roster.release(change_s, heappop(self._departing)[2])
                self._columns_are_stale = True
            while self._edges_s and self._edges_s[0] <= change_s:
                heappop(self._edges_s)
                self._plan_is_stale = True
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
        starts, ends, offsets = self._starts, self._ends, self._offsets
        arrivals, rates, draw = self._arrivals, self._rates, self._draw
        upto, load, processed = self._upto, self._load, offsets[-1]
        batches_run, load_run = self._batches_run, self._load_run
        base_s, s_per_record = self._base_s, self._plan.s_per_record
        limit, extra_s = self._limit, self._extra_s
        next_s, interval_s, planning_s = (
            self._next_s,
            self._job.trigger_interval_s,
            self._job.planning_s,
        )
        while True:
            if running:
                if end_s > until_s:
                    break
                starts.append(start_s)
                ends.append(end_s)
                offsets.append(upto)
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
                base_s, s_per_record = self._base_s, self._plan.s_per_record
                limit, extra_s = self._limit, self._extra_s
            second = int(start_s)
            upto = arrivals[second] + (start_s - second) * rates[second]
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
        """Executors came, died or changed their pace: plan anew, at the latest for the next batch.

        What the dead had done of the batch is lost with their shuffle files.
        """
        change = self._roster.happen(now_s)
        self._plan_is_stale = self._columns_are_stale = True
        for one in change.joined:
            heappush(self._edges_s, one.ready_at_s + self._job.cold_s)
        if not self._running or not self._load:
            return
        shares = zip(self._crew, self._plan.record_shares, strict=True)
        lost = min(1.0, sum(share for one, share in shares if one in change.lost))
        if lost > 0.0 or (self._end_s == inf and self._roster.ready):
            self._resume(now_s, self._share_done(now_s) * (1.0 - lost))

    def _resume(self, now_s: float, share_kept: float) -> None:
        """Go on with the batch on the executors that there are, with a share of it done."""
        self._replan(now_s)
        self._count_from(share_kept)
        whole_s = self._base_s + self._plan.s_per_record * self._load
        self._end_s = now_s + (1.0 - share_kept) * whole_s + self._extra_s
        self._extra_s = 0.0
        self._resumed = (self._start_s, now_s, share_kept)

    def _replan(self, now_s: float) -> None:
        """Work out what a batch costs from now on."""
        share = self._share_done(now_s)
        self._meter.book(self._crew, self._plan, self._done(share))
        self._count_from(share)
        job, cores, before = self._job, self._job.cores_per_executor, self._crew
        crew = self._crew = list(self._roster.ready)
        ids = [one.id for one in crew]
        was_cold = self._cold
        self._cold = [one.ready_at_s > 0.0 and now_s < one.ready_at_s + job.cold_s for one in crew]
        speeds = self._speeds()
        if crew != before or (job.rebalance_state and was_cold != self._cold):
            waits_s = [state.follow(ids, cores, speeds) for state in self._states.values()]
            self._extra_s = max(self._extra_s, sum(waits_s))
        counts = [
            [self._states[stage.name].partitions_of[one] for one in ids]
            if stage.stateful
            else spread(stage.tasks, cores, speeds)
            for stage in job.stages
        ]
        cost_factor = job.cost_factor(len(crew))
        for drop in active(self._faults, CapacityDrop, now_s):
            cost_factor /= 1.0 - drop.fraction
        skews = active(self._faults, SkewSetsIn, now_s)
        self._plan = plan(
            job.stages,
            counts,
            cores,
            speeds,
            cost_factor=cost_factor,
            hot_fraction=max((skew.hot_fraction for skew in skews), default=0.0),
        )
        self._base_s = job.planning_s + job.commit_s + self._plan.base_s
        self._limit = job.max_offsets_per_trigger or inf
        if active(self._faults, SourceOutage, now_s):
            self._limit = 0.0
        self._plan_is_stale = False
        self._columns_are_stale = True

    def _speeds(self) -> list[float]:
        cold_fraction = self._job.cold_fraction
        return [
            one.speed * one.pace * (cold_fraction if cold else 1.0)
            for one, cold in zip(self._crew, self._cold, strict=True)
        ]

    def _share_done(self, now_s: float) -> float:
        """How much of the running batch is done: 0 when none is, or it waits for executors."""
        if not self._running or not self._load:
            return 0.0
        start_s, since_s, share = self._resumed
        if start_s != self._start_s:
            since_s, share = self._start_s, 0.0
        return share + (1.0 - share) * (now_s - since_s) / (self._end_s - since_s)

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
        """From here on count what is done anew, with that share of the running batch behind."""
        processed = self._offsets[-1]
        self._batches_run = -share
        self._load_run = -share * self._load
        self._records_booked = processed + share * (self._upto - processed)

    def _lay_out_columns(self) -> None:
        held: dict[str, int] = {}
        for state in self._states.values():
            for name, partitions in state.partitions_of.items():
                held[name] = held.get(name, 0) + partitions
        self._meter.lay_out(self._roster, self._crew, self._plan, held)
        self._columns_are_stale = False
