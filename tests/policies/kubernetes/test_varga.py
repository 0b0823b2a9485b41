"""Lag and utilisation, fed to Kubernetes' autoscaler."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock import simulate
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


def _after_a_change(registered: Iterable[int]) -> tuple[Knowledge, Snapshot]:
    """Snapshots every 15 s, the last at 120 s, in which the lag grows by 5 k/s to 900 k."""
    knowledge = Knowledge()
    for turn, count in enumerate(registered):
        snapshot = replace(
            _snapshot(300_000 + 75_000 * turn, 0.3, at_s=15.0 * turn), fleet=Fleet(4, count, 4)
        )
        knowledge.learn(snapshot, snapshot.at_s)
    return knowledge, knowledge.history[-1]


@pytest.mark.parametrize(("version", "target"), [(1, 6), (2, 4)])
@pytest.mark.parametrize(
    "registered",
    [
        pytest.param((3, 3, 3, 4, 4, 4, 4, 4, 4), id="one came"),
        pytest.param((5, 5, 4, 4, 4, 4, 4, 4, 4), id="one was lost or given back"),
        pytest.param((4, 4, 4, 4, 3, 4, 4, 4, 4), id="one was lost and replaced"),
    ],
)
def test_version_two_reads_zero_after_executors_came_or_went(
    version: int, target: int, registered: tuple[int, ...]
) -> None:
    # The 10 k/s that are read would have to be 15 k/s: ceil(4 x 1.5) = 6. Cooling, it recommends
    # 0; only the window down keeps the fleet.
    knowledge, snapshot = _after_a_change(registered)
    policy = Varga(version=1 if version == 1 else 2)
    decision = policy.decide(snapshot, knowledge)
    assert decision.target_executors == target
    assert (decision.reasons[0].code == "cooling_down") == (version == 2)


def test_a_rescale_that_no_executor_has_followed_yet_is_no_change() -> None:
    knowledge, snapshot = _after_a_change([4] * 9)
    knowledge.rescales.append(Rescale(60.0, 3, 4))
    assert Varga(version=2).decide(snapshot, knowledge).target_executors == 6


def test_after_the_cooldown_the_metrics_count_again() -> None:
    # The change lies between 0 and 15 s; 120 s after the first turn that shows it, it is over.
    knowledge, snapshot = _after_a_change([3] + [4] * 9)
    assert snapshot.at_s == 135.0
    assert Varga(version=2).decide(snapshot, knowledge).target_executors == 6


@pytest.mark.parametrize(("lag_target", "target"), [(1.0, 6), (0.8, 8), (1.5, 4)])
def test_a_lower_lag_target_overshoots(lag_target: float, target: int) -> None:
    # The lag metric is 1.5: 4 x 1.5 / 0.8 = 7.5. At a target of 1.5 it is where it should be.
    knowledge, snapshot = _climb(5_000, until=400_000)
    assert Varga(lag_target=lag_target).decide(snapshot, knowledge).target_executors == target


def _batched(
    *stages: OperatorSample, lag: float = 0.0, at_s: float = 0.0, executors: int = 14
) -> Snapshot:
    """30 k/s on a trigger of 2 s: up to 120 k records wait while it keeps up."""
    fleet = Fleet(executors, executors, executors)
    return Snapshot(
        at_s,
        fleet,
        trigger_interval_s=2.0,
        arrival_rps=30_000.0,
        throughput_rps=30_000.0,
        backlog_records=lag,
        operators=stages,
    )


def test_stages_that_take_turns_use_the_slots_together() -> None:
    # 0.5 + 0.25 + 0.2 = 0.95 of the slots' time; a mean over the two inner stages would be 0.225.
    stages = (
        OperatorSample("source", busy_fraction=0.5),
        OperatorSample("shuffle", upstream=("source",), busy_fraction=0.25),
        OperatorSample("state", upstream=("shuffle",), busy_fraction=0.2),
    )
    decision = Varga().decide(_batched(*stages, executors=4), Knowledge())
    assert decision.reasons[0].evidence["utilization"] == pytest.approx(0.95)
    assert decision.target_executors == 6  # ceil(4 x 0.95/0.7)


def test_the_idle_time_of_the_slots_is_taken_where_it_is_measured() -> None:
    stages = (
        OperatorSample("source", busy_fraction=0.5, idle_fraction=0.1),
        OperatorSample("state", upstream=("source",), busy_fraction=0.2, idle_fraction=0.1),
    )
    decision = Varga().decide(_batched(*stages), Knowledge())
    assert decision.reasons[0].evidence["utilization"] == pytest.approx(0.9)


def test_the_use_of_slots_is_a_mean_over_the_window() -> None:
    # A batch a minute is busy in one of four snapshots, for 80 % of its 15 s.
    knowledge = Knowledge()
    for turn, busy in enumerate((0.0, 0.8, 0.0, 0.0)):
        stage = OperatorSample("source", busy_fraction=busy)
        knowledge.learn(_batched(stage, at_s=15.0 * turn), 15.0 * turn)
    decision = Varga().decide(knowledge.history[-1], knowledge)
    assert decision.reasons[0].evidence["utilization"] == pytest.approx(0.2)


def test_the_records_of_two_triggers_are_no_lag() -> None:
    # 120 k records are above the threshold of 50 k, and usual; 14 x 0.3/0.7 = 6.
    stages = (
        OperatorSample("source", busy_fraction=0.2),
        OperatorSample("state", upstream=("source",), busy_fraction=0.1),
    )
    policy = Varga(stabilize_down_s=0.0)
    usual = policy.decide(_batched(*stages, lag=120_000.0), Knowledge())
    assert (usual.target_executors, usual.reasons[0].evidence["lag_metric"]) == (6, -1.0)
    late = policy.decide(_batched(*stages, lag=170_001.0), Knowledge())
    assert (late.target_executors, late.reasons[0].evidence["lag_metric"]) == (14, 1.0)


def test_a_micro_batch_job_that_needs_fewer_executors_gets_fewer() -> None:
    # Seen before: 0 rescales in an hour, while the continuous engine went from 14 to 8.
    run = simulate("varga", "constant:30k", duration_s=3600.0, start_executors=14)
    assert run.steps[-1].decision.target_executors <= 8


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
