"""What the simulation says of a live run before it is made.

A simulated job is fitted to live runs: what a batch costs, how long executors take to start and
what their joining costs. It then runs under the load of the plan, with the same policy and guards,
and gets its score by the same arithmetic as the live run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from penstock.core.clock import SimulatedClock
from penstock.core.model import Batch
from penstock.lab.experiments.statistics import Ecdf
from penstock.lab.live_comparison.observer import Observation, startups_s
from penstock.lab.live_comparison.trial import Figures, LiveScaler, Trial, entry_of, figures
from penstock.settings.policy_spec import PolicySpec, read_policy_spec, wire
from penstock.simulation.calibration import fit_batches
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
        seen_s = Ecdf.of(starts_s)
        startup = Startup(seen_s.quantile(0.1), seen_s.quantile(0.9))
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


def forecast(one: LiveScaler, trials: Sequence[Trial], *, executors: int, span_s: float) -> Figures:
    """The figures of a scaler on the simulated job: means over seeds.

    The job is fitted to `trials`: live runs of the other scalers. `executors` is the fleet when the
    load began, `span_s` how long the run was.
    """
    plan = trials[0].plan
    job = fitted_job([trial.observation for trial in trials])
    entry = _entry(one, plan)
    every_s = plan.every_s if one.policy else entry.policy.period_s
    rates_rps = _rates(plan, span_s)
    found = []
    for seed in SEEDS:
        engine = job.start(rates_rps, executors=executors, seed=seed)
        for _ in wire(entry, engine, engine).run(SimulatedClock(float(len(rates_rps))), every_s):
            pass
        found.append(figures(engine.finish()))
    return folded(found, fmean)


def folded(found: Sequence[Figures], how: Callable[[list[float]], float]) -> Figures:
    """One value per field, such as the mean; ``None`` where a run has none."""
    made: dict[str, float | None] = {}
    for name in Figures.__struct_fields__:
        values = [getattr(one, name) for one in found]
        made[name] = None if None in values else how(values)
    return msgspec.convert(made, Figures)


def _rates(plan: DemoPlan, span_s: float) -> list[float]:
    """The load of the plan, with the low rate before it began."""
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
