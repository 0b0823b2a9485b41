"""The lower bound of every table: the planner of the `penstock` policy, fed with the truth.

The oracle knows the arrivals of the whole run and what every size of the fleet can do, faults
included. It solves the whole run backwards once, and then acts at each turn by what it sees of the
job, because start-up times and the noise of single batches are drawn as the run goes. How much
room to leave for that noise is part of hindsight too: it runs with a few margins and keeps the
cheapest run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.knowledge import Knowledge
from penstock.lab.scenario import Scenario, simulate
from penstock.lab.score import Goal, Score, score
from penstock.model import Decision, Limits, Reason, Snapshot
from penstock.planning import Outlook, Physics, Plan, Present, Prices, first_costs, solve
from penstock.simulation.continuous import ContinuousJob
from penstock.simulation.engine import Job
from penstock.simulation.faults import CapacityDrop, Fault, SourceSilence, with_silence
from penstock.simulation.microbatch import MicroBatchJob
from penstock.simulation.stages import plan as stage_plan
from penstock.simulation.stages import spread

STEP_S = 10.0
#: Shares of the true capacity that are planned with; the cheapest run is kept.
MARGINS = (1.0, 0.98, 0.95)
#: How many seconds earlier executors are asked for than they would be needed on average.
LEAD_S = 5.0


@dataclass(frozen=True, slots=True)
class Oracle:
    """Acts on a plan that was made with the truth. Lab only: no live job can have it."""

    plan: Plan
    loads_rps: NDArray[np.float64]
    startup_s: float
    period_s: float = 5.0

    default_limits: ClassVar[Limits] = Limits()

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, now_s = snapshot.fleet, knowledge.now_s
        here = min(int(now_s / STEP_S), len(self.loads_rps) - 1)
        ahead = min(int((now_s + self.startup_s) / STEP_S + 0.5), len(self.plan.values) - 1)
        since_s = knowledge.since_rescale_s()
        waits = fleet.active < fleet.target and since_s is not None
        present = Present(
            fleet.target,
            fleet.active,
            _behind_s(snapshot),
            self.startup_s,
            max(2.0, self.startup_s - (since_s or 0.0)) if waits else 0.0,
        )
        coming = self.loads_rps[None, here : here + 12]
        costs = first_costs(self.plan, present, coming, STEP_S, ahead)[0]
        best = int(self.plan.physics.sizes[int(np.argmin(costs))])
        return Decision.of(best, Reason("foreseen", f"{best} executors are the cheapest from here"))


def _behind_s(snapshot: Snapshot) -> float:
    delay_s = snapshot.delay_s or 0.0
    if snapshot.trigger_interval_s is None:
        return delay_s
    durations = [batch.duration_s for batch in snapshot.batches[-1:]]
    batch_s = max([snapshot.trigger_interval_s, *durations])
    return max(batch_s, delay_s - batch_s)


@lru_cache(maxsize=8)
def oracle_score(scenario: Scenario, goal: Goal, limits: Limits) -> Score:
    """The cheapest run that foresight could find."""
    runs = [
        score(simulate(scenario, foresee(scenario, goal, limits, margin), limits), goal,
              limits.max_executors)
        for margin in MARGINS
    ]  # fmt: skip
    return min(runs, key=lambda result: result.cost)


def foresee(scenario: Scenario, goal: Goal, limits: Limits, margin: float = 1.0) -> Oracle:
    """Solve the whole run backwards, with what will really come."""
    rates = np.asarray(with_silence(scenario.rates(), _silences(scenario.faults)), dtype=float)
    steps = int(np.ceil(len(rates) / STEP_S))
    padded = np.concatenate([rates, np.full(int(steps * STEP_S) - len(rates), rates[-1])])
    loads = padded.reshape(steps, -1).mean(axis=1)
    job = scenario.job
    least, most = max(1, limits.min_executors), limits.max_executors
    sizes = np.arange(least, most + 1, dtype=float)
    capacity = margin * np.asarray([true_capacity_rps(job, int(size)) for size in sizes])
    trigger_s, fixed_s, rescale_s, lead_s = _habits(job)
    physics = Physics(sizes, capacity, fixed_s, trigger_s, rescale_s, goal.slo_s, _batch_noise(job))
    prices = Prices(
        late_s=goal.late_price / max(goal.price, 1e-9) * most,
        move=3600.0 * goal.move_price / max(goal.price, 1e-9),
        mean_rps=float(loads.mean()),
    )
    heavier = loads / _left_of_capacity(scenario.faults, steps)
    plan = solve(physics, prices, Outlook.certain(heavier), [STEP_S] * steps)
    return Oracle(plan, heavier, lead_s + LEAD_S)


def true_capacity_rps(job: Job, executors: int) -> float:
    """What so many executors do when they never pause, averaged over how their speeds may fall."""
    if isinstance(job, MicroBatchJob):
        return _batch_capacity_rps(job, executors)
    return job.capacity_rps(executors)


@lru_cache(maxsize=256)
def _batch_capacity_rps(job: MicroBatchJob, executors: int) -> float:
    lots, cores = Random(executors), job.cores_per_executor
    costs = []
    for _ in range(24):
        speeds = [1.0 + lots.uniform(-job.speed_spread, job.speed_spread) for _ in range(executors)]
        counts = [spread(stage.tasks, cores, speeds) for stage in job.stages]
        factor = job.cost_factor(executors)
        costs.append(stage_plan(job.stages, counts, cores, speeds, cost_factor=factor).s_per_record)
    return len(costs) / sum(costs)


def _habits(job: Job) -> tuple[float | None, float, float, float]:
    """Trigger, fixed cost of a batch, what a rescale costs, and how early to ask."""
    if isinstance(job, MicroBatchJob):
        lead_s = job.startup.mean_s() + job.cold_s * (1.0 - job.cold_fraction)
        return job.trigger_interval_s, job.planning_s + job.commit_s + 0.017, 0.3, lead_s
    if isinstance(job, ContinuousJob):
        down_s = job.restart_s + job.state_bytes / job.restore_bytes_per_s
        return None, 0.0, down_s + job.checkpoint_interval_s / 2.0, job.startup.mean_s()
    raise TypeError(f"no oracle for {type(job).__name__}")


def _batch_noise(job: Job) -> float:
    """The deviation of one batch's work, stragglers included."""
    if not isinstance(job, MicroBatchJob):
        return 0.0
    table = np.asarray(job.noise_table())
    return float(table.std())


def _silences(faults: Sequence[Fault]) -> list[Fault]:
    return [fault for fault in faults if isinstance(fault, SourceSilence)]


def _left_of_capacity(faults: Sequence[Fault], steps: int) -> NDArray[np.float64]:
    """What faults leave of the capacity, step by step."""
    left = np.ones(steps)
    at_s = (np.arange(steps) + 0.5) * STEP_S
    for fault in faults:
        if isinstance(fault, CapacityDrop):
            hit = (at_s >= fault.at_s) & (at_s < fault.at_s + fault.duration_s)
            left[hit] *= 1.0 - fault.fraction
    return left
