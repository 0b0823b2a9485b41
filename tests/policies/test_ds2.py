"""DS2, and DS2 that looks at the lag first."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Fleet, OperatorSample, Snapshot
from penstock.policies.ds2 import Ds2
from penstock.policies.ds2_adapted import Ds2Adapted


def seen(
    arrival_rps: float = 900.0,
    *,
    at_s: float = 0.0,
    executors: int = 2,
    busy_fraction: float = 1.0,
    input_rps: float = 600.0,
    delay_s: float | None = None,
    trigger_interval_s: float | None = None,
) -> Snapshot:
    """Two executors do 600 records/s when they are busy all the time: 300 each."""
    return Snapshot(
        at_s,
        Fleet(executors, executors, executors),
        trigger_interval_s=trigger_interval_s,
        arrival_rps=arrival_rps,
        delay_s=delay_s,
        operators=(OperatorSample("read", (), input_rps, None, busy_fraction),),
    )


def decide(policy: Ds2 | Ds2Adapted, *snapshots: Snapshot) -> Decision:
    knowledge = Knowledge()
    for snapshot in snapshots:
        knowledge.learn(snapshot, snapshot.at_s)
    return policy.decide(snapshots[-1], knowledge)


@pytest.mark.parametrize(("overprovisioning", "target"), [(0.0, 3), (0.33, 4), (0.66, 5)])
def test_one_decision_reaches_the_size_that_keeps_up(overprovisioning: float, target: int) -> None:
    decision = decide(Ds2(overprovisioning=overprovisioning), seen())
    assert decision.target_executors == target
    assert decision.reasons[0].code == "scale_up"
    assert decision.expected_rps == pytest.approx(300.0 * target)


@pytest.mark.parametrize(("overprovisioning", "once", "twice"), [
    (0.0, 3, 3), (0.33, 3, 4), (0.66, 4, 5),
])  # fmt: skip
def test_koper_rounds_up_before_the_margin_and_after_it(
    overprovisioning: float, once: int, twice: int
) -> None:
    # 660 records/s at 300 each take 2.2 executors: 3 of them, and then 33 % or 66 % more.
    for kind in (Ds2, Ds2Adapted):
        now = seen(660.0, delay_s=9.0)
        policy = kind(overprovisioning=overprovisioning)
        assert decide(policy, now).target_executors == once
        policy = kind(overprovisioning=overprovisioning, whole_instances=True)
        assert decide(policy, now).target_executors == twice


def test_arrivals_count_and_not_what_a_throttled_job_takes_in() -> None:
    # Ten executors read 300/s because no more arrive; they could read 3000/s.
    idle = seen(300.0, executors=10, busy_fraction=0.1, input_rps=300.0)
    assert decide(Ds2(overprovisioning=0.0), idle).target_executors == 1


def test_rates_are_means_over_the_window_only() -> None:
    old, one, two = seen(9e9, at_s=0.0), seen(300.0, at_s=50.0), seen(900.0, at_s=70.0)
    decision = decide(Ds2(overprovisioning=0.0), old, one, two)
    assert decision.reasons[0].evidence["mean_arrival_rps"] == 600.0
    assert decision.target_executors == 2


def test_stages_in_turns_are_summed_unless_told_otherwise() -> None:
    stages = (
        OperatorSample("scan", (), 600.0, 600.0, 0.4),
        OperatorSample("count", ("scan",), 600.0, None, 0.6),
    )
    now = Snapshot(0.0, Fleet(4, 4, 4), trigger_interval_s=2.0, arrival_rps=900.0, operators=stages)
    assert decide(Ds2(overprovisioning=0.0), now).target_executors == 6
    assert decide(Ds2(overprovisioning=0.0, sharing="max"), now).target_executors == ceil(3.6)


def test_a_small_shrink_can_be_left_out_as_the_original_does() -> None:
    now = seen(300.0)
    assert decide(Ds2(overprovisioning=0.0), now).target_executors == 1
    decision = decide(Ds2(overprovisioning=0.0, least_shrink=2), now)
    assert (decision.target_executors, decision.reasons[0].code) == (2, "right_size")


def test_a_silent_source_needs_one_executor_and_no_division_by_zero() -> None:
    silent = seen(0.0, executors=5, busy_fraction=0.0, input_rps=0.0)
    assert decide(Ds2(), silent).target_executors == 1


def test_an_operator_that_has_never_worked_cannot_be_sized() -> None:
    decision = decide(Ds2(), seen(busy_fraction=0.0, input_rps=0.0))
    assert (decision.target_executors, decision.reasons[0].code) == (2, "not_measured")


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e5), st.sampled_from([None, 2.0]))
def test_more_arrivals_never_make_a_smaller_fleet(
    low_rps: float, more_rps: float, trigger_interval_s: float | None
) -> None:
    low = seen(low_rps, trigger_interval_s=trigger_interval_s)
    high = seen(low_rps + more_rps, trigger_interval_s=trigger_interval_s)
    assert decide(Ds2(), low).target_executors <= decide(Ds2(), high).target_executors


@pytest.mark.parametrize(
    ("arrival_rps", "delay_s", "target", "code"),
    [
        (900.0, 5.1, 3, "scale_up"),
        (900.0, 5.0, 2, "lag_forbids"),
        (300.0, 0.9, 1, "scale_down"),
        (300.0, 1.0, 2, "lag_forbids"),
        (600.0, 60.0, 2, "right_size"),
    ],
)
def test_the_adapted_one_grows_only_when_late_and_shrinks_only_when_not(
    arrival_rps: float, delay_s: float, target: int, code: str
) -> None:
    decision = decide(Ds2Adapted(overprovisioning=0.0), seen(arrival_rps, delay_s=delay_s))
    assert (decision.target_executors, decision.reasons[0].code) == (target, code)


def test_the_wait_for_a_trigger_does_not_keep_a_micro_batch_job_from_shrinking() -> None:
    now = seen(300.0, delay_s=3.5, trigger_interval_s=2.0)
    assert decide(Ds2Adapted(overprovisioning=0.0), now).target_executors == 1


def test_the_adapted_one_holds_without_a_lag_to_look_at() -> None:
    decision = decide(Ds2Adapted(), seen())
    assert decision.reasons[0].text == "holding 2 executors: delay_s not measured"
