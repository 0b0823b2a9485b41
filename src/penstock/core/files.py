"""Files that are there as a whole or not at all, and files of JSON lines that are appended to.

A line is written whole, so a crash loses at most the line that was being written: a torn last
line is dropped with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.core.errors import ConfigError

Value = TypeVar("Value")


def check_place(path: Path) -> None:
    """Refuse before hours of work what could not be written after them."""
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {path}: {path.parent} is not a folder")
    beside = path.with_name(path.name + ".partial")
    try:
        beside.open("ab").close()
        beside.unlink()
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Written beside its place and moved there when it is complete; an older file is replaced.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     write_whole(Path(directory, "load.csv"), [b"at_s,rate\\n", b"0,500\\n"])
    ...     [(file.name, file.read_bytes()) for file in Path(directory).iterdir()]
    [('load.csv', b'at_s,rate\\n0,500\\n')]
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.writelines(pieces)
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


class TornLineWarning(UserWarning):
    """The last line of a file was not written to its end."""


def decode_lines(
    path: Path,
    lines: Iterable[tuple[int, bytes]],
    decode: Callable[[bytes], Value],
    what: str = "valid",
) -> Iterator[Value]:
    """The values of numbered lines of `path`; `what` says in an error what a line should be."""
    for number, line in lines:
        try:
            yield decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if not line.endswith(b"\n"):
                text = f"the last line of {path} ({number}) is torn and was dropped"
                warnings.warn(TornLineWarning(text), stacklevel=2)
                return
            raise ConfigError(f"line {number} of {path} is not {what}: {error}") from error


def cut_torn_line(path: Path) -> None:
    """Shorten the file to its last whole line, so that what is appended starts a new one."""
    if not (end := path.stat().st_size):
        return
    with path.open("rb+") as file:
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        if whole < end:
            text = f"the last line of {path} is torn and was cut"
            warnings.warn(TornLineWarning(text), stacklevel=3)
            file.truncate(whole)
