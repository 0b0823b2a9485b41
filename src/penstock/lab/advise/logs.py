"""Event logs: which files belong to an application, and their lines, however they are compressed.

Spark's codecs are not those that Hadoop opens by the same suffix: `.lz4` is the block stream of
lz4-java, `.snappy` that of snappy-java. A file is recognised by its first bytes and read as a
stream, so memory does not grow with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from struct import Struct as Layout
from typing import BinaryIO

from msgspec import Struct, structs

from penstock.core.errors import PenstockError
from penstock.lab.experiments import lab_module

#: Read at a time. Of a file that was cut off, at most as much is lost besides.
BLOCK_BYTES = 1 << 16
#: A block that claims to be larger is no block: Spark's have 32 kB unless set otherwise.
MOST_BLOCK_BYTES = 1 << 25
#: Of lines of more blocks only the beginning is kept: none that is read is that long.
MOST_LINE_BLOCKS = 64

PLAIN, ZSTD, LZ4, SNAPPY = b'{"Event":"', b"\x28\xb5\x2f\xfd", b"LZ4Block", b"\x82SNAPPY\x00"
#: Behind the magic of a block of lz4-java: method, compressed bytes, bytes, checksum.
_LZ4_BLOCK, _LZ4_METHOD, _LZ4_STORED = Layout("<BIII"), 0xF0, 0x10
_DIRECTORY, _ROLLED = "eventlog_v2_", re.compile(r"events_(\d+)_.*")


class LogError(PenstockError):
    """A file that is no event log, or only a part of one."""


class LogFile(Struct, frozen=True):
    """One file of a log. `log` is where all of the log is, `number` its place among its files.

    While a log `is_growing`, its application has not closed it, and the end may be missing.
    """

    log: str
    path: str
    stored_bytes: int = 0
    number: int = 0
    is_growing: bool = False


def log_files(found: Iterable[tuple[str, int]]) -> list[LogFile]:
    """The files of event logs among these, largest first; each is given with its bytes.

    A log is a file, or a directory of rolled files: of those that were compacted, the last counts.

    >>> rolled = [f"/logs/eventlog_v2_a/{name}" for name in ("appstatus_a", "events_1_a.zstd",
    ...           "events_2_a.compact.zstd", "events_3_a.zstd")]
    >>> [(one.log, one.number) for one in log_files([("/logs/b", 9), *((p, 5) for p in rolled)])]
    [('/logs/b', 0), ('/logs/eventlog_v2_a', 2), ('/logs/eventlog_v2_a', 3)]
    """
    files, first, growing = [], dict[str, int](), set[str]()
    for path, stored_bytes in found:
        folder, _, name = path.rpartition("/")
        if not folder.rpartition("/")[2].startswith(_DIRECTORY):
            files.append(LogFile(path, path, stored_bytes, 0, name.endswith(".inprogress")))
        elif rolled := _ROLLED.fullmatch(name):
            files.append(LogFile(folder, path, stored_bytes, int(rolled[1])))
            if ".compact" in name:
                first[folder] = max(int(rolled[1]), first.get(folder, 0))
        elif name.endswith(".inprogress"):  # a directory says so in the name of an empty file
            growing.add(folder)
    kept = [one for one in files if one.number >= first.get(one.log, 0)]
    kept = [structs.replace(one, is_growing=True) if one.log in growing else one for one in kept]
    return sorted(kept, key=lambda one: (-one.stored_bytes, one.log, one.number))


def lines(file: BinaryIO) -> Iterator[bytes]:
    r"""The lines of a log, without their ends.

    >>> from io import BytesIO
    >>> list(lines(BytesIO(b'{"Event":"A"}\n{"Event":"B"}\n')))
    [b'{"Event":"A"}', b'{"Event":"B"}']
    """
    head = file.read(len(PLAIN))
    if not head:
        raise LogError("is empty")
    file.seek(0)
    readers = {PLAIN: _plain, ZSTD: _zstd, LZ4: _lz4, SNAPPY: _snappy}
    reader = next((readers[magic] for magic in readers if head.startswith(magic)), None)
    if reader is None:
        raise LogError(f"is no event log: it begins with {head!r}")
    rest: list[bytes] = []
    for chunk in reader(file):
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            yield b"".join(rest)
            yield from others[:-1]
            rest = others[-1:]
        elif len(rest) > MOST_LINE_BLOCKS:
            rest = [rest[0] + b"\0"]  # so that it is not read as a whole line
    if last := b"".join(rest):
        yield last


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(BLOCK_BYTES):
        yield chunk


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    arrow = lab_module("pyarrow", "a log in zstd")
    yield from _plain(arrow.CompressedInputStream(arrow.PythonFile(file, mode="r"), "zstd"))


def _lz4(file: BinaryIO) -> Iterator[bytes]:
    codec = lab_module("pyarrow", "a log in lz4").Codec("lz4_raw")
    while magic := file.read(len(LZ4)):
        if magic != LZ4:
            raise LogError("is damaged: a block of LZ4 does not begin where it should")
        method, stored, size, _ = _LZ4_BLOCK.unpack(_exactly(file, _LZ4_BLOCK.size))
        block = _exactly(file, stored)
        if size:  # an empty block ends one stream; another may follow it
            is_stored = method & _LZ4_METHOD == _LZ4_STORED
            yield block if is_stored else codec.decompress(block, _checked(size), asbytes=True)


def _snappy(file: BinaryIO) -> Iterator[bytes]:
    codec = lab_module("pyarrow", "a log in snappy").Codec("snappy")
    while head := file.read(4):
        if head == SNAPPY[:4]:
            _exactly(file, len(SNAPPY) - 4 + 8)  # two versions follow
            continue
        block, size = _exactly(file, int.from_bytes(head, "big")), 0
        for place, byte in enumerate(block[:5]):  # its length, seven bits to a byte
            size |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                break
        yield codec.decompress(block, _checked(size), asbytes=True)


def _checked(size: int) -> int:
    if size > MOST_BLOCK_BYTES:
        raise LogError(f"is damaged: a block of {size} bytes")
    return size


def _exactly(file: BinaryIO, size: int) -> bytes:
    if len(found := file.read(_checked(size))) < size:
        raise LogError("ends in the middle of a block")
    return found
