"""What the gauges of a Flink-like job show: cpu, busy, idle and backpressured time.

`Gauges` turn the `Means` between two reads into samples of workers and operators. Utilisation is
read in steps of two percent, which is within the noise, so that equal readings are made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.core.model import ExecutorSample, Fleet, OperatorSample
from penstock.simulation.engines.dataflow import IDLE, Dataflow, Regime
from penstock.simulation.engines.fleet import Roster, SimulatedExecutor
from penstock.simulation.faults import Faults

if TYPE_CHECKING:
    from penstock.simulation.engines.continuous import ContinuousJob

_STEPS = 50
_PRESSED_STEPS = 20  #: Steps of the fraction of time for which records waited.
LEAST_SEEN = 0.3  #: The least that a gauge shows of the work of many workers.
_ERRORS = 509  #: This many errors of measurement are drawn and used in turn.

Readings = tuple[tuple[ExecutorSample, ...], tuple[OperatorSample, ...]]
#: Of one operator: name, upstream, records in per record of the job, selectivity, the busy fraction
#: that is shown at the job's capacity, whether it is held back, and service time with its cv2.
_Dial = tuple[str, tuple[str, ...], float, float, float, bool, float | None, float]


class Means(Struct, frozen=True, gc=False):
    """What was counted between two reads, per second."""

    arrival_rps: float
    throughput_rps: float
    used: float  #: The fraction of the capacity.
    pressed: float  #: The part of the time in which records waited though it ran.
    down: float  #: The part of the time in which it was restarting.


class Gauges:
    """The instruments of one run."""

    def __init__(self, job: ContinuousJob, flow: Dataflow, rng: Random, faults: Faults) -> None:
        self._job = job
        self._flow = flow
        deviation, startup = job.measurement_noise, job.startup
        errors = [1.0]
        spreads = job.speed_spread, job.restart_spread, startup.longest_s - startup.shortest_s
        if deviation or faults or any(spreads):
            # They are drawn also where none is shown: what is drawn next does not depend on it.
            drawn = [max(0.0, rng.gauss(1.0, deviation)) for _ in range(_ERRORS)]
            errors = drawn if deviation else errors
        self._errors, self._is_exact = cycle(errors), not deviation
        self._unseen: tuple[Roster, Sequence[SimulatedExecutor], Regime] | None = None
        self._regime = IDLE
        self._running: Sequence[SimulatedExecutor] = ()
        #: Id and start of each worker with work; then what it adds at the job's capacity to cpu,
        #: busy time and memory, as its gauges have it.
        self._working: list[tuple[str, float, float, float, float]] = []
        self._dials: list[_Dial] = []
        #: Executors without work: they wait for the next restart, or are still starting.
        self._others: tuple[ExecutorSample, ...] = ()
        self._quiet: dict[int, Readings] = {}
        self._pressed: dict[int, tuple[ExecutorSample, ...]] = {}
        self._fleet = Fleet(0, 0, 0, job.cores_per_executor)

    @property
    def fleet(self) -> Fleet:
        if self._unseen is not None:
            self._look(*self._unseen)
        return self._fleet

    def look(self, roster: Roster, running: Sequence[SimulatedExecutor], regime: Regime) -> None:
        """Take note of a change of the fleet or of what it can do; at once if there is noise."""
        self._unseen = roster, running, regime
        if not self._is_exact:
            self._look(*self._unseen)

    def _look(self, roster: Roster, running: Sequence[SimulatedExecutor], regime: Regime) -> None:
        self._unseen, job = None, self._job
        if regime is not self._regime or running is not self._running:
            self._face(running, regime)
        idle = [*running[len(regime.workers) :], *(o for o in roster.ready if o not in running)]
        cpu, memory = job.idle_cpu_fraction, job.idle_memory_fraction
        self._others = (
            *[ExecutorSample(one.id, one.ready_at_s, True, cpu, 0.0, memory, 0.0) for one in idle],
            *[ExecutorSample(one.id, one.requested_at_s, False) for one in roster.starting],
        )
        self._fleet = Fleet(roster.target, len(roster.ready), len(running), job.cores_per_executor)

    def _face(self, running: Sequence[SimulatedExecutor], regime: Regime) -> None:
        """Make the gauges ready for other workers, or for the same under other conditions."""
        job = self._job
        cpu_span = job.full_cpu_fraction - job.idle_cpu_fraction
        memory_span = job.full_memory_fraction - job.idle_memory_fraction
        self._regime, self._running = regime, running
        self._working = []
        for one, worker in zip(running, regime.workers, strict=False):
            used = min(1.0, worker.utilisation * next(self._errors))
            cpu, full = cpu_span * worker.cpu_share * used, job.busy_at_saturation * used
            self._working.append((one.id, one.ready_at_s, cpu, full, memory_span * used))
        flow, pressing = self._flow, self._flow.ancestors[regime.bottleneck]
        unknown = [None] * len(flow.operators)  # of a job that is idle
        shown = zip(regime.busy or unknown, regime.service_s or unknown, strict=True)
        known = zip(flow.operators, flow.inputs, shown, strict=True)
        self._dials = []
        for i, (operator, taken, (busy, service_s)) in enumerate(known):
            full, held = job.busy_at_saturation * (busy or 0.0), i in pressing
            flows = operator.name, operator.upstream, taken, operator.selectivity
            self._dials.append((*flows, full, held, service_s, operator.service_cv2))
        self._quiet.clear()
        self._pressed.clear()

    def readings(self, means: Means | None, waiting: float, outage: bool) -> Readings:
        """Samples of all workers and operators; without means, of who they are alone."""
        if self._unseen is not None:
            self._look(*self._unseen)
        if means is None:
            there = tuple([ExecutorSample(worker[0], worker[1]) for worker in self._working])
            return there + self._others, self._operators(None, 0.0, waiting, outage)
        used = means.used * next(self._errors)
        if used > 1.0:
            used = 1.0
        if waiting <= 0.0 and means.pressed == 0.0 and means.down == 0.0 and not outage:
            # Nine readings in ten.
            step = int(used * _STEPS + 0.5)
            quiet = self._quiet.get(step)
            if quiet is None:
                operators = self._operators(means, used, 0.0, outage)
                quiet = self._quiet[step] = (self._executors(step / _STEPS, 0.0, 0.0), operators)
            return (quiet[0] + self._others, quiet[1]) if self._others else quiet
        executors = self._strained(means, used) + self._others
        return executors, self._operators(means, used, waiting, outage)

    def _strained(self, means: Means, used: float) -> tuple[ExecutorSample, ...]:
        """The workers of a job that restarts, or in front of which records wait."""
        if means.down > 0.0:
            return self._executors(used, means.down, min(1.0, means.pressed))
        step = int(used * _STEPS + 0.5)
        pressed_step = int(means.pressed * _PRESSED_STEPS + 0.5)
        key = step * (_PRESSED_STEPS + 1) + pressed_step
        workers = self._pressed.get(key)
        if workers is None:
            workers = self._executors(step / _STEPS, 0.0, pressed_step / _PRESSED_STEPS)
            self._pressed[key] = workers
        return workers

    def _seen(self, calm: float, pressed: float, held_back: float) -> float:
        """Of a job's use of its capacity, the part that a gauge counts which sees these parts of
        what is lost to contention."""
        efficiency = self._regime.efficiency
        loss_seen = calm + (pressed - calm) * held_back
        return max(LEAST_SEEN, efficiency + (1.0 - efficiency) * loss_seen)

    def _executors(self, used: float, down: float, pressed: float) -> tuple[ExecutorSample, ...]:
        job = self._job
        idle_memory, idle_cpu = job.idle_memory_fraction, job.idle_cpu_fraction
        idle_cpu += down * (job.restart_cpu_fraction - idle_cpu)
        rps = used * self._regime.capacity_rps / max(1, len(self._working))
        cpu_used = used * self._seen(job.calm_loss_in_cpu, job.pressed_loss_in_cpu, pressed)
        busy_used = used * self._seen(job.calm_loss_in_busy, job.pressed_loss_in_busy, pressed)
        cpu_used **= job.cpu_exponent
        busy_used **= job.busy_exponent
        samples = []
        for id_, at_s, cpu, busy, memory in self._working:
            load, held = idle_cpu + cpu * cpu_used, idle_memory + memory * used
            load = load if load < 1.0 else 1.0
            samples.append(ExecutorSample(id_, at_s, True, load, busy * busy_used, held, rps))
        return tuple(samples)

    def _operators(
        self, means: Means | None, used: float, waiting: float, outage: bool
    ) -> tuple[OperatorSample, ...]:
        """Busy, backpressured and idle time add up to one; only what feeds the fullest operator
        is held back by it. What waits, waits at the sources."""
        tasks, arrival_cv2 = len(self._running), self._job.arrival_cv2
        if means is None:
            return tuple([OperatorSample(d[0], d[1], tasks=tasks) for d in self._dials])
        job, rps, pressed = self._job, means.throughput_rps, min(1.0, means.pressed)
        busy_used = used * self._seen(job.calm_loss_in_busy, job.pressed_loss_in_busy, pressed)
        busy_used **= job.busy_exponent
        held_back = pressed * job.pressed_backpressure_fraction
        held_back += (1.0 - pressed) * job.calm_backpressure_fraction * used * used
        samples = []
        for name, upstream, taken, selectivity, full, holds, service_s, service_cv2 in self._dials:
            busy = busy_used * full
            held = held_back * (1.0 - busy) if holds else 0.0
            backlog = 0.0 if upstream else None if outage else waiting * taken
            taken_rps = rps * taken
            flow = taken_rps, taken_rps * selectivity, busy, held, 1.0 - busy - held, backlog
            service = service_s, service_cv2, arrival_cv2, tasks
            samples.append(OperatorSample(name, upstream, *flow, *service))
        return tuple(samples)
