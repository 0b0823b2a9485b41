"""The arithmetic of Kubernetes and KEDA: the cases of their authors, and what must always hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ModelError
from penstock.core.knowledge import Rescale
from penstock.core.model import Reason
from penstock.policies.kubernetes.behavior import (
    Behavior,
    ScaleEvent,
    ScalingPolicy,
    ScalingRules,
    legacy_limited,
    paces,
    rate_limited,
)
from penstock.policies.kubernetes.keda import (
    LagRule,
    factors,
    metric_of_lags,
    next_factor,
    partition_lag,
)
from penstock.policies.kubernetes.metrics import (
    MetricError,
    Tolerance,
    average_replicas,
    external_per_pod_replicas,
    external_replicas,
    object_per_pod_replicas,
    object_replicas,
    utilization_replicas,
)
from penstock.policies.kubernetes.numbers import MAX_INT32, MAX_INT64
from penstock.policies.kubernetes.pacing import Recommendations, settle
from penstock.policies.kubernetes.pods import Pod, PodSample
from penstock.policies.kubernetes.reconcile import (
    Autoscaler,
    ExternalMetric,
    History,
    ObjectMetric,
    Scale,
    UnknownMetric,
    UtilizationMetric,
    reconcile,
)
from penstock.policies.kubernetes.stabilization import (
    ReplicaRecommendation,
    stabilize,
    stabilize_down,
)
from tests.conformance import hpa_cases, keda_cases, runner

CASES = Path(__file__).parents[2] / "cases"
WHY = Reason("metric", "the metric says so")


def _cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in runner.read(CASES / name)]


@pytest.mark.parametrize("case", _cases("hpa.json"))
def test_the_cases_of_kubernetes_come_out_the_same(case: dict[str, Any]) -> None:
    verdict = runner.judge(case, hpa_cases.RUNNERS, {})
    assert verdict.passed, (verdict.expected, verdict.got)


@pytest.mark.parametrize("case", _cases("keda.json"))
def test_the_cases_of_keda_come_out_the_same(case: dict[str, Any]) -> None:
    verdict = runner.judge(case, keda_cases.RUNNERS, {})
    assert verdict.passed, (verdict.expected, verdict.got)


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


def test_a_missing_pod_counts_as_the_target_in_an_average_that_shrinks() -> None:
    # (2+2+10)/3 = 4.666 of 10: ceil(0.4666 x 3) = 2.
    samples = {"a": PodSample(2_000), "b": PodSample(2_000)}
    assert average_replicas(3, 10_000, _pods("a", "b", "c"), samples).replicas == 2


def test_missing_pods_that_would_turn_the_direction_leave_all_as_it_is() -> None:
    # 150 % without them, 75 % with two idle ones.
    samples = {"a": PodSample(1500), "b": PodSample(1500)}
    assert utilization_replicas(4, 100, _pods("a", "b", "c", "d"), samples).replicas == 4


def test_the_mean_of_negative_values_is_cut_towards_zero() -> None:
    samples = {"a": PodSample(-3), "b": PodSample(-4)}
    assert average_replicas(2, 1_000, _pods("a", "b"), samples).usage_milli == -3


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


def test_a_custom_or_external_metric_without_values_says_so() -> None:
    with pytest.raises(MetricError, match="custom metrics API"):
        average_replicas(1, 50, _pods("a"), {})
    with pytest.raises(MetricError, match="external metrics API"):
        external_replicas(1, 50, [], _pods("a"))
    with pytest.raises(MetricError, match="unable to calculate ready pods: no pods"):
        object_replicas(1, 1_000, 5_000, [])


def test_numbers_that_no_counter_holds_stay_at_its_end() -> None:
    assert object_replicas(0, 1, MAX_INT64, []).replicas == MAX_INT32
    assert object_per_pod_replicas(3, 1, MAX_INT64).replicas == MAX_INT32
    assert external_replicas(0, 1, [MAX_INT64, 5], []).usage_milli == MAX_INT64
    # A negative sum is taken for an overflow, as in the original.
    assert external_per_pod_replicas(3, 1, [-5]).usage_milli == MAX_INT64


def test_from_no_pods_at_all_an_average_needs_no_division() -> None:
    assert object_per_pod_replicas(0, 1_000, 2_500).replicas == 3
    assert external_per_pod_replicas(0, 1_000, [0]).replicas == 0


def test_tolerance_differs_by_direction() -> None:
    tolerance = Tolerance(down=0.5, up=0.0)
    assert tolerance.covers(0.5)
    assert not tolerance.covers(1.001)


def _load(value: int) -> ExternalMetric:
    return ExternalMetric(1_000, (value * 1_000,), per_pod=True)


BLIND = ExternalMetric(1_000, ())


def test_half_blind_it_grows_but_does_not_shrink() -> None:
    grown = reconcile(Autoscaler((BLIND, _load(6)), 9), Scale(4, 4), History(()), 0.0)
    assert (grown.replicas, grown.error is not None) == (6, True)
    held = reconcile(Autoscaler((_load(2), UnknownMetric("x")), 9), Scale(4, 4), History(()), 0.0)
    assert held.replicas == 4
    assert held.error == "unknown metric source type 'x'"
    unread = reconcile(Autoscaler((ObjectMetric(1, None),), 9), Scale(4, 4), History(()), 0.0)
    assert (unread.replicas, unread.reason) == (4, "FailedComputeMetricsReplicas")


def test_a_job_that_went_to_zero_comes_back_and_one_that_was_sent_there_does_not() -> None:
    spec = Autoscaler((ObjectMetric(1_000, 0),), 9, min_replicas=0)
    asleep = reconcile(spec, Scale(4, 4, tuple(_pods("a"))), History(()), 0.0)
    assert (asleep.replicas, asleep.past.scaled_to_zero) == (0, True)
    woken = Autoscaler((ObjectMetric(1_000, 2_500),), 9, min_replicas=0)
    assert reconcile(woken, Scale(0, 0), asleep.past, 15.0).replicas == 3
    assert reconcile(woken, Scale(0, 0), History(()), 15.0).reason == "ScalingDisabled"
    by_cpu = Autoscaler((UtilizationMetric(50, {}),), 9, min_replicas=0)
    assert reconcile(by_cpu, Scale(0, 0), asleep.past, 15.0).reason == "ScalingDisabled"


def test_bounds_act_at_once_and_before_any_metric() -> None:
    assert reconcile(Autoscaler((BLIND,), 9), Scale(12, 12), History(), 0.0).replicas == 9
    assert reconcile(Autoscaler((BLIND,), 9, 3), Scale(1, 1), History(), 0.0).replicas == 3


def test_a_pass_with_behavior_remembers_its_events() -> None:
    spec = Autoscaler((_load(50),), 99, behavior=Behavior())
    first = reconcile(spec, Scale(3, 3), History(), 0.0)
    assert (first.replicas, first.past.up_events) == (7, (ScaleEvent(4, 0.0),))
    # 5 s later the period has not passed: it started at 3, so 7 are still the most.
    second = reconcile(spec, Scale(7, 7), first.past, 5.0)
    assert (second.replicas, second.reason) == (7, "ScaleUpLimit")
    third = reconcile(spec, Scale(7, 7), second.past, 15.0)
    assert third.replicas == 14


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
    left = rate_limited(desired, current, paces(behavior), min_replicas=0, max_replicas=MAX_INT32)
    assert min(desired, current) <= left.replicas <= max(desired, current)


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
        limit = rate_limited(
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
    rule = LagRule(threshold, ensure_even_distribution=True)
    consumers, rest = divmod(metric_of_lags(rule, lags), threshold)
    assert rest == 0
    assert len(lags) % consumers == 0
    assert next_factor(sum(lags), len(lags), threshold) == consumers


def test_idle_consumers_see_the_whole_lag() -> None:
    assert metric_of_lags(LagRule(allow_idle_consumers=True), [100, 100]) == 200


@pytest.mark.parametrize(
    ("committed", "end", "options", "scaling", "activation"),
    [
        (-1, None, {}, 1, 1),
        (-1, None, {"offset_reset": "earliest"}, 0, 0),
        (-1, 150, {"offset_reset": "earliest", "zero_on_invalid_offset": True}, 0, 0),
        (-1, 150, {"offset_reset": "earliest"}, 150, 150),
        (100, None, {}, 0, 0),
        (100, 150, {"previous_committed": 90}, 50, 50),
        (100, 150, {"previous_committed": 100}, 0, 50),
    ],
)
def test_the_lag_of_a_partition_without_a_plain_answer(
    committed: int, end: int | None, options: dict[str, Any], scaling: int, activation: int
) -> None:
    lag = partition_lag(committed, end, **options)
    assert (lag.scaling, lag.activation) == (scaling, activation)
