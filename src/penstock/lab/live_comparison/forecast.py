"""What the simulation says of a live run before it is made.

The job on paper is fitted to live runs: what a batch costs, how long executors take to start and
what their joining costs. It is then run under the load of the plan, with the same policy in the
same guards, and scored by the same arithmetic as the live run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from penstock.core.clock import SimulatedClock
from penstock.core.model import Batch
from penstock.lab.live_comparison.observer import Observation, quantile, startups_s
from penstock.lab.live_comparison.trial import Figures, LiveScaler, Trial, entry_of, figures
from penstock.settings.policy_spec import PolicySpec, read_policy_spec
from penstock.settings.wiring import wire
from penstock.simulation.calibration import fit_batches
from penstock.simulation.engines.engine import Outcome
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.plan import DemoPlan

SEEDS = range(1, 11)


def fitted_job(seen: Sequence[Observation]) -> MicroBatchJob:
    """The job whose batches, starts and joins are those that were seen."""
    batches = [batch for one in seen for batch in _batches(one)]
    task_s = sum(one.task_s for one in seen)
    job = fit_batches.job_of(batches, sizes.TRIGGER_S, sizes.PARTITIONS, 1, task_s)
    starts_s = startups_s(seen)
    startup = job.startup
    if starts_s:
        startup = Startup(quantile(starts_s, 0.1), quantile(starts_s, 0.9))
    return msgspec.structs.replace(
        job,
        startup=startup,
        speed_spread=0.0,
        # In a paced job, time that an executor is busy stands for its cpu.
        idle_cpu_fraction=0.0,
        full_cpu_fraction=1.0,
    )


def _batches(seen: Observation) -> list[fit_batches.Seen]:
    registered_s = [life.registered_s for life in seen.lives if life.registered_s is not None]
    batches, fleets = [], []
    for number, done in enumerate(seen.batches):
        fleet = seen.fleet_at(done.started_s)
        if done.records > 0 and done.started_s >= 0.0 and fleet > 0:
            stages = {} if done.stages_s is None else {"addBatch": done.stages_s}
            batches.append(Batch(number, done.started_s, done.duration_s, done.records, stages))
            fleets.append(fleet)
    return fit_batches.marked(batches, fleets, [at_s for at_s in registered_s if at_s > 0.0])


def forecast(
    one: LiveScaler,
    trials: Sequence[Trial],
    *,
    executors: int,
    span_s: float,
) -> Figures:
    """The figures of a contestant on paper: means over seeds.

    Parameters
    ----------
    one
        Who sizes the fleet.
    trials
        Live runs to fit the job to: those of the others, so that nobody's own run is its forecast.
    executors, span_s
        The fleet when the load began, and how long the run was.
    """
    plan = trials[0].plan
    job = fitted_job([trial.observation for trial in trials])
    entry = _entry(one, plan)
    every_s = plan.every_s if one.policy else entry.policy.period_s
    found = [
        figures(_run(job, entry, _rates(plan, span_s), executors, every_s, seed)) for seed in SEEDS
    ]
    return folded(found, fmean)


def folded(found: Sequence[Figures], how: Callable[[list[float]], float]) -> Figures:
    """One figure of many, such as their mean, field by field; of some uncounted there is none."""
    made: dict[str, float | None] = {}
    for name in Figures.__struct_fields__:
        values = [getattr(one, name) for one in found]
        made[name] = None if None in values else how(values)
    return msgspec.convert(made, Figures)


def _rates(plan: DemoPlan, span_s: float) -> list[float]:
    """The load as it was, with what was low before it began."""
    rates = plan.rates_rps()
    return [sizes.LOW_RPS] * max(0, round(span_s) - len(rates)) + rates


def _entry(one: LiveScaler, plan: DemoPlan) -> PolicySpec:
    if one.policy is not None:
        return entry_of(one.policy, plan)
    bounds = {"min_executors": 1, "max_executors": sizes.MAX_EXECUTORS}
    if not one.settings:
        return read_policy_spec(f"static:{one.executors}", bounds)
    idle = one.settings["spark.dynamicAllocation.executorIdleTimeout"]
    return read_policy_spec(f"spark_dra:idle_timeout={idle}", bounds)


def _run(
    job: MicroBatchJob,
    entry: PolicySpec,
    rates_rps: Sequence[float],
    executors: int,
    every_s: float,
    seed: int,
) -> Outcome:
    engine = job.start(rates_rps, executors=executors, seed=seed)
    controller = wire(entry, engine, engine)
    for _ in controller.run(SimulatedClock(end_s=float(len(rates_rps))), every_s):
        pass
    return engine.finish()
