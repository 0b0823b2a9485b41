"""``penstock compare``: a tournament, ranked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.execution import ExecutionOptions, SweepRunner, check_oracle, check_runs
from penstock.cli.options import GridOptions, Listed, RunOptions, about, bounds_of, listed
from penstock.cli.output import console, file_size, print_json
from penstock.cli.views.ranking import ranking
from penstock.core.errors import ConfigError
from penstock.core.files import check_place, write_whole
from penstock.core.phrases import counted, duration
from penstock.lab.experiments import tournament
from penstock.lab.experiments.sweep import check_table, write_table
from penstock.lab.experiments.tournament import ORACLE, Cell, Row
from penstock.policies import POLICIES
from penstock.settings.goal import Goal


@Parameter(name="*")
@dataclass(frozen=True)
class ComparisonOutput:
    """Where the results go besides the screen."""

    out: Annotated[str | None, about("compare.out")] = None
    html: Annotated[Path | None, about("compare.html")] = None
    json: Annotated[bool, about("compare.json")] = False

    def check(self, execution: ExecutionOptions) -> None:
        """Refuse before the runs what could not be written after them."""
        if self.out is not None and "://" not in self.out:
            check_table(Path(self.out))
        elif self.out is not None and execution.on != "spark":
            raise ConfigError(f"--out {self.out}: only Spark can write there, add --on spark")
        if self.html is not None:
            check_place(self.html)

    def check_on_spark(self, runner: SweepRunner) -> None:
        if self.out is not None and "://" in self.out and runner.spark is not None:
            from penstock.lab.experiments.on_spark import exists

            if exists(runner.spark, self.out):
                raise ConfigError(f"--out {self.out} exists already: name another place")

    def write(self, rows: Sequence[Row], grid: Sequence[Cell], runner: SweepRunner) -> list[str]:
        """Write the files that were asked for; a line about each."""
        lines = []
        if self.out is not None:
            if "://" in self.out and runner.spark is not None:
                from penstock.lab.experiments.on_spark import frame

                frame(runner.spark, rows).coalesce(1).write.parquet(self.out)
            else:
                write_table(Path(self.out), Row, rows)
            lines.append(f"{self.out}  ({counted(len(rows), 'row')})")
        if self.html is not None:
            from penstock.cli.views.comparison_page import comparison_page

            table, goal = tournament.standings(rows), grid[0].goal
            notes = [f"{title}: {setup(grid, *key)}" for key, title in loads(rows).items()]
            notes += explained(goal, regret=any(row.regret is not None for row in rows))
            write_whole(self.html, [comparison_page(table, goal, notes).encode()])
            lines.append(file_size(self.html))
        return lines


def compare(
    *,
    policy: Annotated[Listed, about("compare.policy")] = None,
    grid: GridOptions | None = None,
    vary: Annotated[Listed, about("compare.vary")] = None,
    options: RunOptions | None = None,
    execution: ExecutionOptions | None = None,
    no_regret: Annotated[bool, about("compare.no_regret")] = False,
    output: ComparisonOutput | None = None,
) -> int:
    """Rank policies over workloads, engines and seeds by what they cost."""
    grid, options = grid or GridOptions(), options or RunOptions()
    execution, output = execution or ExecutionOptions(), output or ComparisonOutput()
    output.check(execution)
    settings = options.settings()
    runs = tournament.cells(
        tournament.varied(listed(policy or list(POLICIES)), choices(vary or ())),
        grid.workloads(),
        grid.engines(),
        grid.seed_numbers(),
        goal=settings.goal,
        bounds=bounds_of(settings),
        duration_s=options.duration,
        start_executors=options.start,
        faults=options.faults(),
    )
    check_runs(runs)
    if not no_regret or any(run.policy == ORACLE for run in runs):
        check_oracle(runs)
    with execution.runner() as runner:
        output.check_on_spark(runner)
        play = partial(runner.run, "comparing")
        rows = play(runs) if no_regret else tournament.judged_by_oracle(runs, play)
        written = output.write(rows, runs, runner)
    if output.json:
        print_json(rows)
    else:
        _print_ranking(rows, runs)
        for line in written:
            console().print(line)
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


def loads(rows: Sequence[Row]) -> dict[tuple[str, str], str]:
    """The loads and engines of the comparison, each with its title."""
    keys = dict.fromkeys((row.workload, row.engine) for row in rows)
    return {(load, engine): f"{load} on {engine}" for load, engine in keys}


def setup(grid: Sequence[Cell], load: str, engine: str) -> str:
    """How long, how large and with which seeds the runs of a load were."""
    own = [one for one in grid if (one.scenario.workload, one.scenario.engine) == (load, engine)]
    seeds = list(dict.fromkeys(cell.scenario.seed for cell in own))
    least, most = own[0].bounds["min_executors"], own[0].bounds["max_executors"]
    length = duration(own[0].scenario.length_s())
    return f"{length}, {least} to {most} executors, {seeds_text(seeds)}"


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as they are written on the command line.

    >>> seeds_text([7]), seeds_text([1, 2, 3]), seeds_text([1, 5])
    ('seed 7', 'seeds 1..3', 'seeds 1, 5')
    """
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]}..{seeds[-1]}"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _print_ranking(rows: Sequence[Row], grid: Sequence[Cell]) -> None:
    screen, goal, table = console(), grid[0].goal, tournament.standings(rows)
    for key, title in loads(rows).items():
        screen.print(title, style="bold italic", end="")
        screen.print(f": {setup(grid, *key)}", style="dim")
        group = [s for s in table if (s.workload, s.engine) == key]
        screen.print(*ranking(group, goal, screen.width), sep="\n")
        screen.print()
    for line in explained(goal, regret=any(row.regret is not None for row in rows)):
        screen.print(line, style="dim")
    if len(loads(rows)) > 1:
        wins = ", ".join(f"{name} {count}" for name, count in tournament.wins(table))
        screen.print(f"won: {wins}")


def explained(goal: Goal, *, regret: bool) -> list[str]:
    """What the numbers mean, with the prices that were used."""
    terms = (
        f"executor-hours x {goal.executor_price:g}",
        f"late fraction x {goal.late_price:g} x the full fleet's hours",
        f"moved executors x {goal.move_price:.4g}",
    )
    scored = f"the first {duration(goal.warmup_s)} are not scored"
    lines = [f"cost = {' + '.join(terms)}; {scored}"]
    if regret:
        lines.append("regret = cost / cost of an oracle that knows what comes - 1")
    return lines
