"""The autoscaler of Kubernetes on executors."""

from __future__ import annotations

import tomllib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.knowledge import Knowledge, Rescale
from penstock.core.model import Decision, ExecutorSample, Fleet, Reason, Snapshot, Step
from penstock.policies.kubernetes.hpa import Hpa
from penstock.policies.kubernetes.pacing import (
    Behavior,
    Recommendations,
    ScalingPolicy,
    ScalingRules,
)

NOW_S = 1000.0


def _snapshot(*cpu: float | None, target: int | None = None, at_s: float = NOW_S) -> Snapshot:
    executors = tuple(ExecutorSample(str(i), 0.0, cpu_fraction=c) for i, c in enumerate(cpu))
    count = len(cpu)
    fleet = Fleet(count if target is None else target, count, count)
    return Snapshot(at_s, fleet, executors=executors)


def _after(decision: Decision, snapshot: Snapshot) -> Knowledge:
    knowledge = Knowledge()
    knowledge.learn(snapshot, snapshot.at_s)
    knowledge.remember(Step(snapshot.at_s, snapshot, decision))
    return knowledge


def test_percent_is_cut_to_a_whole_number_before_it_is_compared() -> None:
    # 77.9 % is 77 %, and 77/70 = 1.1 is just within tolerance; 78/70 is not.
    assert Hpa().decide(_snapshot(0.779, 0.779), Knowledge()).target_executors == 2
    assert Hpa().decide(_snapshot(0.78, 0.78), Knowledge()).target_executors == 3


def test_a_turn_at_most_doubles_the_fleet_or_makes_it_four() -> None:
    assert Hpa().decide(_snapshot(5.0), Knowledge()).target_executors == 4
    decision = Hpa().decide(_snapshot(5.0, 5.0, 5.0), Knowledge())
    assert decision.target_executors == 6
    assert [reason.code for reason in decision.reasons] == ["above_target", "rate_limited"]


def test_a_cold_start_does_not_shrink_before_one_window() -> None:
    snapshot = _snapshot(0.1, 0.1, 0.1, 0.1)
    first = Hpa().decide(snapshot, Knowledge())
    assert (first.target_executors, first.reasons[-1].code) == (4, "stabilized")
    knowledge = _after(first, snapshot)
    at_edge = Hpa().decide(_snapshot(0.1, 0.1, 0.1, 0.1, at_s=NOW_S + 300.0), knowledge)
    assert at_edge.target_executors == 4
    past_it = Hpa().decide(_snapshot(0.1, 0.1, 0.1, 0.1, at_s=NOW_S + 301.0), knowledge)
    assert past_it.target_executors == 1


def test_nothing_measured_holds_and_still_starts_the_window() -> None:
    for snapshot in (_snapshot(None, None), _snapshot(target=2)):
        decision = Hpa().decide(snapshot, Knowledge())
        assert decision.reasons[0].code == "not_measured"
        assert decision.target_executors == 2
        assert decision.memory.highest[0].replicas == 2


def test_an_unmeasured_executor_counts_as_idle_when_growing() -> None:
    # 95 % over two would be 3; with an idle third it is 63 %, within tolerance of 70 %: hold.
    assert Hpa().decide(_snapshot(0.95, 0.95, None), Knowledge()).target_executors == 3


def test_a_starting_executor_counts_as_idle_when_growing() -> None:
    fleet = Fleet(4, 4, 3)
    old = tuple(ExecutorSample(str(i), 0.0, cpu_fraction=1.0) for i in range(3))
    young = ExecutorSample("y", NOW_S - 10.0, ready=False, cpu_fraction=1.0)
    snapshot = Snapshot(NOW_S, fleet, executors=(*old, young))
    # 3 of 4 at 100 %: 75 %, within tolerance of 70 %.
    assert Hpa().decide(snapshot, Knowledge()).target_executors == 4


def test_the_cpu_of_the_first_seconds_does_not_count() -> None:
    young = ExecutorSample("y", NOW_S - 10.0, cpu_fraction=9.0)
    old = ExecutorSample("o", 0.0, cpu_fraction=0.7)
    snapshot = Snapshot(NOW_S, Fleet(2, 2, 2), executors=(old, young))
    assert Hpa().decide(snapshot, Knowledge()).target_executors == 2
    assert Hpa(metric_window_s=5.0).decide(snapshot, Knowledge()).target_executors == 4


def test_a_leaving_executor_is_ignored() -> None:
    stay = ExecutorSample("a", 0.0, cpu_fraction=0.9)
    ready = ExecutorSample("b", 0.0, cpu_fraction=0.9)
    leaves = ExecutorSample("b", 0.0, ready=False, cpu_fraction=0.0)
    before = Snapshot(NOW_S - 15.0, Fleet(2, 2, 2), executors=(stay, ready))
    now = Snapshot(NOW_S, Fleet(1, 2, 1), executors=(stay, leaves))
    knowledge = Knowledge()
    knowledge.learn(before, before.at_s)
    knowledge.learn(now, now.at_s)
    # 90 % on the one that stays asks for ceil(1 x 90/70) = 2; with an idle second it would hold 1.
    assert Hpa().decide(now, knowledge).target_executors == 2
    assert Hpa().decide(now, Knowledge()).target_executors == 1


def test_memory_counts_only_if_asked_for_and_the_larger_wish_wins() -> None:
    executors = tuple(
        ExecutorSample(str(i), 0.0, cpu_fraction=0.7, memory_fraction=0.9) for i in range(4)
    )
    snapshot = Snapshot(NOW_S, Fleet(4, 4, 4), executors=executors)
    assert Hpa().decide(snapshot, Knowledge()).target_executors == 4
    decision = Hpa(memory_target_fraction=0.6).decide(snapshot, Knowledge())
    assert decision.target_executors == 6
    assert decision.reasons[0].text.startswith("memory at 90 % for a target of 60 %")


def test_half_blind_it_grows_but_does_not_shrink() -> None:
    policy = Hpa(memory_target_fraction=0.6, stabilize_down_s=0.0)
    known = _after(Decision.of(2, *_why(), memory=Recommendations()), _snapshot(0.1, 0.1))
    held = policy.decide(_snapshot(0.1, 0.1), known)
    assert held.reasons[0].text.endswith("memory_fraction of any ready executor not measured")
    assert policy.decide(_snapshot(1.4, 1.4), known).target_executors == 4


def test_a_fleet_of_none_is_switched_off() -> None:
    decision = Hpa().decide(_snapshot(target=0), Knowledge())
    assert (decision.target_executors, decision.reasons[0].code) == (0, "scaling_disabled")


def test_a_behavior_limits_the_rate_by_the_rescales_that_were_made() -> None:
    rules = ScalingRules(policies=(ScalingPolicy("Pods", 2, 60.0),))
    policy = Hpa(behavior=Behavior(scale_up=rules))
    knowledge = Knowledge()
    assert policy.decide(_snapshot(3.0, 3.0, 3.0), knowledge).target_executors == 5
    knowledge.rescales.append(Rescale(NOW_S - 30.0, 2, 3))
    assert policy.decide(_snapshot(3.0, 3.0, 3.0), knowledge).target_executors == 4


def test_a_behavior_has_its_own_tolerance() -> None:
    policy = Hpa(behavior=Behavior(scale_up=ScalingRules(tolerance=0.0)))
    assert policy.decide(_snapshot(0.75, 0.75), Knowledge()).target_executors == 3
    assert Hpa().decide(_snapshot(0.75, 0.75), Knowledge()).target_executors == 2


def test_a_behavior_can_be_written_in_a_file() -> None:
    text = """
    cpu_target_fraction = 0.5
    [behavior.scale_up]
    select = "Min"
    policies = [{kind = "Percent", value = 50, period_s = 60}]
    """
    policy = msgspec.convert(tomllib.loads(text), Hpa)
    assert policy.behavior is not None
    assert policy.behavior.scale_up.policies == (ScalingPolicy("Percent", 50, 60.0),)


def test_the_memory_survives_the_journal() -> None:
    snapshot = _snapshot(0.1, 0.1, 0.1)
    decision = Hpa().decide(snapshot, Knowledge())
    on_disk = msgspec.json.decode(msgspec.json.encode(decision), type=Decision)
    assert _after(on_disk, snapshot).recall(Recommendations) == decision.memory


fractions = st.floats(0.0, 3.0)


@given(
    st.lists(fractions, min_size=1, max_size=12),
    st.integers(1, 20),
    st.sampled_from([0.5, 0.7, 0.9, 1.2]),
)
def test_the_quick_and_the_thorough_way_agree(
    cpu: list[float], target: int, wanted_fraction: float
) -> None:
    snapshot = _snapshot(*cpu, target=target)
    policy = Hpa(cpu_target_fraction=wanted_fraction)
    thorough = policy._all_metrics(snapshot, Knowledge())
    assert not isinstance(thorough, str)
    decision = policy.decide(snapshot, Knowledge())
    assert decision.reasons[0] == thorough[1]


executors = st.builds(
    ExecutorSample,
    st.uuids().map(str),
    st.sampled_from([0.0, 690.0, 990.0]),
    st.booleans(),
    st.none() | fractions,
    memory_fraction=st.none() | fractions,
)


@given(st.lists(executors, max_size=8), st.integers(0, 16), st.sampled_from([None, 0.6]))
def test_any_fleet_gets_a_sound_decision(
    executors: list[ExecutorSample], target: int, memory_fraction: float | None
) -> None:
    snapshot = Snapshot(NOW_S, Fleet(target, target, target), executors=tuple(executors))
    decision = Hpa(memory_target_fraction=memory_fraction).decide(snapshot, Knowledge())
    assert decision.reasons
    assert target <= decision.target_executors <= max(2 * target, 4)


def _why() -> tuple[Reason, ...]:
    return Hpa().decide(_snapshot(0.7), Knowledge()).reasons
