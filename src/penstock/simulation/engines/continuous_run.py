"""One run of a simulated Flink-like job.

The run is fluid and event-driven. Between two events (workers arrive or die, a fault begins or
ends, the job stops or resumes) the fleet has one capacity, which swings a little from second to
second; records depart at that pace while any wait, and as they arrive while none does. What
waits, waits at the source. Departures are an exact polyline, so each record's delay is exact too.

A change of the fleet stops the job. It goes back to the last checkpoint and reads again what came
since: those records do not depart twice, but they cost capacity twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING

from penstock.core.model import Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.dataflow import IDLE, Dataflow
from penstock.simulation.engines.engine import Outcome
from penstock.simulation.engines.fleet import Roster, SimulatedExecutor, active, edges_s
from penstock.simulation.engines.gauges import Gauges, Means
from penstock.simulation.engines.stream import RecordStream, swings
from penstock.simulation.faults import CapacityDrop, Fault, SkewSetsIn, SourceOutage, with_silence

if TYPE_CHECKING:
    from penstock.simulation.engines.continuous import ContinuousJob

#: How often a job whose capacity depends on its delay is checked, and the delay that is none.
_LOOK_EVERY_S = 5.0
_IN_TIME_S = 1.0
#: A job warms up in this many steps.
_WARMUP_STEPS = 4


class ContinuousRun(InstantActuator):
    """One run of a `ContinuousJob`: sensor and actuator."""

    def __init__(
        self,
        job: ContinuousJob,
        rates_rps: Sequence[float],
        *,
        executors: int,
        seed: int,
        faults: Sequence[Fault],
    ) -> None:
        self._job = job
        self._faults = faults
        self._rng = Random(seed)
        rates_rps = with_silence(rates_rps, faults)
        self._stream = RecordStream(
            rates_rps, swings(len(rates_rps), job.capacity_noise, seed), job.catch_up_fraction
        )
        self._flow = Dataflow(job.operators)
        self._roster = Roster(
            executors,
            rng=self._rng,
            startup=job.startup,
            speed_spread=job.speed_spread,
            faults=faults,
        )
        self._gauges = Gauges(job, self._flow, self._rng)
        self._means: Means | None = None
        self._totals = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._latency_s = job.pipeline_latency_s + self._flow.path_s

        #: Where the last checkpoint stands, counted in departures.
        self._checkpoint = 0.0
        self._edges_s = edges_s(faults, CapacityDrop, SkewSetsIn, SourceOutage)[::-1]
        self._running: list[SimulatedExecutor] = list(self._roster.ready)
        self._down_s = 0.0
        self._down_until_s = 0.0
        #: When workers that were new to it last took up work; before that, all are warm.
        self._joined_at_s = -inf
        self._wave_until_s = inf
        self._conditions: tuple[list[float], float, float, bool] = ([], 0.0, 1.0, False)
        self._look_at_s = _LOOK_EVERY_S if job.late_contention > 0.0 else inf
        self._late = False
        self._regime = IDLE
        self._outage = False
        self._can_rps = 0.0
        #: Looks at the delay apart.
        self._next_change_s = 0.0
        self._next_event_s = 0.0
        self._take_stock()

    @property
    def capacity_rps(self) -> float:
        """What the workers of the moment can do, were the job not stopped: no sensor shows it."""
        return self._regime.capacity_rps

    def read(self, now_s: float) -> Snapshot:
        """Run on to `now_s` and report what Flink's own metrics would show.

        Throughput counts records each time that they are read, as Flink does. Workers count as
        active while the job restarts with them.
        """
        self._advance(now_s)
        job, stream, latency_s = self._job, self._stream, self._latency_s
        arrived = stream.arrived_by(stream.now_s)
        waiting = arrived - stream.departed
        delay_s = 0.0
        if waiting > 0.0:
            delay_s = stream.delay_s()
            latency_s += max(0.0, stream.last_departure_s - (stream.now_s - delay_s))
        means = self._mean_since_last_read(now_s if now_s > stream.now_s else stream.now_s, arrived)
        executors, operators = self._gauges.readings(means, waiting, self._outage)
        seen = not self._outage
        return Snapshot(
            now_s,
            self._gauges.fleet,
            arrival_rps=means.arrival_rps if seen and means is not None else None,
            throughput_rps=None if means is None else means.throughput_rps,
            backlog_records=waiting if seen else None,
            delay_s=delay_s if seen else None,
            latency_s=latency_s,
            executors=executors,
            operators=operators,
            partitions=job.partitions,
            state_bytes=job.state_bytes,
            checkpoint_interval_s=job.checkpoint_interval_s,
        )

    def glance(self, now_s: float) -> tuple[float, float]:
        """Run on to `now_s`: records read so far, and the delay; the gauges are not touched."""
        self._advance(now_s)
        return self._stream.processed, self._stream.delay_s()

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Ask for a fleet of that size; fewer stops the job at once, more when they are there."""
        self._advance(now_s)
        now_s, roster, target = self._stream.now_s, self._roster, max(0, target_executors)
        if not roster.ask(target, now_s):
            return Receipt(accepted=True, text=f"{target} executors were asked for already")
        roster.release(now_s)
        self._regroup(now_s)
        self._take_stock()
        return Receipt(accepted=True, text=f"asked for {target} executors")

    def finish(self) -> Outcome:
        """Run on to the end of the rates."""
        stream = self._stream
        self._advance(stream.end_s)
        return Outcome(
            stream.end_s,
            stream.arrivals(),
            stream.departures(),
            self._roster.paid,
            self._roster.targets,
        )

    def _advance(self, to_s: float) -> None:
        """Run from event to event until `to_s`, or to the end of the rates."""
        stream = self._stream
        if to_s > stream.end_s:
            to_s = stream.end_s
        while self._next_event_s <= to_s:
            if self._next_event_s > stream.now_s:
                if self._can_rps > 0.0:
                    stream.run_on(self._next_event_s, self._can_rps)
                else:
                    self._stand_still(self._next_event_s)
            self._handle_events(stream.now_s)
        if to_s > stream.now_s:
            if self._can_rps > 0.0:
                stream.run_on(to_s, self._can_rps)
            else:
                self._stand_still(to_s)

    def _stand_still(self, until_s: float) -> None:
        stream = self._stream
        if self._down_until_s > stream.now_s:
            self._down_s += until_s - stream.now_s
        stream.stand_still(until_s)

    def _mean_since_last_read(self, now_s: float, arrived: float) -> Means | None:
        """Means since the last read; if no time has passed, those of the time before it."""
        stream, before = self._stream, self._totals
        length_s = now_s - before[0]
        if length_s > 0.0:
            processed, used_s, pressed_s = stream.processed, stream.used_s, stream.pressed_s
            self._totals = (now_s, arrived, processed, used_s, pressed_s, self._down_s)
            self._means = Means(
                (arrived - before[1]) / length_s,
                (processed - before[2]) / length_s,
                (used_s - before[3]) / length_s,
                (pressed_s - before[4]) / length_s,
                (self._down_s - before[5]) / length_s,
            )
        return self._means

    def _handle_events(self, now_s: float) -> None:
        """Carry out all that is due now, and see what the job can do afterwards."""
        while self._edges_s and self._edges_s[-1] <= now_s:
            self._edges_s.pop()
        if self._look_at_s <= now_s and not self._turns_late():
            # Mostly there is nothing to see.
            self._next_event_s = min(self._next_change_s, self._look_at_s)
            if self._next_change_s > now_s:
                return
        fleet_changes = self._roster.next_event_s <= now_s or self._wave_until_s <= now_s
        if self._roster.next_event_s <= now_s:
            change = self._roster.advance(now_s)
            died = any(one in self._running for one in change.lost)
            self._regroup(now_s, undetected_s=self._job.detect_loss_s if died else 0.0)
        elif self._wave_until_s <= now_s:
            self._regroup(now_s)
        self._take_stock(fleet_changes)

    def _turns_late(self) -> bool:
        """Look whether the job has fallen behind, or has caught up; whether that is news."""
        job, before = self._job, self._late
        has_run_s = self._look_at_s - self._down_until_s
        self._look_at_s += _LOOK_EVERY_S
        limit_s = _IN_TIME_S if before else job.late_after_s
        self._late = has_run_s >= job.late_for_s and self._stream.delay_s() > limit_s
        return self._late != before

    def _regroup(self, now_s: float, undetected_s: float = 0.0) -> None:
        """Restart if a running worker has gone, or if the wave of new ones is in."""
        ready, running = self._roster.ready, self._running
        wait_s = self._job.wait_for_workers_s
        grown = len(ready) > len(running)
        wave_is_in = not self._roster.starting or wait_s == 0.0 or self._wave_until_s <= now_s
        if any(one not in ready for one in running) or (grown and wave_is_in):
            self._restart(now_s, undetected_s)
        elif grown:
            self._wave_until_s = min(self._wave_until_s, now_s + wait_s)
        else:
            self._wave_until_s = inf

    def _restart(self, now_s: float, undetected_s: float) -> None:
        """Stop, go back to the last checkpoint, and come back with the workers that are ready."""
        job, stream = self._job, self._stream
        if stream.reread <= 0.0 and now_s > self._down_until_s:
            self._checkpoint = self._last_checkpoint(now_s)
        stream.reread = stream.departed - self._checkpoint
        spread = 1.0 + self._rng.uniform(-job.restart_spread, job.restart_spread)
        joined = any(one not in self._running for one in self._roster.ready)
        down_s = job.restart_s + (job.join_s if joined else 0.0)
        load_s = job.state_bytes / job.restore_bytes_per_s
        self._down_until_s = now_s + undetected_s + down_s * spread + load_s
        if joined:
            self._joined_at_s = self._down_until_s
        self._running = list(self._roster.ready)
        self._wave_until_s = inf

    def _last_checkpoint(self, now_s: float) -> float:
        """How many records had departed at the last checkpoint; none ends during a second read."""
        interval_s, resumed_s = self._job.checkpoint_interval_s, self._down_until_s
        if interval_s == 0.0:
            return self._stream.departed
        last_s = resumed_s + (now_s - resumed_s) // interval_s * interval_s
        if last_s <= resumed_s or last_s < self._stream.last_reread_s:
            return self._checkpoint
        return self._stream.departed_by(min(last_s, now_s))

    def _take_stock(self, fleet_changed: bool = True) -> None:
        """After any change: what can the job do now, and when does the next thing happen?"""
        job, now_s, roster = self._job, self._stream.now_s, self._roster
        slowdown = 1.0
        for drop in active(self._faults, CapacityDrop, now_s):
            slowdown *= max(0.0, 1.0 - drop.fraction)
        warmth, warmer_at_s = self._warmth(now_s)
        slowdown *= warmth
        hot_fraction = job.hot_fraction
        for skew in active(self._faults, SkewSetsIn, now_s):
            hot_fraction = max(hot_fraction, skew.hot_fraction)
        speeds = [one.speed * one.pace for one in self._running[: job.partitions]]
        conditions = (speeds, hot_fraction, slowdown, self._late)
        if conditions != self._conditions:
            self._conditions, fleet_changed = conditions, True
            self._regime = self._flow.regime(
                speeds,
                cores=job.cores_per_executor,
                contention=job.contention + (job.late_contention if self._late else 0.0),
                hot_fraction=hot_fraction,
                slowdown=slowdown,
            )
        self._outage = bool(active(self._faults, SourceOutage, now_s))
        down = self._down_until_s > now_s
        self._can_rps = 0.0 if down or self._outage else self._regime.capacity_rps
        self._next_change_s = min(
            roster.next_event_s,
            self._wave_until_s,
            warmer_at_s,
            self._down_until_s if down else inf,
            self._edges_s[-1] if self._edges_s else inf,
        )
        self._next_event_s = min(self._next_change_s, self._look_at_s)
        if fleet_changed:
            self._gauges.look(roster, self._running, self._regime)

    def _warmth(self, now_s: float) -> tuple[float, float]:
        """The part of its speed that a job with new workers has, and when that will have grown."""
        job, joined_s = self._job, self._joined_at_s
        if job.warmup_s == 0.0 or now_s >= joined_s + job.warmup_s:
            return 1.0, inf
        step_s = job.warmup_s / _WARMUP_STEPS
        steps = max(0, int((now_s - joined_s) / step_s + 1e-9))
        fraction = job.cold_fraction + (1.0 - job.cold_fraction) * steps / _WARMUP_STEPS
        return fraction, joined_s + (steps + 1) * step_s
