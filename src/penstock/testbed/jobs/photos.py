"""Synthetic photos: one object each, of six kinds, on a noisy background crossed by thin lines.

They stand for those of Russo Russo et al. (2021). `scenes` says what each photo shows, the record
does not. A photo of 384 x 384 pixels takes about 2 ms to draw and encode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.testbed.jobs.image_records import Pixels, encode, image_record, require_packages
from penstock.testbed.jobs.timeline import Events, SeededStream, Times

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = ("disc", "ring", "square", "triangle", "cross", "star")
SIDE_PX = 384
PHOTOS_PER_BLOCK = 32
MAP_M = 10_000  #: Photos come from places on a map of this many metres each way.

#: The radius of an object, as a part of the side.
RADII = (0.18, 0.36)
RING_WIDTH = 0.4
LINES = 4
#: Levels of each colour. With the noise they stay below 256, so that no pixel overflows.
BACKGROUND_LEVELS = (30, 110)
OBJECT_LEVELS = (140, 230)
LINE_LEVELS = (BACKGROUND_LEVELS[0], OBJECT_LEVELS[1])
NOISE_LEVELS = 25

Point = tuple[float, float]
Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Photo:
    """What one photo shows, and where and when it was taken."""

    number: int
    position: tuple[int, int]
    time_ms: int
    kind: str
    centre: Point
    radius: float
    angle: float
    background: Colour
    colour: Colour
    lines: tuple[tuple[Point, Point, Colour], ...]
    noise: tuple[int, int]  #: Where its noise is cut from.


class PhotoEvents(SeededStream):
    """The stream of one seed; `side_px` is the height and width of a photo.

    >>> stream = PhotoEvents(seed=1, due_ms=lambda events: 1_700_000_000_000 + 100 * events)
    >>> record = stream.block(0)[7]
    >>> record[:23], len(record) > 10_000, stream.scenes(0)[7].kind
    (b'{"type":"image","id":7,', True, 'disc')
    """

    block_size = PHOTOS_PER_BLOCK

    def __init__(
        self, seed: int, due_ms: Callable[[Events], Times], side_px: int = SIDE_PX
    ) -> None:
        require_packages("the stream 'photos'", ["PIL"])
        super().__init__(seed, due_ms)
        self._side_px = side_px
        shape = (2 * side_px, 2 * side_px, 3)
        self._noise: Pixels = self.rng_of_all().integers(NOISE_LEVELS, size=shape, dtype=np.uint8)

    def block(self, number: int) -> list[bytes]:
        photos = [(each, encode(self.picture(each))) for each in self.scenes(number)]
        return [image_record(p.number, 0, p.position, p.time_ms, picture) for p, picture in photos]

    def scenes(self, number: int) -> list[Photo]:
        rng, events = self.rng_of(number), self.events_of(number)
        timed = zip(events.tolist(), self._due_ms(events).tolist(), strict=True)
        return [self._draw_scene(rng, event, time_ms) for event, time_ms in timed]

    def picture(self, photo: Photo) -> Image:
        from PIL import Image, ImageDraw

        side = self._side_px
        canvas = Image.new("RGB", (side, side), photo.background)
        draw = ImageDraw.Draw(canvas)
        for start, end, colour in photo.lines:
            draw.line((*start, *end), fill=colour, width=max(side // 128, 1))
        (x, y), radius = photo.centre, photo.radius
        box = (x - radius, y - radius, x + radius, y + radius)
        if photo.kind == "disc":
            draw.ellipse(box, fill=photo.colour)
        elif photo.kind == "ring":
            draw.ellipse(box, outline=photo.colour, width=round(radius * RING_WIDTH))
        else:
            draw.polygon(_placed(_OUTLINES[photo.kind], photo), fill=photo.colour)
        top, left = photo.noise
        noise = self._noise[top : top + side, left : left + side]
        return Image.fromarray(np.asarray(canvas) + noise)

    def _draw_scene(self, rng: np.random.Generator, number: int, time_ms: int) -> Photo:
        side = self._side_px
        radius = rng.uniform(*RADII) * side
        return Photo(
            number=number,
            position=(int(rng.integers(MAP_M)), int(rng.integers(MAP_M))),
            time_ms=time_ms,
            kind=KINDS[rng.integers(len(KINDS))],
            centre=_point(rng, radius, side - radius),
            radius=radius,
            angle=rng.uniform(0.0, 2.0 * math.pi),
            background=_colour(rng, *BACKGROUND_LEVELS),
            colour=_colour(rng, *OBJECT_LEVELS),
            lines=tuple(
                (_point(rng, 0, side), _point(rng, 0, side), _colour(rng, *LINE_LEVELS))
                for _ in range(LINES)
            ),
            noise=(int(rng.integers(side)), int(rng.integers(side))),
        )


def _point(rng: np.random.Generator, low: float, high: float) -> Point:
    x, y = rng.uniform(low, high, size=2).tolist()
    return x, y


def _colour(rng: np.random.Generator, low: int, high: int) -> Colour:
    red, green, blue = rng.integers(low, high, size=3).tolist()
    return red, green, blue


def _placed(outline: tuple[Point, ...], photo: Photo) -> list[Point]:
    """The corners of an outline, turned, enlarged and moved to where the object stands."""
    cosine, sine = photo.radius * math.cos(photo.angle), photo.radius * math.sin(photo.angle)
    (left, top) = photo.centre
    return [(left + cosine * x - sine * y, top + sine * x + cosine * y) for x, y in outline]


def _corners(count: int, inner_radius: float = 1.0) -> tuple[Point, ...]:
    """Corners on a circle of radius 1, every second one on the inner circle."""
    turns = [2.0 * math.pi * i / count for i in range(count)]
    radii = [inner_radius if i % 2 else 1.0 for i in range(count)]
    placed = zip(radii, turns, strict=True)
    return tuple((r * math.cos(turn), r * math.sin(turn)) for r, turn in placed)


_ARM = 0.31
#: Corners in units of the radius, none farther out than 1.
_OUTLINES: dict[str, tuple[Point, ...]] = {
    "square": _corners(4),
    "triangle": _corners(3),
    "star": _corners(10, inner_radius=0.45),
    "cross": (
        (_ARM, 0.95), (_ARM, _ARM), (0.95, _ARM), (0.95, -_ARM), (_ARM, -_ARM), (_ARM, -0.95),
        (-_ARM, -0.95), (-_ARM, -_ARM), (-0.95, -_ARM), (-0.95, _ARM), (-_ARM, _ARM), (-_ARM, 0.95),
    ),
}  # fmt: skip
