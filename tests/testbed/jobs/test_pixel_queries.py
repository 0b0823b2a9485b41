"""Queries for pixels: the window by itself, and the job on a real Spark against plain Python."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.testbed.jobs.image_records import decode, image_record, query_record
from penstock.testbed.jobs.pixel_queries import (
    WINDOW_IMAGES,
    PixelWindow,
    answer_pixel_queries,
)
from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.jobs.tissue import TissueEvents
from tests.testbed.jobs.spark_runs import run_stream

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

due_ms = partial(Timeline([50.0]).due_ms, base_ms=1_700_000_000_000)


def test_the_window_holds_the_last_1000_images() -> None:
    window = PixelWindow(WINDOW_IMAGES)
    for number in range(1_234):
        window.add((1, 1, bytes([number % 256, number // 256, 7])))
    found = window.intensities(0, 0)
    assert len(found) == 1_000
    assert [red + 256 * green for red, green, _ in found] == list(range(234, 1_234))


def test_the_state_of_a_sample_is_768_kb() -> None:
    window = PixelWindow(WINDOW_IMAGES)
    for _ in range(WINDOW_IMAGES + 1):
        window.add((16, 16, bytes(768)))
    rows, columns, pixels = window.packed()
    assert (rows, columns, len(pixels)) == (16, 16, 768_000)


@given(st.lists(st.binary(min_size=18, max_size=18), max_size=12), st.integers(0, 12))
def test_a_window_that_went_through_the_state_is_the_same(images: list[bytes], cut: int) -> None:
    window = PixelWindow(length=5)
    for image in images[:cut]:
        window.add((2, 3, image))
    restored = PixelWindow(5, window.packed())
    for image in images[cut:]:
        restored.add((2, 3, image))
    assert restored.intensities(1, 2) == [tuple(image[15:18]) for image in images[-5:]]


def test_another_frame_starts_a_new_window() -> None:
    window = PixelWindow(length=5)
    window.add((1, 1, b"abc"))
    window.add((1, 2, b"defghi"))
    assert window.intensities(0, 0) == [(100, 101, 102)]


@pytest.mark.parametrize(("row", "column"), [(-1, 0), (0, -1), (2, 0), (0, 3)])
def test_outside_the_frame_there_is_nothing(row: int, column: int) -> None:
    window = PixelWindow(length=5)
    window.add((2, 3, bytes(18)))
    assert window.intensities(row, column) == []


def answers_in_plain_python(
    records: list[bytes], window: int, raster_px: int
) -> dict[int, list[tuple[int, ...]]]:
    """The pixel of each query in the last images of its sample, one by one."""
    answers: dict[int, list[tuple[int, ...]]] = {}
    images: dict[int, list[bytes]] = {}
    for record in map(json.loads, records):
        of_sample = images.setdefault(record["sample"], [])
        if record["type"] == "image":
            of_sample.append(b64decode(record["image"]))
            continue
        pixel = (record["x"] // raster_px * raster_px, record["y"] // raster_px * raster_px)
        pictures = [decode(image) for image in of_sample[-window:]]
        found: list[Any] = [picture.getpixel(pixel) for picture in pictures if picture]
        answers[record["id"]] = found
    return answers


def by_id(rows: list[Row]) -> dict[int, list[tuple[int, ...]]]:
    found = {row.id: [tuple(each) for each in row.intensities] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def records() -> list[bytes]:
    """Two samples, 480 events; the queries that the seed gives and some more."""
    stream = TissueEvents(seed=8, due_ms=due_ms, side_px=64, samples=2)
    drawn = [record for number in range(15) for record in stream.block(number)]
    for number in range(30, len(drawn), 60):
        drawn[number] = query_record(number, number // 60 % 2, (number % 64, 3 * number % 64), 0)
    return drawn


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestOnSpark:
    def test_a_stream_answers_what_plain_python_answers(
        self, spark: SparkSession, records: list[bytes], tmp_path: Path
    ) -> None:
        # In each of the four batches the records come in any order.
        mixed: list[bytes] = []
        for start in range(0, 480, 120):
            part = records[start : start + 120]
            random.Random(start).shuffle(part)
            mixed += part
        run = run_stream(
            spark,
            lambda source: answer_pixel_queries(source, window_images=100),
            mixed,
            tmp_path,
            mode="append",
            batches=4,
        )
        expected = answers_in_plain_python(records, window=100, raster_px=16)
        assert by_id(run.rows) == expected
        lengths = {len(answer) for answer in expected.values()}
        assert min(lengths) < 20
        assert max(lengths) == 100
        last = run.progress[-1]["stateOperators"][0]
        assert last["numRowsTotal"] == 2

    def test_a_raster_of_one_answers_for_every_pixel(
        self, spark: SparkSession, records: list[bytes], tmp_path: Path
    ) -> None:
        run = run_stream(
            spark,
            lambda source: answer_pixel_queries(source, window_images=10, raster_px=1),
            records[:160],
            tmp_path,
            mode="append",
            batches=2,
        )
        assert by_id(run.rows) == answers_in_plain_python(records[:160], window=10, raster_px=1)

    def test_what_cannot_be_answered_gets_an_empty_vector_and_what_is_malformed_is_counted(
        self, spark: SparkSession, records: list[bytes], tmp_path: Path
    ) -> None:
        picture = b64decode(json.loads(records[0])["image"])
        values = [
            query_record(1, 5, (0, 0), 17),  # a sample without images
            image_record(2, 5, (0, 0), 18, picture),
            image_record(3, 5, (0, 0), 18, picture[:200]),  # cut off
            query_record(4, 5, (64, 0), 19),  # outside the frame
            query_record(5, 5, (63, 63), 20),
            b'{"type":"query","id":6,"x":0,"y":0,"time_ms":0}',  # of no sample
            b"nonsense",
        ]
        run = run_stream(spark, answer_pixel_queries, values, tmp_path, mode="append", batches=1)
        assert {number: len(answer) for number, answer in by_id(run.rows).items()} == {
            1: 0,
            4: 0,
            5: 1,
        }
        assert [tuple(row)[1:5] for row in run.rows if row.id == 4] == [(5, 64, 0, 19)]
        assert run.malformed("pixel-queries-records") == 2
        assert run.malformed("pixel-queries-images") == 1
