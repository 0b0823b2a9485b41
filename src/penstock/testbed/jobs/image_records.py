"""Images and queries as Kafka values: one JSON object each, the picture in it as base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.core.errors import ConfigError
from penstock.testbed.jobs.parsing import parse_json

if TYPE_CHECKING:
    from PIL.Image import Image
    from pyspark.sql import DataFrame

Pixels = NDArray[np.uint8]  #: Height, width, and red, green, blue.

#: The packages of the extra `jobs`: how each is imported, and how it is installed.
PACKAGES = {"pandas": "pandas", "PIL": "pillow", "pyarrow": "pyarrow"}
JPEG_QUALITY = 85
MOST_PIXELS = 1 << 24  #: A larger picture is taken for an attempt to fill the memory of a worker.

_IMAGE = b'{"type":"image","id":%d,"sample":%d,"x":%d,"y":%d,"time_ms":%d,"image":"%s"}'
_QUERY = b'{"type":"query","id":%d,"sample":%d,"x":%d,"y":%d,"time_ms":%d}'
_SCHEMA = "type STRING, id BIGINT, sample INT, x INT, y INT, time_ms BIGINT, image STRING"
KEYS = ("id", "sample", "x", "y", "time_ms")


def require_packages(user: str, modules: Sequence[str] = tuple(PACKAGES)) -> None:
    """Refuse what cannot work here, with the name of what is missing.

    >>> require_packages("the stream 'photos'", ["numpy"])
    """
    for module in modules:
        if find_spec(module) is None:
            package = PACKAGES.get(module, module)
            raise ConfigError(f"{user} needs {package}: install penstock[jobs]")


def image_record(
    number: int, sample: int, position: tuple[int, int], time_ms: int, picture: bytes
) -> bytes:
    """An image: its number in the stream, whose it is, where and when it was taken.

    >>> image_record(7, 0, (256, 0), 1_700_000_000_000, b"\\xff\\xd8")
    b'{"type":"image","id":7,"sample":0,"x":256,"y":0,"time_ms":1700000000000,"image":"/9g="}'
    """
    return _IMAGE % (number, sample, *position, time_ms, b64encode(picture))


def query_record(number: int, sample: int, position: tuple[int, int], time_ms: int) -> bytes:
    """A question for the pixel at that position in the last images of the sample."""
    return _QUERY % (number, sample, *position, time_ms)


def parse_records(source: DataFrame, observation: str) -> DataFrame:
    """The fields of the records as columns, `image` as bytes; NULL where that is no base64."""
    known_type = "CASE WHEN type IN ('image', 'query') THEN type END"
    records = parse_json(source, _SCHEMA, f"{observation}-records", (known_type, *KEYS))
    return records.selectExpr("type", *KEYS, "try_to_binary(image, 'base64') AS image")


def encode(picture: Image) -> bytes:
    file = BytesIO()
    picture.save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def decode(data: bytes | None) -> Image | None:
    """The picture in red, green and blue; None if the bytes are none, or not all of one.

    >>> from PIL import Image
    >>> red = Image.new("RGB", (16, 16), (200, 0, 0))
    >>> [each and each.size for each in map(decode, (encode(red), b"GIF89a", None))]
    [(16, 16), None, None]
    """
    from PIL import Image

    if data is None:
        return None
    try:
        picture = Image.open(BytesIO(data), formats=("JPEG", "PNG"))
        if picture.width * picture.height > MOST_PIXELS:
            return None
        return picture.convert("RGB")
    except Exception:
        # Damaged data raises whatever its decoder ran into: OSError, SyntaxError, struct.error, ...
        return None
