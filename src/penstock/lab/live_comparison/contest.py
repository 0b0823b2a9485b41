"""A live comparison: each scaler several times on the real testbed, in a random order.

Each finished run is a line of a file, written at once. A comparison that was interrupted continues
with the runs that are not in it. Beside each scaler stands what the simulation says of it: a job is
fitted to the runs of the others, with what a batch costs, how long executors take to start and what
their joining costs, and runs under the same load, policy and guards.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
from msgspec import Struct

from penstock.core.clock import SimulatedClock
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.files import cut_torn_line, decode_lines
from penstock.core.model import Batch
from penstock.lab.experiments.statistics import Ecdf, interval_95
from penstock.lab.live_comparison.observer import Observation, startups_s
from penstock.lab.live_comparison.trial import (
    Figures,
    LiveScaler,
    Trial,
    TrialOrder,
    contestants,
    entry_of,
    figures,
    measured,
)
from penstock.settings.policy_spec import PolicySpec, read_policy_spec, wire
from penstock.simulation.calibration import fit_batches
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.environment import Say
from penstock.testbed.demo.plan import DemoPlan

#: The load of each run: as high as in the fast demo and a third slower, since what is compared is
#: who sizes the fleet, and not how fast one machine starts executors.
LOAD = DemoPlan(load_s=110, full_peak_rps=2600.0)
AROUND_S = 45  #: What a run takes besides its load, for an estimate of how long all of them take.
SEEDS = range(1, 11)  #: Of the simulated runs.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Trial).decode


class Result(Struct, frozen=True):
    """A scaler: its runs, their mean with the half width of its 95 % interval, the forecast.

    `forecast` is ``None`` while no other has run: a job is fitted to the runs of the others.
    """

    contestant: str
    words: str
    runs: list[Figures]
    mean: Figures
    interval: Figures
    forecast: Figures | None


def order(names: Sequence[str], numbers: Sequence[int], seed: int = 1) -> list[tuple[str, int]]:
    """All runs, shuffled, so that no scaler has the machine at its best.

    >>> order(["static", "hpa"], [1, 2])
    [('hpa', 2), ('static', 1), ('static', 2), ('hpa', 1)]
    """
    runs = [(name, number) for number in numbers for name in names]
    Random(seed).shuffle(runs)
    return runs


def read_trials(path: Path, plan: DemoPlan) -> list[Trial]:
    """The finished runs of a file; none if there is no such file."""
    if not path.exists():
        return []
    try:
        with path.open("rb") as file:
            trials = list(decode_lines(path, enumerate(file, start=1), _decode, "a live run"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if any(trial.plan != plan for trial in trials):
        raise ConfigError(f"{path} holds runs of another load: move it away first")
    return trials


def play_missing(
    path: Path,
    plan: DemoPlan,
    runs: Sequence[tuple[str, int]],
    say: Say,
    play: Callable[[str, int, DemoPlan, Path], Trial] | None = None,
) -> Iterator[Trial]:
    """Make the runs that are not in the file, and append each when it is finished.

    A run that fails is reported and left out; the next call tries it again. `play` makes one run
    and puts its journal beside the file; by default on real Spark, in a process of its own.
    """
    play = play or play_for_real
    if path.exists():
        cut_torn_line(path)
    done = {(trial.contestant, trial.number) for trial in read_trials(path, plan)}
    missing = [run for run in runs if run not in done]
    for place, (name, number) in enumerate(missing, start=1):
        minutes = (len(missing) - place + 1) * (plan.load_s + AROUND_S) / 60
        say(f"run {place} of {len(missing)}: {name}, number {number}; {minutes:.0f} min to go")
        try:
            trial = play(name, number, plan, path)
        except PenstockError as error:
            say(str(error))
            continue
        with path.open("ab") as file:
            file.write(_encode(trial) + b"\n")
        yield trial


def play_for_real(name: str, number: int, plan: DemoPlan, path: Path) -> Trial:
    """One run in a process of its own; its journal goes into a directory named like the file."""
    journal = path.with_suffix("") / f"{name}-{number}.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    order = _encode(TrialOrder(name, number, plan, str(journal)))
    argv = [sys.executable, "-m", "penstock.lab.live_comparison.trial", order.decode()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            output, _ = process.communicate()
        except BaseException:
            process.terminate()  # it ends all that it has started
            raise
    try:
        return _decode(output)
    except msgspec.MsgspecError:
        raise PenstockError(
            f"the run of {name} failed with exit code {process.returncode}; its output is above"
        ) from None


def results(trials: Sequence[Trial]) -> list[Result]:
    """The runs of each scaler, in the order of `contestants`."""
    found = []
    for name, one in contestants(trials[0].plan).items():
        own = [trial for trial in trials if trial.contestant == name]
        others = [trial for trial in trials if trial.contestant != name]
        if not own:
            continue
        runs, predicted = [measured(trial) for trial in own], None
        if others:
            seen = [trial.observation for trial in own]
            # The fleet at the start is that of the runs themselves.
            executors = round(fmean(each.outcome().paid[0].executors for each in seen))
            span_s = fmean(each.span_s for each in seen)
            predicted = forecast(one, others, executors=executors, span_s=span_s)
        mean, interval = folded(runs, fmean), folded(runs, interval_95)
        found.append(Result(name, one.words, runs, mean, interval, predicted))
    return found


def job(trials: Sequence[Trial]) -> MicroBatchJob:
    """The simulated job, fitted to all runs; each forecast leaves out the scaler's own runs."""
    return fitted_job([trial.observation for trial in trials])


def fitted_job(seen: Sequence[Observation]) -> MicroBatchJob:
    """The job whose batches, starts and joins are those that were seen."""
    batches = [batch for one in seen for batch in _batches(one)]
    task_s = sum(one.task_s for one in seen)
    job = fit_batches.job_of(batches, sizes.TRIGGER_S, LOAD.partitions, 1, task_s)
    startup = job.startup
    if starts_s := startups_s(seen):
        startup = Startup(Ecdf.of(starts_s).quantile(0.1), Ecdf.of(starts_s).quantile(0.9))
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
    rates_rps = plan.rates_rps()
    # Before the load of the plan began, the rate was low.
    rates_rps = [plan.low_rps] * max(0, round(span_s) - len(rates_rps)) + rates_rps
    found = []
    for seed in SEEDS:
        engine = job.start(rates_rps, executors=executors, seed=seed)
        for _ in wire(entry, engine, engine).run(SimulatedClock(float(len(rates_rps))), every_s):
            pass
        found.append(figures(engine.finish()))
    return folded(found, fmean)


def folded(found: Sequence[Figures], how: Callable[[list[float]], float]) -> Figures:
    """One value per field, such as the mean; ``None`` where a run has none."""
    columns = {name: [getattr(one, name) for one in found] for name in Figures.__struct_fields__}
    made = {name: None if None in seen else how(seen) for name, seen in columns.items()}
    return msgspec.convert(made, Figures)


def _entry(one: LiveScaler, plan: DemoPlan) -> PolicySpec:
    if one.policy is not None:
        return entry_of(one.policy, plan)
    bounds = {"min_executors": 1, "max_executors": sizes.MAX_EXECUTORS}
    if not one.settings:
        return read_policy_spec(f"static:{one.executors}", bounds)
    idle = one.settings["spark.dynamicAllocation.executorIdleTimeout"]
    return read_policy_spec(f"spark_dra:idle_timeout={idle}", bounds)
