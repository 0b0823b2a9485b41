"""The one file format: a `JournalHeader`, then a JSON line per turn of the loop, append-only.

Recording, audit log, dashboard feed and lab input are the same file, and the only state: a
restarted controller reads its last steps and continues.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.core import files
from penstock.core.errors import ConfigError
from penstock.core.knowledge import HISTORY_SNAPSHOTS
from penstock.core.model import Limits, Step

FORMAT = "penstock-journal"
VERSION = 1
#: The files that a store has of one application; together they are one journal.
PART = re.compile(r"\d{8}T\d{6}-\d{4}(-\d{12})?\.jsonl")
#: How much of a journal is read at a restart: all that counts of a usual one, and the last hour of
#: one with a thousand executors, which would take gigabytes of memory otherwise.
TAIL_BYTES = 32 * 1024 * 1024
_FIRST_WORDS = f'{{"format":"{FORMAT}"'.encode()

#: How much is forced to disk, not only to the operating system: each line, or those of a rescale.
Fsync = Literal["always", "rescale", "never"]

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Step).decode
#: The parts of a snapshot that are written by column, and how such a line is recognized.
_COLUMNS = "executors", "operators", "topics"
_BY_COLUMN = tuple(f'"{name}":{{'.encode() for name in _COLUMNS)


def encode_step(step: Step) -> bytes:
    """A step as a line. Samples are written by column, so that their fields are named once.

    >>> from penstock.core.model import Decision, ExecutorSample, Fleet, Reason, Snapshot
    >>> both = ExecutorSample("1", 5.0, cpu_fraction=0.5), ExecutorSample("2", 6.0)
    >>> step = Step(
    ...     9.0, Snapshot(9.0, Fleet(2, 2, 2), executors=both), Decision.of(2, Reason("", "")))
    >>> line = encode_step(step)
    >>> line[line.index(b'"executors"') :][:79]
    b'"executors":{"id":["1","2"],"started_at_s":[5.0,6.0],"cpu_fraction":[0.5,null]}'
    >>> decode_step(line) == step
    True
    """
    if step.snapshot is None:
        return _encode(step)
    plain = msgspec.to_builtins(step)
    for name in _COLUMNS:
        if rows := plain["snapshot"].get(name):
            names = dict.fromkeys(key for row in rows for key in row)
            plain["snapshot"][name] = {key: [row.get(key) for row in rows] for key in names}
    return _encode(plain)


def decode_step(line: bytes) -> Step:
    """A line as a step; lines of earlier versions have a mapping for each sample."""
    if not any(mark in line for mark in _BY_COLUMN):
        return _decode(line)
    plain = msgspec.json.decode(line)
    try:
        for name in _COLUMNS:
            if isinstance(columns := plain["snapshot"].get(name), dict):
                rows = (
                    zip(columns, row, strict=True) for row in zip(*columns.values(), strict=True)
                )
                plain["snapshot"][name] = [
                    {key: value for key, value in row if value is not None} for row in rows
                ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise msgspec.ValidationError(f"no columns of samples: {error}") from error
    return msgspec.convert(plain, Step)


class JournalHeader(Struct, frozen=True, omit_defaults=True):
    """The first line of a journal: what the file is, and what a replay of it needs.

    It is true of every step in its file. Journals of Penstock 0.1 have only `run`.
    """

    format: str  #: What the file is.
    version: int  #: Of the format.
    run: dict[str, str] = {}  #: For people: the policy as the user wrote it, workload, engine, ...
    penstock: str = ""  #: The version of Penstock that wrote the file.
    policy: str = ""  #: The text that reads back to the policy that decided, or its class.
    limits: dict[str, Any] = {}  #: What the guards enforced, field by field.
    goal: dict[str, Any] = {}  #: What was asked of the run, field by field.

    @classmethod
    def of(
        cls,
        run: dict[str, str] | None = None,
        *,
        policy: str = "",
        limits: Limits | None = None,
        goal: dict[str, Any] | None = None,
    ) -> JournalHeader:
        """The header of a file that this Penstock writes."""
        fields = {} if limits is None else msgspec.structs.asdict(limits)
        if limits is not None:
            fields["schedule"] = [msgspec.to_builtins(one) for one in limits.schedule]
        for name, value in fields.items():
            if value == float("inf"):  # JSON has no infinity; no measurement is that old either
                fields[name] = sys.float_info.max
        return cls(FORMAT, VERSION, run or {}, _version(), policy, fields, goal or {})


@lru_cache(maxsize=1)
def _version() -> str:
    """The version that is installed; empty where Penstock runs from its sources alone."""
    from importlib import metadata  # takes longer to load than all the rest of this module

    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:
        return ""


class MemoryJournal:
    """Steps in a list, for simulations and tests."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def write(self, step: Step) -> None:
        self.steps.append(step)


class FileJournal:
    """Steps in a file of bounded size.

    An existing journal is continued, its torn last line cut off first. When the file passes
    `max_bytes` it becomes ``NAME.1`` (and that ``NAME.2``, up to `keep`) and a new one begins.
    So it does when the `header` differs from that of the existing file: with another policy,
    other limits or another goal it would not be true of the steps to come.

    A write that fails is an `OSError` and leaves no torn line; the next opens the file again, also
    where it was removed or replaced. A second writer is refused.

    >>> from tempfile import TemporaryDirectory
    >>> from penstock.core.model import Decision, Reason
    >>> step = Step(0.0, None, Decision.of(3, Reason("sensor_blind", "holding: no answer")))
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory, "run.jsonl")
    ...     with FileJournal(path, JournalHeader.of({"policy": "hpa"})) as journal:
    ...         journal.write(step)
    ...     read_header(path).run, list(read_steps(path)) == [step]
    ({'policy': 'hpa'}, True)
    """

    def __init__(
        self,
        path: Path,
        header: JournalHeader | None = None,
        *,
        fsync: Fsync = "rescale",
        max_bytes: int = 64 * 1024 * 1024,
        keep: int = 4,
    ) -> None:
        self.path: Path = path
        self._fsync, self._max_bytes, self._keep = fsync, max_bytes, keep
        self._file: FileIO | None = None
        self.size: int = 0
        self.header: JournalHeader = header or (
            read_header(path) if _is_begun(path) else JournalHeader.of()
        )
        with files.file_errors(f"cannot write journal {path}"):
            self._open()

    def begin(self, header: JournalHeader, path: Path | None = None) -> None:
        """What is written from now on belongs to this header; if it is another, to a new file."""
        if header != self.header or path is not None:
            self.header, self.path = header, path or self.path
            self._release()

    def write(self, step: Step) -> None:
        try:
            file = self._open()
            if self.size >= self._max_bytes:
                file = self._rotate()
            self._append(file, encode_step(step))
            if self._fsync == "always" or (self._fsync == "rescale" and step.receipt is not None):
                os.fsync(file.fileno())
        except OSError:
            self._release()
            raise

    def close(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._release()

    def __enter__(self) -> FileJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> FileIO:
        """The file, ready for the next line: opened, its header written, if it is not."""
        if self._file is not None:
            path, own = self.path, os.fstat(self._file.fileno())
            is_there = path.exists() and os.path.samestat(own, path.stat())
            if not is_there or own.st_size != self.size:
                self._release()  # it was removed, replaced or cut
        if self._file is None:
            self._file = files.open_locked(self.path)
            self.size = self._file.seek(0, os.SEEK_END)
            try:
                return self._continue(self._file)
            except (OSError, ConfigError):
                self._release()
                raise
        return self._file

    def _continue(self, file: FileIO) -> FileIO:
        """Make what is there end with a whole line, below the header of this run."""
        if _is_begun(self.path):
            found = read_header(self.path)
            files.cut_torn_line(self.path)
            self.size = file.seek(0, os.SEEK_END)
            if found == self.header:
                return file
            if next(_lines(self.path), None) is not None:
                return self._rotate()
        if self.size:  # a file without a step is not worth keeping
            file.truncate(0)
            self.size = 0
        self._append(file, _encode(self.header))
        return file

    def _append(self, file: FileIO, line: bytes) -> None:
        # One call per line, so readers never see half of it; on a full disk the next says why.
        rest = line + b"\n"
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            with suppress(OSError):
                file.truncate(self.size)
            raise
        self.size += len(line) + 1

    def _rotate(self) -> FileIO:
        """Begin a new file. Who reads finds all steps at each moment, also if it ends here."""
        self._release()
        for number in range(self._keep, 0, -1):
            newer = _numbered(self.path, number - 1)
            if newer.exists():
                newer.replace(_numbered(self.path, number))
        self.path.unlink(missing_ok=True)  # where none is kept
        return self._open()

    def _release(self) -> None:
        file, self._file, self.size = self._file, None, 0
        if file is not None:
            with suppress(OSError):
                file.close()


class LiveJournal:
    """The journal of a live job, an audit file: a step that cannot be written is a warning."""

    def __init__(self, journal: FileJournal) -> None:
        self._journal, self._missing = journal, 0
        self.begin, self.close = journal.begin, journal.close

    def write(self, step: Step) -> None:
        try:
            self._journal.write(step)
        except (OSError, ConfigError) as error:
            if not self._missing:
                log.warning("the journal cannot be written, the job is scaled on: %s", error)
            self._missing += 1
            return
        if self._missing:
            log.info("the journal can be written again, without %d steps", self._missing)
        self._missing = 0


def read_header(path: Path) -> JournalHeader:
    """The first line of a journal, or one clear sentence about what the file is instead."""
    with files.file_errors(f"cannot read journal {path}"), path.open("rb") as file:
        first = file.readline(1 << 20)
    if not first:
        raise ConfigError(f"journal {path} is empty")
    try:
        header = msgspec.json.decode(first, type=JournalHeader)
    except files.UNREADABLE as error:
        raise ConfigError(
            f"{path} is not a Penstock journal: its first line is no header"
        ) from error
    if header.format != FORMAT:
        raise ConfigError(f"{path} is not a Penstock journal but '{header.format}'")
    if header.version != VERSION:
        raise ConfigError(
            f"journal {path} has version {header.version}, this Penstock reads version {VERSION}"
        )
    return header


def read_steps(path: Path) -> Iterator[Step]:
    yield from files.decode_lines(path, _lines(path), decode_step, "a step of a journal")


def read_rotated(path: Path) -> Iterator[Step]:
    """The steps of a journal and of the files that it was rotated into, oldest first."""
    for file in reversed(_files(path) or [path]):
        yield from read_steps(file)


def read_last_run(path: Path) -> tuple[list[Step], list[Step]]:
    """The steps under the newest header, and those before them that its controller knew of."""
    paths = _files(path) or [path]
    headers = [read_header(each) for each in paths]
    count = next((n for n, each in enumerate(headers) if each != headers[0]), len(paths))
    steps = [step for each in reversed(paths[:count]) for step in read_steps(each)]
    return list(_tail(paths[count:], HISTORY_SNAPSHOTS)), steps


def read_tail(path: Path, count: int = HISTORY_SNAPSHOTS) -> Iterator[Step]:
    """The last `count` steps, rotated files included, without damaged lines; none of no journal."""
    return _tail(_files(path), count)


def _tail(paths: Iterable[Path], count: int) -> Iterator[Step]:
    tails, left = [], TAIL_BYTES
    for file in paths:
        tail: deque[tuple[int, bytes]] = deque()
        is_cut = False
        for line in _lines(file):
            tail.append(line)
            left -= len(line[1])
            while len(tail) > count or (left < 0 and len(tail) > 1):
                left += len(tail.popleft()[1])
                is_cut = True
        tails.append((file, tail))
        count -= len(tail)
        if is_cut or count <= 0 or left <= 0:
            break
    for file, tail in reversed(tails):
        yield from files.decode_lines(file, tail, decode_step, "a step", skip_damaged=True)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file after its header, with their numbers."""
    read_header(path)
    with path.open("rb") as file:
        file.readline()
        yield from files.numbered_lines(file, start=2)


def _files(path: Path) -> list[Path]:
    """A journal and the files that it was rotated into, newest first; a rotation may have ended."""
    found, number = [path] if _is_begun(path) else [], 1
    while (older := _numbered(path, number)).exists() or _numbered(path, number + 1).exists():
        found += [older] if older.exists() else []
        number += 1
    return found


def _is_begun(path: Path) -> bool:
    """Whether a file has a first line; one that ends within its header has nothing to keep."""
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 20)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # whoever reads it is told why it cannot be
    return first.endswith(b"\n") or not _FIRST_WORDS.startswith(first[: len(_FIRST_WORDS)])


def write_all(path: Path, steps: Iterable[Step], header: JournalHeader | None = None) -> None:
    lines = chain([_encode(header or JournalHeader.of())], map(encode_step, steps))
    files.write_whole(path, (line + b"\n" for line in lines))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path
