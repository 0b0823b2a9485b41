"""Image filters: blur, edges, and the count of what stands out.

The objects of a channel are areas of connected pixels above Otsu's threshold (IEEE Transactions on
Systems, Man, and Cybernetics 9(1), 1979), large enough and with an edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

BLUR_RADIUS_PX = 2.0
#: A pixel is on an edge if the brightness changes by this many levels to the next pixel.
EDGE_LEVELS = 8.0
SMALLEST_OBJECT_PX = 30

Channel = NDArray[np.uint8]
Slopes = NDArray[np.float32]


class ChannelObjects(NamedTuple):
    """What one colour of an image shows."""

    objects: int
    edge_px: int


def count_by_channel(image: Image) -> list[ChannelObjects]:
    """Blur the image, split it into red, green and blue, and find edges and objects in each.

    >>> from PIL import Image, ImageDraw
    >>> image = Image.new("RGB", (64, 64))
    >>> ImageDraw.Draw(image).ellipse((5, 5, 25, 25), fill=(0, 0, 200))
    >>> ImageDraw.Draw(image).ellipse((35, 35, 55, 55), fill=(0, 120, 200))
    >>> [channel.objects for channel in count_by_channel(image)]
    [0, 1, 2]
    """
    from PIL import ImageFilter

    blurred = image.filter(ImageFilter.GaussianBlur(BLUR_RADIUS_PX))
    found = []
    for band in blurred.split():
        channel: Channel = np.asarray(band)
        slopes = edge_slopes(channel)
        objects = count_objects(channel > otsu_threshold(channel), slopes)
        found.append(ChannelObjects(objects, int(np.count_nonzero(slopes >= EDGE_LEVELS))))
    return found


def edge_slopes(channel: Channel) -> Slopes:
    """How much the brightness changes at each pixel (Sobel), in levels per pixel; 0 at the border.

    >>> edge_slopes(np.array([[0, 10, 20]] * 3, dtype=np.uint8))[1].tolist()
    [0.0, 10.0, 0.0]
    """
    slopes: Slopes = np.zeros(channel.shape, dtype=np.float32)
    if min(channel.shape) < 3:
        return slopes
    levels = channel.astype(np.float32)
    down = levels[:-2] + 2.0 * levels[1:-1] + levels[2:]
    across = levels[:, :-2] + 2.0 * levels[:, 1:-1] + levels[:, 2:]
    slopes[1:-1, 1:-1] = np.hypot(down[:, 2:] - down[:, :-2], across[2:] - across[:-2]) / 8.0
    return slopes


def otsu_threshold(channel: Channel) -> int:
    """The level that best divides the pixels into dark ones, up to it, and bright ones above it.

    >>> otsu_threshold(np.array([[10, 12, 11], [200, 210, 11]], dtype=np.uint8))
    12
    """
    counts = np.bincount(channel.ravel(), minlength=256).astype(np.float64)
    dark = np.cumsum(counts)
    bright = dark[-1] - dark
    sums = np.cumsum(counts * np.arange(256))
    # Where one side is empty the variance between them is 0.
    dark_mean = sums / np.maximum(dark, 1.0)
    bright_mean = (sums[-1] - sums) / np.maximum(bright, 1.0)
    return int(np.argmax(dark * bright * (bright_mean - dark_mean) ** 2))


def count_objects(mask: NDArray[np.bool_], slopes: Slopes) -> int:
    """How many areas of connected pixels are large enough and have an edge.

    Pixels are connected to those above, below, left and right. The mask is taken as runs of pixels
    in a row: a few hundred for an image, where there are tens of thousands of pixels.
    """
    starts, ends, stride = _runs(mask)
    if starts.size == 0:
        return 0
    areas = _connect(starts, ends, stride)
    sizes = np.bincount(areas, weights=ends - starts, minlength=starts.size)
    padded = np.zeros((mask.shape[0], stride), dtype=np.float32)
    padded[:, : mask.shape[1]] = slopes
    # Every second interval is a run; those between are left out.
    bounds = np.stack([starts, ends], axis=1).ravel()
    steepest_of_runs = np.maximum.reduceat(padded.ravel(), bounds)[::2]
    steepest = np.zeros(starts.size, dtype=np.float32)
    np.maximum.at(steepest, areas, steepest_of_runs)
    return int(np.count_nonzero((sizes >= SMALLEST_OBJECT_PX) & (steepest >= EDGE_LEVELS)))


def _runs(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """First pixel and end of each run, and the numbers that a row takes: one spare, to end runs."""
    stride = mask.shape[1] + 1
    padded = np.zeros((mask.shape[0], stride), dtype=np.int8)
    padded[:, :-1] = mask
    changes = np.diff(padded.ravel(), prepend=0)
    return np.flatnonzero(changes == 1), np.flatnonzero(changes == -1), stride


def _connect(starts: NDArray[np.int64], ends: NDArray[np.int64], stride: int) -> NDArray[np.int64]:
    """For each run the first run of its area."""
    # The runs below run i are those that end after its start and start before its end.
    first_below = np.searchsorted(ends, starts + stride, side="right")
    end_below = np.searchsorted(starts, ends + stride, side="left")
    counts = np.maximum(end_below - first_below, 0)
    upper = np.repeat(np.arange(starts.size), counts)
    lower = np.arange(upper.size) + np.repeat(first_below - (np.cumsum(counts) - counts), counts)

    areas = np.arange(starts.size)
    while True:
        first = np.minimum(areas[upper], areas[lower])
        joined = areas.copy()
        np.minimum.at(joined, areas[upper], first)
        np.minimum.at(joined, areas[lower], first)
        joined = joined[joined]
        if np.array_equal(joined, areas):
            return areas
        areas = joined
