"""The words of the autoscaler's cases in our types.

Ages are seconds before now, so with ``now_s = 0`` an age is minus an instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.policies.kubernetes.metrics import Pod, PodSample, Readiness, Tolerance
from penstock.policies.kubernetes.pacing import (
    Behavior,
    ReplicaRecommendation,
    ScalingPolicy,
    ScalingRules,
)
from tests.conformance.reference.kubernetes import (
    AverageMetric,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    UnknownMetric,
    UtilizationMetric,
)
from tests.conformance.reference.kubernetes_rules import ScaleEvent

Words = Mapping[str, Any]

NOW_S = 0.0
READINESS = {"cpu_initialization_period_s", "initial_readiness_delay_s"}


def metric_of(metric: Words, words: Words) -> MetricSpec:
    """One entry of ``metrics``; one that failed comes back without any value."""
    refuse_strange(
        metric,
        {"type", "target_pct", "target_average_milli", "target_value_milli"}
        | {"metrics_milli", "values_milli", "error"},
    )
    failed = metric.get("error", False)
    samples = {} if failed else samples_of(metric.get("metrics_milli") or {}, words)
    values = () if failed else tuple(metric.get("values_milli") or ())
    per_pod = "target_average_milli" in metric
    match metric["type"].split("_"):
        case ["resource", resource, "utilization"]:
            return UtilizationMetric(metric["target_pct"], samples, resource)
        case ["resource", resource, *_] if per_pod:
            return AverageMetric(metric["target_average_milli"], samples, resource)
        case ["pods"]:
            return AverageMetric(metric["target_average_milli"], samples)
        case ["object"]:
            target = metric["target_average_milli" if per_pod else "target_value_milli"]
            return ObjectMetric(target, next(iter(values), None), per_pod)
        case ["external"]:
            target = metric["target_average_milli" if per_pod else "target_value_milli"]
            return ExternalMetric(target, values, per_pod)
        case ["invalid"]:
            return UnknownMetric()
    raise ValueError(f"unknown type of metric {metric['type']!r}")


def pods_of(words: Words) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            pod["name"],
            phase=pod["phase"],
            ready=pod["ready"],
            deleting=pod["deleting"],
            started_at_s=instant_if_known(pod["start_age_s"]),
            ready_changed_at_s=instant_if_known(pod["ready_transition_age_s"]),
            request_milli=pod.get("request_milli"),
        )
        for pod in words.get("pods", ())
    )


def samples_of(values: Mapping[str, int], words: Words) -> dict[str, PodSample]:
    at_s = instant_of(words.get("metric_age_s", 0))
    window_s = words.get("metric_window_s", 0)
    return {name: PodSample(value, at_s, window_s) for name, value in values.items()}


def behavior_of(words: Words) -> Behavior:
    return Behavior(rules_of(words.get("scale_up")), rules_of(words.get("scale_down")))


def rules_of(words: Words | None) -> ScalingRules:
    if words is None:
        return ScalingRules()
    refuse_strange(words, {"stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance"})
    policies = words.get("policies")
    return ScalingRules(
        window_s=words.get("stabilizationWindowSeconds"),
        select=words.get("selectPolicy"),
        policies=None
        if policies is None
        else tuple(ScalingPolicy(p["type"], p["value"], p["periodSeconds"]) for p in policies),
        tolerance=words.get("tolerance"),
    )


def events_of(words: Words, key: str) -> tuple[ScaleEvent, ...]:
    return tuple(
        ScaleEvent(event["change"], instant_of(event["age_s"]), event.get("outdated", False))
        for event in words.get(key) or ()
    )


def recommendations_of(words: list[Words]) -> tuple[ReplicaRecommendation, ...]:
    return tuple(
        ReplicaRecommendation(past["replicas"], instant_of(past["age_s"])) for past in words
    )


def tolerance_of(words: Words) -> Tolerance:
    return Tolerance(**words["tolerance"])


def readiness_of(words: Words) -> Readiness:
    default = Readiness()
    return Readiness(
        words.get("cpu_initialization_period_s", default.cpu_initialization_s),
        words.get("initial_readiness_delay_s", default.initial_delay_s),
    )


def instant_of(age_s: float) -> float:
    return NOW_S - age_s


def instant_if_known(age_s: float | None) -> float | None:
    return None if age_s is None else instant_of(age_s)


def refuse_strange(words: Words, known: set[str]) -> None:
    """A word that is not translated would be ignored in silence: refuse it."""
    if strange := set(words) - known:
        raise ValueError(f"no translation for {sorted(strange)}")
