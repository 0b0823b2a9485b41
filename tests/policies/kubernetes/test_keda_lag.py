"""Executors by the length of the queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Fleet, Receipt, Snapshot, Step
from penstock.policies.kubernetes.keda_lag import KedaLag
from penstock.policies.kubernetes.pacing import Behavior, ScalingRules

POLICY = KedaLag(lag_threshold=1000)


def _snapshot(
    lag: float | None, executors: int, *, partitions: int | None = 32, at_s: float = 0.0
) -> Snapshot:
    fleet = Fleet(executors, executors, executors)
    return Snapshot(at_s, fleet, backlog_records=lag, partitions=partitions)


def _told(*snapshots: Snapshot) -> Knowledge:
    knowledge = Knowledge()
    for snapshot in snapshots:
        knowledge.learn(snapshot, snapshot.at_s)
    return knowledge


def test_the_default_threshold_is_that_of_keda() -> None:
    assert KedaLag().lag_threshold == 10
    assert KedaLag().decide(_snapshot(31, 3), Knowledge()).target_executors == 3
    assert KedaLag().decide(_snapshot(41, 3), Knowledge()).target_executors == 5


@pytest.mark.parametrize(
    ("lag", "executors", "target"),
    [
        (8_800, 8, 8),  # 10 % above, within tolerance
        (8_801, 8, 9),  # ceil(8.801)
        (90_000, 8, 16),  # 32 by the partitions, but at most twice as many
        (9_000, 1, 4),  # from 1, at most 4
    ],
)
def test_each_executor_gets_its_threshold_of_records(lag: int, executors: int, target: int) -> None:
    assert POLICY.decide(_snapshot(lag, executors), Knowledge()).target_executors == target


def test_partitions_are_the_most_except_for_the_rest_of_a_division() -> None:
    assert POLICY.decide(_snapshot(90_000, 4, partitions=5), Knowledge()).target_executors == 5
    # 5.9 thresholds are cut to 5, which is not more than 5 partitions: so 5.9 asks for 6.
    assert POLICY.decide(_snapshot(5_900, 4, partitions=5), Knowledge()).target_executors == 6
    idle = KedaLag(lag_threshold=1000, allow_idle_consumers=True)
    assert idle.decide(_snapshot(90_000, 4, partitions=5), Knowledge()).target_executors == 8
    assert idle.decide(_snapshot(90_000, 4, partitions=None), Knowledge()).target_executors == 8


def test_fewer_records_than_partitions_lie_in_fewer_partitions() -> None:
    single = KedaLag(lag_threshold=1, limit_to_partitions_with_lag=True)
    assert single.decide(_snapshot(7, 4, partitions=32), Knowledge()).target_executors == 7


def test_partitions_are_those_of_the_topic_where_they_are_measured() -> None:
    # 64 tasks can run at once, but the topic has 4 partitions, of which 2 have a lag.
    snapshot = replace(
        _snapshot(9_000, 4, partitions=64), partition_backlog_records=(5_000, 4_000, 0, 0)
    )
    assert POLICY.decide(snapshot, Knowledge()).target_executors == 4
    limited = KedaLag(lag_threshold=1_000, limit_to_partitions_with_lag=True)
    assert limited.decide(snapshot, Knowledge()).reasons[0].evidence["wanted"] == 2


def test_even_distribution_takes_a_divisor_of_the_partitions() -> None:
    even = KedaLag(lag_threshold=1000, ensure_even_distribution=True)
    assert even.decide(_snapshot(6_500, 4, partitions=12), Knowledge()).target_executors == 8
    assert even.decide(_snapshot(6_500, 8, partitions=12), Knowledge()).target_executors == 12


def test_it_shrinks_only_after_five_minutes_and_never_below_one_by_itself() -> None:
    policy = KedaLag(lag_threshold=1000, cooldown_s=1e9)
    first = _snapshot(0, 6)
    decision = policy.decide(first, _told(first))
    assert (decision.target_executors, decision.reasons[-1].code) == (6, "stabilized")
    knowledge = _told(first)
    knowledge.remember(Step(0.0, first, decision))
    later = _snapshot(0, 6, at_s=301.0)
    knowledge.learn(later, 301.0)
    assert policy.decide(later, knowledge).target_executors == 1


def test_an_inactive_job_falls_asleep_after_the_cooldown_and_wakes_with_a_record() -> None:
    quiet = [_snapshot(0, 2, at_s=at_s) for at_s in (0.0, 150.0, 300.0)]
    assert POLICY.decide(quiet[1], _told(*quiet[:2])).target_executors == 2
    assert POLICY.decide(quiet[2], _told(*quiet)).target_executors == 0
    busy = [quiet[0], _snapshot(1, 2, at_s=150.0), quiet[2]]
    assert POLICY.decide(quiet[2], _told(*busy)).target_executors == 2
    assert POLICY.decide(_snapshot(0, 0), Knowledge()).target_executors == 0
    woken = POLICY.decide(_snapshot(1, 0), Knowledge())
    assert (woken.target_executors, woken.reasons[0].code) == (1, "activated")
    deaf = KedaLag(activation_lag_threshold=5)
    assert deaf.decide(_snapshot(5, 0), Knowledge()).target_executors == 0


def test_without_lag_or_partitions_it_holds() -> None:
    for snapshot in (_snapshot(None, 3), _snapshot(9_000, 3, partitions=None)):
        decision = POLICY.decide(snapshot, Knowledge())
        assert (decision.target_executors, decision.reasons[0].code) == (3, "not_measured")


def test_a_behavior_replaces_tolerance_and_limit() -> None:
    exact = KedaLag(lag_threshold=1000, behavior=Behavior(ScalingRules(tolerance=0.0)))
    assert exact.decide(_snapshot(8_001, 8), Knowledge()).target_executors == 9


@given(st.floats(0, 1e9), st.integers(0, 40), st.none() | st.integers(1, 64), st.booleans())
def test_any_lag_gets_a_sound_decision(
    lag: float, executors: int, partitions: int | None, limited: bool
) -> None:
    policy = KedaLag(lag_threshold=500, limit_to_partitions_with_lag=limited)
    snapshot = _snapshot(lag, executors, partitions=partitions)
    knowledge = Knowledge()
    for _ in range(3):
        knowledge.learn(snapshot, snapshot.at_s)
        decision = policy.decide(snapshot, knowledge)
        assert isinstance(decision, Decision)
        assert decision.target_executors <= max(2 * executors, 4)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision, Receipt(accepted=True)))
