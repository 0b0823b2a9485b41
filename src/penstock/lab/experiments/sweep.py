"""A grid of runs, wherever they are carried out, that goes on where it was interrupted.

A finished run is kept in a file as one line: a digest of all that its numbers depend on, and its
row. Whoever asks for the same run again, here or on a cluster, is given the row that is there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

import penstock
from penstock.core.errors import ConfigError
from penstock.lab.experiments.spread import Progress
from penstock.lab.experiments.tournament import Cell, Row, play
from penstock.simulation.workloads.expressions import parse_workload
from penstock.simulation.workloads.recorded import Trace

FORMAT = "penstock-cells"
VERSION = 1

#: What carries runs out or shows them, and has no say in their numbers.
AROUND = ("cli", "live_comparison", "observe", "spark", "studies", "testbed")

Arrived = Callable[[int, Row], None]


class Spread(Protocol):
    """Does the work on all cells, in any order and place, and hands over each row as it comes."""

    def __call__(
        self, work: Callable[[Cell], Row], cells: Sequence[Cell], arrived: Arrived, /
    ) -> object: ...


class SweepHeader(Struct, frozen=True):
    """The first line of the file."""

    format: str
    version: int


class Finished(Struct, frozen=True):
    """Any other line: a run that is done."""

    key: str
    row: Row


class Kept:
    """The finished runs in a file; used by one sweep at a time.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> row = Row("hpa", "sine", "micro-batch", 1, 9.5, 1.9, 2.0, 3.0, 4.0, 0.0, 3, 4, 9.6)
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory, "cells.jsonl")
    ...     with Kept(path) as kept:
    ...         kept.keep("a1", row)
    ...     with Kept(path) as again:
    ...         again.rows == {"a1": row}
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise ConfigError(f"cannot keep finished runs in {path}: {error.strerror}") from error
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep(self, key: str, row: Row) -> None:
        self.rows[key] = row
        self._write(Finished(key, row))

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not a Unix: two sweeps at once are the user's own affair
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{self.path} is in use by another sweep") from None

    def _read(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if content and not lines:
            raise self._refusal()
        # A line that was being written when the sweep was killed is cut off.
        self._file.truncate(len(whole))
        if not lines:
            self._write(SweepHeader(FORMAT, VERSION))
            return
        try:
            header = msgspec.json.decode(lines[0], type=SweepHeader)
            if header != SweepHeader(FORMAT, VERSION):
                raise self._refusal()
            for line in lines[1:]:
                done = msgspec.json.decode(line, type=Finished)
                self.rows[done.key] = done.row
        except msgspec.DecodeError:
            raise self._refusal() from None

    def _refusal(self) -> ConfigError:
        return ConfigError(
            f"{self.path} does not hold finished runs of this version of Penstock: "
            "name a new file, or one that --resume wrote"
        )

    def _write(self, line: Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def sweep(
    grid: Sequence[Cell],
    spread: Spread,
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """The rows of all cells in the order of the grid; only what is not kept is carried out."""
    keys = [digest(cell) for cell in grid]
    rows = {} if kept is None else {key: kept.rows[key] for key in keys if key in kept.rows}
    missing = {key: cell for key, cell in zip(keys, grid, strict=True) if key not in rows}
    names = list(missing)

    def tell() -> None:
        if progress is not None:
            progress(sum(key in rows for key in keys))

    def arrived(place: int, row: Row) -> None:
        if names[place] in rows:
            return  # a cluster may deliver twice what it ran twice
        rows[names[place]] = row
        if kept is not None:
            kept.keep(names[place], row)
        tell()

    tell()
    if missing:
        spread(play, list(missing.values()), arrived)
    return [rows[key] for key in keys]


def digest(cell: Cell) -> str:
    """A name for all that the numbers of a cell depend on: itself, its traces, and our code."""
    whole = hashlib.sha256(code_digest().encode())
    whole.update(repr(cell).encode())
    for file in trace_files(cell.scenario.workload):
        whole.update(_file_digest(file, _stamp(file)).encode())
    return whole.hexdigest()[:32]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Of the source of everything that has a say in the numbers."""
    root = Path(penstock.__file__).parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if not set(path.relative_to(root).parts) & set(AROUND):
            whole.update(path.relative_to(root).as_posix().encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()


@lru_cache(maxsize=256)
def trace_files(workload: str) -> tuple[str, ...]:
    """The files that a workload reads, each once.

    >>> trace_files("sine + trace:load.csv,hours=2 then trace:./b.csv")
    ('load.csv', './b.csv')
    """
    return tuple(dict.fromkeys(_files(parse_workload(workload))))


def _files(part: Any) -> Iterator[str]:
    if isinstance(part, Trace):
        yield part.file
    elif isinstance(part, tuple):
        for each in part:
            yield from _files(each)
    elif isinstance(part, Struct):
        for name in part.__struct_fields__:
            yield from _files(getattr(part, name))


def _stamp(file: str) -> tuple[int, int]:
    stamp = Path(file).stat()
    return stamp.st_mtime_ns, stamp.st_size


@lru_cache(maxsize=256)
def _file_digest(file: str, stamp: tuple[int, int]) -> str:  # noqa: ARG001
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
