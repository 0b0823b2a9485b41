"""A journal that outlives the driver and its disk: in any store that Hadoop has a file system for.

``s3a://bucket/jobs`` names a folder in which each application has one of its own name, with parts
that are journals of their own. These are written on the driver's disk, and a thread copies what is
new, so no decision waits for the store. Where the store can append, a part grows there; where not,
a longer copy of the part takes the place of the last.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from penstock.core.journal import PART, FileJournal, JournalHeader, LiveJournal, read_tail
from penstock.core.knowledge import HISTORY_SNAPSHOTS
from penstock.core.model import Step
from penstock.spark.internals import JVM_ERRORS, Driver, first_line

log = logging.getLogger(__name__)

#: Seconds between two copies: what is lost at most with the driver and its disk.
COPY_EVERY_S = 5.0
#: The size at which the next part begins; how many stay in the store, and wait for it on the disk.
PART_BYTES = 1024 * 1024
PARTS_KEPT = 128
PARTS_WAITING = 16
#: Seconds that a start waits for what the journal knows, and a stop for its end to be copied.
RECALL_S = 2.0
STOP_S = 5.0


class StoreFolder:
    """The parts of one application in a store. Each call may fail, and may take long."""

    def __init__(self, driver: Driver, uri: str, application: str = "") -> None:
        hadoop: Any = driver.jvm.org.apache.hadoop
        self._path, self._copy_all = hadoop.fs.Path, hadoop.io.IOUtils.copyBytes
        self._open: Any = driver.jvm.java.io.FileInputStream
        name = re.sub(r"[^\w-]+", "_", application or driver.conf("spark.app.name"))
        self._folder = self._path(f"{uri.rstrip('/')}/{name}")
        self._files = self._folder.getFileSystem(driver.context.hadoopConfiguration())
        self._files.mkdirs(self._folder)
        append = "fs.capability.paths.append"
        self._can_append = bool(self._files.hasPathCapability(self._folder, append))

    def names(self) -> list[str]:
        return [str(each.getPath().getName()) for each in self._files.listStatus(self._folder)]

    def fetch(self, name: str, to: Path) -> None:
        self._files.copyToLocalFile(False, self._at(name), self._path(to.as_uri()), True)

    def copy(self, part: Path, begin: int) -> int:
        """Copy what came since `begin`; returns the size of the part in the store then."""
        at = self._at(f"{part.stem}-{0:012d}.jsonl")
        if self._can_append:
            try:
                return self._send(part, begin, at)
            except JVM_ERRORS:  # HDFS with fewer nodes than replicas cannot, and says so now
                if not begin:
                    raise
                self._can_append = False
        size = self._send(part, 0, new := self._at(f"{part.stem}-new.jsonl"))
        if not self._files.rename(new, self._at(f"{part.stem}-{size:012d}.jsonl")):
            raise OSError("a part cannot be renamed")
        self.delete(f"{part.stem}-{begin:012d}.jsonl")
        return size

    def _send(self, part: Path, begin: int, at: Any) -> int:
        sink = self._files.append(at) if begin else self._files.create(at, True)
        source = self._open(str(part))
        source.skip(begin)
        self._copy_all(source, sink, 65536, True)
        return int(self._files.getFileStatus(at).getLen())

    def delete(self, name: str) -> None:
        self._files.delete(self._at(name), False)

    def _at(self, name: str) -> Any:
        return self._path(self._folder, name)


class StoreJournal:
    """Keeps the steps of a live job in a store; `recall` gives those that it has already."""

    def __init__(
        self, uri: str, open_store: Callable[[], StoreFolder], header: JournalHeader
    ) -> None:
        self._uri, self._open_store, self._header = uri, open_store, header
        self._disk = TemporaryDirectory(prefix="penstock-journal-")
        self._file = FileJournal(Path(self._disk.name, "none"), header, max_bytes=1 << 62)
        self._live = LiveJournal(self._file)
        self._begun, self._is_over, self._is_away = 0, True, False
        self._copied: dict[Path, int] = {}
        self._past: Future[list[Step]] = Future()
        self._closing = Event()
        self._thread = Thread(target=self._run, name="penstock-journal", daemon=True)
        self._thread.start()

    def recall(self) -> list[Step]:
        """The last steps that are there, oldest first; none if the store does not answer soon."""
        if not wait([self._past], RECALL_S).done:
            log.warning("the journal %s does not answer in time: it is not recalled", self._uri)
        return self._past.result() if self._past.done() else []

    def begin(self, header: JournalHeader) -> None:
        self._is_over, self._header = self._is_over or header != self._header, header

    def write(self, step: Step) -> None:
        if self._is_over or self._file.size >= PART_BYTES:
            began = datetime.fromtimestamp(step.at_s, UTC).strftime("%Y%m%dT%H%M%S")
            name = f"{began}-{self._begun:04d}.jsonl"
            self._file.begin(self._header, Path(self._disk.name, name))
            self._begun, self._is_over = self._begun + 1, False
            for part in self._waiting()[:-PARTS_WAITING]:
                part.unlink(missing_ok=True)
        self._live.write(step)

    def close(self) -> None:
        self._live.close()
        self._closing.set()
        self._thread.join(STOP_S)
        if self._thread.is_alive() or self._is_away:
            log.warning("the end of the journal %s could not be written", self._uri)
        self._disk.cleanup()

    def _run(self) -> None:
        store, is_last = None, False
        while not is_last:
            is_last = self._closing.wait(COPY_EVERY_S if self._past.done() else 0.0)
            try:
                store = store or self._open_store()
                if not self._past.done():
                    self._past.set_result(self._read(store))
                self._copy(store)
            except Exception as error:  # whatever it is, the next turn tries again
                if not self._past.done():
                    self._past.set_result([])
                if not self._is_away:
                    log.warning("%s keeps no journal now: %s", self._uri, first_line(error))
                self._is_away = True

    def _read(self, store: StoreFolder) -> list[Step]:
        """The last steps; no more parts are fetched than hold them."""
        steps: list[Step] = []
        for largest, *_ in parts_of(store.names()):
            store.fetch(largest, copy := Path(self._disk.name, f"past-{largest}"))
            steps = [*read_tail(copy), *steps]
            copy.unlink()
            if len(steps) >= HISTORY_SNAPSHOTS:
                break
        return steps[-HISTORY_SNAPSHOTS:]

    def _waiting(self) -> list[Path]:
        """The parts on the disk, oldest first."""
        return sorted(path for path in Path(self._disk.name).iterdir() if PART.match(path.name))

    def _copy(self, store: StoreFolder) -> None:
        current = self._file.path
        for part in self._waiting():
            # A copy that fails may be torn: the next one begins at the beginning.
            begin, size = self._copied.pop(part, 0), part.stat().st_size
            if not begin:
                for name in chain(*list(parts_of(store.names()))[PARTS_KEPT:]):
                    store.delete(name)
            self._copied[part] = store.copy(part, begin) if size != begin else begin
            if part != current:
                part.unlink()
                del self._copied[part]
        if self._is_away:
            log.info("the journal %s is kept again", self._uri)
        self._is_away = False


def parts_of(names: Iterable[str]) -> Iterator[list[str]]:
    """The files of each part, newest part and largest file first."""
    found = sorted((name for name in names if PART.fullmatch(name)), reverse=True)
    for _, files in groupby(found, key=lambda name: name[:20]):
        yield list(files)


def copy_parts(driver: Driver, uri: str, to: Path) -> None:
    """Copy the parts of all applications below a folder that are new or have grown."""
    path: Any = driver.jvm.org.apache.hadoop.fs.Path
    store = path(uri).getFileSystem(driver.context.hadoopConfiguration())
    found = store.listFiles(path(uri), True)
    while found.hasNext():
        each = found.next()
        name = str(each.getPath().getName())
        copy = to / str(each.getPath().getParent().getName()) / name
        is_known = copy.exists() and copy.stat().st_size == each.getLen()
        if PART.fullmatch(name) and not is_known:
            copy.parent.mkdir(exist_ok=True)
            partial = copy.with_suffix(".partial")
            store.copyToLocalFile(False, each.getPath(), path(partial.as_uri()), True)
            partial.replace(copy)
