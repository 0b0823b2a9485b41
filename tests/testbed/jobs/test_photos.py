"""Drawn photos: the same for the same seed, and each shows what its scene says."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from functools import partial

import numpy as np
import pytest

from penstock.testbed.jobs.image_records import decode
from penstock.testbed.jobs.photos import KINDS, NOISE_LEVELS, PhotoEvents
from penstock.testbed.jobs.timeline import Timeline

BASE_MS = 1_700_000_000_000
due_ms = partial(Timeline([50.0]).due_ms, base_ms=BASE_MS)


@pytest.fixture(scope="module")
def stream() -> PhotoEvents:
    return PhotoEvents(seed=5, due_ms=due_ms, side_px=128)


def test_a_block_does_not_depend_on_what_was_drawn_before_it(stream: PhotoEvents) -> None:
    stream.block(0)
    assert PhotoEvents(seed=5, due_ms=due_ms, side_px=128).block(3) == stream.block(3)


def test_another_seed_gives_other_photos(stream: PhotoEvents) -> None:
    other = PhotoEvents(seed=6, due_ms=due_ms, side_px=128)
    assert not set(other.block(0)) & set(stream.block(0))


def test_a_record_bears_its_number_and_its_time_and_a_picture_of_the_right_size(
    stream: PhotoEvents,
) -> None:
    records = [json.loads(record) for record in stream.block(2)]
    assert [record["id"] for record in records] == list(range(64, 96))
    assert [record["time_ms"] for record in records] == [BASE_MS + 20 * n for n in range(64, 96)]
    pictures = [decode(b64decode(record["image"])) for record in records]
    assert [picture and picture.size for picture in pictures] == [(128, 128)] * 32


def test_each_kind_comes_as_often_as_any_other(stream: PhotoEvents) -> None:
    kinds = [scene.kind for number in range(60) for scene in stream.scenes(number)]
    for kind in KINDS:
        assert kinds.count(kind) / len(kinds) == pytest.approx(1 / 6, abs=0.03)


def test_the_object_stands_where_the_scene_says_in_its_colour(stream: PhotoEvents) -> None:
    for scene in stream.scenes(1) + stream.scenes(2):
        pixels = np.asarray(stream.picture(scene), dtype=int)
        x, y = scene.centre
        if scene.kind == "ring":  # its middle is open, and a line may cross it
            x += 0.8 * scene.radius * math.cos(scene.angle)
            y += 0.8 * scene.radius * math.sin(scene.angle)
        above = pixels[int(y), int(x)] - scene.colour
        assert np.all((above >= 0) & (above < NOISE_LEVELS)), scene
        assert np.all(np.mean(pixels[0] - scene.background, axis=0) < NOISE_LEVELS), scene


def test_nothing_overflows_to_black(stream: PhotoEvents) -> None:
    darkest = min(np.asarray(stream.picture(scene)).min() for scene in stream.scenes(4))
    assert darkest >= 30
