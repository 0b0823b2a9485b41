"""`penstock.simulate` and `penstock.compare` do what the command line does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import penstock
from penstock.cli.app import main

LOAD = "sine:mean=40k,amplitude=25k,period=2h"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


@dataclass(frozen=True, slots=True)
class Five:
    """Five executors."""

    period_s: float = 60.0
    default_limits: ClassVar[penstock.Limits] = penstock.Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(
        self, snapshot: penstock.Snapshot, knowledge: penstock.Knowledge
    ) -> penstock.Decision:
        return penstock.Decision.of(5, penstock.Reason("five", "always five"))


@pytest.mark.parametrize("engine", ["micro-batch", "continuous"])
def test_simulate_gives_the_score_of_the_command(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--policy", "hpa:cpu_target=0.8", "--workload", LOAD, "--duration", "2h")
    more = ("--max", "8", "--fault", "executor_lost:at=1h", "--engine", engine, "--seed", "3")
    score = printed(capsys, "simulate", *options, *more)
    run = penstock.simulate(
        "hpa:cpu_target=0.8",
        LOAD,
        engine=engine,
        seed=3,
        duration_s=7200.0,
        limits={"max_executors": 8},
        faults=["executor_lost:at=1h"],
    )
    assert msgspec.to_builtins(run.score) == score


def test_compare_gives_the_rows_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    load = "sine:mean=20k,amplitude=10k,period=15min"
    options = ("--policy", "ds2", "static:3", "oracle", "--workload", load, "--duration", "20min")
    rows = printed(capsys, "compare", *options, "--seeds", "1", "2", "--slo", "5s", "--max", "4")
    found = penstock.compare(
        ["ds2", "static:3", "oracle"],
        [load],
        seeds=[1, 2],
        duration_s=1200.0,
        goal=penstock.Goal(slo_s=5.0),
        limits={"max_executors": 4},
    )
    assert msgspec.to_builtins(found) == rows


def test_a_policy_may_be_an_object_and_is_named_by_its_parameters() -> None:
    rows = penstock.compare([Five(), "static:5"], [LOAD], duration_s=3600.0, regret=False)
    assert [row.policy for row in rows] == ["Five(period_s=60.0)", "static:5"]
    assert rows[0].cost == rows[1].cost
    assert penstock.simulate(Five(), LOAD, duration_s=3600.0).score.cost == rows[0].cost


def test_limits_replace_those_of_the_policy() -> None:
    few = penstock.simulate(Five(), LOAD, duration_s=3600.0, limits={"max_executors": 3})
    assert max(level.executors for level in few.outcome.targets) == 3
    same = penstock.simulate(
        "static:5", LOAD, duration_s=3600.0, limits=penstock.Limits(max_executors=3)
    )
    assert same.score == few.score


def test_the_journal_that_simulate_writes_can_be_read(tmp_path: Path) -> None:
    run = penstock.simulate("ds2", LOAD, duration_s=7200.0, journal=tmp_path / "run.jsonl")
    journal = penstock.read_journal(tmp_path / "run.jsonl")
    assert list(journal.steps) == run.steps
    assert journal.header.run["policy"] == "ds2"
    columns = journal.columns()
    assert {len(column) for column in columns.values()} == {len(run.steps)}
    moved = [
        (step.snapshot.fleet.target, step.decision.target_executors)
        for step in journal.rescales
        if step.snapshot
    ]
    assert moved
    assert all(before != after for before, after in moved)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"policy": "hpaa"}, "unknown policy 'hpaa'"),
        ({"policy": "static:6", "workload": "sinus"}, "unknown workload 'sinus'"),
        ({"policy": "static:6", "engine": "flink"}, "unknown engine 'flink'"),
        ({"policy": "static:6", "limits": {"max": 3}}, "unknown limit 'max' in limits"),
        ({"policy": "static:6", "faults": ["fire"]}, "unknown fault 'fire'"),
        ({"policy": "static:6", "duration_s": 0.5}, "at least 1 s"),
        ({"policy": "static:6", "duration_s": 1e12}, "at most 2678400 s"),
        ({"policy": "static:6", "duration_s": float("nan")}, "at least 1 s"),
    ],
)
def test_bad_input_is_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(penstock.ConfigError, match=sentence):
        penstock.simulate(**{"workload": LOAD, "duration_s": 1800.0, **arguments})


def test_compare_finds_mistakes_before_the_first_run() -> None:
    for policies, workloads, engines in (
        (["static:6", "hpaa"], [LOAD], ["micro-batch"]),
        (["static:6"], [LOAD, "sinus"], ["micro-batch"]),
        (["static:6"], [LOAD], ["micro-batch", "flink"]),
    ):
        with pytest.raises(penstock.ConfigError, match="unknown"):
            penstock.compare(policies, workloads, engines=engines, duration_s=1e9)
    with pytest.raises(penstock.ConfigError, match="at least one"):
        penstock.compare([], [LOAD])
