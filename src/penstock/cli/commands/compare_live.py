"""``penstock compare-live``: scalers on real Spark under the same load."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated

from rich.table import Table

from penstock.cli.options import CpuShare, Listed, about, amount, listed, whole
from penstock.cli.output import console, file_size, interrupt_on_sigterm, note, print_json
from penstock.cli.views.live_page import COLUMNS, cell, live_page, mean_with_interval, title
from penstock.core.errors import ConfigError
from penstock.core.files import file_errors, write_whole
from penstock.lab.live_comparison import contest
from penstock.lab.live_comparison.contest import Result
from penstock.lab.live_comparison.plan import WAVE, LivePlan
from penstock.lab.live_comparison.scalers import DEFAULT_SCALERS, scaler_of
from penstock.testbed.demo.plan import SLO_S, make_plan

RUNS = Path("runs/live")  #: Where finished runs are kept, with the journals of all of them.


def compare_live(
    *,
    policy: Annotated[Listed, about("compare-live.policy")] = None,
    job: Annotated[str, about("demo.job")] = "q11",
    workload: Annotated[str, about("compare-live.workload")] = WAVE,
    minutes: Annotated[float | None, about("compare-live.minutes")] = None,
    cpu_share: CpuShare = None,
    repeats: Annotated[int, whole(1, 1000), about("compare-live.repeats")] = 3,
    at_most: Annotated[float, amount(60.0), about("compare-live.at_most")] = inf,
    out: Annotated[Path, about("compare-live.out")] = RUNS,
    html: Annotated[Path | None, about("compare-live.html")] = None,
    json: Annotated[bool, about("compare-live.json")] = False,
) -> int:
    """Make the runs that are missing, and show all. Exits with 1 if some were not made."""
    demo = make_plan(job, minutes, fast=False, cpu_share=cpu_share)
    plan = LivePlan(job, demo.load_s, cpu_share=cpu_share, workload=workload)
    plan.rates_rps()  # a load without records is refused before anything starts
    names = [scaler_of(text, plan).name for text in listed(policy or DEFAULT_SCALERS)]
    runs = contest.order(list(dict.fromkeys(names)), repeats, plan)
    with file_errors(f"cannot make {out}"):
        out.mkdir(parents=True, exist_ok=True)
    interrupt_on_sigterm()
    try:
        for _ in contest.play_missing(out, plan, runs, note, at_most_s=at_most):
            pass
    except KeyboardInterrupt:
        note(f"finished runs are kept in {out}: the same command continues")
        raise
    trials = contest.read_trials(out)
    own = [trial for trial in trials if trial.plan == plan]
    if not own:
        raise ConfigError("no run was finished")
    page = html or out / "index.html"
    write_whole(page, [live_page(trials).encode()])
    found = contest.results(own)
    if json:
        print_json(found)
    else:
        screen = console()
        screen.print(title(plan))
        screen.print(table(found))
        screen.print(
            f"late = waited over {SLO_S:g} s; simulated = a simulation fitted to the runs of the "
            f"others; runs are kept in {out}",
            style="dim",
        )
        screen.print(file_size(page))
    done = {(trial.scaler, trial.number) for trial in own}
    return 0 if done >= set(runs) else 1


def table(found: Sequence[Result]) -> Table:
    """Means of the live runs with their 95 % intervals, and the forecast below each."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for column in COLUMNS:
        shown.add_column(column.title, justify="right", no_wrap=True)
    for result in found:
        own = [mean_with_interval(result, column) for column in COLUMNS]
        shown.add_row(f"{result.scaler} x {len(result.runs)}", *own)
        if result.forecast is not None:
            simulated = [cell(result.forecast, column) for column in COLUMNS]
            shown.add_row("  simulated", *simulated, style="dim")
    return shown
