"""Rows as a table in a file, for notebooks: CSV or Parquet, by the file's name.

Numbers are written so that they read back as they were, to the last bit. Parquet needs the extra
`lab`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.files import check_place, write_whole
from penstock.lab.experiments import lab_module

SUFFIXES = (".csv", ".parquet")


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
    check_place(path)


def write_table(path: Path, kind: type[Struct], rows: Sequence[Struct]) -> None:
    """The whole table or nothing."""
    check_table(path)
    write_whole(path, [as_csv(kind, rows) if path.suffix == ".csv" else as_parquet(kind, rows)])


def as_csv(kind: type[Struct], rows: Sequence[Struct]) -> bytes:
    """A header and a line per row; what is absent is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns(kind))
    writer.writerows(msgspec.structs.astuple(row) for row in rows)
    return text.getvalue().encode()


def as_parquet(kind: type[Struct], rows: Sequence[Struct]) -> bytes:
    """The same table as a Parquet file."""
    arrow, parquet = (lab_module(name, "Parquet") for name in ("pyarrow", "pyarrow.parquet"))
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, types[of]) for name, of in columns(kind).items()])
    table = arrow.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema)
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()
