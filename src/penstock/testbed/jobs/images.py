"""Jobs on images: resize and recognise, resize and store, and the count of cells.

NumPy and Pillow compute in Spark's Python workers (`mapInPandas`), which must have the extra `jobs`
(``PYSPARK_PYTHON``). Malformed records are left out and counted in ``observedMetrics``: no record
under ``JOB-records``, no picture under ``JOB-images``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.testbed.jobs import image_records
from penstock.testbed.jobs.image_filters import count_by_channel
from penstock.testbed.jobs.image_records import KEYS, parse_records, require_packages
from penstock.testbed.jobs.parsing import MALFORMED
from penstock.testbed.jobs.recogniser import fit_recogniser

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image
    from pyspark.sql import DataFrame

STORED_PX = 160  #: The longer side of a stored copy.

KEY_SCHEMA = "id BIGINT, sample INT, x INT, y INT, time_ms BIGINT"


def recognise_photos(source: DataFrame) -> DataFrame:
    """What each photo shows: id, sample, x, y, time_ms, kind, score."""
    require_packages("the job 'images-recognise'")
    network = fit_recogniser()
    return _map_images(source, "images-recognise", "kind STRING, score DOUBLE", network.recognise)


def store_photos(source: DataFrame) -> DataFrame:
    """A smaller copy of each photo: id, sample, x, y, time_ms, width, height, image (JPEG)."""
    require_packages("the job 'images-store'")
    return _map_images(
        source, "images-store", "width INT, height INT, image BINARY", make_stored_copy
    )


def count_cells(source: DataFrame) -> DataFrame:
    """How many objects each image shows in each colour, and how many pixels are on edges.

    Gives id, sample, x, y, time_ms, red, green, blue, edge_px. Queries for pixels are ignored.
    """
    require_packages("the job 'images-cells'")
    columns = "red INT, green INT, blue INT, edge_px INT"
    return _map_images(source, "images-cells", columns, count_objects_and_edges)


def make_stored_copy(image: Image) -> tuple[int, int, bytes]:
    """Width, height and JPEG of a copy that keeps the proportions; never larger than the image.

    >>> from PIL import Image
    >>> make_stored_copy(Image.new("RGB", (640, 320)))[:2]
    (160, 80)
    """
    from PIL import Image as Pillow

    copy = image.copy()
    copy.thumbnail((STORED_PX, STORED_PX), Pillow.Resampling.LANCZOS)
    return copy.width, copy.height, image_records.encode(copy)


def count_objects_and_edges(image: Image) -> tuple[int, int, int, int]:
    """Objects in red, green and blue, and the pixels on edges in all three."""
    red, green, blue = count_by_channel(image)
    edge_px = red.edge_px + green.edge_px + blue.edge_px
    return red.objects, green.objects, blue.objects, edge_px


def _map_images(
    source: DataFrame, job: str, columns: str, compute: Callable[[Image], tuple[Any, ...]]
) -> DataFrame:
    """The key columns of each image with what is computed from it."""
    images = parse_records(source, job).where("type = 'image'").drop("type")
    names = [column.split()[0] for column in columns.split(", ")]

    def compute_batches(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return (_computed(batch, names, compute) for batch in batches)

    computed = images.mapInPandas(compute_batches, f"{KEY_SCHEMA}, {columns}, {MALFORMED} BOOLEAN")
    return without_malformed(computed, f"{job}-images")


def without_malformed(frame: DataFrame, observation: str) -> DataFrame:
    """Leave out the rows whose column `malformed` is true, and count them."""
    from pyspark.sql import functions as f

    counted = frame.observe(observation, f.count_if(MALFORMED).alias(MALFORMED))
    return counted.where(f"NOT {MALFORMED}").drop(MALFORMED)


def _computed(
    batch: pd.DataFrame, names: list[str], compute: Callable[[Image], tuple[Any, ...]]
) -> pd.DataFrame:
    import pandas as pd

    nothing = (None,) * len(names)
    pictures = map(image_records.decode, batch["image"])
    results = [nothing if picture is None else compute(picture) for picture in pictures]
    # Columns of objects: None is no number, and would turn whole numbers into fractions.
    computed = pd.DataFrame(results, columns=names, index=batch.index, dtype=object)
    computed[MALFORMED] = computed[names[0]].isna()
    return batch[list(KEYS)].join(computed)
