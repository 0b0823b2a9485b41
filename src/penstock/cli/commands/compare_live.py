"""``penstock compare-live``: five scalers on real Spark under the same load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.table import Table

from penstock.cli.options import Listed, about, listed, seed_numbers
from penstock.cli.output import console, interrupt_on_sigterm, note, print_json
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
    *,
    policy: Annotated[Listed, about("compare-live.policy")] = None,
    seeds: Annotated[Listed, about("compare-live.seeds")] = None,
    json: Annotated[bool, about("compare-live.json")] = False,
) -> int:
    """Make the runs that are missing, and show all. Exits with 1 if some could not be made."""
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
    interrupt_on_sigterm()
    try:
        for _ in contest.play_missing(RUNS, plan, runs, note):
            pass
    except KeyboardInterrupt:
        note(f"finished runs are kept in {RUNS}: the same command continues")
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
            f"late = waited over {SLO_S:g} s; simulated = a simulation fitted to the runs of the "
            f"others; runs are kept in {RUNS}",
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
        own = [mean_with_interval(result, name) for name in COLUMNS]
        shown.add_row(f"{result.contestant} x {len(result.runs)}", *own)
        if result.forecast is not None:
            simulated = [amount(result.forecast, name) for name in COLUMNS]
            shown.add_row("  simulated", *simulated, style="dim")
    return shown


def mean_with_interval(result: Result, name: str) -> str:
    """A mean and its 95 % interval, such as ``412 ± 9``; no interval of fewer than three runs."""
    mean = amount(result.mean, name)
    return f"{mean} ± {amount(result.interval, name)}" if len(result.runs) > 2 else mean


def amount(figures: Figures, name: str) -> str:
    value = getattr(figures, name)
    if value is None:
        return "-"
    return f"{100 * value if name == 'late_fraction' else value:.{COLUMNS[name][1]}f}"
