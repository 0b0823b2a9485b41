"""The network recognises photos that it has not learned from."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from penstock.testbed.jobs.image_records import decode, encode
from penstock.testbed.jobs.photos import KINDS, PhotoEvents
from penstock.testbed.jobs.recogniser import TRAINING_SEED, fit_recogniser

NEW_SEED = 77


@pytest.mark.slow
@pytest.mark.parametrize("side_px", [128, 384])
def test_97_of_100_new_photos_are_recognised_whatever_their_size(side_px: int) -> None:
    assert TRAINING_SEED != NEW_SEED
    network = fit_recogniser()
    stream = PhotoEvents(NEW_SEED, due_ms=lambda events: events, side_px=side_px)
    right = []
    for scene in stream.scenes(0) + stream.scenes(1) + stream.scenes(2):
        picture = decode(encode(stream.picture(scene)))
        assert picture is not None
        right.append(network.recognise(picture)[0] == scene.kind)
    assert len(right) == 96
    assert np.mean(right) >= 0.97


def test_a_picture_that_shows_nothing_gets_some_answer() -> None:
    kind, score = fit_recogniser(blocks=1).recognise(Image.new("RGB", (1, 1), (90, 90, 90)))
    assert kind in KINDS
    assert np.isfinite(score)
