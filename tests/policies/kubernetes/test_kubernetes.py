"""The arithmetic of Kubernetes and KEDA: the cases of their authors, and what must always hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ModelError
from penstock.core.knowledge import Rescale
from penstock.core.model import Reason
from penstock.policies.kubernetes.keda_lag import KedaLag, factors, next_factor
from penstock.policies.kubernetes.metrics import (
    MAX_INT32,
    MAX_INT64,
    MetricError,
    Pod,
    PodSample,
    Tolerance,
    object_per_pod_replicas,
    utilization_replicas,
)
from penstock.policies.kubernetes.pacing import (
    Behavior,
    Recommendations,
    ReplicaRecommendation,
    ScalingPolicy,
    ScalingRules,
    paces,
    rate_limited,
    settle,
)
from tests.conformance import hpa_cases
from tests.conformance.reference.keda import metric_of_lags
from tests.conformance.reference.kubernetes_rules import (
    ScaleEvent,
    bounded_rate,
    external_per_pod_replicas,
    legacy_limited,
    stabilize,
    stabilize_down,
)

WHY = Reason("metric", "the metric says so")


def test_a_word_without_translation_is_refused() -> None:
    inputs = {"current_replicas": 1, "desired": 2, "min": 1, "max": 3, "panic": True}
    with pytest.raises(ValueError, match="no translation for \\['panic'\\]"):
        hpa_cases.RUNNERS["legacy_limits"]({"inputs": inputs, "expected": {}})


def _pods(*names: str, **fields: Any) -> list[Pod]:
    return [Pod(name, started_at_s=-9e8, request_milli=1000, **fields) for name in names]


def test_a_missing_pod_counts_as_busy_when_shrinking() -> None:
    # 2 pods at 10 % and one unknown taken as 100 %: (100+100+1000)/3000 = 40 %, 0.4 x 3 = 2.
    samples = {"a": PodSample(100), "b": PodSample(100)}
    proposal = utilization_replicas(3, 100, _pods("a", "b", "c"), samples)
    assert (proposal.replicas, proposal.utilization_pct) == (2, 10)


def test_a_missing_pod_counts_as_its_target_when_that_is_above_the_request() -> None:
    # Target 200 %: (300+300+2000)/3000 = 86 %, 86/200 x 3 = 1.29.
    samples = {"a": PodSample(300), "b": PodSample(300)}
    assert utilization_replicas(3, 200, _pods("a", "b", "c"), samples).replicas == 2


def test_missing_pods_that_would_turn_the_direction_leave_all_as_it_is() -> None:
    # 150 % without them, 75 % with two idle ones.
    samples = {"a": PodSample(1500), "b": PodSample(1500)}
    assert utilization_replicas(4, 100, _pods("a", "b", "c", "d"), samples).replicas == 4


@pytest.mark.parametrize(
    ("pods", "samples", "text"),
    [
        ([], {"a": PodSample(1)}, "no pods returned by selector"),
        (_pods("a"), {}, "no metrics returned from resource metrics API"),
        (_pods("a", phase="Pending"), {"a": PodSample(1)}, "did not receive metrics"),
        (_pods("a"), {"b": PodSample(1)}, "no metrics returned matched known pods"),
        ([Pod("a", started_at_s=-9e8)], {"a": PodSample(1)}, "missing request for cpu in Pod a"),
    ],
)
def test_what_gives_no_number_says_why(
    pods: list[Pod], samples: dict[str, PodSample], text: str
) -> None:
    with pytest.raises(MetricError, match=text):
        utilization_replicas(1, 50, pods, samples)


def test_numbers_that_no_counter_holds_stay_at_its_end() -> None:
    assert object_per_pod_replicas(3, 1, MAX_INT64).replicas == MAX_INT32
    # A negative sum is taken for an overflow, as in the original.
    assert external_per_pod_replicas(3, 1, [-5]).usage_milli == MAX_INT64


def test_from_no_pods_at_all_an_average_needs_no_division() -> None:
    assert object_per_pod_replicas(0, 1_000, 2_500).replicas == 3
    assert external_per_pod_replicas(0, 1_000, [0]).replicas == 0


def test_tolerance_differs_by_direction() -> None:
    tolerance = Tolerance(down=0.5, up=0.0)
    assert tolerance.covers(0.5)
    assert not tolerance.covers(1.001)


def test_a_policy_or_window_that_kubernetes_refuses_is_refused() -> None:
    with pytest.raises(ModelError, match=r"period_s must be in 0..1800, not 1801"):
        ScalingPolicy("Pods", 1, 1801)
    with pytest.raises(ModelError, match="value must not be negative, not -1"):
        ScalingPolicy("Pods", -1)
    with pytest.raises(ModelError, match=r"window_s must be in 0..3600, not 3601"):
        ScalingRules(window_s=3601)
    with pytest.raises(ModelError, match=r"tolerance must not be negative, not -0.1"):
        ScalingRules(tolerance=-0.1)


policies = st.builds(
    ScalingPolicy,
    st.sampled_from(["Pods", "Percent"]),
    st.integers(0, 200),
    st.sampled_from([15.0, 60.0, 120.0]),
)
rules = st.builds(
    ScalingRules,
    st.sampled_from([None, 0.0, 60.0, 300.0]),
    st.sampled_from([None, "Max", "Min", "Disabled"]),
    st.none() | st.lists(policies, min_size=1, max_size=3).map(tuple),
)
behaviors = st.builds(Behavior, rules, rules)


@given(st.integers(0, 500), st.integers(1, 100), behaviors)
def test_limits_never_turn_a_wish_around(desired: int, current: int, behavior: Behavior) -> None:
    left = rate_limited(desired, current, paces(behavior))
    assert min(desired, current) <= left <= max(desired, current)


#: Steps of time and a wish; 0 and the exact lengths of windows are the edges.
turns = st.lists(
    st.tuples(st.sampled_from([0.0, 15.0, 60.0, 150.0, 300.0, 301.0]), st.integers(0, 12)),
    min_size=1,
    max_size=40,
)


@given(turns, st.integers(1, 12))
def test_the_short_memory_of_a_policy_decides_like_the_long_one(
    turns: list[tuple[float, int]], current: int
) -> None:
    short = Recommendations()
    past: tuple[ReplicaRecommendation, ...] | None = None
    now_s = 1000.0
    for step_s, wanted in turns:
        now_s += step_s
        past = (ReplicaRecommendation(current, now_s),) if past is None else past
        stable = stabilize_down(wanted, past, 300.0, now_s)
        limit = legacy_limited(stable.replicas, current, min_replicas=0, max_replicas=MAX_INT32)
        decision = settle(wanted, current, now_s, short, WHY, down_window_s=300.0)
        assert decision.target_executors == limit.replicas
        short, past, current = decision.memory, stable.recommendations, max(1, limit.replicas)
        assert len(short.highest) <= 13


@given(turns, st.integers(1, 12), behaviors)
def test_the_short_memory_agrees_under_every_behavior_too(
    turns: list[tuple[float, int]], current: int, behavior: Behavior
) -> None:
    short = Recommendations()
    past: tuple[ReplicaRecommendation, ...] | None = None
    changes: list[Rescale] = []
    rules = paces(behavior, 300.0)
    now_s = 1000.0
    for step_s, wanted in turns:
        now_s += step_s
        past = (ReplicaRecommendation(current, now_s),) if past is None else past
        stable = stabilize(
            wanted,
            current,
            past,
            up_window_s=rules.up.window_s,
            down_window_s=rules.down.window_s,
            now_s=now_s,
        )
        limit = bounded_rate(
            stable.replicas,
            current,
            rules,
            min_replicas=0,
            max_replicas=MAX_INT32,
            up_events=[ScaleEvent(c.after - c.before, c.at_s) for c in changes if _up(c)],
            down_events=[ScaleEvent(c.before - c.after, c.at_s) for c in changes if not _up(c)],
            now_s=now_s,
        )
        decision = settle(
            wanted,
            current,
            now_s,
            short,
            WHY,
            down_window_s=300.0,
            behavior=behavior,
            changes=changes,
        )
        assert decision.target_executors == limit.replicas
        short, past = decision.memory, stable.recommendations
        if limit.replicas not in (0, current):
            changes.append(Rescale(now_s, current, limit.replicas))
            current = limit.replicas


def _up(change: Rescale) -> bool:
    return change.after > change.before


@given(st.integers(1, 5000))
def test_factors_are_all_divisors(number: int) -> None:
    assert factors(number) == [i for i in range(1, number + 1) if number % i == 0]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40), st.integers(1, 500))
def test_even_distribution_divides_the_partitions(lags: list[int], threshold: int) -> None:
    rule = KedaLag(threshold, ensure_even_distribution=True)
    consumers, rest = divmod(metric_of_lags(rule, lags), threshold)
    assert rest == 0
    assert len(lags) % consumers == 0
    assert next_factor(sum(lags), len(lags), threshold) == consumers


def test_idle_consumers_see_the_whole_lag() -> None:
    assert metric_of_lags(KedaLag(allow_idle_consumers=True), [100, 100]) == 200
