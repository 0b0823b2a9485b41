"""``penstock compare --live``: five scalers on real Spark under the same load."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.table import Table

from penstock.cli.commands.options import Listed, listed, seed_numbers
from penstock.cli.views.output import console, print_json
from penstock.core.errors import ConfigError, unknown
from penstock.lab.live_comparison import contest
from penstock.lab.live_comparison.contest import Result
from penstock.lab.live_comparison.trial import Figures, contestants
from penstock.testbed.demo.plan import SLO_S

#: Where finished runs are kept, and beside it the journals of those that Penstock sized.
RUNS = Path("runs/live.jsonl")

COLUMNS = {
    "executor_s": ("executor-s", 0),
    "p50_s": ("p50 s", 1),
    "p95_s": ("p95 s", 1),
    "late_fraction": ("late %", 1),
    "rescales": ("rescales", 1),
    "failed_tasks": ("failed tasks", 1),
}


def compare_live(
    policy: Listed, seeds: Listed, *, elsewhere: Listed = None, json: bool = False
) -> int:
    """Make the runs that are missing, and show all; 1 if some could not be made.

    Parameters
    ----------
    policy
        Of static, spark, hpa, ds2 and penstock; all by default.
    seeds
        Numbers of runs, as seeds are written; each contestant runs once per number, by default
        for 1..3. All meet the same load.
    elsewhere
        Loads and engines of a comparison on paper: there is no choice of them here.
    json
        Print the results as JSON.
    """
    if elsewhere:
        raise ConfigError(f"--live has a load and an engine of its own: leave out {elsewhere[0]}")
    plan = contest.LOAD
    known = contestants(plan)
    names = list(dict.fromkeys(listed(policy or list(known))))
    for name in names:
        if name not in known:
            raise unknown("contestant of a live comparison", name, known)
    runs = contest.order(names, seed_numbers(seeds or ["1..3"]))
    try:
        RUNS.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {RUNS.parent}: {error.strerror}") from error
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        for _ in contest.play_missing(RUNS, plan, runs, _say):
            pass
    except KeyboardInterrupt:
        _say("interrupted; what is finished is kept: the same command goes on with the rest")
        raise
    trials = contest.read_trials(RUNS, plan)
    if not trials:
        raise ConfigError("no run was finished")
    found = contest.results(trials)
    if json:
        print_json(found)
    else:
        screen = console()
        screen.print(table(found))
        screen.print(
            f"late = waited over {SLO_S:g} s; on paper = the simulation, fitted to the runs of "
            f"the others; runs are kept in {RUNS}",
            style="dim",
        )
    done = {(trial.contestant, trial.number) for trial in trials}
    return 0 if done >= set(runs) else 1


def table(found: Sequence[Result]) -> Table:
    """Means of the live runs with their 95 % intervals, and the forecast below each."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for title, _ in COLUMNS.values():
        shown.add_column(title, justify="right", no_wrap=True)
    for result in found:
        own = [spread(result, name) for name in COLUMNS]
        shown.add_row(f"{result.contestant} x {len(result.runs)}", *own)
        if result.forecast is not None:
            paper = [amount(result.forecast, name) for name in COLUMNS]
            shown.add_row("  on paper", *paper, style="dim")
    return shown


def spread(result: Result, name: str) -> str:
    """A mean and how far it may be off, such as ``412 ± 9``; of one run nobody knows."""
    mean = amount(result.mean, name)
    return f"{mean} ± {amount(result.interval, name)}" if len(result.runs) > 1 else mean


def amount(figures: Figures, name: str) -> str:
    value = getattr(figures, name)
    if value is None:
        return "-"
    return f"{100 * value if name == 'late_fraction' else value:.{COLUMNS[name][1]}f}"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
