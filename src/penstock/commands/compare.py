"""``penstock compare``: a tournament, ranked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from penstock.commands.options import Listed, RunOptions, listed, seed_numbers
from penstock.commands.output import console, print_json
from penstock.errors import unknown
from penstock.lab.contender import contender
from penstock.lab.scenario import ENGINES
from penstock.lab.score import Goal
from penstock.lab.tournament import (
    ORACLE,
    Cell,
    Row,
    Standing,
    cells,
    play_all,
    play_judged,
    standings,
    wins,
)
from penstock.policies import POLICIES
from penstock.simulation.expressions import parse_workload


def compare(
    *,
    policy: Listed = None,
    workload: Listed = None,
    engine: Listed = None,
    seeds: Listed = None,
    processes: int | None = None,
    options: RunOptions | None = None,
    no_regret: Annotated[
        bool, Parameter(help="Skip the oracle that knows what comes, against which regret counts.")
    ] = False,
    json: Annotated[bool, Parameter(help="A list of rows as JSON, one per run.")] = False,
    live: Annotated[
        bool, Parameter(help="On real Spark: static, spark, hpa, ds2 and penstock, 3 runs each.")
    ] = False,
) -> int:
    """Rank policies over workloads, engines and seeds by what they cost.

    Parameters
    ----------
    policy
        Policies with their parameters; all policies without it. The name oracle shows the lower
        bound itself.
    workload
        Loads, each in the one-line notation.
    engine
        micro-batch, continuous, or both.
    seeds
        Seeds as numbers or ranges, e.g. 1 2 3 or 1..5.
    processes
        How many at once; one per core without it.
    """
    if live:
        from penstock.commands.live import compare_live

        return compare_live(policy, seeds, elsewhere=workload or engine, json=json)
    options = options or RunOptions()
    settings = options.settings()
    goal = options.goal(settings)
    grid = cells(
        listed(policy or list(POLICIES)),
        listed(workload or ["sine"]),
        listed(engine or ["micro-batch"]),
        seed_numbers(seeds or ["1"]),
        goal=goal,
        bounds=options.bounds(settings),
        duration_s=options.duration_s(),
        start_executors=options.start,
        faults=options.faults(),
    )
    _check(grid)
    rows = _play(grid, processes, regret=not no_regret)
    if json:
        print_json(rows)
    else:
        _show(standings(rows), goal)
    return 0


def _check(grid: Sequence[Cell]) -> None:
    """Find every mistake before the first run, not in the middle of the night."""
    for text in dict.fromkeys(cell.policy for cell in grid):
        if text != ORACLE:
            contender(text, grid[0].bounds)
    for name in dict.fromkeys(cell.scenario.engine for cell in grid):
        if name not in ENGINES:
            raise unknown("engine", name, ENGINES)
    for text in dict.fromkeys(cell.scenario.workload for cell in grid):
        parse_workload(text).natural_duration_s()


def _play(grid: Sequence[Cell], processes: int | None, *, regret: bool) -> list[Row]:
    bar = Progress(
        TextColumn("comparing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        scenarios = {cell.scenario for cell in grid} if regret else set()
        task = bar.add_task("runs", total=len(grid) + len(scenarios))
        play = play_judged if regret else play_all
        return play(grid, processes, lambda done: bar.update(task, completed=done))


def _show(table: Sequence[Standing], goal: Goal) -> None:
    screen = console()
    for load, engine in dict.fromkeys((s.workload, s.engine) for s in table):
        group = [s for s in table if (s.workload, s.engine) == (load, engine)]
        screen.print(_ranking(group, f"{load} on {engine}", goal))
        screen.print()
    terms = (
        f"executor-hours x {goal.price:g}",
        f"late fraction x {goal.late_price:g} x the full fleet's hours",
        f"moved executors x {goal.move_price:.4g}",
    )
    scored = f"the first {goal.warmup_s / 60:g} min are not scored"
    screen.print(f"cost = {' + '.join(terms)}; {scored}", style="dim")
    if any(standing.regret is not None for standing in table):
        screen.print("regret = cost / cost of an oracle that knows what comes - 1", style="dim")
    if len({(s.workload, s.engine) for s in table}) > 1:
        screen.print("won: " + ", ".join(f"{name} {count}" for name, count in wins(table)))


def _ranking(group: Sequence[Standing], title: str, goal: Goal) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("policy", no_wrap=True)
    for name in ("cost", "± 95 %", "regret", "exec-h", "mean", "p50 s", "p95 s", "p99 s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"late % (> {goal.slo_s:g} s)", justify="right")
    table.add_column("rescales", justify="right")
    table.add_column("moved", justify="right")
    for rank, row in enumerate(group, start=1):
        table.add_row(
            str(rank),
            row.policy,
            f"{row.cost:.1f}",
            f"{row.cost_interval:.1f}" if row.seeds > 1 else "-",
            "-" if row.regret is None else f"{row.regret:.3f}",
            f"{row.executor_hours:.1f}",
            f"{row.mean_executors:.1f}",
            f"{row.p50_s:.1f}",
            f"{row.p95_s:.1f}",
            f"{row.p99_s:.1f}",
            f"{100 * row.late_fraction:.2f}",
            f"{row.rescales:.0f}",
            f"{row.moved_executors:.0f}",
            style="bold" if rank == 1 else "",
        )
    return table
