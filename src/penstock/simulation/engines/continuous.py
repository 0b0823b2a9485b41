"""A simulated Flink-like job: records flow through one by one, and a rescale stops the job.

The run is fluid and event-driven. Between two events (workers arrive or die, a fault begins or
ends, the job stops or resumes) the fleet has one capacity, which swings a little from second to
second; records depart at that pace while any wait, and as they arrive while none does. What
waits, waits at the source. Departures are an exact polyline, so each record's delay is exact too.

A change of the fleet stops the job. It goes back to the last checkpoint and reads again what came
since: those records do not depart twice, but they cost capacity twice.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from penstock.core.errors import ConfigError
from penstock.core.model import Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.dataflow import IDLE, Dataflow, Operator
from penstock.simulation.engines.engine import Outcome, Rates
from penstock.simulation.engines.fleet import Roster, SimulatedExecutor, Startup, active, edges_s
from penstock.simulation.engines.gauges import Gauges, Means
from penstock.simulation.engines.stream import RecordStream, swings
from penstock.simulation.faults import CapacityDrop, Faults, SkewSetsIn, SourceOutage, with_silence

#: How often a job whose capacity depends on its delay is checked, and the delay that is none.
_LOOK_EVERY_S = 5.0
_IN_TIME_S = 1.0
_WARMUP_STEPS = 4  #: A job warms up in this many steps.

_THREE_STAGES = (
    Operator("source", 20e-6),
    Operator("map", 30e-6, upstream=("source",)),
    Operator("window", 50e-6, upstream=("map",), selectivity=0.01, keyed=True),
)


class ContinuousJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job on a Flink-like engine; docs/simulated-jobs.md says what each field means."""

    engine_name: ClassVar[str] = "continuous"

    operators: tuple[Operator, ...] = _THREE_STAGES
    cores_per_executor: Annotated[int, Meta(ge=1)] = 1
    contention: Annotated[float, Meta(ge=0)] = 0.01
    late_contention: Annotated[float, Meta(ge=0)] = 0.0
    late_after_s: Annotated[float, Meta(gt=0)] = 10.0
    late_for_s: Annotated[float, Meta(ge=0)] = 0.0
    hot_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.0
    partitions: Annotated[int, Meta(ge=1)] = 64
    speed_spread: Annotated[float, Meta(ge=0, lt=1)] = 0.02
    capacity_noise: Annotated[float, Meta(ge=0)] = 0.02
    measurement_noise: Annotated[float, Meta(ge=0)] = 0.02
    startup: Startup = Startup()
    wait_for_workers_s: Annotated[float, Meta(ge=0)] = 20.0
    restart_s: Annotated[float, Meta(ge=0)] = 2.0
    restart_spread: Annotated[float, Meta(ge=0, le=1)] = 0.2
    join_s: Annotated[float, Meta(ge=0)] = 0.0
    warmup_s: Annotated[float, Meta(ge=0)] = 0.0
    cold_fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    catch_up_fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    state_bytes: Annotated[float, Meta(ge=0)] = 100e6
    restore_bytes_per_s: Annotated[float, Meta(gt=0)] = 100e6
    detect_loss_s: Annotated[float, Meta(ge=0)] = 5.0
    checkpoint_interval_s: Annotated[float, Meta(ge=0)] = 5.0
    busy_at_saturation: Annotated[float, Meta(gt=0, le=1)] = 0.95
    busy_exponent: Annotated[float, Meta(gt=0)] = 1.0
    cpu_exponent: Annotated[float, Meta(gt=0)] = 1.0
    calm_loss_in_busy: Annotated[float, Meta(ge=-2, le=1)] = 1.0
    calm_loss_in_cpu: Annotated[float, Meta(ge=0, le=1)] = 1.0
    pressed_loss_in_busy: Annotated[float, Meta(ge=0, le=1)] = 1.0
    pressed_loss_in_cpu: Annotated[float, Meta(ge=0, le=1)] = 1.0
    calm_backpressure_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.0
    pressed_backpressure_fraction: Annotated[float, Meta(ge=0, le=1)] = 1.0
    idle_cpu_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.08
    full_cpu_fraction: Annotated[float, Meta(ge=0)] = 1.06
    restart_cpu_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.5
    idle_memory_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.25
    full_memory_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.75
    pipeline_latency_s: Annotated[float, Meta(ge=0)] = 0.05
    arrival_cv2: Annotated[float, Meta(ge=0)] = 1.0

    def __post_init__(self) -> None:
        Dataflow(self.operators)
        if not self.restore_bytes_per_s > 0.0:
            raise ConfigError(f"restore_bytes_per_s must be positive: {self.restore_bytes_per_s}")

    def capacity_rps(self, executors: int) -> float:
        """The rate that a fleet of mean speeds keeps up with.

        The slowest worker sets the pace: 1 - s + 2 s / (n + 1) for n speeds uniform in 1 ± s.

        >>> job = ContinuousJob(contention=0.0, speed_spread=0.0)
        >>> job.capacity_rps(0), round(job.capacity_rps(1)), round(job.capacity_rps(4))
        (0.0, 10000, 40000)
        >>> round(ContinuousJob().capacity_rps(16))
        136675
        """
        working = min(executors, self.partitions)
        cores, hot_fraction = self.cores_per_executor, self.hot_fraction
        slowest = 1.0 - self.speed_spread * (working - 1) / (working + 1)
        # A hot key makes its worker the bottleneck, whichever speed that happens to have.
        speeds = [1.0 if hot_fraction else slowest] * working
        regime = Dataflow(self.operators).regime(
            speeds, cores=cores, contention=self.contention, hot_fraction=hot_fraction
        )
        return regime.capacity_rps

    def start(
        self, rates_rps: Rates, *, executors: int, seed: int, faults: Faults = ()
    ) -> ContinuousRun:
        """A run with one arrival rate per second, warm, with `executors` already there."""
        return ContinuousRun(self, rates_rps, executors=executors, seed=seed, faults=faults)


class ContinuousRun(InstantActuator):
    """One run of a `ContinuousJob`: sensor and actuator."""

    def __init__(
        self, job: ContinuousJob, rates_rps: Rates, *, executors: int, seed: int, faults: Faults
    ) -> None:
        self._job, self._faults = job, faults
        self._rng = rng = Random(seed)
        noise = swings(len(rates_rps), job.capacity_noise, seed)
        self._stream = RecordStream(with_silence(rates_rps, faults), noise, job.catch_up_fraction)
        self._flow = Dataflow(job.operators)
        self._roster = Roster(
            executors, rng=rng, startup=job.startup, speed_spread=job.speed_spread, faults=faults
        )
        self._gauges = Gauges(job, self._flow, rng, faults)
        self._means: Means | None = None
        self._totals = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._latency_s = job.pipeline_latency_s + self._flow.path_s

        self._checkpoint = 0.0  #: Where the last checkpoint stands, counted in departures.
        self._edges_s = edges_s(faults, CapacityDrop, SkewSetsIn, SourceOutage)[::-1]
        self._running: list[SimulatedExecutor] = list(self._roster.ready)
        self._down_s = self._down_until_s = 0.0
        #: When workers that were new to it last took up work; before that, all are warm.
        self._joined_at_s = -inf
        self._wave_until_s = inf
        self._conditions: tuple[list[float], float, float, bool] = ([], 0.0, 1.0, False)
        self._look_at_s = _LOOK_EVERY_S if job.late_contention > 0.0 else inf
        self._late = self._outage = False
        self._regime, self._can_rps = IDLE, 0.0
        self._next_change_s = self._next_event_s = 0.0  #: Looks at the delay apart.
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
        stream = self._stream
        self._advance(stream.end_s)
        curves = stream.arrivals(), stream.departures()
        return Outcome(stream.end_s, *curves, self._roster.paid, self._roster.targets)

    def _advance(self, to_s: float) -> None:
        """Run from event to event until `to_s`, or to the end of the rates."""
        stream = self._stream
        if to_s > stream.end_s:
            to_s = stream.end_s
        while self._next_event_s <= to_s:
            self._flow_on(self._next_event_s)
            self._handle_events(stream.now_s)
        self._flow_on(to_s)

    def _flow_on(self, until_s: float) -> None:
        """Let records depart, unless the job stands still, until the next event at most."""
        stream = self._stream
        if until_s <= stream.now_s:
            return
        if self._can_rps > 0.0:
            stream.run_on(until_s, self._can_rps)
            return
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
        roster_changes = self._roster.next_event_s <= now_s
        fleet_changes = roster_changes or self._wave_until_s <= now_s
        lost = self._roster.advance(now_s).lost if roster_changes else []
        if fleet_changes:
            died = any(one in self._running for one in lost)
            self._regroup(now_s, undetected_s=self._job.detect_loss_s if died else 0.0)
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
        slowdown, hot_fraction = 1.0, job.hot_fraction
        if self._faults:
            for drop in active(self._faults, CapacityDrop, now_s):
                slowdown *= max(0.0, 1.0 - drop.fraction)
            skews = [skew.hot_fraction for skew in active(self._faults, SkewSetsIn, now_s)]
            hot_fraction = max(hot_fraction, *skews, 0.0)
            self._outage = bool(active(self._faults, SourceOutage, now_s))
        warmth, warmer_at_s = self._warmth(now_s)
        slowdown *= warmth
        speeds = [one.speed * one.pace for one in self._running[: job.partitions]]
        conditions = (speeds, hot_fraction, slowdown, self._late)
        if conditions != self._conditions:
            self._conditions, fleet_changed = conditions, True
            late_contention = job.late_contention if self._late else 0.0
            self._regime = self._flow.regime(
                speeds,
                cores=job.cores_per_executor,
                contention=job.contention,
                late_contention=late_contention,
                hot_fraction=hot_fraction,
                slowdown=slowdown,
            )
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
