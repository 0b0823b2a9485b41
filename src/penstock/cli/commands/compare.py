"""``penstock compare``: a tournament, ranked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from penstock.cli.commands.execution import ExecutionOptions, SweepRunner
from penstock.cli.commands.options import Listed, RunOptions, listed, seed_numbers
from penstock.cli.views.output import console, print_json
from penstock.cli.views.ranking import ranking
from penstock.core.errors import ConfigError, unknown
from penstock.core.files import check_place
from penstock.lab.experiments.scenario import ENGINES
from penstock.lab.experiments.table import check_table, write_table
from penstock.lab.experiments.tournament import (
    ORACLE,
    Cell,
    Row,
    Standing,
    cells,
    judged_by_oracle,
    standings,
    varied,
    wins,
)
from penstock.observe.report import write
from penstock.policies import POLICIES
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation.workloads.expressions import parse_workload


def compare(
    *,
    policy: Listed = None,
    workload: Listed = None,
    engine: Listed = None,
    seeds: Listed = None,
    vary: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    options: RunOptions | None = None,
    carrying: ExecutionOptions | None = None,
    no_regret: Annotated[
        bool, Parameter(help="Skip the oracle that knows what comes, against which regret counts.")
    ] = False,
    out: str | None = None,
    html: Path | None = None,
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
    vary
        Values of a parameter to try on each policy that has it, e.g. overprovisioning=0.2,0.4.
    out
        A .csv or .parquet of one row per run; an older one is replaced. With --on spark also a
        place that Spark knows, e.g. s3a://bucket/results.
    html
        One page of tables and plots; an older page there is replaced.
    """
    if live:
        from penstock.cli.commands.live import compare_live

        around = (options or RunOptions(), carrying or ExecutionOptions())
        if out or html or vary or no_regret or around != (RunOptions(), ExecutionOptions()):
            raise ConfigError(
                "--live keeps its runs by itself and takes only --policy, --seeds and --json"
            )
        return compare_live(policy, seeds, elsewhere=workload or engine, json=json)
    options, carrying = options or RunOptions(), carrying or ExecutionOptions()
    settings = options.settings()
    goal = options.goal(settings)
    grid = cells(
        varied(listed(policy or list(POLICIES)), choices(vary or ())),
        listed(workload or ["sine"]),
        listed(engine or ["micro-batch"]),
        seed_numbers(seeds or ["1"]),
        goal=goal,
        bounds=options.bounds(settings),
        duration_s=options.duration_s(),
        start_executors=options.start,
        faults=options.faults(),
    )
    check(grid)
    _check_places(out, html, carrying)
    with carrying.stage() as stage:
        _check_far_place(out, stage)
        rows = _rows(stage, grid, regret=not no_regret)
        written = _write(rows, goal, out, html, stage)
    if json:
        print_json(rows)
    else:
        _show(standings(rows), goal)
        for line in written:
            console().print(line, markup=False)
    return 0


def choices(texts: Sequence[str]) -> dict[str, list[str]]:
    """The values to try of each parameter.

    >>> choices(["overprovisioning=0.2,0.4", "window=1min"])
    {'overprovisioning': ['0.2', '0.4'], 'window': ['1min']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        pieces = [piece.strip() for piece in values.split(",")]
        if not equals or not key.strip() or not all(pieces):
            raise ConfigError(f"--vary must be key=value,value,... and not '{text}'")
        if key.strip() in found:
            raise ConfigError(f"--vary gives {key.strip()} twice")
        found[key.strip()] = list(dict.fromkeys(pieces))
    return found


def check(grid: Sequence[Cell]) -> None:
    """Find every mistake before the first run, not in the middle of the night."""
    for text in dict.fromkeys(cell.policy for cell in grid):
        if text != ORACLE:
            read_policy_spec(text, grid[0].bounds)
    for name in dict.fromkeys(cell.scenario.engine for cell in grid):
        if name not in ENGINES:
            raise unknown("engine", name, ENGINES)
    for text in dict.fromkeys(cell.scenario.workload for cell in grid):
        parse_workload(text).natural_duration_s()


def _check_places(out: str | None, html: Path | None, carrying: ExecutionOptions) -> None:
    if out is not None and "://" in out:
        if carrying.on != "spark":
            raise ConfigError(f"--out {out} is a place that only Spark can write: add --on spark")
    elif out is not None:
        check_table(Path(out))
    if html is not None:
        check_place(html)


def _check_far_place(out: str | None, stage: SweepRunner) -> None:
    if out is not None and "://" in out and stage.spark is not None:
        from penstock.lab.experiments.on_spark import exists

        if exists(stage.spark, out):
            raise ConfigError(f"--out {out} exists already: name another place")


def _rows(stage: SweepRunner, grid: Sequence[Cell], *, regret: bool) -> list[Row]:
    def play(some: Sequence[Cell]) -> list[Row]:
        return stage.play("comparing", some)

    return judged_by_oracle(grid, play) if regret else play(grid)


def _write(
    rows: Sequence[Row], goal: Goal, out: str | None, html: Path | None, stage: SweepRunner
) -> list[str]:
    """The files that were asked for; a line about each."""
    told = []
    if out is not None and "://" in out and stage.spark is not None:
        from penstock.lab.experiments.on_spark import frame

        frame(stage.spark, rows).coalesce(1).write.parquet(out)
        told.append(f"{out}  ({len(rows)} rows)")
    elif out is not None:
        write_table(Path(out), Row, rows)
        told.append(f"{out}  ({len(rows)} rows)")
    if html is not None:
        from penstock.cli.views.comparison_page import comparison_page

        notes = explained(goal, regret=any(row.regret is not None for row in rows))
        page = comparison_page(standings(rows), goal, notes)
        write(html, page)
        told.append(f"{html}  ({len(page.encode()) / 1e3:.0f} kB)")
    return told


def _show(table: Sequence[Standing], goal: Goal) -> None:
    screen = console()
    for load, engine in dict.fromkeys((s.workload, s.engine) for s in table):
        group = [s for s in table if (s.workload, s.engine) == (load, engine)]
        screen.print(f"{load} on {engine}", style="bold italic", markup=False)
        screen.print(*ranking(group, goal, screen.width), sep="\n")
        screen.print()
    _explain(screen, table, goal)
    if len({(s.workload, s.engine) for s in table}) > 1:
        screen.print("won: " + ", ".join(f"{name} {count}" for name, count in wins(table)))


def _explain(screen: Console, table: Sequence[Standing], goal: Goal) -> None:
    for line in explained(goal, regret=any(standing.regret is not None for standing in table)):
        screen.print(line, style="dim", markup=False)


def explained(goal: Goal, *, regret: bool) -> list[str]:
    """What the numbers mean, with the prices that were used."""
    terms = (
        f"executor-hours x {goal.price:g}",
        f"late fraction x {goal.late_price:g} x the full fleet's hours",
        f"moved executors x {goal.move_price:.4g}",
    )
    scored = f"the first {goal.warmup_s / 60:g} min are not scored"
    lines = [f"cost = {' + '.join(terms)}; {scored}"]
    if regret:
        lines.append("regret = cost / cost of an oracle that knows what comes - 1")
    return lines
