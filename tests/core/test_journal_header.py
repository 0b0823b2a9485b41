"""A header that is true of every step of its file, and journals that have less of one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.cli.app import main
from penstock.core.errors import ConfigError
from penstock.core.journal import (
    FileJournal,
    JournalHeader,
    read_header,
    read_last_run,
    read_rotated,
    read_steps,
)
from penstock.core.model import Limits, Step
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header, recorded_goal, recorded_limits, recorded_spec
from penstock.settings.policy_spec import PolicySpec, read_policy_spec
from tests.observe.report.example_steps import turn

#: Written by Penstock 0.1.0, whose header named only the policy and the workload.
OLD = Path(__file__).parents[1] / "recorded" / "journal-0.1.jsonl"


def header_of(text: str, **bounds: int) -> JournalHeader:
    return journal_header(read_policy_spec(text, bounds), Goal())


def written(path: Path, header: JournalHeader | None, *steps: Step, keep: int = 4) -> None:
    with FileJournal(path, header, keep=keep) as journal:
        for step in steps:
            journal.write(step)


def test_the_same_header_continues_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path, header_of("hpa", max_executors=8), turn(0.0))
    written(path, header_of("hpa", max_executors=8), turn(15.0))
    written(path, None, turn(30.0))
    assert [step.at_s for step in read_steps(path)] == [0.0, 15.0, 30.0]


@pytest.mark.parametrize(
    "other",
    [
        header_of("hpa:tolerance_up=0.3", max_executors=8),
        header_of("hpa", max_executors=4),
        journal_header(read_policy_spec("hpa", {"max_executors": 8}), Goal(slo_s=20.0)),
    ],
    ids=["policy", "limits", "goal"],
)
def test_another_header_begins_a_new_file(tmp_path: Path, other: JournalHeader) -> None:
    path = tmp_path / "run.jsonl"
    first = header_of("hpa", max_executors=8)
    written(path, first, turn(0.0), turn(15.0))
    written(path, other, turn(30.0))
    assert read_header(path) == other
    assert read_header(tmp_path / "run.jsonl.1") == first
    assert [step.at_s for step in read_rotated(path)] == [0.0, 15.0, 30.0]
    past, steps = read_last_run(path)
    assert ([s.at_s for s in past], [s.at_s for s in steps]) == ([0.0, 15.0], [30.0])


def test_a_file_without_a_step_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path, header_of("hpa"))
    written(path, header_of("ds2"), turn(0.0))
    assert read_header(path).policy == "ds2"
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_with_no_file_to_keep_the_steps_before_go(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path, header_of("hpa"), turn(0.0), keep=0)
    written(path, header_of("ds2"), turn(15.0), keep=0)
    assert [step.at_s for step in read_rotated(path)] == [15.0]
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_limits_and_goal_come_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    limits = Limits(min_executors=2, max_executors=32, cooldown_s=33.3, max_step=3, max_age_s=1e9)
    spec = PolicySpec.of(read_policy_spec("ds2:overprovisioning=0.2").policy, limits)
    written(path, journal_header(spec, Goal(slo_s=7.5), workload="sine"))
    header = read_header(path)
    assert recorded_spec(header).policy == spec.policy
    assert recorded_limits(header) == limits
    assert recorded_goal(header) == Goal(slo_s=7.5)
    assert header.run == {"policy": "ds2:overprovisioning=0.2", "workload": "sine"}
    assert header.penstock


def test_measurements_may_be_of_any_age(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    spec = PolicySpec.of(read_policy_spec("ds2").policy, Limits(max_age_s=float("inf")))
    written(path, journal_header(spec, Goal()))
    limits = recorded_limits(read_header(path))
    assert limits is not None
    assert limits.max_age_s > 1e300


def test_a_limit_of_a_later_version_is_one_sentence() -> None:
    header = msgspec.structs.replace(header_of("hpa"), limits={"grace_s": 60})
    with pytest.raises(ConfigError, match=r"header of the journal is not readable: .*grace_s"):
        recorded_limits(header)


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(str(end.value.code or 0))


def test_a_journal_of_the_first_version_is_read_explained_replayed_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = read_header(OLD)
    assert (header.penstock, header.policy, header.limits) == ("", "", {})
    assert len(list(read_steps(OLD))) >= 14
    assert called("explain", str(OLD)) == 0
    assert "4 executors" in capsys.readouterr().out
    assert called("replay", str(OLD), "--max", "4") == 0
    assert "differs at 0 of" in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert called("report", str(OLD), "--out", str(page)) == 0
    assert "hpa:cpu_target=0.4" in page.read_text()


def test_a_journal_of_the_first_version_is_continued_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(OLD.read_bytes())
    written(path, header_of("hpa"), turn(700.0))
    assert [step.at_s for step in read_steps(path)] == [700.0]
    past, _ = read_last_run(path)
    assert past == list(read_steps(OLD))
