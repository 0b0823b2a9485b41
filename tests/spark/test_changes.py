"""Files that are read again while a job runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from penstock.spark.changes import SwitchFile, WatchedFile


def touch(path: Path, text: str, second: int) -> None:
    """Write a file as of that second, so that no test has to wait for the clock."""
    path.write_text(text)
    os.utime(path, (second, second))


def test_a_file_has_changed_when_it_comes_changes_or_goes(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    watched = WatchedFile(path)
    assert not watched.has_changed()
    touch(path, "a", 1)
    assert [watched.has_changed(), watched.has_changed()] == [True, False]
    touch(path, "b", 2)
    assert [watched.has_changed(), watched.has_changed()] == [True, False]
    path.unlink()
    assert [watched.has_changed(), watched.has_changed()] == [True, False]


def test_a_switch_says_what_is_in_its_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    path = tmp_path / "switch"
    switch = SwitchFile(str(path))
    assert switch.says() == ""
    for second, word in enumerate(("pause", "recommend", "act"), start=1):
        touch(path, f" {word}\n", second)
        assert switch.says() == switch.says() == word
    touch(path, "stop", 9)
    assert switch.says() == switch.says() == "act"
    assert caplog.text.count("must say pause, recommend or act, not 'stop'") == 1
    path.unlink()
    assert switch.says() == ""


@pytest.mark.parametrize("text", ["", "paus", "go"])
def test_a_typo_or_a_file_being_written_does_not_resume_a_paused_scaler(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "switch"
    touch(path, "pause", 1)
    switch = SwitchFile(str(path))
    touch(path, text, 2)
    assert switch.says() == "pause"


def test_a_switch_that_is_there_at_the_start_is_read(tmp_path: Path) -> None:
    path = tmp_path / "switch"
    path.write_text("pause")
    assert SwitchFile(str(path)).says() == "pause"
    assert SwitchFile("").says() == ""
