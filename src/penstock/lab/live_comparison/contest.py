"""A live comparison: each scaler several times on the real testbed, in a random order.

Each finished run is a file of a directory; a comparison that was interrupted makes those that are
not there. Beside each scaler stands what a simulation says of it, fitted to the runs of the others.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
from msgspec import Struct

from penstock.core.clock import SimulatedClock
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.files import file_errors, write_whole
from penstock.core.model import Batch
from penstock.lab.experiments.statistics import Ecdf, interval_95
from penstock.lab.live_comparison.observer import Observation, startups_s
from penstock.lab.live_comparison.plan import LivePlan
from penstock.lab.live_comparison.scalers import LiveScaler, scaler_of, simulated_spec
from penstock.lab.live_comparison.trial import Figures, Trial, TrialOrder, figures, measured
from penstock.settings.policy_spec import wire
from penstock.simulation.calibration import fit_batches
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.testbed.demo.environment import Say

AROUND_S = 45  #: What a run takes besides its load, for an estimate of how long all of them take.
SEEDS = range(1, 11)  #: Of the simulated runs.
JOURNALS = "journals"  #: Where the journals of all runs go, inside of the directory of the runs.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Trial).decode

Play = Callable[[TrialOrder], Trial]


class Result(Struct, frozen=True):
    """A scaler: its runs, their mean with the half width of its 95 % interval, the forecast."""

    scaler: str
    runs: list[Figures]
    mean: Figures
    interval: Figures
    forecast: Figures | None  #: ``None`` while no other has run: a job is fitted to the others.


def order(names: Sequence[str], repeats: int, plan: LivePlan) -> list[tuple[str, int]]:
    """All runs, shuffled, so that no scaler has the machine at its best; another way in each plan.

    >>> order(["static", "hpa"], 2, LivePlan("q1"))
    [('static', 2), ('hpa', 1), ('static', 1), ('hpa', 2)]
    """
    runs = [(name, number) for number in range(1, repeats + 1) for name in names]
    Random(f"{plan.job} {plan.workload}").shuffle(runs)
    return runs


def run_name(plan: LivePlan, scaler: str, number: int) -> str:
    """The name of a run's files.

    >>> run_name(LivePlan("q1", load_s=240, workload="koper-q1 for 1h"), "ds2:window=1min", 2)
    'q1-koper-q1-for-1h-240s-ds2-window-1min-2'
    """
    share = "" if plan.cpu_share is None else f"-share-{plan.cpu_share:g}"
    text = f"{plan.job}-{plan.workload}-{plan.load_s}s{share}-{scaler}-{number}"
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-")


def read_trials(directory: Path) -> list[Trial]:
    """The finished runs of a directory, in the order in which they were made."""
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            with file_errors(f"cannot read {path}"):
                found.append(_decode(path.read_bytes()))
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} is not a live run: {error}") from None
    return sorted(found, key=lambda trial: trial.began_at)


def play_missing(
    directory: Path,
    plan: LivePlan,
    runs: Sequence[tuple[str, int]],
    say: Say,
    *,
    at_most_s: float = inf,
    play: Play | None = None,
) -> Iterator[Trial]:
    """Make the runs that are not in the directory, and keep each when it is finished.

    No run is begun that would end after `at_most_s`. A run that fails is reported and left out; the
    next call tries it again. `play` makes one run, by default on real Spark in a process of its
    own.
    """
    play = play or play_for_real
    (directory / JOURNALS).mkdir(parents=True, exist_ok=True)
    done = {(one.scaler, one.number) for one in read_trials(directory) if one.plan == plan}
    missing = [run for run in runs if run not in done]
    each_s = plan.load_s + AROUND_S
    for place, (scaler, number) in enumerate(missing, start=1):
        if place * each_s > at_most_s:
            say(f"{len(missing) - place + 1} runs are left for another time")
            return
        minutes = (len(missing) - place + 1) * each_s / 60
        say(f"run {place} of {len(missing)}: {scaler}, number {number}; {minutes:.0f} min to go")
        name = run_name(plan, scaler, number)
        path, journal = directory / f"{name}.json", directory / JOURNALS / f"{name}.jsonl"
        if path.exists():
            raise ConfigError(f"{path} is a run of another plan: name another directory")
        try:
            trial = play(TrialOrder(scaler, number, plan, str(journal)))
        except PenstockError as error:
            say(str(error))
            continue
        write_whole(path, [_encode(trial)])
        yield trial


def play_for_real(order: TrialOrder) -> Trial:
    argv = [sys.executable, "-m", "penstock.lab.live_comparison.trial", _encode(order).decode()]
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
            f"the run of {order.scaler} failed with exit code {process.returncode}; its output is "
            "above"
        ) from None


def by_plan(trials: Sequence[Trial]) -> dict[LivePlan, list[Trial]]:
    """The runs of each job and load; only these can be compared."""
    found: dict[LivePlan, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.plan, []).append(trial)
    return found


def results(trials: Sequence[Trial]) -> list[Result]:
    """The scalers of one plan by the sum of mean delay and mean executors, the best first."""
    plan = trials[0].plan
    found = []
    for name in dict.fromkeys(trial.scaler for trial in trials):
        one = scaler_of(name, plan)
        own = [trial for trial in trials if trial.scaler == name]
        others = [trial for trial in trials if trial.scaler != name]
        runs, predicted = [measured(trial) for trial in own], None
        if others:
            seen = [trial.observation for trial in own]
            # The fleet at the start is that of the runs themselves.
            executors = round(fmean(each.outcome().paid[0].executors for each in seen))
            span_s = fmean(each.span_s for each in seen)
            predicted = forecast(one, others, executors=executors, span_s=span_s)
        mean, interval = folded(runs, fmean), folded(runs, interval_95)
        found.append(Result(name, runs, mean, interval, predicted))
    return sorted(found, key=lambda one: one.mean.delay_and_executors)


def fitted_job(trials: Sequence[Trial]) -> MicroBatchJob:
    """The simulated job whose batches, starts and joins are those of the runs."""
    plan, seen = trials[0].plan, [trial.observation for trial in trials]
    batches = [batch for one in seen for batch in _batches(one)]
    task_s = sum(one.task_s for one in seen)
    job = fit_batches.job_of(batches, plan.trigger_s, plan.partitions, 1, task_s)
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
    job = fitted_job(trials)
    entry = simulated_spec(one, plan)
    every_s = plan.every_s if one.policy else entry.policy.period_s
    rates_rps = plan.rates_rps()
    # Before the load of the plan began, the rate was low.
    rates_rps = [plan.low_rps] * max(0, round(span_s) - len(rates_rps)) + rates_rps
    found = []
    for seed in SEEDS:
        engine = job.start(rates_rps, executors=executors, seed=seed)
        for _ in wire(entry, engine, engine).run(SimulatedClock(float(len(rates_rps))), every_s):
            pass
        found.append(figures(engine.finish(), plan))
    return folded(found, fmean)


def folded(found: Sequence[Figures], how: Callable[[list[float]], float]) -> Figures:
    """One value per field, such as the mean; ``None`` where a run has none."""
    columns = {name: [getattr(one, name) for one in found] for name in Figures.__struct_fields__}
    made = {name: None if None in seen else how(seen) for name, seen in columns.items()}
    return msgspec.convert(made, Figures)
