"""The eight signals of a run, with worked numbers for Spark and for a continuous engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock.core.journal import read_steps
from penstock.core.model import Decision, ExecutorSample, Fleet, OperatorSample, Snapshot, Step
from penstock.observe.report.series import Telemetry, telemetry
from tests.observe.report.example_steps import HOLD, blind, turn

RECORDED = Path(__file__).parents[2] / "recorded"


def measured(size: int, **metrics: Any) -> Step:
    snapshot = Snapshot(0.0, Fleet(size, size, size), **metrics)
    return Step(0.0, snapshot, Decision.of(size, HOLD))


def signals(found: Telemetry) -> dict[str, list[float | None]]:
    """All but the instants."""
    return {name: column for name, column in structs.asdict(found).items() if name != "at_s"}


def test_a_turn_on_spark_has_its_batch_against_its_trigger_in_place_of_backpressure() -> None:
    executors = (
        ExecutorSample("1", 0.0, cpu_fraction=0.2, busy_fraction=0.5),
        ExecutorSample("2", 0.0, cpu_fraction=0.6, busy_fraction=1.0),
        ExecutorSample("3", 0.0, ready=False),  # it starts: nothing was measured
    )
    stages = (OperatorSample("source", busy_fraction=0.4), OperatorSample("state"))
    step = measured(
        3, arrival_rps=500.0, backlog_records=900.0, latency_s=5.0, trigger_interval_s=2.0,
        executors=executors, operators=stages,
    )  # fmt: skip
    assert signals(telemetry([step])) == {
        "input_rps": [500.0],
        "workers": [3],
        "lag_records": [900.0],
        "latency_s": [5.0],
        "cpu_fraction": [0.4],
        "busy_fraction": [0.75],
        "idle_fraction": [0.25],
        "backpressured_fraction": [None],
        "trigger_fraction": [2.5],
    }


def test_operators_side_by_side_have_means_and_the_most_held_back_of_them() -> None:
    operators = (
        OperatorSample("source", busy_fraction=0.2, backpressured_fraction=0.7, idle_fraction=0.1),
        OperatorSample("window", busy_fraction=1.0, backpressured_fraction=0.0, idle_fraction=0.0),
    )
    executors = (ExecutorSample("1", 0.0, cpu_fraction=0.9, busy_fraction=0.8),)
    found = telemetry([measured(1, operators=operators, executors=executors, latency_s=0.2)])
    assert found.busy_fraction == [0.6]
    assert found.idle_fraction == [0.05]
    assert found.backpressured_fraction == [0.7]
    assert found.cpu_fraction == [0.9]
    assert found.trigger_fraction == [None]  # no trigger interval


def test_what_was_not_measured_is_a_gap_and_a_blind_turn_is_a_gap_everywhere() -> None:
    found = telemetry([turn(0.0, arrival_rps=5.0), blind(10.0), turn(20.0)])
    assert found.at_s == [0.0, 10.0, 20.0]
    assert found.input_rps == [5.0, None, None]
    assert found.workers == [4, None, 4]
    rest = [c for name, c in signals(found).items() if name not in ("input_rps", "workers")]
    assert rest == [[None, None, None]] * 7


def test_a_live_run_counts_its_seconds_from_its_start() -> None:
    begin_s = 1.8e9
    assert telemetry([turn(begin_s), turn(begin_s + 5.0)]).at_s == [0.0, 5.0]


def test_a_recorded_run_that_drowns_shows_batches_far_over_their_trigger() -> None:
    found = telemetry(list(read_steps(RECORDED / "udf-drowning.jsonl")))
    filled = [each for each in found.trigger_fraction if each is not None]
    assert len(filled) == 38
    assert max(filled) == pytest.approx(max(each for each in found.latency_s if each) / 2.0)
    assert max(filled) > 5.0
