"""A grid of runs, on this machine or a cluster, that can be resumed after an interruption.

A finished run is one line of a file: a digest of all that its numbers depend on, and its row. The
same run is not made again; its row is read from the file.

The rows of a grid can be written as a table, for notebooks: CSV or Parquet, by the file's name.
Numbers are written so that they read back as they were, to the last bit. Parquet needs the extra
`lab`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar, get_args

import msgspec
from msgspec import Struct

import penstock
from penstock.core import files
from penstock.core.errors import ConfigError
from penstock.lab.experiments import lab_module
from penstock.lab.experiments.process_pool import Progress
from penstock.lab.experiments.tournament import Cell, Row, play
from penstock.simulation.workloads.expressions import parse_workload, traces_in

HEADER = b'{"format":"penstock-cells","version":1}\n'  #: The first line of a file of finished runs.

#: Packages that run cells or show their rows, and do not influence the numbers.
NO_INFLUENCE = ("cli", "live_comparison", "observe", "spark", "studies", "testbed")

OnRow = Callable[[int, Row], None]  #: Called with the position of a cell and its row.


#: Runs all cells, in any order and place, and hands over each row as it is ready.
CellRunner = Callable[[Callable[[Cell], Row], Sequence[Cell], OnRow], object]
SUFFIXES = (".csv", ".parquet")  #: Of a table.


Kept = TypeVar("Kept")


class Finished(Struct, Generic[Kept], frozen=True):
    """Any line but the first: a run that is done."""

    key: str
    row: Kept


class ResumeFile(Generic[Kept]):
    """The finished runs in a file; used by one sweep at a time.

    >>> from tempfile import TemporaryDirectory
    >>> row = Row("hpa", "sine", "micro-batch", 1, 9.5, 1.9, 2.0, 3.0, 4.0, 0.0, 3, 4, 9.6)
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory, "cells.jsonl")
    ...     with ResumeFile(path, Row) as finished:
    ...         finished.add("a1", row)
    ...     with ResumeFile(path, Row) as again:
    ...         again.rows == {"a1": row}
    True
    """

    def __init__(self, path: Path, kind: type[Kept]) -> None:
        self.path = path
        self.rows: dict[str, Kept] = {}
        self._decode = msgspec.json.Decoder(Finished[kind]).decode  # type: ignore[valid-type]
        with files.file_errors(f"cannot keep finished runs in {path}"):
            self._file = files.open_locked(path)
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ResumeFile[Kept]:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, key: str, row: Kept) -> None:
        self.rows[key] = row
        self._write(msgspec.json.encode(Finished(key, row)) + b"\n")

    def _read(self) -> None:
        if self.path.stat().st_size == 0:
            self._write(HEADER)
            return
        with self.path.open("rb") as file:
            if file.readline() != HEADER:
                raise ConfigError(
                    f"{self.path} does not hold finished runs of this version of Penstock: "
                    "name a new file, or one that --resume wrote"
                )
        files.cut_torn_line(self.path)
        with self.path.open("rb") as file:
            lines = islice(enumerate(file, start=1), 1, None)
            for done in files.decode_lines(self.path, lines, self._decode, "a finished run"):
                self.rows[done.key] = done.row

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        os.fsync(self._file.fileno())


def sweep(
    grid: Sequence[Cell],
    run_cells: CellRunner,
    finished: ResumeFile[Row] | None = None,
    progress: Progress = lambda _: None,
) -> list[Row]:
    """The rows of all cells in the order of the grid; only unfinished ones are run."""
    keys = [digest(cell) for cell in grid]
    known = {} if finished is None else finished.rows
    rows = {key: known[key] for key in keys if key in known}
    missing = {key: cell for key, cell in zip(keys, grid, strict=True) if key not in rows}
    names = list(missing)

    def report_progress() -> None:
        progress(sum(key in rows for key in keys))

    def on_row(position: int, row: Row) -> None:
        if names[position] in rows:
            return  # a cluster may deliver twice what it ran twice
        rows[names[position]] = row
        if finished is not None:
            finished.add(names[position], row)
        report_progress()

    report_progress()
    if missing:
        run_cells(play, list(missing.values()), on_row)
    return [rows[key] for key in keys]


def digest(cell: Cell) -> str:
    """A name for all that the numbers of a cell depend on: itself, its traces, and our code."""
    whole = hashlib.sha256(code_digest().encode())
    whole.update(repr(cell).encode())
    for file in trace_files(cell.scenario.workload):
        stamp = Path(file).stat()
        whole.update(_file_digest(file, stamp.st_mtime_ns, stamp.st_size).encode())
    return whole.hexdigest()[:32]


@lru_cache(maxsize=2)
def code_digest(without: tuple[str, ...] = NO_INFLUENCE) -> str:
    """A digest of all files that influence the numbers; what prose says does not."""
    whole = hashlib.sha256()
    for within, path in influential_files(without):
        if path.suffix != ".md":
            whole.update(within.as_posix().encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()


def influential_files(
    without: Sequence[str] = NO_INFLUENCE,
) -> Iterator[tuple[Path, Path]]:
    """The sources and recorded loads that numbers depend on: each inside its package, and where."""
    root = Path(penstock.__file__).parent
    data = ("simulation/**/*.json", "simulation/**/*.toml", "studies/*.md", "studies/data/*.json")
    patterns = ("*.py", *data)
    for path in sorted(path for pattern in patterns for path in root.rglob(pattern)):
        within = path.relative_to(root.parent)
        if not set(within.parts) & set(without):
            yield within, path


@lru_cache(maxsize=256)
def trace_files(workload: str) -> tuple[str, ...]:
    """The files that a workload reads, each once.

    >>> trace_files("sine + trace:load.csv,hours=2 then trace:./b.csv")
    ('load.csv', './b.csv')
    """
    return tuple(dict.fromkeys(trace.file for trace in traces_in(parse_workload(workload))))


@lru_cache(maxsize=256)
def _file_digest(file: str, changed_ns: int, size: int) -> str:  # noqa: ARG001
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def columns(kind: type[Struct]) -> dict[str, type]:
    """The columns of a kind of row: text, whole numbers and numbers; any number may be absent.

    >>> class Run(Struct):
    ...     policy: str
    ...     moves: int
    ...     regret: float | None = None
    >>> columns(Run)
    {'policy': <class 'str'>, 'moves': <class 'int'>, 'regret': <class 'float'>}
    """
    return {
        field.name: next(iter(get_args(field.type)), field.type)
        for field in msgspec.structs.fields(kind)
    }


def check_table(path: Path) -> None:
    """Refuse before the first run what could not be written after the last."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--out must end in {' or '.join(SUFFIXES)}, not '{path}'")
    if path.suffix == ".parquet":
        lab_module("pyarrow.parquet", f"--out {path}")
    files.check_place(path)


def write_table(path: Path, kind: type[Struct], rows: Sequence[Struct]) -> None:
    """The whole table or nothing."""
    check_table(path)
    files.write_whole(
        path, [as_csv(kind, rows) if path.suffix == ".csv" else as_parquet(kind, rows)]
    )


def as_csv(kind: type[Struct], rows: Sequence[Struct]) -> bytes:
    """A header and a line per row; what is absent is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns(kind))
    writer.writerows(msgspec.structs.astuple(row) for row in rows)
    return text.getvalue().encode()


def as_parquet(kind: type[Struct], rows: Sequence[Struct]) -> bytes:
    arrow, parquet = (lab_module(name, "Parquet") for name in ("pyarrow", "pyarrow.parquet"))
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, types[of]) for name, of in columns(kind).items()])
    table = arrow.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema)
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()
