"""A live comparison: each scaler several times on the real testbed, in a random order.

Each finished run is a line of a file, written at once. A comparison that was interrupted continues
with the runs that are not in it.
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

from penstock.core.errors import ConfigError, PenstockError
from penstock.core.files import cut_torn_line, decode_lines
from penstock.lab.experiments.statistics import interval_95
from penstock.lab.live_comparison.forecast import fitted_job, folded, forecast
from penstock.lab.live_comparison.trial import (
    Figures,
    Trial,
    TrialOrder,
    contestants,
    measured,
)
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.testbed.demo.environment import Say
from penstock.testbed.demo.plan import DemoPlan

#: The load of each run: as high as in the fast demo and a third slower, since what is compared is
#: who sizes the fleet, and not how fast one machine starts executors.
LOAD = DemoPlan(load_s=110, full_peak_rps=2600.0)
#: What a run takes besides its load, for an estimate of how long all of them take.
AROUND_S = 45

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
    journals = path.with_suffix("")
    journals.mkdir(parents=True, exist_ok=True)
    journal = journals / f"{name}-{number}.jsonl"
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
        runs = [measured(trial) for trial in own]
        predicted = None
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
