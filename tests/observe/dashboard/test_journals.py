"""Journals that grow, rotate and appear while they are watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigError
from penstock.core.journal import FileJournal, JournalHeader, write_all
from penstock.core.model import Decision, Fleet, Limits, Reason, Snapshot, Step
from penstock.observe.dashboard.journals import JournalFollower
from penstock.observe.dashboard.server import JobBoard

HEADER = JournalHeader.of({"policy": "ds2"}, limits=Limits(max_executors=6), goal={"slo_s": 5.0})


def turn(at_s: float) -> Step:
    decision = Decision.of(2, Reason("right_size", "2 executors are right"))
    return Step(at_s, Snapshot(at_s, Fleet(2, 2, 2), arrival_rps=at_s), decision)


def watched(*places: Path) -> tuple[JobBoard, JournalFollower]:
    board = JobBoard()
    return board, JournalFollower(places, board)


def instants(board: JobBoard, key: str = "") -> list[float]:
    job = board.find(key)
    assert job is not None
    view: dict[str, Any] = json.loads(job.drawn())
    found: list[float] = view["lines"]["load"]["at_s"]
    return found


def test_a_journal_grows_on_the_page_through_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    with FileJournal(path, HEADER, max_bytes=400) as journal:
        journal.write(turn(1.0))
        board, follower = watched(path)
        assert instants(board) == [1.0]
        for number in range(2, 9):  # the header alone fills a file: each has one step
            journal.write(turn(float(number)))
            if number in (3, 8):
                follower.look()
    assert (tmp_path / "orders.jsonl.2").exists()
    assert instants(board) == [float(number) for number in range(1, 9)]
    assert json.loads(board.jobs()[0].drawn())["max_executors"] == 6


def test_a_line_that_is_half_written_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    write_all(path, [turn(1.0), turn(2.0)], HEADER)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    board, follower = watched(path)
    assert instants(board) == [1.0]
    with path.open("ab") as file:
        file.write(whole[-30:])
        file.write(b"not a step\n")
    follower.look()
    assert instants(board) == [1.0, 2.0]


def test_a_new_run_in_the_place_of_an_old_one_starts_from_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_all(path, [turn(100.0), turn(200.0)], HEADER)
    board, follower = watched(path)
    write_all(path, [turn(10.0), turn(20.0)], HEADER)
    follower.look()
    assert instants(board) == [10.0, 20.0]


def test_a_link_to_a_job_holds_when_the_page_starts_again_beside_more_journals(
    tmp_path: Path,
) -> None:
    place, other = tmp_path / "a", tmp_path / "b"
    place.mkdir()
    other.mkdir()
    write_all(place / "orders.jsonl", [turn(1.0)], HEADER)
    assert [job.key for job in watched(place)[0].jobs()] == ["orders.jsonl"]
    write_all(place / "clicks.jsonl", [turn(1.0)], HEADER)
    write_all(other / "orders.jsonl", [turn(1.0)], HEADER)  # the same name elsewhere
    keys = [job.key for job in watched(place, other)[0].jobs()]
    assert keys == ["clicks.jsonl", "orders.jsonl", "orders.jsonl (2)"]


def test_journals_that_begin_later_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"no": "journal"}\n')
    board, follower = watched(tmp_path)
    assert board.jobs() == []
    (tmp_path / "team").mkdir()
    write_all(tmp_path / "team" / "clicks.jsonl", [turn(1.0)], HEADER)
    follower.look()
    assert [job.name for job in board.jobs()] == ["team/clicks.jsonl"]


def test_the_parts_of_an_application_in_a_store_are_one_journal(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    orders.mkdir()
    write_all(orders / "20261117T080000-0000-000000000000.jsonl", [turn(1.0), turn(2.0)], HEADER)
    # A store that cannot append gets a longer copy of the same part.
    write_all(orders / "20261117T090000-0001-000000000000.jsonl", [turn(3.0)], HEADER)
    board, follower = watched(tmp_path)
    write_all(orders / "20261117T090000-0001-000000000400.jsonl", [turn(3.0), turn(4.0)], HEADER)
    follower.look()
    assert [job.name for job in board.jobs()] == ["orders"]
    assert instants(board) == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("content", [None, "not a journal\n"])
def test_what_is_no_journal_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"run\.jsonl"):
        watched(path)
