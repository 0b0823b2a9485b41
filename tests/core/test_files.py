"""Whole files, and files of JSON lines: torn tails, and lines that are something else."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from penstock.core.errors import ConfigError
from penstock.core.files import (
    MOST_LINE_BYTES,
    TornLineWarning,
    check_place,
    cut_torn_line,
    decode_lines,
    numbered_lines,
    open_locked,
    write_whole,
)
from penstock.core.journal import FileJournal, JournalHeader

decode = msgspec.json.Decoder(int).decode


def read(path: Path) -> list[int]:
    with path.open("rb") as file:
        return list(decode_lines(path, numbered_lines(file), decode, "a number"))


def test_a_torn_last_line_is_dropped_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_bytes(b"1\n2\n[3")
    with pytest.warns(TornLineWarning, match=r"the last line of .*numbers.jsonl \(3\) is torn"):
        assert read(path) == [1, 2]


def test_any_other_bad_line_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    for line in (b"one", b"\xff\xfe"):
        path.write_bytes(b"1\n" + line + b"\n3\n")
        with pytest.raises(ConfigError, match=r"line 2 of .*numbers.jsonl is not a number: "):
            read(path)


@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 200_000])
def test_a_torn_line_of_any_length_is_cut_and_whole_lines_stay(tmp_path: Path, length: int) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_bytes(b"1\n2\n" + b"3" * length)
    if length:
        with pytest.warns(TornLineWarning, match="is torn and was cut"):
            cut_torn_line(path)
    else:
        cut_torn_line(path)
    assert path.read_bytes() == b"1\n2\n"


def test_a_file_without_a_whole_line_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_bytes(b"12")
    with pytest.warns(TornLineWarning):
        cut_torn_line(path)
    assert path.read_bytes() == b""


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    write_whole(place, [b"first"])
    write_whole(place, [b"second"])
    assert place.read_text() == "second"
    with pytest.raises(ConfigError, match=r"cannot write .*nowhere.*: No such file or directory"):
        write_whole(tmp_path / "nowhere" / "report.html", [b"third"])
    with pytest.raises(ConfigError, match=r"cannot write .*: Is a directory"):
        write_whole(tmp_path, [b"fourth"])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_bytes(b"1\n" + b"2" * (MOST_LINE_BYTES + 1))
    with pytest.raises(ConfigError, match=r"line 2 of .*numbers.jsonl has over 4 MiB"):
        read(path)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_have_the_permissions_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "page.html", [b"x"])
        open_locked(tmp_path / "live.jsonl").close()
    finally:
        os.umask(before)
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_nothing_is_written_through_a_link_that_somebody_put_into_a_shared_directory(
    tmp_path: Path,
) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    shared.chmod(0o1777)
    victim.write_text("precious")
    for name in ("page.html", "page.html.partial", "live.jsonl"):
        (shared / name).symlink_to(victim)
    check_place(shared / "page.html")
    write_whole(shared / "page.html", [b"x"])
    assert (shared / "page.html").read_text() == "x"
    assert not (shared / "page.html").is_symlink()
    with pytest.raises(OSError, match="link in a directory that everybody may write to"):
        open_locked(shared / "live.jsonl")
    with pytest.raises(ConfigError, match=r"cannot write journal .*live.jsonl: it is a link"):
        FileJournal(shared / "live.jsonl", JournalHeader.of())
    assert victim.read_text() == "precious"
    # In a directory of the user's own a link is the user's will.
    shared.chmod(0o755)
    open_locked(shared / "live.jsonl").close()
