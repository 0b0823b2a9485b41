"""Synthetic fluorescence microscopy: images of cells, and queries for single pixels of them.

They stand for those of Borkowski et al. (2019): a microscope scans each sample row by row, 1,000
positions, with one query per 100 images. Blue shows the nuclei of all cells, green those that bear
the marker, red a diffuse glow. Event n belongs to sample n modulo their number, so that if the
partitions divide 16, each sample lies in one. An image takes about 1 ms to draw and encode.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.testbed.jobs import image_records
from penstock.testbed.jobs.image_records import Pixels
from penstock.testbed.jobs.timeline import Events, SeededStream, Times

SAMPLES = 16
SIDE_PX = 256
#: Positions of a scan: columns and rows.
SCAN = (40, 25)
EVENTS_PER_BLOCK = 32
IMAGES_PER_QUERY = 100

SLOT_PX = 32
STAMPS = 64
GLOWS = 8
#: A cell of this radius, moved this far from the middle of its slot, stays 4 pixels inside it.
RADII_PX = (5.0, 9.0)
SHIFT_PX = 3.0
#: How many of the slots hold a cell, and how many cells bear the marker.
CELL_SHARES = (0.1, 0.6)
MARKER_SHARE = 0.4
CELL_LEVELS = (90, 150)
GLOW_LEVELS = (40, 80)
BACKGROUND_LEVEL = 12
NOISE_LEVELS = 12


@dataclass(frozen=True, slots=True, eq=False)
class TissueImage:
    """What one image shows, and where and when it was taken."""

    number: int
    sample: int
    position: tuple[int, int]
    time_ms: int
    cells: int
    marked_cells: int
    #: The stamp in each slot, 0 for none, and whether that cell bears the marker.
    stamps: NDArray[np.int64]
    marks: NDArray[np.bool_]
    glow: int
    noise: tuple[int, int]  #: Where its noise is cut from.


@dataclass(frozen=True, slots=True)
class PixelQuery:
    """Asks for one pixel in the last images of a sample."""

    number: int
    sample: int
    position: tuple[int, int]
    time_ms: int


class TissueEvents(SeededStream):
    """The stream of one seed.

    `side_px` is the height and width of an image, a multiple of `SLOT_PX`; `samples` are scanned
    at the same time.

    >>> stream = TissueEvents(seed=1, due_ms=lambda events: 1_700_000_000_000 + 100 * events)
    >>> stream.block(0)[17][:49]
    b'{"type":"image","id":17,"sample":1,"x":256,"y":0,'
    >>> shown = stream.scenes(0)[17]
    >>> isinstance(shown, TissueImage) and (shown.cells, shown.marked_cells)
    (26, 6)
    """

    block_size = EVENTS_PER_BLOCK

    def __init__(
        self,
        seed: int,
        due_ms: Callable[[Events], Times],
        side_px: int = SIDE_PX,
        samples: int = SAMPLES,
    ) -> None:
        image_records.require_packages("the stream 'tissue'", ["PIL"])
        super().__init__(seed, due_ms)
        self._side_px = side_px
        self._samples = samples
        rng = self.rng_of_all()
        self._stamps = _draw_stamps(rng)
        self._glows = _draw_glows(rng, side_px)
        noise = rng.integers(NOISE_LEVELS, size=(2 * side_px, 2 * side_px, 3), dtype=np.uint8)
        self._noise: Pixels = noise + np.uint8(BACKGROUND_LEVEL)

    def block(self, number: int) -> list[bytes]:
        return [self._record(scene) for scene in self.scenes(number)]

    def scenes(self, number: int) -> list[TissueImage | PixelQuery]:
        """What the images of that block show, and what its queries ask for."""
        rng, events = self.rng_of(number), self.events_of(number)
        timed = zip(events.tolist(), self._due_ms(events).tolist(), strict=True)
        return [self._draw_scene(rng, event, time_ms) for event, time_ms in timed]

    def pixels(self, image: TissueImage) -> Pixels:
        side = self._side_px
        top, left = image.noise
        pixels = self._noise[top : top + side, left : left + side].copy()
        pixels[:, :, 0] += self._glows[image.glow]
        pixels[:, :, 1] += self._cells(np.where(image.marks, image.stamps, 0))
        pixels[:, :, 2] += self._cells(image.stamps)
        return pixels

    def _cells(self, stamps: NDArray[np.int64]) -> Pixels:
        """One channel of the stamps, laid side by side."""
        slots = self._side_px // SLOT_PX
        tiles = self._stamps[stamps].reshape(slots, slots, SLOT_PX, SLOT_PX)
        return tiles.transpose(0, 2, 1, 3).reshape(self._side_px, self._side_px)

    def _record(self, scene: TissueImage | PixelQuery) -> bytes:
        key = scene.number, scene.sample, scene.position, scene.time_ms
        if isinstance(scene, PixelQuery):
            return image_records.query_record(*key)
        from PIL import Image

        picture = image_records.encode(Image.fromarray(self.pixels(scene)))
        return image_records.image_record(*key, picture)

    def _draw_scene(
        self, rng: np.random.Generator, number: int, time_ms: int
    ) -> TissueImage | PixelQuery:
        side = self._side_px
        turn, sample = divmod(number, self._samples)
        if rng.random() < 1.0 / (IMAGES_PER_QUERY + 1):
            x, y = rng.integers(side, size=2).tolist()
            return PixelQuery(number, sample, (x, y), time_ms)
        columns, rows = SCAN
        slots = (side // SLOT_PX) ** 2
        filled = rng.random(slots) < rng.uniform(*CELL_SHARES)
        marks = rng.random(slots) < MARKER_SHARE
        return TissueImage(
            number=number,
            sample=sample,
            position=(turn % columns * side, turn // columns % rows * side),
            time_ms=time_ms,
            cells=int(np.count_nonzero(filled)),
            marked_cells=int(np.count_nonzero(filled & marks)),
            stamps=np.where(filled, rng.integers(1, STAMPS + 1, size=slots), 0),
            marks=marks,
            glow=int(rng.integers(GLOWS)),
            noise=(int(rng.integers(side)), int(rng.integers(side))),
        )


def _draw_stamps(rng: np.random.Generator) -> Pixels:
    """Cells of several sizes and angles, each in a slot of its own; the first slot is empty."""
    stamps: Pixels = np.zeros((STAMPS + 1, SLOT_PX, SLOT_PX), dtype=np.uint8)
    y, x = np.mgrid[:SLOT_PX, :SLOT_PX] - (SLOT_PX - 1) / 2
    for stamp in stamps[1:]:
        angle = rng.uniform(0.0, np.pi)
        across, along = rng.uniform(*RADII_PX, size=2)
        right, down = x - rng.uniform(-SHIFT_PX, SHIFT_PX), y - rng.uniform(-SHIFT_PX, SHIFT_PX)
        distance = np.hypot(
            (right * np.cos(angle) + down * np.sin(angle)) / across,
            (down * np.cos(angle) - right * np.sin(angle)) / along,
        )
        # Bright inside, dark outside, and a pixel or two in between.
        brightness = 1.0 / (1.0 + np.exp(12.0 * (distance - 1.0)))
        stamp[:] = rng.uniform(*CELL_LEVELS) * brightness
    return stamps


def _draw_glows(rng: np.random.Generator, side_px: int) -> Pixels:
    """Light that has no edges: a wide spot, anywhere."""
    glows: Pixels = np.empty((GLOWS, side_px, side_px), dtype=np.uint8)
    y, x = np.mgrid[:side_px, :side_px]
    width = max(side_px / 6, 24.0)
    for glow in glows:
        left, top = rng.uniform(0, side_px, size=2)
        spread = ((x - left) ** 2 + (y - top) ** 2) / (2.0 * width**2)
        glow[:] = rng.uniform(*GLOW_LEVELS) * np.exp(-spread)
    return glows
