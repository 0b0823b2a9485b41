"""Files that are there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.core.errors import ConfigError


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
