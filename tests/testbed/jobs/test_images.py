"""The jobs on images on a real Spark: a stream, a batch and plain Python agree."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testbed.jobs.image_records import decode, image_record, query_record
from penstock.testbed.jobs.images import (
    count_cells,
    count_objects_and_edges,
    make_stored_copy,
    recognise_photos,
    store_photos,
)
from penstock.testbed.jobs.photos import PhotoEvents
from penstock.testbed.jobs.recogniser import fit_recogniser
from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.jobs.tissue import TissueEvents, TissueImage
from tests.testbed.jobs.spark_runs import run_stream, table

if TYPE_CHECKING:
    from PIL.Image import Image
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

due_ms = partial(Timeline([50.0]).due_ms, base_ms=1_700_000_000_000)
PHOTOS = PhotoEvents(seed=3, due_ms=due_ms, side_px=128)
TISSUE = TissueEvents(seed=11, due_ms=due_ms, side_px=64)


def in_plain_python(
    records: list[bytes], compute: Callable[[Image], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """The keys of each image with what is computed from it."""
    rows = []
    for record in map(json.loads, records):
        if record["type"] == "image":
            picture = decode(b64decode(record["image"]))
            assert picture is not None
            keys = (record[key] for key in ("id", "sample", "x", "y", "time_ms"))
            rows.append((*keys, *compute(picture)))
    return rows


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


def test_photos_are_recognised_in_a_stream_as_in_a_batch_and_in_plain_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = PHOTOS.block(0)
    found = run_stream(spark, recognise_photos, records, tmp_path, mode="append", batches=2).rows
    # Scores may differ in the last digits where the numbers are added in another order.
    batch = recognise_photos(table(spark, records)).collect()
    plain = in_plain_python(records, fit_recogniser().recognise)
    assert sorted(row[:6] for row in found) == sorted(row[:6] for row in batch)
    assert sorted(row[:6] for row in found) == [row[:6] for row in plain]
    assert sorted(row.score for row in found) == pytest.approx(sorted(row[6] for row in plain))
    right = [row.kind == PHOTOS.scenes(0)[row.id].kind for row in found]
    assert sum(right) >= 31


def test_a_smaller_copy_of_each_photo_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    records = PhotoEvents(seed=4, due_ms=due_ms, side_px=200).block(0)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "photos.txt").write_bytes(b"\n".join(records))
    query = (
        store_photos(spark.readStream.text(str(tmp_path / "in")))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "stored"))
    )
    try:
        assert query.awaitTermination(200)
    finally:
        query.stop()
    stored = sorted_rows(spark.read.parquet(str(tmp_path / "stored")))
    assert stored == in_plain_python(records, make_stored_copy)
    assert [row[5:7] for row in stored] == [(160, 160)] * 32
    assert sorted_rows(store_photos(table(spark, records))) == stored


def test_cells_are_counted_as_drawn_and_queries_are_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = [record for number in range(5) for record in TISSUE.block(number)]
    scenes = [scene for number in range(5) for scene in TISSUE.scenes(number)]
    images = [scene for scene in scenes if isinstance(scene, TissueImage)]
    assert len(images) < len(records)
    run = run_stream(spark, count_cells, records, tmp_path, mode="append")
    assert sorted((row.id, row.red, row.green, row.blue) for row in run.rows) == [
        (image.number, 0, image.marked_cells, image.cells) for image in images
    ]
    assert sorted(map(tuple, run.rows)) == in_plain_python(records, count_objects_and_edges)
    assert sorted_rows(count_cells(table(spark, records))) == sorted(map(tuple, run.rows))
    assert run.malformed("images-cells-records") == run.malformed("images-cells-images") == 0


@pytest.mark.parametrize(
    ("job", "pipeline"), [("images-store", store_photos), ("images-cells", count_cells)]
)
def test_malformed_records_are_counted_and_the_others_go_on(
    spark: SparkSession,
    tmp_path: Path,
    job: str,
    pipeline: Callable[[DataFrame], DataFrame],
) -> None:
    good = TISSUE.block(0)[:4]
    picture = b64decode(json.loads(good[0])["image"])
    no_records = [
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"type":"image"}',
        b'{"type":"video","id":1,"sample":0,"x":0,"y":0,"time_ms":0,"image":""}',
        b'{"type":"image","id":"one","sample":0,"x":0,"y":0,"time_ms":0,"image":""}',
        good[1][:-1000],
    ]
    no_images = [
        image_record(100, 0, (0, 0), 0, b"no image"),
        image_record(101, 0, (0, 0), 0, b""),
        image_record(102, 0, (0, 0), 0, picture[: len(picture) // 2]),
        image_record(103, 0, (0, 0), 0, picture).replace(b64encode(picture), b"!?"),
        b'{"type":"image","id":104,"sample":0,"x":0,"y":0,"time_ms":0}',
    ]
    values = [no_records[0], good[0], *no_images[:2], good[1], *no_records[1:], good[2]]
    values += [*no_images[2:], good[3], query_record(105, 0, (0, 0), 0)]
    run = run_stream(spark, pipeline, values, tmp_path, mode="append")
    assert sorted(row.id for row in run.rows) == [0, 1, 2, 3]
    assert run.malformed(f"{job}-records") == len(no_records)
    assert run.malformed(f"{job}-images") == len(no_images)
