"""The lower bound of every table: the planner of the `penstock` policy with perfect knowledge.

It knows the arrivals of the whole run and what every size of the fleet can do, faults included, and
solves the run backwards once. At each turn it decides from the state of the job, because start-up
times and batches are random. It runs with a few margins for that, and with fleets that never
change, and keeps the cheapest run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from operator import attrgetter
from random import Random
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot
from penstock.core.protocols import Policy
from penstock.lab.experiments.scenario import Scenario, simulate
from penstock.lab.experiments.score import Score, score
from penstock.policies.penstock import dynamic_program
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.engine import SimulatedJob
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.stages import plan as stage_plan
from penstock.simulation.engines.stages import tasks_per_executor
from penstock.simulation.faults import CapacityDrop, Fault, SkewSetsIn, SourceSilence, with_silence

STEP_S = 10.0


class Margin(NamedTuple):
    """The margin for randomness: in capacity, in the duration of batches, and in asking early."""

    capacity: float = 1.0
    noise: float = 1.0  #: Scales the deviation of a batch; in a step they depend on each other.
    lead_s: float = 5.0  #: Earlier than executors need on average.
    rush: float = inf  #: A job that is this many SLOs behind gets the largest fleet.


#: What is tried on each kind of job; the cheapest run is kept.
BATCH_TRIES = (Margin(), Margin(noise=1.3), Margin(0.98, noise=1.3), Margin(noise=1.3, lead_s=12.0))
RUSHES = (0.5, 1.0, 3.0)
FLOW_TRIES = (Margin(), Margin(0.98), Margin(0.95), Margin(lead_s=12.0), Margin(0.95, lead_s=12.0))


@dataclass(frozen=True, slots=True)
class Oracle:
    """Decides by a plan that knows the future: only in the lab."""

    plan: dynamic_program.CostToGo
    loads_rps: NDArray[np.float64]
    startup_s: float
    rush: float = inf
    period_s: float = 5.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = True

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        now_s = knowledge.now_s
        here = min(int(now_s / STEP_S), len(self.loads_rps) - 1)
        ahead = min(int((now_s + self.startup_s) / STEP_S + 0.5), len(self.plan.values) - 1)
        present = dynamic_program.StartState.seen(
            snapshot, knowledge.since_rescale_s(), self.startup_s
        )
        coming = self.loads_rps[None, here : here + 12]
        costs = dynamic_program.first_costs(self.plan, present, coming, STEP_S, ahead)[0]
        sizes = self.plan.job.sizes
        best = int(sizes[int(np.argmin(costs))])
        if present.lag_s > self.rush * self.plan.job.slo_s:
            best = int(sizes[-1])
        return Decision.of(best, Reason("foreseen", f"{best} executors are the cheapest from here"))


@lru_cache(maxsize=8)
def oracle_score(scenario: Scenario, goal: Goal, limits: Limits) -> Score:
    """The cheapest run that was found with knowledge of the future."""
    most = limits.max_executors

    def outcome(policy: Policy) -> Score:
        return score(simulate(scenario, policy, limits), goal, most)

    batches = isinstance(scenario.job, MicroBatchJob)
    tries: tuple[Margin, ...] = BATCH_TRIES if batches else FLOW_TRIES
    if _silences(scenario.faults):
        # After a silence the job is further behind than the plan covers.
        tries += tuple(margin._replace(rush=rush) for margin in tries for rush in RUSHES)
    cost = attrgetter("cost")
    best = min((outcome(foresee(scenario, goal, limits, each)) for each in tries), key=cost)
    hours = best.executor_hours / max(best.mean_executors, 1e-9)
    rates = scenario.rates()
    needed_rps = sum(rates) / len(rates)
    for size in range(max(1, limits.min_executors), most + 1):
        # A fleet that costs too much even without a late record, or falls behind, is not run;
        # where all fall behind, the largest may still be the best.
        carries = size == most or scenario.job.capacity_rps(size) > needed_rps
        if size * hours * goal.executor_price < best.cost and carries:
            best = min(best, outcome(Static(size)), key=cost)
    return best


def foresee(
    scenario: Scenario, goal: Goal, limits: Limits, margin: Margin = BATCH_TRIES[0]
) -> Oracle:
    """Solve the whole run backwards, with its true load."""
    rates = np.asarray(with_silence(scenario.rates(), _silences(scenario.faults)), dtype=float)
    steps = int(np.ceil(len(rates) / STEP_S))
    padded = np.concatenate([rates, np.full(int(steps * STEP_S) - len(rates), rates[-1])])
    loads = padded.reshape(steps, -1).mean(axis=1)
    job, least, most = scenario.job, max(1, limits.min_executors), limits.max_executors
    sizes = np.arange(least, most + 1, dtype=float)
    capacity = margin.capacity * _capacities(scenario, sizes, steps)
    trigger_s, fixed_s, rescale_s, lead_s = _timing(job)
    # The deviation of one batch's work, stragglers included.
    noise = float(np.std(job.noise_table())) if isinstance(job, MicroBatchJob) else 0.0
    times_s = fixed_s, trigger_s, rescale_s, goal.slo_s
    physics = dynamic_program.JobModel(sizes, capacity, *times_s, margin.noise * noise)
    prices = dynamic_program.Prices(
        late_s=goal.late_price / max(goal.executor_price, 1e-9) * most,
        move=3600.0 * goal.move_price / max(goal.executor_price, 1e-9),
        mean_rps=float(loads.mean()),
    )
    plan = dynamic_program.solve(
        physics, prices, dynamic_program.LoadScenarios(loads[None, :]), [STEP_S] * steps
    )
    return Oracle(plan, loads, lead_s + margin.lead_s, margin.rush)


def _capacities(scenario: Scenario, sizes: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """What each size can do in each step, with what faults leave of it."""
    at_s = (np.arange(steps) + 0.5) * STEP_S
    left, hot = np.ones(steps), np.zeros(steps)
    for fault in scenario.faults:
        if isinstance(fault, CapacityDrop | SkewSetsIn):
            hit = (at_s >= fault.at_s) & (at_s < fault.at_s + fault.duration_s)
            if isinstance(fault, CapacityDrop):
                left[hit] *= 1.0 - fault.fraction
            else:
                hot[hit] = np.maximum(hot[hit], fault.hot_fraction)
    table = {
        share: [true_capacity_rps(_skewed(scenario.job, share), int(size)) for size in sizes]
        for share in set(hot.tolist())
    }
    return np.asarray([table[share] for share in hot.tolist()]) * left[:, None]


def _skewed(job: SimulatedJob, hot_fraction: float) -> SimulatedJob:
    if isinstance(job, MicroBatchJob | ContinuousJob) and hot_fraction > job.hot_fraction:
        return msgspec.structs.replace(job, hot_fraction=hot_fraction)
    return job


def true_capacity_rps(job: SimulatedJob, executors: int) -> float:
    """The throughput of a fleet that never pauses, averaged over the speeds of its executors."""
    if isinstance(job, MicroBatchJob):
        return _batch_capacity_rps(job, executors)
    return job.capacity_rps(executors)


@lru_cache(maxsize=256)
def _batch_capacity_rps(job: MicroBatchJob, executors: int) -> float:
    rng, cores, hot = Random(executors), job.cores_per_executor, job.hot_fraction
    factor, costs = job.cost_factor(executors), []
    for _ in range(24):
        speeds = [1.0 + rng.uniform(-job.speed_spread, job.speed_spread) for _ in range(executors)]
        counts = [tasks_per_executor(stage.tasks, cores, speeds) for stage in job.stages]
        plan = stage_plan(job.stages, counts, cores, speeds, cost_factor=factor, hot_fraction=hot)
        costs.append(plan.s_per_record)
    return len(costs) / sum(costs)


def _timing(job: SimulatedJob) -> tuple[float | None, float, float, float]:
    """Trigger, fixed cost of a batch, what a rescale costs, and how early to ask."""
    if isinstance(job, MicroBatchJob):
        lead_s = job.startup.mean_s() + job.cold_s * (1.0 - job.cold_fraction)
        return job.trigger_interval_s, job.fixed_s + 0.017, 0.3, lead_s
    if isinstance(job, ContinuousJob):
        down_s = job.restart_s + job.state_bytes / job.restore_bytes_per_s
        return None, 0.0, down_s + job.checkpoint_interval_s / 2.0, job.startup.mean_s()
    raise TypeError(f"no oracle for {type(job).__name__}")


def _silences(faults: Sequence[Fault]) -> list[SourceSilence]:
    return [fault for fault in faults if isinstance(fault, SourceSilence)]
