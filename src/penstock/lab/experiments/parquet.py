"""A small table as a Parquet file: text, whole numbers and numbers, any of which may be absent.

The format is https://parquet.apache.org/docs/file-format: one row group, one plain page per
column, nothing compressed. Results are a few thousand rows at most, and a library of a hundred
megabytes for writing them is more than they are worth.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
CREATOR = "penstock"

# Of the format's enumerations, what is used here.
TYPES: dict[type, int] = {int: 2, float: 5, str: 6}  # INT64, DOUBLE, BYTE_ARRAY
OPTIONAL = 1
UTF8 = 0
PLAIN, RLE = 0, 3
UNCOMPRESSED = 0
DATA_PAGE = 0

# Wire types of Thrift's compact protocol.
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


@dataclass(frozen=True, slots=True)
class Column:
    """A name, the type of its values, and the values; ``None`` is absent."""

    name: str
    kind: type
    values: Sequence[Any]


def parquet(columns: Sequence[Column]) -> bytes:
    """The file.

    >>> content = parquet([Column("policy", str, ["hpa", "ds2"]), Column("cost", float, [1.5, 2])])
    >>> content[:4], content[-4:], b"hpa" in content
    (b'PAR1', b'PAR1', True)
    """
    count = len(columns[0].values)
    body = bytearray(MAGIC)
    chunks = []
    for column in columns:
        at, page = len(body), _page(column)
        body += page
        chunks.append(_chunk(column, at, len(page)))
    footer = _metadata(columns, count, chunks, len(body) - len(MAGIC))
    return bytes(body) + footer + struct.pack("<I", len(footer)) + MAGIC


def _page(column: Column) -> bytes:
    """One data page with its header: which values are there, then the values."""
    there = [value is not None for value in column.values]
    levels = _levels(there)
    data = struct.pack("<I", len(levels)) + levels
    data += b"".join(_WRITERS[column.kind](value) for value in column.values if value is not None)
    kind = _struct((1, I32, len(there)), (2, I32, PLAIN), (3, I32, RLE), (4, I32, RLE))
    size = len(data)
    header = _struct((1, I32, DATA_PAGE), (2, I32, size), (3, I32, size), (5, STRUCT, kind))
    return header + data


def _levels(there: Sequence[bool]) -> bytes:
    """Definition levels of one bit, as runs: (length << 1, value) each."""
    runs: list[list[int]] = []
    for present in there:
        if runs and runs[-1][1] == present:
            runs[-1][0] += 1
        else:
            runs.append([1, int(present)])
    return b"".join(_varint(length << 1) + bytes([present]) for length, present in runs)


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    int: struct.Struct("<q").pack,
    float: struct.Struct("<d").pack,
    str: lambda text: struct.pack("<I", len(text.encode())) + text.encode(),
}


def _chunk(column: Column, at: int, size: int) -> bytes:
    """Where a column is."""
    meta = _struct(
        (1, I32, TYPES[column.kind]),
        (2, LIST, (I32, [PLAIN, RLE])),
        (3, LIST, (BINARY, [column.name])),
        (4, I32, UNCOMPRESSED),
        (5, I64, len(column.values)),
        (6, I64, size),
        (7, I64, size),
        (9, I64, at),
    )
    return _struct((2, I64, at), (3, STRUCT, meta))


def _metadata(columns: Sequence[Column], count: int, chunks: list[bytes], size: int) -> bytes:
    """What the file holds: the footer."""
    root = _struct((4, BINARY, "table"), (5, I32, len(columns)))
    group = _struct((1, LIST, (STRUCT, chunks)), (2, I64, size), (3, I64, count))
    return _struct(
        (1, I32, 1),
        (2, LIST, (STRUCT, [root, *map(_element, columns)])),
        (3, I64, count),
        (4, LIST, (STRUCT, [group])),
        (6, BINARY, CREATOR),
    )


def _element(column: Column) -> bytes:
    """A column in the schema."""
    text = ((6, I32, UTF8),) if column.kind is str else ()
    return _struct(
        (1, I32, TYPES[column.kind]), (3, I32, OPTIONAL), (4, BINARY, column.name), *text
    )


# Thrift's compact protocol -----------------------------------------------------------------------


def _struct(*fields: tuple[int, int, Any]) -> bytes:
    """Fields in the order of their numbers, each headed by the step from the one before."""
    found = bytearray()
    before = 0
    for number, kind, value in fields:
        found.append((number - before) << 4 | kind)
        found += _value(kind, value)
        before = number
    return bytes(found) + b"\x00"


def _value(kind: int, value: Any) -> bytes:
    if kind == STRUCT:
        return bytes(value)
    if kind in (I32, I64):
        return _varint(value << 1)  # zigzag; nothing here is negative
    if kind == BINARY:
        text = str(value).encode()
        return _varint(len(text)) + text
    of, items = value
    short = len(items) < 15
    head = bytes([len(items) << 4 | of]) if short else bytes([0xF0 | of]) + _varint(len(items))
    return head + b"".join(_value(of, item) for item in items)


def _varint(number: int) -> bytes:
    """Seven bits at a time, the lowest first.

    >>> _varint(1), _varint(300)
    (b'\\x01', b'\\xac\\x02')
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
