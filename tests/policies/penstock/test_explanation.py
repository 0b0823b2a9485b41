"""A reason's words agree with its numbers, whatever the load does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Fleet, Limits, Reason, Snapshot
from penstock.policies.penstock.capacity import Capacity
from penstock.policies.penstock.dynamic_program import Prices, StartState
from penstock.policies.penstock.estimate import CapacityEstimate
from penstock.policies.penstock.explanation import catch_up_decision, explain_plan
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.planning import PlanInputs
from penstock.policies.penstock.surges import Surge, Surges


def inputs(
    now_rps: float = 2_500.0,
    before_rps: float | None = None,
    mean_rps: list[float] | None = None,
    *,
    target: int = 2,
    active: int | None = None,
    lag_s: float = 1.0,
    limits: Limits | None = None,
    surges: Surges | None = None,
    core_s: float = 1e-3,
) -> PlanInputs:
    """A dataflow at 600 s whose executors each do 1 / `core_s` records/s, nearly."""
    mean = [now_rps] * 4 if mean_rps is None else mean_rps
    earlier = None
    if before_rps is not None:
        earlier = Snapshot(540.0, Fleet(target, target, target), arrival_rps=before_rps)
    return PlanInputs(
        at_s=600.0, load_rps=now_rps, earlier=earlier,
        start=StartState(target, target if active is None else active, lag_s, 20.0, 0.0),
        prices=Prices(160.0, 60.0, 2_000.0), load=Forecast(mean, [0.0] * len(mean), "test"),
        surges=Surges() if surges is None else surges,
        capacity=Capacity(CapacityEstimate(work_s=core_s, fixed_s=0.0), 1),
        rescale_s=0.0, shrink_s=0.0, trigger_s=None, bin_s=30.0, slo_s=10.0,
        limits=Limits() if limits is None else limits,
    )  # fmt: skip


def reason(seen: PlanInputs, best: int, saved_s: float = 0.0) -> Reason:
    return explain_plan(seen, best, saved_s, None).reasons[0]


def test_a_fall_that_is_expected_to_turn_is_told_as_both() -> None:
    # The peak is in the fourth bin, 90 to 120 s from now.
    seen = inputs(2_500.0, 3_100.0, [2_450.0, 2_600.0, 2_800.0, 2_900.0], target=3)
    assert reason(seen, 3).text == (
        "load falls now (2.5 k/s, was 3.1 k/s 60 s ago) but is expected to rise to 2.9 k/s in "
        "105 s; 3 executors carry 2.9 k/s, records wait up to 1.0 s: no other size is cheaper"
    )


def test_growth_says_what_it_costs_and_what_happens_otherwise() -> None:
    # 1 more for 20 s of start-up and 60 for the move; (400 + 80) / 160 s of arrivals are late.
    seen = inputs(1_000.0, 800.0, [1_100.0, 1_300.0, 1_500.0, 1_500.0], target=1)
    found = reason(seen, 2, saved_s=400.0)
    assert found.code == "plan_grows"
    assert found.text == (
        "load rises now (1.0 k/s, was 800/s 60 s ago) and is expected to rise to 1.5 k/s in 75 s; "
        "1 executor carries 1.0 k/s, records wait up to 1.0 s; 1 more now for 1.3 "
        "executor-minutes, otherwise 3.0 s of arrivals are late"
    )


@pytest.mark.parametrize(
    ("mean_rps", "why"),
    [
        ([1_000.0] * 3 + [2_800.0], "which is enough for that"),
        ([1_000.0] * 3 + [4_000.0], "and more can start before that, in 20 s"),
        ([4_000.0] * 4, "and what exceeds that can wait"),
    ],
)
def test_a_shrink_before_a_rise_says_why(mean_rps: list[float], why: str) -> None:
    seen = inputs(2_500.0, 2_500.0, mean_rps, target=5)
    assert reason(seen, 3, saved_s=17.0).text.endswith(
        f"; 3 would carry 2.9 k/s, {why}: 2 fewer now saves 17 executor-seconds against waiting"
    )


def test_a_shrink_does_not_say_that_the_load_rises() -> None:
    seen = inputs(2_500.0, 2_300.0, [2_600.0, 2_800.0], target=5)
    assert reason(seen, 3).text.startswith(
        "load is 2.5 k/s (was 2.3 k/s 60 s ago) and is expected to reach at most 2.8 k/s in 45 s; "
    )
    assert reason(seen, 5).text.startswith("load rises now (2.5 k/s, was 2.3 k/s 60 s ago) and is ")


def test_a_late_job_keeps_what_it_has() -> None:
    assert reason(inputs(target=3, lag_s=15.0), 3).text.endswith(
        "records wait up to 15 s (SLO 10 s): kept until no record is late"
    )


def test_executors_that_are_starting_are_counted_as_such() -> None:
    text = reason(inputs(target=4, active=3), 4).text
    assert "; 4 executors (1 still starting) carry 3.9 k/s, " in text


@pytest.mark.parametrize(
    ("limits", "target", "best", "ending"),
    [
        (Limits(max_executors=3), 5, 3, ": max_executors=3 does not allow 5"),
        (Limits(min_executors=4), 1, 4, "; min_executors=4 asks for 3 more"),
    ],
)
def test_limits_that_force_a_change_are_named(
    limits: Limits, target: int, best: int, ending: str
) -> None:
    assert reason(inputs(target=target, limits=limits), best).text.endswith(ending)


@pytest.mark.parametrize(
    ("limits", "ending"),
    [
        (Limits(max_executors=8), ": 8 executors carry 7.5 k/s, the most allowed"),
        (Limits(max_executors=32), ": 8 executors carry 7.5 k/s, more would not help"),
    ],
)
def test_far_behind_says_how_long_records_wait(limits: Limits, ending: str) -> None:
    decision = catch_up_decision(inputs(lag_s=45.0, limits=limits), 8, None)
    assert decision.reasons[0].text == (
        f"load is 2.5 k/s, records wait up to 45 s (SLO 10 s){ending}"
    )


rates = st.one_of(st.just(0.0), st.floats(1e-3, 1e7))


@given(
    now_rps=rates,
    before_rps=st.none() | rates,
    mean_rps=st.lists(rates, min_size=1, max_size=31),
    target=st.integers(1, 40),
    change=st.integers(-39, 39),
    saved_s=st.floats(0.0, 1e5),
    lag_s=st.floats(0.0, 1e4),
    past=st.lists(st.just(Surge(1.0, 100.0, 30.0)), max_size=3),
    core_s=st.floats(1e-6, 1.0),
)
def test_the_words_agree_with_the_evidence(
    now_rps: float, before_rps: float | None, mean_rps: list[float], target: int, change: int,
    saved_s: float, lag_s: float, past: list[Surge], core_s: float,
) -> None:  # fmt: skip
    best = max(1, target + change)
    seen = inputs(
        now_rps, before_rps, mean_rps, target=target, lag_s=lag_s, core_s=core_s,
        limits=Limits(max_executors=40), surges=Surges(past=tuple(past)),
    )  # fmt: skip
    found = reason(seen, best, saved_s)
    text, evidence = found.text, found.evidence
    now = evidence["load_rps"]
    assert ("rises now" in text) <= (now > evidence.get("earlier_rps", now))
    assert ("falls now" in text) <= (now < evidence.get("earlier_rps", now))
    assert ("expected to rise" in text) <= (evidence["peak_rps"] > now)
    assert ("expected to fall" in text) <= (evidence["lowest_rps"] < now)
    assert ("surges of" in text) == (len(past) > 1)
    # No change that its own numbers do not show, nothing at once, nothing for nothing.
    for change_text in re.findall(r"(\S+ ?k?M?/s), was (\S+ ?k?M?/s)", text):
        assert change_text[0] != change_text[1]
    assert not re.search(
        r"\bin 0 |\b0\.0+ executor|\b0 executor-|\b1 executors|expected .* now;", text
    )
    assert not re.search(r"\b1 executor carry|\d executors carries", text)
    if best < target:
        assert "rise" not in text
    if found.code == "plan_shrinks" and "reach at most" in text:
        assert re.search("enough for that|start before that|exceeds that can wait|not allow", text)


def test_state_that_holds_a_change_up_is_named() -> None:
    seen = replace(inputs(2_500.0, target=2), rescale_s=9.0, state_bytes=4.2e9)
    assert reason(seen, 3, 300.0).text.endswith(
        "; moving 4.2 GB of state holds it up for about 9.0 s"
    )
    less = replace(seen, state_bytes=42e6)
    assert "; moving 42 MB of state holds" in reason(less, 3, 300.0).text
    # The sessions of Nexmark q11 have some kilobytes: what takes time is starting executors.
    small = reason(replace(seen, state_bytes=16_000.0), 3, 300.0).text
    assert small.endswith("; a rescale holds it up for about 9.0 s")
    assert "holds it up" not in reason(replace(seen, state_bytes=None), 3, 300.0).text


def test_a_job_with_state_is_shown_how_to_get_more_partitions() -> None:
    known = CapacityEstimate(work_s=1e-3, fixed_s=0.0)
    full = replace(inputs(4_000.0, target=4), capacity=Capacity(known, 1, most=4))
    assert "more would have none" in reason(full, 4).text
    assert "repartition" not in reason(full, 4).text
    text = reason(replace(full, state_bytes=1e9), 4).text
    assert "repartition(checkpoint, 8) of Spark 4.2 would let 8 carry 7.5 k/s" in text
