"""The words of the autoscaler's cases in our types, and our answers in the words of the cases.

Ages are seconds before now, so with ``now_s = 0`` an age is minus an instant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.kubernetes.behavior import (
    Behavior,
    Limited,
    Pace,
    ScaleEvent,
    ScalingPolicy,
    ScalingRules,
    change_within,
    down_limit,
    legacy_limited,
    paces,
    rate_limited,
    record_event,
    up_limit,
)
from penstock.kubernetes.metrics import (
    MetricError,
    Proposal,
    Tolerance,
    average_replicas,
    external_per_pod_replicas,
    external_replicas,
    object_per_pod_replicas,
    object_replicas,
    utilization_replicas,
)
from penstock.kubernetes.pods import Pod, Readiness, Sample, group_pods
from penstock.kubernetes.reconcile import (
    Autoscaler,
    AverageMetric,
    ExternalMetric,
    Metric,
    ObjectMetric,
    Past,
    Scale,
    UnknownMetric,
    UtilizationMetric,
    reconcile,
)
from penstock.kubernetes.stabilization import Recommendation, stabilize, stabilize_down

Case = Mapping[str, Any]
Words = Mapping[str, Any]

NOW_S = 0.0


def _resource_utilization(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, _POD_METRIC | {"target_utilization_pct", "metric_age_s", "metric_window_s"})

    def ask() -> Proposal:
        return utilization_replicas(
            words["current_replicas"],
            words["target_utilization_pct"],
            _pods(words),
            _samples(words["metrics_milli"], words),
            resource=words.get("resource", "cpu"),
            now_s=NOW_S,
            tolerance=_tolerance(words),
            readiness=_readiness(words),
        )

    return _answer(case, ask, average_as="raw_average_milli")


def _pods_metric(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, _POD_METRIC | {"target_milli", "metric_age_s", "metric_window_s"})

    def ask() -> Proposal:
        return average_replicas(
            words["current_replicas"],
            words["target_milli"],
            _pods(words),
            _samples(words["metrics_milli"], words),
            resource=words.get("resource", ""),
            now_s=NOW_S,
            tolerance=_tolerance(words),
            readiness=_readiness(words),
        )

    return _answer(case, ask)


def _object_value(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, _OBJECT_METRIC | {"value_milli"})
    return _answer(
        case,
        lambda: object_replicas(
            words["current_replicas"],
            words["target_milli"],
            words["value_milli"],
            _pods(words),
            tolerance=_tolerance(words),
        ),
    )


def _object_per_pod(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, _OBJECT_METRIC | {"value_milli"})
    return _answer(
        case,
        lambda: object_per_pod_replicas(
            words.get("status_replicas", words["current_replicas"]),
            words["target_milli"],
            words["value_milli"],
            tolerance=_tolerance(words),
        ),
    )


def _external_value(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, _OBJECT_METRIC | {"values_milli"})
    return _answer(
        case,
        lambda: external_replicas(
            words["current_replicas"],
            words["target_milli"],
            words["values_milli"],
            _pods(words),
            tolerance=_tolerance(words),
        ),
    )


def _external_per_pod(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, _OBJECT_METRIC | {"values_milli"})
    return _answer(
        case,
        lambda: external_per_pod_replicas(
            words.get("status_replicas", words["current_replicas"]),
            words["target_milli"],
            words["values_milli"],
            tolerance=_tolerance(words),
        ),
    )


def _group_pods(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, {"resource", "pods", "metrics"} | _READINESS)
    samples = {
        name: Sample(0, at_s=_at(sample["age_s"]), window_s=sample["window_s"])
        for name, sample in words["metrics"].items()
    }
    groups = group_pods(
        _pods(words),
        samples,
        resource=words["resource"],
        now_s=NOW_S,
        readiness=_readiness(words),
    )
    return {
        "ready_count": groups.ready,
        "unready": sorted(groups.unready),
        "missing": sorted(groups.missing),
        "ignored": sorted(groups.ignored),
    }


def _legacy_limits(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, {"current_replicas", "desired", "min", "max"})
    return _limited(
        legacy_limited(
            words["desired"],
            words["current_replicas"],
            min_replicas=words["min"],
            max_replicas=words["max"],
        )
    )


def _scale_up_limit(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, {"current_replicas", "rules", "scale_up_events", "scale_down_events"})
    pace = paces(Behavior(scale_up=_rules(words["rules"]))).up
    up_events, down_events = _events(words, "scale_up_events"), _events(words, "scale_down_events")
    limit = up_limit(words["current_replicas"], pace, up_events, down_events, NOW_S)
    return {"replicas": limit}


def _scale_down_limit(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, {"current_replicas", "rules", "scale_up_events", "scale_down_events"})
    pace = paces(Behavior(scale_down=_rules(words["rules"]))).down
    up_events, down_events = _events(words, "scale_up_events"), _events(words, "scale_down_events")
    limit = down_limit(words["current_replicas"], pace, up_events, down_events, NOW_S)
    return {"replicas": limit}


def _behavior_rate(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(
        words,
        {"current_replicas", "desired", "min", "max", "scale_up", "scale_down"}
        | {"scale_up_events", "scale_down_events"},
    )
    return _limited(
        rate_limited(
            words["desired"],
            words["current_replicas"],
            paces(_behavior(words)),
            min_replicas=words["min"],
            max_replicas=words["max"],
            up_events=_events(words, "scale_up_events"),
            down_events=_events(words, "scale_down_events"),
            now_s=NOW_S,
        )
    )


def _scale_events(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, {"events_before", "rules", "replica_change", "period_s"})
    before = _events(words, "events_before")
    period_s = words["period_s"]
    after = before
    if words["rules"] is not None:
        # Which direction the rules belong to makes no difference to the bookkeeping.
        pace: Pace = paces(Behavior(scale_up=_rules(words["rules"]))).up
        after = record_event(before, words["replica_change"], pace, NOW_S)
    return {
        f"change_in_last_{period_s}s": change_within(before, period_s, NOW_S),
        "events_after": [{"change": e.change, "outdated": e.outdated} for e in after],
    }


def _stabilize_legacy(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(words, {"desired", "recommendations", "window_s"})
    past = _recommendations(words["recommendations"])
    stable = stabilize_down(words["desired"], past, words["window_s"], NOW_S)
    return {
        "replicas": stable.replicas,
        "stored_recommendations": len(stable.recommendations),
    }


def _stabilize_behavior(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(
        words,
        {"current_replicas", "desired", "recommendations"}
        | {"scale_up_window_s", "scale_down_window_s"},
    )
    stable = stabilize(
        words["desired"],
        words["current_replicas"],
        _recommendations(words["recommendations"]),
        up_window_s=words["scale_up_window_s"],
        down_window_s=words["scale_down_window_s"],
        now_s=NOW_S,
    )
    return {
        "replicas": stable.replicas,
        "stored_recommendations": [kept.replicas for kept in stable.recommendations],
    }


def _reconcile(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    _known(
        words,
        {"min", "max", "spec_replicas", "status_replicas", "tolerance", "pods", "metrics"}
        | {"metric_age_s", "metric_window_s", "recommendations", "behavior", "gates"}
        | {"downscale_stabilization_s", "scaled_to_zero_condition"}
        | _READINESS,
    )
    gates = words.get("gates", {})
    _known(gates, {"HPAScaleToZero", "HPAConfigurableTolerance"})
    autoscaler = Autoscaler(
        metrics=tuple(_metric(metric, words) for metric in words["metrics"]),
        min_replicas=1 if words["min"] is None else words["min"],
        max_replicas=words["max"],
        behavior=None if words["behavior"] is None else _behavior(words["behavior"]),
        tolerance=_tolerance(words),
        readiness=_readiness(words),
        down_window_s=words["downscale_stabilization_s"],
        scale_to_zero=gates.get("HPAScaleToZero", True),
        configurable_tolerance=gates.get("HPAConfigurableTolerance", True),
    )
    past = Past(
        recommendations=None
        if words["recommendations"] is None
        else _recommendations(words["recommendations"]),
        scaled_to_zero=words.get("scaled_to_zero_condition") or False,
    )
    scale = Scale(words["spec_replicas"], words["status_replicas"], _pods(words))
    done = reconcile(autoscaler, scale, past, NOW_S)
    answer: dict[str, Any] = {"replicas": done.replicas}
    if done.error is not None:
        answer["error"] = True
    return answer


def _metric(metric: Words, words: Words) -> Metric:
    """One entry of ``metrics``; one that failed comes back without any value."""
    _known(
        metric,
        {"type", "target_pct", "target_average_milli", "target_value_milli"}
        | {"metrics_milli", "values_milli", "error"},
    )
    failed = metric.get("error", False)
    samples = {} if failed else _samples(metric.get("metrics_milli") or {}, words)
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


def _pods(words: Words) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            pod["name"],
            phase=pod["phase"],
            ready=pod["ready"],
            deleting=pod["deleting"],
            started_at_s=_instant(pod["start_age_s"]),
            ready_changed_at_s=_instant(pod["ready_transition_age_s"]),
            request_milli=pod.get("request_milli"),
        )
        for pod in words.get("pods", ())
    )


def _samples(values: Mapping[str, int], words: Words) -> dict[str, Sample]:
    at_s = _at(words.get("metric_age_s", 0))
    window_s = words.get("metric_window_s", 0)
    return {name: Sample(value, at_s, window_s) for name, value in values.items()}


def _behavior(words: Words) -> Behavior:
    return Behavior(_rules(words.get("scale_up")), _rules(words.get("scale_down")))


def _rules(words: Words | None) -> ScalingRules:
    if words is None:
        return ScalingRules()
    _known(words, {"stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance"})
    policies = words.get("policies")
    return ScalingRules(
        window_s=words.get("stabilizationWindowSeconds"),
        select=words.get("selectPolicy"),
        policies=None
        if policies is None
        else tuple(ScalingPolicy(p["type"], p["value"], p["periodSeconds"]) for p in policies),
        tolerance=words.get("tolerance"),
    )


def _events(words: Words, key: str) -> tuple[ScaleEvent, ...]:
    return tuple(
        ScaleEvent(event["change"], _at(event["age_s"]), event.get("outdated", False))
        for event in words.get(key) or ()
    )


def _recommendations(words: list[Words]) -> tuple[Recommendation, ...]:
    return tuple(Recommendation(past["replicas"], _at(past["age_s"])) for past in words)


def _tolerance(words: Words) -> Tolerance:
    return Tolerance(**words["tolerance"])


def _readiness(words: Words) -> Readiness:
    default = Readiness()
    return Readiness(
        words.get("cpu_initialization_period_s", default.cpu_initialization_s),
        words.get("initial_readiness_delay_s", default.initial_delay_s),
    )


def _answer(
    case: Case, ask: Callable[[], Proposal], *, average_as: str = "usage_milli"
) -> dict[str, Any]:
    """The proposal; an error as the part of its text that the case looks for, if it has it."""
    try:
        proposal = ask()
    except MetricError as error:
        part = case["expected"].get("error_contains", "")
        return {"error": True, "error_contains": part if part in str(error) else str(error)}
    answer = {"replicas": proposal.replicas, average_as: proposal.usage_milli}
    if proposal.utilization_pct is not None:
        answer["utilization_pct"] = proposal.utilization_pct
    return answer


def _limited(limited: Limited) -> dict[str, Any]:
    return {"replicas": limited.replicas, "reason": limited.reason}


def _at(age_s: float) -> float:
    return NOW_S - age_s


def _instant(age_s: float | None) -> float | None:
    return None if age_s is None else _at(age_s)


def _known(words: Words, known: set[str]) -> None:
    """A word that is not translated would be ignored in silence: refuse it."""
    if strange := set(words) - known:
        raise ValueError(f"no translation for {sorted(strange)}")


_READINESS = {"cpu_initialization_period_s", "initial_readiness_delay_s"}
_OBJECT_METRIC = {"current_replicas", "status_replicas", "target_milli", "tolerance", "pods"}
_POD_METRIC = {"current_replicas", "tolerance", "pods", "metrics_milli", "resource"} | _READINESS

RUNNERS: dict[str, Callable[[Case], Any]] = {
    "resource_utilization": _resource_utilization,
    "pods_metric": _pods_metric,
    "object_value": _object_value,
    "object_per_pod": _object_per_pod,
    "external_value": _external_value,
    "external_per_pod": _external_per_pod,
    "group_pods": _group_pods,
    "legacy_limits": _legacy_limits,
    "scale_up_limit": _scale_up_limit,
    "scale_down_limit": _scale_down_limit,
    "stabilize_legacy": _stabilize_legacy,
    "behavior_rate": _behavior_rate,
    "scale_events": _scale_events,
    "stabilize_behavior": _stabilize_behavior,
    "reconcile": _reconcile,
}
