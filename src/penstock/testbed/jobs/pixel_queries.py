"""The job `pixel-queries`: one pixel in the last 1,000 images of a tissue sample.

The stateful part of the operators of Borkowski et al. (2019)::

    records ─┬─ images ── decode ── keep a raster ─┬─ by sample ── state: last 1,000 rasters
             └─ queries (1 per 100 images) ────────┘                 └─ answers

The answer is the red, green and blue of that pixel in each image, oldest first. The state is one
value per sample (`applyInPandasWithState`): with `transformWithStateInPandas` a query would fetch
1,000 entries through a socket. Streams only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.testbed.jobs.image_records import KEYS, decode, parse_records, require_packages
from penstock.testbed.jobs.images import KEY_SCHEMA, without_malformed
from penstock.testbed.jobs.parsing import MALFORMED

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

WINDOW_IMAGES = 1_000  #: Images in the window of a sample.
RASTER_PX = 16  #: Pixels at multiples of this are kept.

COLOURS = 3
ANSWER_SCHEMA = (
    f"{KEY_SCHEMA}, intensities ARRAY<STRUCT<red: SMALLINT, green: SMALLINT, blue: SMALLINT>>"
)
STATE_SCHEMA = "rows INT, columns INT, pixels BINARY"

Intensities = list[tuple[int, int, int]]
#: Rows, columns, and three bytes for each of the pixels, row by row.
Raster = tuple[int, int, bytes]


def answer_pixel_queries(
    source: DataFrame, window_images: int = WINDOW_IMAGES, raster_px: int = RASTER_PX
) -> DataFrame:
    """From records in `value` to answers: id, sample, x, y, time_ms of the query, intensities.

    A stream of it is in append mode: each query is answered once, in the batch that reads it. A
    position outside the frame, or of a sample without images, gets an empty vector. An answer
    covers at most `window_images`. A raster of 1 pixel keeps all of them; the state grows with the
    square of the inverse.
    """
    from pyspark.sql.streaming.state import GroupStateTimeout

    require_packages("the job 'pixel-queries'")
    job = "pixel-queries"

    def keep_rasters(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return (_with_rasters(batch, raster_px) for batch in batches)

    def answer(
        _sample: tuple[int], batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        return _answer_group(batches, state, window_images, raster_px)

    events = parse_records(source, job).mapInPandas(
        keep_rasters,
        f"type STRING, {KEY_SCHEMA}, rows INT, columns INT, pixels BINARY, {MALFORMED} BOOLEAN",
    )
    by_sample = without_malformed(events, f"{job}-images").groupBy("sample")
    return by_sample.applyInPandasWithState(
        answer, ANSWER_SCHEMA, STATE_SCHEMA, "append", GroupStateTimeout.NoTimeout
    )


class PixelWindow:
    """The rasters of the last images of one sample, oldest first.

    A camera has one frame: a raster of another size than the last one starts a new window.

    Images of one row with two pixels; a window of two images:

    >>> window = PixelWindow(length=2)
    >>> for level in (10, 20, 30):
    ...     window.add((1, 2, bytes([level] * 3 + [level + 1] * 3)))
    >>> window.intensities(row=0, column=1)
    [(21, 21, 21), (31, 31, 31)]
    >>> window.intensities(row=0, column=2)
    []
    >>> PixelWindow(2, window.packed()).intensities(0, 0)
    [(20, 20, 20), (30, 30, 30)]
    """

    def __init__(self, length: int, packed: Raster = (0, 0, b"")) -> None:
        self._rows, self._columns, pixels = packed
        size = COLOURS * self._rows * self._columns
        pieces = (pixels[i : i + size] for i in range(0, len(pixels), size or 1))
        self._rasters: deque[bytes] = deque(pieces, maxlen=length)

    def add(self, raster: Raster) -> None:
        rows, columns, pixels = raster
        if (rows, columns) != (self._rows, self._columns):
            self._rows, self._columns = rows, columns
            self._rasters.clear()
        self._rasters.append(pixels)

    def intensities(self, row: int, column: int) -> Intensities:
        """Red, green and blue of that pixel in each image; empty if it lies outside the frame."""
        if not (0 <= row < self._rows and 0 <= column < self._columns):
            return []
        red = COLOURS * (row * self._columns + column)
        return [(each[red], each[red + 1], each[red + 2]) for each in self._rasters]

    def packed(self) -> Raster:
        """All of it as a row of the state."""
        return self._rows, self._columns, b"".join(self._rasters)


def _with_rasters(batch: pd.DataFrame, raster_px: int) -> pd.DataFrame:
    """The records with what is kept of their images; queries have none and need none."""
    import pandas as pd

    rasters = [
        (0, 0, None) if kind == "query" else _raster(image, raster_px)
        for kind, image in zip(batch["type"], batch["image"], strict=True)
    ]
    kept = pd.DataFrame(rasters, columns=["rows", "columns", "pixels"], index=batch.index)
    kept[MALFORMED] = kept["pixels"].isna() & (batch["type"] == "image")
    return batch[["type", *KEYS]].join(kept)


def _raster(image: bytes | None, raster_px: int) -> tuple[int, int, bytes | None]:
    picture = decode(image)
    if picture is None:
        return 0, 0, None
    kept = np.asarray(picture)[::raster_px, ::raster_px]
    return kept.shape[0], kept.shape[1], kept.tobytes()


def _answer_group(
    batches: Iterable[pd.DataFrame], state: GroupState, window_images: int, raster_px: int
) -> Iterator[pd.DataFrame]:
    """Take the new images of a sample into its window, and answer the queries in between."""
    import pandas as pd

    window = PixelWindow(window_images, state.get if state.exists else (0, 0, b""))
    answers: list[tuple[Any, ...]] = []
    has_images = False
    events = pd.concat(list(batches)).sort_values("id", kind="stable")
    for event in events.itertuples(index=False):
        if event.type == "image":
            window.add((event.rows, event.columns, event.pixels))
            has_images = True
        else:
            found = window.intensities(event.y // raster_px, event.x // raster_px)
            answers.append((*(getattr(event, key) for key in KEYS), found))
    if has_images:
        state.update(window.packed())
    if answers:
        yield pd.DataFrame(answers, columns=[*KEYS, "intensities"])
