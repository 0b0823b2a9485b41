"""Where output goes: a table for people, JSON for programs, never half a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from penstock.core.errors import ConfigError

PIPE_WIDTH = 200


def console() -> Console:
    """Standard output; wide enough for a whole row where it is a file or a pipe."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; what is there stays."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; remove it or name another place") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
