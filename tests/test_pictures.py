"""The pictures of the docs: complete without a network, and the time-lapse is that of its run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools.pictures import IMAGES, PICTURES, RECORDED, demo_lapse
from tools.timelapse import LAPSE_S, STAY_S

from penstock.core.journal import read_steps


def test_the_time_lapse_shows_each_rescale_in_less_than_a_minute() -> None:
    moves = [step for step in read_steps(RECORDED) if step.receipt and step.receipt.accepted]
    drawn = demo_lapse(RECORDED)
    assert LAPSE_S + STAY_S < 60.0
    assert len(re.findall(r'<text class="said ', drawn)) == len(moves) > 5
    # Where nothing moves, the last decision is to be seen, and the whole run.
    assert drawn.count('style="opacity:0"') == len(moves) - 1
    assert "prefers-reduced-motion" in drawn


def test_the_time_lapse_of_the_docs_is_current() -> None:
    assert (IMAGES / "demo.svg").read_text(encoding="utf-8") == demo_lapse(RECORDED)


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_is_valid_and_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) == {"http://www.w3.org/2000/svg"}


def test_every_picture_is_made_by_the_command() -> None:
    made = {*PICTURES, "demo", "growth"} - {"lapse"}  # the growth of cost by `make docs`
    assert {path.stem for path in IMAGES.iterdir()} == made
