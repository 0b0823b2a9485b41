"""Before and around simulated runs: what is checked first, where they run, and their progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.options import Master, Processes, about
from penstock.cli.output import console, note
from penstock.core.errors import ConfigError
from penstock.core.phrases import counted, duration
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.scenario import engine_named
from penstock.lab.experiments.sweep import CellRunner, ResumeFile, sweep
from penstock.lab.experiments.tournament import ORACLE, Cell, Row
from penstock.policies import DEFAULT_POLICY
from penstock.settings.notation import parse, written
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation import MAX_DURATION_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_RUNS = 100_000
#: The oracle keeps a table of all sizes at all times: megabytes per executor and hour, measured.
ORACLE_MB, MAX_ORACLE_MB = 1.1, 4000
#: Seconds of a core per simulated hour, measured: most policies, and those that plan ahead.
USUAL_S, PLANNING_S = 0.1, 1.0
ANNOUNCED_S = 120.0
#: Gigabytes of memory per simulated hour, measured.
RUN_GB, ANNOUNCED_GB = 0.0025, 1.0
PROGRESS_EVERY_S, BAR_EVERY_S = 5.0, 0.2


def check_runs(grid: Sequence[Cell]) -> None:
    """Find every mistake before the first run, and say what the runs do that nobody asked for."""
    if len(grid) > MAX_RUNS:
        raise ConfigError(f"{len(grid)} runs are too many at once: at most {MAX_RUNS}")
    for text in dict.fromkeys(cell.policy for cell in grid):
        if text != ORACLE:
            read_policy_spec(text, grid[0].bounds)
    for name in dict.fromkeys(cell.scenario.engine for cell in grid):
        engine_named(name)
    scenarios = {(cell.scenario.workload, cell.scenario.engine): cell.scenario for cell in grid}
    warmup_s = grid[0].goal.warmup_s
    for scenario in scenarios.values():
        if (length_s := scenario.length_s()) <= warmup_s:
            raise ConfigError(
                f"a run of {written(length_s, seconds=True)} is not longer than the warm-up of "
                f"{written(warmup_s, seconds=True)}: give a longer --duration or a shorter --warmup"
            )
        if length_s > MAX_DURATION_S:
            raise ConfigError(
                f"{scenario.workload} lasts {written(length_s, seconds=True)}, a run at most "
                f"{written(MAX_DURATION_S, seconds=True)}: give --duration"
            )
    for text in dict.fromkeys(line for each in scenarios.values() for line in each.notes()):
        note(text)


def check_oracle(grid: Sequence[Cell]) -> None:
    """Refuse an oracle that would not fit into memory."""
    longest_h = max(_hours(grid).values())
    most = grid[0].bounds["max_executors"]
    if (needed := ORACLE_MB * most * longest_h) > MAX_ORACLE_MB:
        raise ConfigError(
            f"the oracle of {longest_h:g} h with up to {most} executors needs about "
            f"{needed / 1e3:.0f} GB: give --no-regret, a shorter --duration or a smaller --max"
        )


def _hours(grid: Sequence[Cell]) -> dict[str, float]:
    scenarios = {cell.scenario.workload: cell.scenario for cell in grid}
    return {name: scenario.length_s() / 3600.0 for name, scenario in scenarios.items()}


def announce(grid: Sequence[Cell], processes: int) -> None:
    """Say on standard error how much time and memory the runs will take, if that is much."""
    lengths = _hours(grid)
    planning = (DEFAULT_POLICY, ORACLE)
    work_s = sum(
        lengths[cell.scenario.workload]
        * (PLANNING_S if parse(cell.policy).name in planning else USUAL_S)
        for cell in grid
    )
    processes = min(processes, len(grid))
    memory_gb, wall_s = RUN_GB * max(lengths.values()) * processes, work_s / processes
    if wall_s >= ANNOUNCED_S or memory_gb >= ANNOUNCED_GB:
        memory = f" and {memory_gb:.1f} GB of memory" if memory_gb >= ANNOUNCED_GB else ""
        note(f"{counted(len(grid), 'run')} will take about {duration(wall_s)}{memory}")


@contextmanager
def progress_lines(text: Callable[[], str]) -> Iterator[None]:
    """A line on standard error every few seconds if there is news, and every minute if not."""
    last, silent_s = "", 0.0

    def print_line() -> None:
        nonlocal last, silent_s
        silent_s += PROGRESS_EVERY_S
        if (line := text()) != last or silent_s >= 60.0:
            note(line)
            last, silent_s = line, 0.0

    with _repeated(print_line, PROGRESS_EVERY_S):
        yield


@contextmanager
def progress(title: str, what: str, count: Callable[[], tuple[int, int]]) -> Iterator[None]:
    """A bar with the time left, or lines where it cannot be drawn; `count` is how many of all."""
    if not sys.stderr.isatty():
        with progress_lines(lambda: "{}: {} of {} {} done".format(title, *count(), what)):
            yield
        return
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def update() -> None:
            done, total = count()
            bar.update(task, completed=done, total=total or None)

        with _repeated(update, BAR_EVERY_S):
            yield


@contextmanager
def _repeated(call: Callable[[], None], every_s: float) -> Iterator[None]:
    """Calls in a thread meanwhile; one that fails does not end what goes on."""
    ended = Event()

    def run() -> None:
        while not ended.wait(every_s):
            with suppress(Exception):
                call()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def check_where(on: str, master: str | None, processes: int | None) -> None:
    if master is not None and on != "spark":
        raise ConfigError("--master goes with --on spark")
    if processes is not None and on == "spark":
        raise ConfigError("--processes is for runs on this machine, not for --on spark")


@Parameter(name="*")
@dataclass(frozen=True)
class ExecutionOptions:
    """Where runs are made, and which file keeps those that are done."""

    on: Annotated[Literal["local", "spark"], about("on")] = "local"
    master: Master = None
    processes: Processes = None
    resume: Annotated[Path | None, about("resume")] = None

    @contextmanager
    def runner(self) -> Iterator[SweepRunner]:
        check_where(self.on, self.master, self.processes)
        with ExitStack() as stack:
            kept = (
                None if self.resume is None else stack.enter_context(ResumeFile(self.resume, Row))
            )
            if self.on == "local":
                yield SweepRunner(partial(_run_here, self.processes), kept, self.processes)
                return
            from penstock.lab.experiments.on_spark import SESSION_SETTINGS, on_spark
            from penstock.testbed.sessions import open_session

            with console(stderr=True).status("starting Spark"):
                spark = stack.enter_context(
                    open_session("penstock-sweep", self.master, SESSION_SETTINGS)
                )
                run_cells = on_spark(spark)
            yield SweepRunner(run_cells, kept, spark=spark)


@dataclass(frozen=True)
class SweepRunner:
    """Makes the runs of a grid, here or on a cluster, and shows how far it is."""

    run_cells: CellRunner
    kept: ResumeFile[Row] | None = None
    processes: int | None = None
    spark: SparkSession | None = None

    def run(self, title: str, cells: Sequence[Cell]) -> list[Row]:
        """The rows of the cells, with a bar that counts them, or lines where it cannot be drawn."""
        if self.spark is None and (self.kept is None or not self.kept.rows):
            announce(cells, self.processes or os.cpu_count() or 1)
        done = 0

        def update(count: int) -> None:
            nonlocal done
            done = count

        try:
            with progress(title, "runs", lambda: (done, len(cells))):
                return sweep(cells, self.run_cells, self.kept, update)
        except KeyboardInterrupt:
            where = "--resume FILE would have kept them"
            if self.kept is not None:
                where = f"kept in {self.kept.path}, the same command continues"
            note(f"{done} of {len(cells)} runs were done: {where}")
            raise


def _run_here(processes: int | None, work: Any, cells: Sequence[Cell], on_row: Any) -> object:
    return run_in_processes(work, cells, processes, on_result=on_row)
