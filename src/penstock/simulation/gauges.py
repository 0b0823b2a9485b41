"""What the gauges of a Flink-like job show: cpu, busy, idle and backpressured time.

`Gauges` turn the `Means` between two reads into samples of workers and operators. They have a
scale: utilisation is read in steps of half a percent of the capacity, far below their noise, so
that a reading which comes again need not be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.model import ExecutorSample, Fleet, OperatorSample
from penstock.simulation.dataflow import IDLE, Dataflow, Regime
from penstock.simulation.fleet import Executor, Roster

if TYPE_CHECKING:
    from penstock.simulation.continuous import ContinuousJob

_STEPS = 200
#: So many errors of measurement are drawn and used in turn.
_ERRORS = 1009

Readings = tuple[tuple[ExecutorSample, ...], tuple[OperatorSample, ...]]


class Means(Struct, frozen=True, gc=False):
    """What was counted between two reads, per second.

    `used` is the fraction of its capacity that the job made use of, `pressed` the fraction of
    time during which records waited though it ran, `down` that during which it was restarting.
    """

    arrival_rps: float
    throughput_rps: float
    used: float
    pressed: float
    down: float


class Gauges:
    """The instruments of one run."""

    def __init__(self, job: ContinuousJob, flow: Dataflow, lots: Random) -> None:
        self._job = job
        self._flow = flow
        deviation = job.measurement_noise
        errors = [max(0.0, lots.gauss(1.0, deviation)) for _ in range(_ERRORS)]
        self._errors = cycle(errors if deviation else [1.0])
        self._roster: Roster
        self._running: Sequence[Executor] = ()
        self._regime = IDLE
        self._quiet: dict[int, Readings] = {}
        self._workers: dict[int, tuple[ExecutorSample, ...]] = {}
        self.fleet = Fleet(0, 0, 0, job.cores_per_executor)

    def look(self, roster: Roster, running: Sequence[Executor], regime: Regime) -> None:
        """Take note of a change of the fleet or of what it can do."""
        self._roster, self._running, self._regime = roster, running, regime
        self._quiet.clear()
        self._workers.clear()
        self.fleet = Fleet(
            roster.target, len(roster.ready), len(running), self._job.cores_per_executor
        )

    def readings(self, means: Means | None, waiting: float, outage: bool) -> Readings:
        """Samples of all workers and operators; without means, of who they are alone."""
        if means is None:
            return self._executors(None, 0.0), self._operators(None, 0.0, waiting, outage)
        used = min(means.used * next(self._errors), 1.0)
        if means.down > 0.0:
            executors = self._executors(used, means.down)
            return executors, self._operators(means, used, waiting, outage)
        step = int(used * _STEPS + 0.5)
        if waiting <= 0.0 and means.pressed == 0.0 and not outage:
            quiet = self._quiet.get(step)
            if quiet is None:
                operators = self._operators(means, used, 0.0, outage)
                quiet = self._quiet[step] = (self._executors(step / _STEPS, 0.0), operators)
            return quiet
        workers = self._workers.get(step)
        if workers is None:
            workers = self._workers[step] = self._executors(step / _STEPS, 0.0)
        return workers, self._operators(means, used, waiting, outage)

    def _executors(self, used: float | None, down: float) -> tuple[ExecutorSample, ...]:
        """Workers of the job, workers that wait for the next restart, and those that start."""
        job, roster, regime, errors = self._job, self._roster, self._regime, self._errors
        samples: list[ExecutorSample] = []
        if used is None:
            samples += [ExecutorSample(one.id, one.ready_at_s) for one in roster.ready]
        else:
            idle_cpu, idle_memory = job.idle_cpu_fraction, job.idle_memory_fraction
            cpu_span = job.full_cpu_fraction - idle_cpu
            memory_span = job.full_memory_fraction - idle_memory
            restart_cpu = down * (job.restart_cpu_fraction - idle_cpu)
            busy_span = job.busy_at_saturation
            working = len(regime.workers)
            records_rps = used * regime.capacity_rps / max(1, working)
            for one, worker in zip(self._running, regime.workers, strict=False):
                share = min(1.0, used * worker.utilisation * next(errors))
                cpu = idle_cpu + cpu_span * share * worker.cpu_share + restart_cpu
                samples.append(
                    ExecutorSample(
                        one.id,
                        one.ready_at_s,
                        True,
                        cpu if cpu < 1.0 else 1.0,
                        busy_span * share,
                        idle_memory + memory_span * share,
                        records_rps,
                    )
                )
            samples += [
                ExecutorSample(
                    one.id, one.ready_at_s, True, idle_cpu + restart_cpu, 0.0, idle_memory, 0.0
                )
                for one in (*self._running[working:], *self._standby())
            ]
        samples += [ExecutorSample(one.id, one.requested_at_s, False) for one in roster.starting]
        return tuple(samples)

    def _standby(self) -> list[Executor]:
        return [one for one in self._roster.ready if one not in self._running]

    def _operators(
        self, means: Means | None, used: float, waiting: float, outage: bool
    ) -> tuple[OperatorSample, ...]:
        """Busy, backpressured and idle time add up to one; only what feeds the fullest operator
        is held back by it."""
        job, flow, regime = self._job, self._flow, self._regime
        pressing = flow.ancestors[regime.bottleneck]
        tasks = len(self._running)
        samples = []
        for i, (operator, taken) in enumerate(zip(flow.operators, flow.inputs, strict=True)):
            backlog = 0.0 if operator.upstream else None if outage else waiting * taken
            if means is None:
                sample = OperatorSample(
                    operator.name, operator.upstream, backlog_records=backlog, tasks=tasks
                )
            else:
                rps = means.throughput_rps
                full = regime.busy[i] if regime.busy else 0.0
                busy = used * full * job.busy_at_saturation
                pressed = min(1.0, means.pressed) * (1.0 - busy) if i in pressing else 0.0
                sample = OperatorSample(
                    operator.name,
                    operator.upstream,
                    rps * taken,
                    rps * taken * operator.selectivity,
                    busy,
                    pressed,
                    max(0.0, 1.0 - busy - pressed),
                    backlog,
                    regime.service_s[i] if regime.service_s else None,
                    operator.service_cv2,
                    job.arrival_cv2,
                    tasks,
                )
            samples.append(sample)
        return tuple(samples)
