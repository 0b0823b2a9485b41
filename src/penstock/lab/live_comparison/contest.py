"""The contest: every contestant so many times on the real testbed, in an order drawn by lot.

Each finished run is a line of a file, written at once. A contest that was interrupted goes on with
the runs that are not in it.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError, PenstockError
from penstock.lab.experiments.statistics import interval_95
from penstock.lab.live_comparison.forecast import fitted_job, folded, forecast
from penstock.lab.live_comparison.trial import Figures, Trial, contestants, measured
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.testbed.demo.environment import Say
from penstock.testbed.demo.plan import DemoPlan

#: The load of each run: as high as in the fast demo and a third slower, since what is compared is
#: who sizes the fleet, and not how fast one machine starts executors.
LOAD = DemoPlan(load_s=110, full_peak_rps=2600.0)
#: What a run takes besides its load, for telling how long all of them will.
AROUND_S = 45

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Trial).decode


class Result(Struct, frozen=True):
    """A contestant: its runs, their mean with the half width of its 95 % interval, the forecast.

    `forecast` is ``None`` while nobody else has run: a job is fitted to the runs of the others.
    """

    contestant: str
    words: str
    runs: list[Figures]
    mean: Figures
    interval: Figures
    forecast: Figures | None


def order(names: Sequence[str], numbers: Sequence[int], seed: int = 1) -> list[tuple[str, int]]:
    """All runs, shuffled, so that no contestant has the machine at its best.

    >>> order(["static", "hpa"], [1, 2])
    [('hpa', 2), ('static', 1), ('static', 2), ('hpa', 1)]
    """
    runs = [(name, number) for number in numbers for name in names]
    Random(seed).shuffle(runs)
    return runs


def read_trials(path: Path, plan: DemoPlan) -> list[Trial]:
    """The finished runs of a file; none if there is no such file."""
    try:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    trials = []
    for number, line in enumerate(lines, start=1):
        try:
            trials.append(_decode(line))
        except msgspec.MsgspecError as error:
            if not line.endswith(b"\n"):
                warnings.warn(f"the last line of {path} is torn and was dropped", stacklevel=2)
                break
            raise ConfigError(f"line {number} of {path} is not a live run: {error}") from error
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
    """Make the runs that are not in the file, and add each to it when it is finished.

    A run that fails is told of and left out; the next call tries it again. `play` makes one run
    and puts its journal beside the file; by default for real, in a process of its own.
    """
    play = play or play_for_real
    done = {(trial.contestant, trial.number) for trial in read_trials(path, plan)}
    missing = [run for run in runs if run not in done]
    _drop_torn_line(path)
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
    argv = [sys.executable, "-m", "penstock.lab.live_comparison.trial", name, str(number)]
    argv += [_encode(plan).decode(), str(journal)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            told, _ = process.communicate()
        except BaseException:
            process.terminate()  # it ends all that it has started
            raise
    try:
        return _decode(told)
    except msgspec.MsgspecError:
        raise PenstockError(
            f"the run of {name} failed with exit code {process.returncode}; what it said is above"
        ) from None


def _drop_torn_line(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            path.write_bytes(content[:whole])


def results(trials: Sequence[Trial]) -> list[Result]:
    """What came of each contestant, in the order in which they are introduced."""
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
            # Nobody knows where it starts better than the runs themselves.
            executors = round(fmean(each.outcome().paid[0].executors for each in seen))
            span_s = fmean(each.span_s for each in seen)
            predicted = forecast(one, others, executors=executors, span_s=span_s)
        mean, interval = folded(runs, fmean), folded(runs, interval_95)
        found.append(Result(name, one.words, runs, mean, interval, predicted))
    return found


def job(trials: Sequence[Trial]) -> MicroBatchJob:
    """The job on paper, fitted to all runs; each forecast leaves the own runs out."""
    return fitted_job([trial.observation for trial in trials])
