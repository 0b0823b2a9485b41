"""What a file of a log says, from the lines of a real one."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from penstock.lab.advise.events import LogPart, gather, merged
from penstock.lab.advise.logs import LogFile, lines

(RECORDED,) = (Path(__file__).parent / "recorded").glob("eventlog_v2_*/events_*")
ALL_S = 1e9


def read(some: Iterable[bytes], last_s: float = ALL_S, *, is_growing: bool = False) -> LogPart:
    return gather(LogFile("log", "log", is_growing=is_growing), some, last_s)


@pytest.fixture(scope="module")
def recorded() -> list[bytes]:
    with RECORDED.open("rb") as file:
        return list(lines(file))


def test_a_log_says_who_ran_with_which_settings_on_which_fleet(recorded: list[bytes]) -> None:
    part = read(recorded)
    assert part.application == RECORDED.parent.name.removeprefix("eventlog_v2_")
    assert part.name == "penstock-demo"
    assert part.conf["spark.executor.cores"] == "1"
    assert len({change.id for change in part.executors if change.cores}) == 8
    assert part.problem == ""


def test_batches_have_offsets_and_the_work_of_their_stages(recorded: list[bytes]) -> None:
    part = read(recorded)
    ran = [report for report in part.reports if report.batch]
    assert len(ran) > 60
    for before, after in pairwise(ran):
        assert before.taken is not None
        assert after.taken is not None
        assert after.batch is not None
        assert after.batch.input_records == after.taken - before.taken
    batches = [report.batch for report in ran]
    owners = {stage.batch for stage in part.stages if stage.work_s}
    assert owners >= {batch.id for batch in batches if batch and batch.input_records}


def test_only_the_last_time_is_kept_of_a_long_log(recorded: list[bytes]) -> None:
    part = read(recorded, last_s=60.0)
    newest_s = part.reports[-1].at_s
    assert newest_s - 60.0 <= part.reports[0].at_s <= newest_s - 50.0
    assert all(stage.ended_at_s >= newest_s - 60.0 for stage in part.stages)
    assert part.application  # what was said once stays
    assert part.executors


def test_what_is_kept_of_a_report_does_not_grow_with_the_partitions(recorded: list[bytes]) -> None:
    events = [msgspec.json.decode(line) for line in recorded if b"QueryProgressEvent" in line[:90]]
    sizes = []
    for partitions in 12, 1200:
        for event in events:
            for source in event["progress"]["sources"]:
                ends = {str(number): 1000 + number for number in range(partitions)}
                for key in ("startOffset", "endOffset", "latestOffset"):
                    source[key] = msgspec.json.encode({"t": ends}).decode()
        part = read(msgspec.json.encode(event) for event in events)
        assert part.reports[0].taken == sum(1000 + number for number in range(partitions))
        sizes.append(len(pickle.dumps(part)))
    assert sizes[1] < 1.5 * sizes[0]


def test_of_a_log_in_several_files_the_last_time_of_all_is_kept(recorded: list[bytes]) -> None:
    # The last 60 s of the second file are those of the log: nothing of the first is judged.
    half = len(recorded) // 2
    parts = [read(some, 60.0) for some in (recorded[:half], recorded[half:])]
    first, second = (part.reports for part in parts)
    assert first
    assert second
    kept = merged([parts[1]], [parts[0]], 60.0)
    assert kept == [parts[1], parts[0]]
    assert not first
    assert second[-1].at_s - second[0].at_s <= 60.0


@pytest.mark.parametrize("kind", [b"QueryProgressEvent", b"SparkListenerTaskEnd"])
def test_a_torn_last_line_is_a_problem_unless_the_log_is_still_written(
    recorded: list[bytes], kind: bytes
) -> None:
    last = next(line for line in reversed(recorded) if kind in line[:90])
    torn = [*recorded[:200], last[:150]]
    assert read(torn).problem == "has 1 line that cannot be read"
    assert read(torn, is_growing=True).problem == ""


def test_lines_that_are_damaged_are_counted_and_the_others_read(recorded: list[bytes]) -> None:
    damaged = [line.replace(b'"sources":[', b'"sources":[[') for line in recorded]
    count = sum(line != whole for line, whole in zip(damaged, recorded, strict=True))
    part = read(damaged)
    assert part.problem == f"has {count} lines that cannot be read"
    assert not part.reports
    assert part.stages


def test_a_source_that_counts_otherwise_has_no_offsets(recorded: list[bytes]) -> None:
    events = [msgspec.json.decode(line) for line in recorded if b"QueryProgressEvent" in line[:90]]
    for event in events:
        for source in event["progress"]["sources"]:
            source["latestOffset"] = '{"logOffset":3}'
            source["description"] = "FileStreamSource[in]"
    part = read(msgspec.json.encode(event) for event in events)
    assert {report.arrived for report in part.reports} == {None}
    assert {report.source for report in part.reports} == {"FileStreamSource[in]"}
