"""A scenario says what it does unasked, and a fixed fleet starts as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.core.model import Limits
from penstock.lab.experiments.scenario import Scenario, run
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.faults import ExecutorLost

GOAL = Goal(warmup_s=0.0)


def test_a_fixed_fleet_is_there_from_the_start_and_never_rescaled() -> None:
    result = run(Scenario("sine", duration_s=1200.0), Static(executors=4), Limits(), GOAL)
    assert {level.executors for level in result.outcome.targets} == {4}
    assert result.score.rescales == 0


def test_a_fixed_fleet_starts_inside_the_bounds_and_the_user_may_choose_another() -> None:
    assert Scenario("sine").start_size(Limits(max_executors=3), Static(executors=4)) == 3
    assert Scenario("sine").start_size(Limits(min_executors=6), Static(executors=4)) == 6
    chosen = Scenario("sine", start_executors=2)
    assert chosen.start_size(Limits(), Static(executors=4)) == 2


def test_a_fault_after_the_end_and_a_scaled_trace_are_named(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("0,5\n60,6\n120,7\n")
    late = (ExecutorLost(at_s=18_000.0),)
    scaled, outside = Scenario(f"trace:{tmp_path / 'load.csv'}", faults=late).notes()
    assert scaled.startswith("load.csv: peak 7.0/s scaled by about ")
    assert outside == "executor_lost:at=5h never happens: the run ends after 3 min"
    assert Scenario("sine", faults=(ExecutorLost(at_s=60.0),)).notes() == []


def test_an_engine_takes_options_of_its_job() -> None:
    plain, large = Scenario("sine"), Scenario("sine", "micro-batch:state=4G,trigger_interval=10s")
    assert plain.job == MicroBatchJob()
    assert large.job == MicroBatchJob(state_bytes=4e9, trigger_interval_s=10.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("micro-batches", "unknown engine 'micro-batches'"),
        ("micro-batch:4G", "micro-batch: expected key=value, not '4G'"),
        ("micro-batch:states=4G", "unknown option 'states'"),
        ("continuous:state=-1", "state must be"),
    ],
)
def test_an_engine_that_cannot_be_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        _ = Scenario("sine", text).job
