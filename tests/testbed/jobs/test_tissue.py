"""Drawn tissue: the same for the same seed, scanned in order, with a query now and then."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.jobs.tissue import PixelQuery, TissueEvents, TissueImage

BASE_MS = 1_700_000_000_000
due_ms = partial(Timeline([50.0]).due_ms, base_ms=BASE_MS)


@pytest.fixture(scope="module")
def stream() -> TissueEvents:
    return TissueEvents(seed=5, due_ms=due_ms, side_px=64)


@pytest.fixture(scope="module")
def scenes(stream: TissueEvents) -> list[TissueImage | PixelQuery]:
    return [scene for number in range(300) for scene in stream.scenes(number)]


def test_a_block_does_not_depend_on_what_was_drawn_before_it(stream: TissueEvents) -> None:
    stream.block(0)
    assert TissueEvents(seed=5, due_ms=due_ms, side_px=64).block(3) == stream.block(3)


def test_another_seed_gives_other_images(stream: TissueEvents) -> None:
    other = TissueEvents(seed=6, due_ms=due_ms, side_px=64)
    assert not set(other.block(0)) & set(stream.block(0))


def test_a_record_says_what_its_scene_says_but_not_what_the_image_shows(
    stream: TissueEvents,
) -> None:
    for number in range(8):
        for record, scene in zip(stream.block(number), stream.scenes(number), strict=True):
            fields = json.loads(record)
            assert fields.pop("image", None) is None or isinstance(scene, TissueImage)
            assert fields == {
                "type": "query" if isinstance(scene, PixelQuery) else "image",
                "id": scene.number,
                "sample": scene.sample,
                "x": scene.position[0],
                "y": scene.position[1],
                "time_ms": BASE_MS + 20 * scene.number,
            }


def test_samples_take_turns_and_each_is_scanned_row_by_row(
    scenes: list[TissueImage | PixelQuery],
) -> None:
    for number, scene in enumerate(scenes):
        assert (scene.number, scene.sample) == (number, number % 16)
        if isinstance(scene, TissueImage):
            turn = number // 16
            assert scene.position == (turn % 40 * 64, turn // 40 % 25 * 64)


def test_one_query_comes_for_each_100_images_and_asks_for_a_pixel_of_the_frame(
    scenes: list[TissueImage | PixelQuery],
) -> None:
    queries = [scene for scene in scenes if isinstance(scene, PixelQuery)]
    assert len(queries) / (len(scenes) - len(queries)) == pytest.approx(0.01, abs=0.004)
    assert all(0 <= place < 64 for query in queries for place in query.position)


def test_cells_are_as_bright_as_they_should_be_and_nothing_overflows(
    stream: TissueEvents,
) -> None:
    for scene in stream.scenes(0):
        if isinstance(scene, TissueImage):
            red, green, blue = np.moveaxis(stream.pixels(scene), 2, 0)
            assert red.max() < 12 + 12 + 80
            assert (green.max() > 12 + 12 + 50) == (scene.marked_cells > 0)
            assert (blue.max() > 12 + 12 + 50) == (scene.cells > 0)
            assert min(red.min(), green.min(), blue.min()) >= 12


def test_marked_cells_are_some_of_the_cells(scenes: list[TissueImage | PixelQuery]) -> None:
    images = [scene for scene in scenes if isinstance(scene, TissueImage)]
    assert all(0 <= image.marked_cells <= image.cells <= 4 for image in images)
    marked = sum(image.marked_cells for image in images) / sum(image.cells for image in images)
    assert marked == pytest.approx(0.4, abs=0.02)
