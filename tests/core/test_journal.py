"""The journal survives what happens to files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.files import TornLineWarning
from penstock.core.journal import (
    FileJournal,
    JournalHeader,
    decode_step,
    encode_step,
    read_header,
    read_rotated,
    read_steps,
    read_tail,
    write_all,
)
from penstock.core.knowledge import Knowledge
from penstock.core.model import (
    Batch,
    Decision,
    ExecutorSample,
    Fleet,
    OperatorSample,
    Reason,
    Receipt,
    Snapshot,
    Step,
)


class Count(Struct, frozen=True, tag=True):
    turns: int = 0


class OtherMemory(Struct, frozen=True, tag=True):
    turns: int = 0


def step(at_s: float, target: int = 3, *, moved: bool = False) -> Step:
    snapshot = Snapshot(
        at_s,
        Fleet(2, 2, 2),
        batches=(Batch(1, at_s, 1.5, 100, {"addBatch": 1.2}, {"input.malformed": 3.0}),),
        arrival_rps=10.5,
        mean_delay_s=1.5,
        partition_backlog_records=(7, 0, 12),
        executors=(ExecutorSample("1", 0.0, cpu_fraction=0.5, disk_bytes_per_s=2e6),),
        operators=(OperatorSample("map", ("source",), input_rps=1.0, idle_fraction=0.25),),
    )
    decision = Decision.of(target, Reason("test", "because", {"x": 1.5}), memory=Count(int(at_s)))
    return Step(at_s, snapshot, decision, Receipt(True) if moved else None)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path, JournalHeader.of({"policy": "hpa"})) as journal:
        for at_s in (0.0, 15.0):
            journal.write(step(at_s))
    first, second = read_steps(path)
    assert first.snapshot == step(0.0).snapshot
    assert second.decision.reasons == step(15.0).decision.reasons
    assert read_header(path).run == {"policy": "hpa"}


def test_a_journal_is_continued_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for at_s in (0.0, 15.0, 30.0):
        with FileJournal(path) as journal:
            journal.write(step(at_s))
    assert [s.at_s for s in read_steps(path)] == [0.0, 15.0, 30.0]


def test_a_torn_last_line_is_dropped_with_a_warning_and_cut_before_going_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        journal.write(step(0.0))
        journal.write(step(15.0))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(TornLineWarning, match=r"\(3\) is torn and was dropped"):
        assert [s.at_s for s in read_steps(path)] == [0.0]
    with pytest.warns(TornLineWarning, match="torn and was cut"), FileJournal(path) as journal:
        journal.write(step(30.0))
    assert [s.at_s for s in read_steps(path)] == [0.0, 30.0]


@given(cut=st.integers(1, 2000))
def test_a_journal_cut_anywhere_keeps_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "run.jsonl"
    write_all(path, [step(15.0 * i) for i in range(5)])
    whole = path.read_bytes()
    kept = whole[: max(len(whole) - cut, whole.index(b"\n") + 1)]
    path.write_bytes(kept)
    lines = kept.count(b"\n") - 1
    if kept.endswith(b"\n"):
        assert len(list(read_steps(path))) == lines
    else:
        # Cut just before the newline the step itself is whole, and kept.
        with_warning = not whole.startswith(kept + b"\n")
        if with_warning:
            with pytest.warns(TornLineWarning):
                assert len(list(read_steps(path))) == lines
        else:
            assert len(list(read_steps(path))) == lines + 1


def test_a_journal_is_rotated_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path, max_bytes=2000, keep=2, fsync="never") as journal:
        for turn in range(100):
            journal.write(step(15.0 * turn))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.jsonl", "run.jsonl.1", "run.jsonl.2"]
    assert all(p.stat().st_size < 3000 for p in tmp_path.iterdir())
    kept = [s.at_s for s in read_rotated(path)]
    assert kept == [15.0 * turn for turn in range(100 - len(kept), 100)]
    for count in (1, 5, len(kept) - 1, len(kept), 1000):
        assert [s.at_s for s in read_tail(path, count)] == kept[-count:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02\xff\xfe", "is not a Penstock journal"),
        (b'{"at_s": 1}\n', "is not a Penstock journal|is not a step"),
        (b'{"format":"other","version":1}\n', "is not a Penstock journal but 'other'"),
        (b'{"format":"penstock-journal","version":9}\n', "has version 9, this Penstock reads"),
        (
            b'{"format":"penstock-journal","version":1}\nnonsense\n{}\n',
            "is not a step of a journal",
        ),
        (
            b'{"format":"penstock-journal","version":1}\n\xff\xfe\n{}\n',
            "is not a step of a journal",
        ),
    ],
)
def test_what_is_no_journal_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        list(read_steps(path))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write journal .*nowhere.*: No such file"):
        FileJournal(tmp_path / "nowhere" / "run.jsonl")
    with pytest.raises(ConfigError, match=r"cannot write .*nowhere.*: No such file"):
        write_all(tmp_path / "nowhere" / "run.jsonl", [])


def test_knowledge_is_a_fold_over_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    steps = [step(15.0 * turn, moved=turn % 3 == 0) for turn in range(10)]
    write_all(path, steps)
    live, restarted = Knowledge.from_steps(steps), Knowledge.from_steps(read_steps(path))
    assert list(live.history) == list(restarted.history)
    assert list(live.rescales) == list(restarted.rescales)
    assert list(live.recommendations) == list(restarted.recommendations)
    assert live.now_s == restarted.now_s == 135.0
    assert live.recall(Count) == restarted.recall(Count) == Count(135)
    assert restarted.recall(OtherMemory) == OtherMemory()


FRACTIONS = st.none() | st.floats(0.0, 1.0)
EXECUTORS = st.builds(
    ExecutorSample, st.text(max_size=3), st.floats(0.0, 1e9), st.booleans(), FRACTIONS, FRACTIONS
)
OPERATORS = st.builds(
    OperatorSample, st.text(max_size=3), st.tuples(st.text(max_size=2)) | st.just(()), FRACTIONS
)


@given(st.lists(EXECUTORS, max_size=4), st.lists(OPERATORS, max_size=3))
def test_samples_by_column_are_read_back_as_they_were(
    executors: list[ExecutorSample], operators: list[OperatorSample]
) -> None:
    seen = Snapshot(1.0, Fleet(1, 1, 1), executors=tuple(executors), operators=tuple(operators))
    step = Step(1.0, seen, Decision.of(1, Reason("held", '"executors":{')))
    assert decode_step(encode_step(step)) == step


def test_a_line_of_an_earlier_version_is_read() -> None:
    seen = Snapshot(1.0, Fleet(1, 1, 1), executors=(ExecutorSample("7", 0.5, cpu_fraction=0.25),))
    step = Step(1.0, seen, Decision.of(1, Reason("held", "held")))
    line = msgspec.json.encode(step)
    assert b'"executors":[{"id":"7"' in line
    assert decode_step(line) == step
    assert len(encode_step(step)) < len(line) + 8


@pytest.mark.parametrize(
    "executors", [b'{"id":["1","2"],"started_at_s":[1.0]}', b'{"id":7}', b'{"id":[1]}', b'{"x":[]']
)
def test_columns_that_do_not_fit_are_a_damaged_line(executors: bytes) -> None:
    seen = b'"snapshot":{"at_s":1.0,"fleet":{"target":1,"registered":1,"active":1},"executors":'
    with pytest.raises(msgspec.MsgspecError):
        decode_step(b'{"at_s":1.0,' + seen + executors + b"}}")
