"""Images as records: what can be decoded, and what is said when a package is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock.core.errors import ConfigError
from penstock.testbed.jobs.image_records import (
    decode,
    encode,
    image_record,
    query_record,
    require_packages,
)
from penstock.testbed.jobs.photos import PhotoEvents
from penstock.testbed.jobs.tissue import TissueEvents

PICTURE = encode(Image.new("RGB", (40, 30), (10, 200, 30)))


@pytest.mark.parametrize(
    ("module", "package"), [("PIL", "pillow"), ("pandas", "pandas"), ("pyarrow", "pyarrow")]
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    expected = rf"the job 'x' needs {package}: install penstock\[jobs\]"
    with pytest.raises(ConfigError, match=expected):
        require_packages("the job 'x'")


def test_the_jobs_can_be_imported_without_the_packages() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['PIL', 'pandas', 'pyarrow', 'pyspark'])); "
        "import penstock.testbed.jobs.pixel_queries, penstock.testbed.jobs.images"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("stream", [PhotoEvents, TissueEvents])
def test_a_stream_of_images_needs_pillow(
    monkeypatch: pytest.MonkeyPatch, stream: type[PhotoEvents] | type[TissueEvents]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"the stream '\w+' needs pillow"):
        stream(1, due_ms=lambda events: events)


def test_a_record_holds_the_picture_and_where_and_when_it_was_taken() -> None:
    record = json.loads(image_record(7, 3, (256, 512), 1_700_000_000_000, PICTURE))
    assert b64decode(record.pop("image")) == PICTURE
    keys = {"id": 7, "sample": 3, "x": 256, "y": 512, "time_ms": 1_700_000_000_000}
    assert record == {"type": "image", **keys}
    assert json.loads(query_record(7, 3, (256, 512), 1_700_000_000_000)) == {
        "type": "query",
        **keys,
    }


def test_a_picture_in_grey_or_with_transparency_comes_out_in_three_colours() -> None:
    for mode in ("L", "RGBA", "P", "1"):
        file = BytesIO()
        Image.new(mode, (5, 4)).save(file, "PNG")
        picture = decode(file.getvalue())
        assert picture is not None
        assert (picture.mode, picture.size) == ("RGB", (5, 4))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_image_decode_to_nothing(data: bytes) -> None:
    assert decode(data) is None


@given(st.integers(0, len(PICTURE) - 3))
def test_a_picture_that_was_cut_off_decodes_to_nothing(length: int) -> None:
    assert decode(PICTURE[:length]) is None


@given(st.integers(2, len(PICTURE) - 1), st.integers(0, 255))
def test_a_damaged_picture_never_raises(place: int, value: int) -> None:
    damaged = bytearray(PICTURE)
    damaged[place] = value
    picture = decode(bytes(damaged))
    assert picture is None or picture.mode == "RGB"


def test_a_picture_of_more_than_16_megapixels_is_refused_before_it_fills_the_memory() -> None:
    assert decode(encode(Image.new("RGB", (4096, 4096)))) is not None
    assert decode(encode(Image.new("RGB", (4096, 4097)))) is None
