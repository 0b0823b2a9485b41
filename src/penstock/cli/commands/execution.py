"""Where the runs of a sweep are carried out, and where those that are done are kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.core.errors import ConfigError
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.sweep import CellRunner, ResumeFile, sweep
from penstock.lab.experiments.tournament import Cell, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@Parameter(name="*")
@dataclass(frozen=True)
class ExecutionOptions:
    """How a sweep is carried out.

    Parameters
    ----------
    on
        local: in processes of this machine; spark: as a Spark job, one task per run.
    master
        The cluster for --on spark, e.g. spark://host:7077; without it, that of your
        spark-defaults.conf or else this machine.
    processes
        How many at once on this machine; one per core without it.
    resume
        A file that keeps each run as it ends; the same command goes on from there.
    """

    on: Literal["local", "spark"] = "local"
    master: str | None = None
    processes: int | None = None
    resume: Path | None = None

    def check(self) -> None:
        """Find what does not go together."""
        if self.master is not None and self.on != "spark":
            raise ConfigError("--master names a Spark cluster: it goes with --on spark")
        if self.processes is not None and self.on == "spark":
            raise ConfigError("--processes is for runs on this machine: it does not go with spark")
        if self.processes is not None and self.processes < 1:
            raise ConfigError(f"--processes must be at least 1, not {self.processes}")

    @contextmanager
    def stage(self) -> Iterator[SweepRunner]:
        """All that is needed for as long as the sweep lasts."""
        self.check()
        with ExitStack() as stack:
            kept = None if self.resume is None else stack.enter_context(ResumeFile(self.resume))
            if self.on == "local":
                yield SweepRunner(partial(_here, self.processes), kept)
                return
            from penstock.lab.experiments.on_spark import on_spark, session

            with Console(stderr=True).status("starting Spark"):
                spark = stack.enter_context(session(self.master))
                carrier = on_spark(spark)
            yield SweepRunner(carrier, kept, spark)


@dataclass(frozen=True)
class SweepRunner:
    """A place where sweeps are carried out."""

    carrier: CellRunner
    kept: ResumeFile | None = None
    spark: SparkSession | None = None

    def play(self, word: str, cells: Sequence[Cell]) -> list[Row]:
        """The rows of the cells, with a bar that counts them."""
        bar = Progress(
            TextColumn(word),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        done = 0
        task = bar.add_task(word, total=len(cells))

        def tell(count: int) -> None:
            nonlocal done
            done = count
            bar.update(task, completed=count)

        try:
            with bar:
                return sweep(cells, self.carrier, self.kept, tell)
        except KeyboardInterrupt:
            self._tell_what_is_left(done, len(cells))
            raise

    def _tell_what_is_left(self, done: int, count: int) -> None:
        if self.kept is None:
            text = f"{done} of {count} runs were done; --resume FILE would have kept them"
        else:
            text = f"{done} of {count} runs are kept in {self.kept.path}: the same command goes on"
        Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def _here(processes: int | None, work: Any, cells: Sequence[Cell], arrived: Any) -> object:
    return run_in_processes(work, cells, processes, on_result=arrived)
