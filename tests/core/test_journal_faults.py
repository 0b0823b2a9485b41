"""The journal on a disk that is full, read-only or gone, and killed at any moment."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.core.files import TornLineWarning
from penstock.core.journal import (
    FileJournal,
    JournalHeader,
    LiveJournal,
    read_header,
    read_rotated,
    read_steps,
    read_tail,
)
from tests.disks import small_file_system
from tests.observe.report.example_steps import turn

OTHER = JournalHeader.of({"policy": "hpa"})


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file grows beyond this: a write that passes it is short, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "disk", "32k") as place:
        yield place


def times(path: Path) -> list[float]:
    return [step.at_s for step in read_steps(path)]


def write(journal: FileJournal, steps: int) -> None:
    for number in range(steps):
        journal.write(turn(1.0 + number))


def test_a_short_write_leaves_no_torn_line_behind(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        journal.write(turn(0.0))
        with files_of_at_most(path.stat().st_size + 100), pytest.raises(OSError, match="too large"):
            journal.write(turn(15.0))
        journal.write(turn(30.0))
    assert times(path) == [0.0, 30.0]


def test_a_disk_that_was_full_for_a_moment(small_disk: Path) -> None:
    path, filler = small_disk / "run.jsonl", small_disk / "filler"
    with FileJournal(path, fsync="always") as journal:
        journal.write(turn(0.0))
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"x" * 32 * 1024)
        with pytest.raises(OSError, match="No space"):  # the rest of its last page is free
            write(journal, 100)
        filler.unlink()
        journal.write(turn(200.0))
    kept = times(path)
    assert (kept[0], kept[-1]) == (0.0, 200.0)
    with FileJournal(path) as journal:
        journal.write(turn(215.0))
    assert times(path) == [*kept, 215.0]


def test_a_live_journal_warns_once_goes_on_and_says_what_is_missing(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path, filler = small_disk / "run.jsonl", small_disk / "filler"
    journal = LiveJournal(FileJournal(path))
    journal.write(turn(0.0))
    filler.write_bytes(b"x" * (24 * 1024))
    for number in range(100):
        journal.write(turn(1.0 + number))
    filler.unlink()
    journal.write(turn(200.0))
    journal.write(turn(215.0))
    journal.close()
    kept = times(path)
    assert kept[-2:] == [200.0, 215.0]
    missing = 103 - len(kept)
    assert missing > 5
    warning, again = (record.getMessage() for record in caplog.records)
    assert "No space left on device" in warning
    assert f"without {missing} steps" in again


@pytest.mark.parametrize("content", [b"", b'{"format":"penstock-jour', b'{"form'])
def test_a_journal_without_a_whole_header_is_begun_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        journal.write(turn(0.0))
    path.rename(tmp_path / "run.jsonl.1")
    path.write_bytes(content)
    assert [step.at_s for step in read_tail(path)] == [0.0]
    with FileJournal(path) as journal:
        journal.write(turn(15.0))
    assert [step.at_s for step in read_rotated(path)] == [0.0, 15.0]


def test_what_was_rotated_away_is_known_when_the_file_itself_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        journal.write(turn(0.0))
    path.rename(tmp_path / "run.jsonl.1")
    assert [step.at_s for step in read_tail(path)] == [0.0]
    assert [step.at_s for step in read_rotated(path)] == [0.0]
    assert list(read_tail(tmp_path / "none.jsonl")) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from penstock.core.journal import FileJournal
from tests.observe.report.example_steps import turn

calls = int(sys.argv[2])
def count(event, arguments):
    global calls
    if event in ("os.rename", "open", "os.truncate", "os.remove") and "run.jsonl" in str(arguments):
        calls -= 1
        if calls == 0:
            os.kill(os.getpid(), signal.SIGKILL)

journal = FileJournal(Path(sys.argv[1]), max_bytes=500, keep=2)
for number in range(3):
    journal.write(turn(float(number)))
sys.addaudithook(count)
for number in range(3, 12):
    journal.write(turn(float(number)))
    print(number, flush=True)
"""


def test_a_kill_at_any_step_of_a_rotation_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    """Killed before its first, second, ... call to the file system from the fourth step on."""
    survived = 0
    for call in range(1, 12):
        path = tmp_path / str(call) / "run.jsonl"
        path.parent.mkdir()
        command = [sys.executable, "-c", KILLED, str(path), str(call)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        written = [*range(3), *map(int, done.stdout.split())]
        kept = [int(step.at_s) for step in read_tail(path)]
        assert kept == written[-len(kept) :]
        assert len(kept) >= 3
        with FileJournal(path, max_bytes=500, keep=2) as journal:
            journal.write(turn(100.0))
        assert [step.at_s for step in read_tail(path)][-1] == 100.0
        survived += done.returncode != 0
    assert survived > 5


def test_a_journal_that_was_removed_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "run.jsonl"
    path.parent.mkdir()
    with FileJournal(path, OTHER) as journal:
        journal.write(turn(0.0))
        path.unlink()
        path.parent.rmdir()
        with pytest.raises(OSError, match="No such file"):
            journal.write(turn(15.0))
        path.parent.mkdir()
        journal.write(turn(30.0))
    assert times(path) == [30.0]
    assert read_header(path) == OTHER


@pytest.mark.filterwarnings("ignore:the last line of .* is torn")
@pytest.mark.parametrize("cut_bytes", [1, 30, 10_000])
def test_a_journal_that_somebody_cuts_while_it_is_written_keeps_whole_lines(
    tmp_path: Path, cut_bytes: int
) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path, OTHER) as journal:
        journal.write(turn(0.0))
        journal.write(turn(15.0))
        os.truncate(path, max(0, path.stat().st_size - cut_bytes))
        journal.write(turn(30.0))
        journal.write(turn(45.0))
    assert times(path) == ([0.0] if cut_bytes < 100 else []) + [30.0, 45.0]
    assert read_header(path) == OTHER


def test_of_long_lines_the_last_are_read_at_a_restart_and_none_between_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path, OTHER, max_bytes=1500) as journal:
        for number in range(40):
            journal.write(turn(float(number)))
    everything = [step.at_s for step in read_tail(path)]
    assert len(everything) > 10
    for limit in range(0, 8000, 250):
        monkeypatch.setattr("penstock.core.journal.TAIL_BYTES", limit)
        found = [step.at_s for step in read_tail(path)]
        assert 1 <= len(found) <= max(1, limit // 50)
        assert found == everything[-len(found) :]


def test_a_folder_in_place_of_the_journal_is_an_error_that_passes(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        journal.write(turn(0.0))
        path.unlink()
        path.mkdir()
        with pytest.raises((OSError, ConfigError), match="director"):
            journal.write(turn(15.0))
        with pytest.raises(ConfigError, match=r"journal .*run.jsonl: .*director"):
            FileJournal(path)
        path.rmdir()
        journal.write(turn(30.0))
    assert times(path) == [30.0]


def test_a_rotation_that_fails_is_tried_again(tmp_path: Path) -> None:
    path, blocked = tmp_path / "run.jsonl", tmp_path / "run.jsonl.1"
    blocked.mkdir()
    (blocked / "file").touch()
    with FileJournal(path, max_bytes=1000, keep=1) as journal:
        with pytest.raises(OSError, match="director"):
            write(journal, 10)
        before = times(path)
        (blocked / "file").unlink()
        blocked.rmdir()
        journal.write(turn(100.0))
    assert [step.at_s for step in read_rotated(path)] == [*before, 100.0]


def test_a_place_that_may_not_be_written_is_one_sentence(small_disk: Path) -> None:
    path = small_disk / "run.jsonl"
    with FileJournal(path) as journal:
        journal.write(turn(0.0))
    path.write_bytes(path.read_bytes()[:-20])  # torn: it would have to be cut
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ConfigError, match=r"cannot write journal .*: Read-only file system"):
        FileJournal(path)


def test_a_disk_that_is_replaced_by_a_read_only_one_under_a_live_journal(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = small_disk / "run.jsonl"
    live = LiveJournal(FileJournal(path, max_bytes=800))
    live.write(turn(0.0))
    subprocess.run(["umount", "-l", str(small_disk)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(small_disk)], check=True)
    live.write(turn(15.0))
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    live.write(turn(30.0))
    live.close()
    assert times(path) == [30.0]
    assert "Read-only file system" in caplog.text


def test_what_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"line one\nline two")
    with pytest.raises(ConfigError, match="is not a Penstock journal"):
        FileJournal(path, OTHER)
    assert path.read_bytes() == b"line one\nline two"


def test_a_second_writer_is_refused_while_the_first_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path, max_bytes=1000) as journal:
        for number in range(5):
            journal.write(turn(float(number)))
        with pytest.raises(ConfigError, match=r"run.jsonl: another process or attachment writes"):
            FileJournal(path)
        journal.write(turn(5.0))
    with FileJournal(path) as journal:
        journal.write(turn(6.0))
    assert [step.at_s for step in read_rotated(path)] == [float(number) for number in range(7)]


def test_a_damaged_line_costs_that_line_at_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        for number in range(3):
            journal.write(turn(float(number)))
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1][:50] + lines.pop(2)  # a line that was glued to a torn one
    path.write_bytes(b"\n".join(lines))
    with pytest.warns(TornLineWarning, match=r"line 2 of .* is not a step"):
        assert [step.at_s for step in read_tail(path)] == [2.0]
