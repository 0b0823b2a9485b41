"""Where output goes: results to standard output, notes to standard error, never half a file."""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from penstock.core.errors import ConfigError
from penstock.core.files import check_place
from penstock.core.journal import read_header, read_rotated
from penstock.core.model import Step

PIPE_WIDTH = 200


def console(*, stderr: bool = False) -> Console:
    """A stream for people; wide enough for a whole row where it is a file or a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(highlight=False, markup=False, width=width, stderr=stderr)


def note(sentence: str) -> None:
    """One line on standard error: what the user should know and no program reads."""
    print(f"penstock: {sentence}", file=sys.stderr, flush=True)  # noqa: T201


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def read_journal_steps(path: Path) -> list[Step]:
    """The steps of a journal, also of the files that it was rotated into; at least one."""
    read_header(path)
    if steps := list(read_rotated(path)):
        return steps
    raise ConfigError(f"journal {path} has no decision")


def facts_table(facts: Mapping[str, str]) -> Table:
    """Names and values below each other."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def file_size(path: Path) -> str:
    """A file that was written, for people."""
    return f"{path}  ({path.stat().st_size / 1e3:.0f} kB)"


def check_new(path: Path, *, force: bool = False, advice: str = "name another file") -> None:
    """Refuse before the work what could not be written after it; replace a file only if forced."""
    if path.is_file() and not force:
        raise ConfigError(f"{path} exists already: {advice}")
    check_place(path)


def interrupt_on_sigterm() -> None:
    """End on SIGTERM as on Ctrl-C: what was started is ended, what was finished is kept."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
