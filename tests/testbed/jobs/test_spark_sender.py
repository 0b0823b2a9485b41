"""Events that are made in parts: the same as those of a stream that is made in one go."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.testbed.jobs.playback import EventStream
from penstock.testbed.jobs.spark_sender import EventPlan, make_records
from penstock.testbed.jobs.streams import STREAMS, open_stream
from penstock.testbed.jobs.timeline import Timeline

RATES_RPS = (3_000.0, 0.0, 9_000.5, 70.0)
BASE_MS = 1_700_000_000_000
BLOCKS = 3
PARTITIONS = 4


def opened(name: str) -> EventStream:
    return open_stream(name, 5, Timeline(RATES_RPS), BASE_MS)


@cache
def in_one_go(name: str) -> list[bytes]:
    stream = opened(name)
    return [value for number in range(BLOCKS) for value in stream.block(number)]


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_parts_that_are_made_apart_and_in_any_order_are_the_stream(
    name: str, data: st.DataObject
) -> None:
    expected = in_one_go(name)
    cuts = data.draw(st.lists(st.integers(0, len(expected)), max_size=3))
    edges = sorted({0, *cuts, len(expected)})
    size = len(expected) // BLOCKS
    parts = [
        (number, first, stop)
        for first, stop in pairwise(edges)
        for number in range(first // size, -(-stop // size))
    ]
    found: dict[int, bytes] = {}
    for number, first, stop in data.draw(st.permutations(parts)):
        plan = EventPlan(name, 5, RATES_RPS, BASE_MS)
        blocks = pa.RecordBatch.from_pydict({"id": [number]})
        (records,) = make_records([blocks], plan, first, stop, PARTITIONS)
        start = max(first, number * size)
        for event, record in enumerate(records.to_pylist(), start):
            assert event not in found
            assert record["partition"] == event % PARTITIONS
            found[event] = record["value"]
    assert [found[event] for event in range(len(expected))] == expected


@pytest.mark.parametrize("name", STREAMS)
def test_a_block_does_not_depend_on_the_blocks_before_it(name: str) -> None:
    stream = opened(name)
    last = (BLOCKS - 1) * stream.block_size
    assert opened(name).block(BLOCKS - 1) == in_one_go(name)[last:]
    assert stream.block(BLOCKS - 1) == in_one_go(name)[last:]
    assert stream.block(0) == in_one_go(name)[: stream.block_size]
