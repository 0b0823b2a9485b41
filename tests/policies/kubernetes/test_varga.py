"""Lag and utilisation, fed to Kubernetes' autoscaler."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.knowledge import Knowledge, Rescale
from penstock.core.model import Fleet, OperatorSample, Snapshot, Step
from penstock.policies.kubernetes.varga import Varga, lag_metric


def _snapshot(
    lag: float | None,
    idle: float | None,
    *,
    executors: int = 4,
    at_s: float = 0.0,
    rate_rps: float | None = 10_000.0,
) -> Snapshot:
    operators = (
        OperatorSample("kafka", idle_fraction=0.0),
        OperatorSample("count", upstream=("kafka",), idle_fraction=idle),
    )
    return Snapshot(
        at_s,
        Fleet(executors, executors, executors),
        backlog_records=lag,
        throughput_rps=rate_rps,
        operators=operators,
    )


def _climb(slope_rps: float, *, until: float, idle: float = 0.3) -> tuple[Knowledge, Snapshot]:
    """A minute in which the lag changes evenly and ends at `until`."""
    knowledge = Knowledge()
    for at_s in (0.0, 15.0, 30.0, 45.0, 60.0):
        snapshot = _snapshot(until - slope_rps * (60.0 - at_s), idle, at_s=at_s)
        knowledge.learn(snapshot, at_s)
    return knowledge, knowledge.history[-1]


def test_a_lag_of_exactly_the_threshold_is_zero_and_not_a_division_by_it() -> None:
    assert lag_metric(50_000, 50_000, slope_rps=1.0, rate_rps=10.0) == 0.0
    assert lag_metric(50_001, 50_000, slope_rps=-5_000, rate_rps=10_000) == 0.5


def test_half_the_target_utilisation_halves_the_fleet() -> None:
    policy = Varga(utilization_target_fraction=0.8, stabilize_down_s=0.0)
    assert policy.decide(_snapshot(0, 0.6, executors=8), Knowledge()).target_executors == 4


def test_a_growing_queue_is_sized_for() -> None:
    # 5 k/s more arrive than the 10 k/s that are read: 4 x 1.5 = 6.
    knowledge, snapshot = _climb(5_000, until=400_000)
    decision = Varga().decide(snapshot, knowledge)
    assert decision.target_executors == 6
    assert decision.reasons[0].evidence["lag_metric"] == pytest.approx(1.5)


def test_a_short_queue_does_not_count_however_fast_it_grows() -> None:
    knowledge, snapshot = _climb(500, until=40_000)
    decision = Varga().decide(snapshot, knowledge)
    assert (decision.target_executors, decision.reasons[0].code) == (4, "near_target")


def test_a_queue_that_stands_keeps_a_fleet_from_shrinking() -> None:
    knowledge, snapshot = _climb(0, until=60_000, idle=0.9)
    assert Varga(stabilize_down_s=0.0).decide(snapshot, knowledge).target_executors == 4


def test_it_shrinks_after_480_seconds() -> None:
    first = _snapshot(0, 0.9)
    knowledge = Knowledge()
    decision = Varga().decide(first, knowledge)
    assert (decision.target_executors, decision.reasons[-1].code) == (4, "stabilized")
    knowledge.remember(Step(0.0, first, decision))
    assert Varga().decide(_snapshot(0, 0.9, at_s=479.0), knowledge).target_executors == 4
    assert Varga().decide(_snapshot(0, 0.9, at_s=480.0), knowledge).target_executors == 1


@pytest.mark.parametrize(("version", "target"), [(1, 6), (2, 4)])
def test_version_two_reads_zero_after_a_rescale(version: int, target: int) -> None:
    knowledge, snapshot = _climb(5_000, until=400_000)
    knowledge.rescales.append(Rescale(30.0, 3, 4))
    policy = Varga(version=1 if version == 1 else 2)
    decision = policy.decide(snapshot, knowledge)
    # What it recommends is 0; only the window down keeps the fleet.
    assert decision.target_executors == target
    assert (decision.reasons[0].code == "cooling_down") == (version == 2)


def test_after_the_cooldown_the_metrics_count_again() -> None:
    knowledge, snapshot = _climb(5_000, until=400_000)
    knowledge.rescales.append(Rescale(-60.0, 3, 4))
    assert Varga(version=2).decide(snapshot, knowledge).target_executors == 6


def test_a_stage_that_reports_no_idle_time_is_idle_when_it_is_not_busy() -> None:
    stage = OperatorSample("stage", upstream=("source",), busy_fraction=0.95)
    snapshot = Snapshot(
        0.0, Fleet(4, 4, 4), backlog_records=0, throughput_rps=1.0, operators=(stage,)
    )
    assert Varga().decide(snapshot, Knowledge()).target_executors == 6


def test_a_job_of_sources_only_is_judged_by_them() -> None:
    source = OperatorSample("all in one", idle_fraction=0.05)
    snapshot = Snapshot(
        0.0, Fleet(4, 4, 4), backlog_records=0, throughput_rps=1.0, operators=(source,)
    )
    assert Varga().decide(snapshot, Knowledge()).target_executors == 6


def test_sources_count_where_their_idle_time_can_be_trusted() -> None:
    # Idle 0.2 and 0.6: without the source 0.8 is used, ceil(4 x 0.8/0.5) = 7; with it 0.6.
    operators = (
        OperatorSample("kafka", idle_fraction=0.6),
        OperatorSample("count", upstream=("kafka",), idle_fraction=0.2),
    )
    snapshot = Snapshot(
        0.0, Fleet(4, 4, 4), backlog_records=0, throughput_rps=1.0, operators=operators
    )
    policy = Varga(utilization_target_fraction=0.5)
    assert policy.decide(snapshot, Knowledge()).target_executors == 7
    all_count = Varga(utilization_target_fraction=0.5, count_sources=True)
    assert all_count.decide(snapshot, Knowledge()).target_executors == 5


@pytest.mark.parametrize(
    ("snapshot", "name"),
    [
        (_snapshot(None, 0.1), "backlog_records"),
        (Snapshot(0.0, Fleet(4, 4, 4), backlog_records=1), "idle_fraction of any operator"),
        (_snapshot(1, 0.1, rate_rps=None), "throughput_rps"),
    ],
)
def test_what_is_not_measured_is_not_guessed(snapshot: Snapshot, name: str) -> None:
    decision = Varga().decide(snapshot, Knowledge())
    assert decision.target_executors == 4
    assert decision.reasons[0].text == f"holding 4 executors: {name} not measured"


def test_a_job_that_reads_nothing_has_no_lag_metric() -> None:
    snapshot = _snapshot(1e6, 0.3, rate_rps=0.0)
    assert Varga().decide(snapshot, Knowledge()).reasons[0].evidence["lag_metric"] == 0.0


@given(
    st.floats(0, 1e9),
    st.floats(0, 1),
    st.floats(0, 1e6),
    st.integers(0, 30),
    st.sampled_from([1, 2]),
)
def test_any_measurement_gets_a_sound_decision(
    lag: float, idle: float, rate_rps: float, executors: int, version: int
) -> None:
    policy = Varga(version=1 if version == 1 else 2)
    snapshot = _snapshot(lag, idle, executors=executors, rate_rps=rate_rps)
    decision = policy.decide(snapshot, Knowledge())
    assert executors <= decision.target_executors <= max(2 * executors, executors + 4)
