"""Event logs are opened by their first bytes, whatever Spark compressed them with."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from struct import pack

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lab.advise.logs import LZ4, SNAPPY, LogError, lines

FIRST = b'{"Event":"SparkListenerLogStart","Spark Version":"4.0.0"}'


def zstd(blocks: list[bytes]) -> bytes:
    """A frame for each block: as after a restart of the writer."""
    return b"".join(pa.compress(block, codec="zstd", asbytes=True) for block in blocks)


def lz4(blocks: list[bytes]) -> bytes:
    """Blocks as lz4-java writes them: magic, method, both sizes, checksum; the last is empty."""
    found = b""
    for place, block in enumerate(blocks):
        packed = pa.Codec("lz4_raw").compress(block, asbytes=True)
        stored = place % 2 == 1  # what does not get smaller is stored as it is
        method, content = (0x16, block) if stored else (0x26, packed)
        found += LZ4 + pack("<BiiI", method, len(content), len(block), 0) + content
    return found + LZ4 + pack("<BiiI", 0x16, 0, 0, 0)


def snappy(blocks: list[bytes]) -> bytes:
    """Blocks as snappy-java writes them: a header of 16 bytes, then each with its size."""
    found = SNAPPY + pack(">ii", 1, 1)
    for block in blocks:
        packed = pa.Codec("snappy").compress(block, asbytes=True)
        found += pack(">i", len(packed)) + packed
    return found


def plain(blocks: list[bytes]) -> bytes:
    return b"".join(blocks)


CODECS = [plain, zstd, lz4, snappy]
Codec = Callable[[list[bytes]], bytes]


@given(
    st.sampled_from(CODECS),
    st.lists(st.binary(max_size=60).map(lambda some: some.replace(b"\n", b"")), max_size=20),
    st.integers(1, 50),
)
def test_lines_come_back_whole_wherever_blocks_end(
    codec: Codec, more: list[bytes], block_bytes: int
) -> None:
    written = [FIRST, *more]
    content = b"".join(line + b"\n" for line in written)
    ends = range(0, len(content), block_bytes)
    blocks = [content[begin : begin + block_bytes] for begin in ends]
    assert list(lines(BytesIO(codec(blocks)))) == written


@pytest.mark.parametrize("codec", [lz4, snappy, zstd])
def test_streams_that_follow_each_other_are_one_log(codec: Codec) -> None:
    both = codec([FIRST + b"\n"]) + codec([b"{}\n"])
    assert list(lines(BytesIO(both))) == [FIRST, b"{}"]


@pytest.mark.parametrize("codec", [lz4, snappy, zstd])
def test_a_log_that_was_cut_off_gives_what_is_there_and_then_an_error(codec: Codec) -> None:
    noise = bytes(range(256)).replace(b"\n", b"")
    content = codec([(FIRST + b"\n") * 5000, noise * 40, noise[::-1] * 40])
    read = lines(BytesIO(content[: len(content) - 300]))
    found: list[bytes] = []
    with pytest.raises((LogError, OSError)):
        found += read
    # 58 bytes each: all of the first block, or what Arrow had handed over of the stream
    assert len(found) >= 4 * (1 << 16) // 58
    assert set(found) == {FIRST}


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten blocks are allowed here; the file has a hundred, and no end of a line.
    monkeypatch.setattr("penstock.lab.advise.logs.MOST_LINE_BLOCKS", 10)
    file = BytesIO(b'{"Event":"' + b"x" * (100 << 16))
    (found,) = lines(file)
    assert len(found) < 20 << 16
    assert b"\0" in found  # so that nobody takes it for the whole line


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"PAR1\x15\x04\x15", "is no event log: it begins with b'PAR1"),
        (b'{"format":"penstock-journal"}\n', "is no event log"),
        (LZ4 + pack("<BiiI", 0x26, 1 << 30, 10, 0), "is damaged: a block of 1073741824 bytes"),
        (LZ4 + pack("<BiiI", 0x26, 5, 10, 0) + b"ab", "ends in the middle of a block"),
        (lz4([FIRST]) + b"garbage!", "is damaged: a block of LZ4 does not begin"),
    ],
)
def test_what_is_no_log_is_refused_in_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(LogError, match="^" + sentence.replace("(", r"\(")):
        list(lines(BytesIO(content)))
