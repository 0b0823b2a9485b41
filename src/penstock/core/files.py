"""Files that are there as a whole or not at all, and files of JSON lines that are appended to.

A crash tears at most the last line, which is dropped with a warning. Files are not created through
links that others may have put in their place.
"""

import errno
import fcntl
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from penstock.core.errors import ConfigError

Value = TypeVar("Value")

#: A longer line is not one of ours: a step with a thousand executors has a quarter of a megabyte.
MOST_LINE_BYTES = 4 * 1024 * 1024
#: What JSON that is not of its type makes the decoder raise.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@contextmanager
def file_errors(what: str) -> Iterator[None]:
    """Errors of the file system as a `ConfigError`: what failed, and why.

    >>> with file_errors("cannot read load.csv"):
    ...     Path("no-such-folder", "load.csv").read_bytes()
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: cannot read load.csv: No such file or directory
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what}: {error.strerror}") from error


def check_place(path: Path) -> None:
    """Refuse before hours of work what could not be written after them."""
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {path}: {path.parent} is not a folder")
    beside = path.with_name(path.name + ".partial")
    with file_errors(f"cannot write {path}"):
        beside.unlink(missing_ok=True)
        beside.open("xb").close()
        beside.unlink()


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
        with file_errors(f"cannot write {path}"):
            partial.unlink(missing_ok=True)
            with partial.open("xb") as file:  # never through a link
                file.writelines(pieces)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def open_locked(path: Path) -> FileIO:
    """Open a file to append to, for one writer at a time; the lock goes with the process."""
    if path.is_symlink() and path.parent.stat().st_mode & stat.S_IWOTH:
        raise OSError(errno.ELOOP, "it is a link in a directory that everybody may write to")
    file = FileIO(path, "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise OSError(error.errno, "another process or attachment writes to it") from None
    except OSError:
        pass  # a file system without locks
    return file


class TornLineWarning(UserWarning):
    """A line of a file was not written to its end, or is damaged."""


def decode_lines(
    path: Path,
    lines: Iterable[tuple[int, bytes]],
    decode: Callable[[bytes], Value],
    what: str = "valid",
    *,
    skip_damaged: bool = False,
) -> Iterator[Value]:
    """The values of numbered lines of `path`; one that is not `what` is an error, or left out."""
    for number, line in lines:
        if len(line) > MOST_LINE_BYTES:
            raise ConfigError(f"line {number} of {path} has over {MOST_LINE_BYTES >> 20} MiB")
        try:
            yield decode(line)
        except UNREADABLE as error:
            if not line.endswith(b"\n"):
                text = f"the last line of {path} ({number}) is torn and was dropped"
                warnings.warn(TornLineWarning(text), stacklevel=2)
                return
            text = f"line {number} of {path} is not {what}: {error}"
            if not skip_damaged:
                raise ConfigError(text) from error
            warnings.warn(TornLineWarning(text), stacklevel=2)


def numbered_lines(file: BinaryIO, start: int = 1) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers; of one that is too long only the beginning."""
    return enumerate(iter(lambda: file.readline(MOST_LINE_BYTES + 1), b""), start=start)


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
