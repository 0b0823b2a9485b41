"""The filters against slower ways of doing the same, and against what the generator drew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock.testbed.jobs.image_filters import (
    EDGE_LEVELS,
    SMALLEST_OBJECT_PX,
    count_by_channel,
    count_objects,
    edge_slopes,
    otsu_threshold,
)
from penstock.testbed.jobs.image_records import decode, encode
from penstock.testbed.jobs.tissue import TissueEvents, TissueImage


def flood(mask: NDArray[np.bool_]) -> list[list[tuple[int, int]]]:
    """The areas of connected pixels, one pixel at a time."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    areas = []
    while left:
        area, edge = [], [left.pop()]
        while edge:
            y, x = edge.pop()
            area.append((y, x))
            near = {(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)} & left
            left -= near
            edge += near
        areas.append(area)
    return areas


@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0.2, 0.8),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_objects_are_counted_as_a_flood_fill_counts_them(
    seed: int, share: float, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < share
    slopes = rng.uniform(0.0, EDGE_LEVELS * 1.05, size=shape).astype(np.float32)
    expected = [
        area
        for area in flood(mask)
        if len(area) >= SMALLEST_OBJECT_PX and max(slopes[at] for at in area) >= EDGE_LEVELS
    ]
    assert count_objects(mask, slopes) == len(expected)


def test_a_winding_object_is_one() -> None:
    # A comb whose teeth meet only in the last row, and a spiral: many runs, one area each.
    comb = np.zeros((20, 41), dtype=bool)
    comb[:, ::2] = True
    comb[-1] = True
    spiral = np.array(
        [
            [1, 1, 1, 1, 1, 1, 1],
            [0, 0, 0, 0, 0, 0, 1],
            [1, 1, 1, 1, 1, 0, 1],
            [1, 0, 0, 0, 1, 0, 1],
            [1, 0, 1, 1, 1, 0, 1],
            [1, 0, 0, 0, 0, 0, 1],
            [1, 1, 1, 1, 1, 1, 1],
        ],
        dtype=bool,
    )
    for mask in (comb, spiral):
        assert len(flood(mask)) == 1
        assert count_objects(mask, np.full(mask.shape, 99.0, dtype=np.float32)) == 1


@given(st.integers(0, 10_000), st.tuples(st.integers(3, 12), st.integers(3, 12)))
def test_slopes_are_those_of_the_sobel_filter(seed: int, shape: tuple[int, int]) -> None:
    channel = np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)
    slopes = edge_slopes(channel)
    across = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    for y in range(1, shape[0] - 1):
        for x in range(1, shape[1] - 1):
            around = channel[y - 1 : y + 2, x - 1 : x + 2].astype(float)
            expected = np.hypot((around * across).sum(), (around * across.T).sum()) / 8
            assert slopes[y, x] == pytest.approx(expected, rel=1e-5)
    assert slopes[0].max() == slopes[:, -1].max() == 0.0


@given(st.integers(0, 10_000))
def test_the_threshold_leaves_the_least_variance_inside_the_two_classes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = np.concatenate([rng.normal(60, 20, 80), rng.normal(180, 20, 40)])
    channel = levels.clip(0, 255).astype(np.uint8).reshape(10, 12)

    def variance_inside(threshold: int) -> float:
        dark, bright = channel[channel <= threshold], channel[channel > threshold]
        return sum(part.size * float(part.var()) for part in (dark, bright) if part.size)

    best = min(variance_inside(threshold) for threshold in range(256))
    assert variance_inside(otsu_threshold(channel)) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("side_px", [128, 256])
def test_as_many_cells_are_found_in_each_colour_as_were_drawn(side_px: int) -> None:
    stream = TissueEvents(seed=9, due_ms=lambda events: events, side_px=side_px)
    images = [
        scene
        for number in range(3)
        for scene in stream.scenes(number)
        if isinstance(scene, TissueImage)
    ]
    assert len({image.cells for image in images}) > 5
    for image in images:
        picture = decode(encode(Image.fromarray(stream.pixels(image))))
        assert picture is not None
        red, green, blue = count_by_channel(picture)
        found = (red.objects, green.objects, blue.objects)
        assert found == (0, image.marked_cells, image.cells)
        assert (blue.edge_px > 0) == (image.cells > 0)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (1, 50), (3, 3)])
def test_the_smallest_images_show_nothing(size: tuple[int, int]) -> None:
    assert count_by_channel(Image.new("RGB", size, (200, 0, 0))) == [(0, 0)] * 3
