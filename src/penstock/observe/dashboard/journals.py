"""Journals as they grow: files, folders of them, and folders of parts as a store has them."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.journal import PART, JournalHeader, decode_step, read_header
from penstock.core.model import Step
from penstock.observe.dashboard.server import JobBoard
from penstock.observe.dashboard.state import KEPT_TURNS, WatchedJob
from penstock.settings.header import recorded_goal, recorded_limits

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
#: Of a long journal, the files that hold about this much are read at the start.
MOST_BYTES = 64 * 1024 * 1024
#: A file is known by so much of its beginning, which has the time of its first step.
HEAD_BYTES = 4096

_decode_header = msgspec.json.Decoder(JournalHeader).decode


class FilePart(Struct, frozen=True):
    """How far a file was read, how it begins, and what it was like then."""

    upto: int = 0
    head: bytes = b""
    size: int = 0
    changed_ns: int = 0


class FollowedJournal:
    """One journal: its file and those it was rotated into, or all parts in a folder."""

    def __init__(self, place: Path, job: WatchedJob) -> None:
        self.place, self.job = place, job
        self._read: dict[int, FilePart] = {}
        total = 0
        for file in reversed(self._files()):  # newest first: the oldest of many are left out
            known = file.stat()
            if total > MOST_BYTES:
                part = FilePart(known.st_size, b"", known.st_size, known.st_mtime_ns)
                self._read[known.st_ino] = part
            total += known.st_size

    def look(self) -> None:
        """Take over what was written since the last look."""
        for file in self._files():
            try:
                self._look_at(file)
            except FileNotFoundError:  # a rotation goes on
                continue

    def _files(self) -> list[Path]:
        """The files in the order in which they were written."""
        if self.place.is_dir():
            return sorted(each for each in self.place.iterdir() if PART.fullmatch(each.name))
        found, number = [self.place], 1
        while (older := self.place.with_name(f"{self.place.name}.{number}")).exists():
            found.append(older)
            number += 1
        return [file for file in reversed(found) if file.exists()]

    def _look_at(self, file: Path) -> None:
        known = file.stat()
        read = self._read.get(known.st_ino, FilePart())
        if read.size == known.st_size and read.changed_ns == known.st_mtime_ns:
            return
        with file.open("rb") as opened:
            head = opened.read(HEAD_BYTES)
            # A new file may have the inode of one that was removed.
            begin = read.upto if read.head and head.startswith(read.head) else 0
            opened.seek(begin)
            data = opened.read()
        whole = data[: data.rfind(b"\n") + 1]
        upto = begin + len(whole)
        self._read[known.st_ino] = FilePart(upto, head, known.st_size, known.st_mtime_ns)
        lines = whole.splitlines()
        if begin == 0 and lines:
            self._begin(lines.pop(0))
        steps = [step for line in lines[-KEPT_TURNS:] if (step := _step(line)) is not None]
        if begin == 0 and steps and steps[-1].at_s < self.job.last_at_s:
            self.job.forget()
        for step in steps:
            self.job.take(step)

    def _begin(self, line: bytes) -> None:
        """What the header says of the steps below it."""
        try:
            header = _decode_header(line)
            limits, goal = recorded_limits(header), recorded_goal(header)
        except (msgspec.MsgspecError, ConfigError):
            return
        self.job.policy = header.run.get("policy", header.policy)
        self.job.limits, self.job.goal = limits or self.job.limits, goal or self.job.goal


def _step(line: bytes) -> Step | None:
    """A line of a journal; a damaged one is left out."""
    try:
        return decode_step(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class JournalFollower:
    """Shows all journals of some places on a board, also those that begin later."""

    def __init__(self, places: Sequence[Path], board: JobBoard) -> None:
        self._places, self._board = places, board
        self._followed: dict[Path, FollowedJournal] = {}
        self._closing = threading.Event()
        for place in places:
            if not place.is_dir():
                read_header(place)  # what cannot be read is said before the page is there
                self._follow(place, place.name)
            else:
                try:
                    next(place.iterdir(), None)
                except OSError as error:
                    raise ConfigError(f"cannot read {place}: {error.strerror}") from None
        self.look()
        self._thread = threading.Thread(target=self._run, name="penstock-journals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5.0)

    def look(self) -> None:
        """Find new journals, and take over what is new in all of them."""
        for place in self._places:
            if place.is_dir():
                self._find(place)
        for each in self._followed.values():
            each.look()

    def _find(self, folder: Path) -> None:
        for file in sorted(folder.rglob("*.jsonl")):
            place = file.parent if PART.fullmatch(file.name) else file
            if place not in self._followed and _is_journal(file):
                own = place.relative_to(folder)
                self._follow(place, folder.name if own == Path() else str(own))

    def _follow(self, place: Path, name: str) -> None:
        if place in self._followed:
            return
        # Links have the key: it is the name, also when other journals have come before it.
        key = f"{name} ({len(self._followed)})" if self._board.find(name) else name
        job = WatchedJob(key, name)
        self._followed[place] = FollowedJournal(place, job)
        self._board.add(job)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception as error:  # a folder may be away for a while
                log.debug("the journals cannot be read now: %s", error)


def _is_journal(file: Path) -> bool:
    try:
        read_header(file)
    except ConfigError:
        return False
    return True
