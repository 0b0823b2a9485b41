"""The autoscaler's cases: what each kind asks of our code, and our answer in the case's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.policies.kubernetes.metrics import (
    MetricError,
    PodSample,
    Proposal,
    group_pods,
    object_per_pod_replicas,
    utilization_replicas,
)
from penstock.policies.kubernetes.pacing import Behavior, Pace, net_change, paces, replica_limit
from tests.conformance.hpa_words import (
    NOW_S,
    READINESS,
    behavior_of,
    events_of,
    instant_of,
    metric_of,
    pods_of,
    readiness_of,
    recommendations_of,
    refuse_strange,
    rules_of,
    samples_of,
    tolerance_of,
)
from tests.conformance.reference.kubernetes import Autoscaler, History, Scale, reconcile
from tests.conformance.reference.kubernetes_rules import (
    Limited,
    average_replicas,
    bounded_rate,
    external_per_pod_replicas,
    external_replicas,
    legacy_limited,
    object_replicas,
    record_event,
    rescales,
    stabilize,
    stabilize_down,
)

Case = Mapping[str, Any]

OBJECT_METRIC = {"current_replicas", "status_replicas", "target_milli", "tolerance", "pods"}
POD_METRIC = {"current_replicas", "tolerance", "pods", "metrics_milli", "resource"} | READINESS


def _resource_utilization(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(
        words, POD_METRIC | {"target_utilization_pct", "metric_age_s", "metric_window_s"}
    )

    def ask() -> Proposal:
        return utilization_replicas(
            words["current_replicas"],
            words["target_utilization_pct"],
            pods_of(words),
            samples_of(words["metrics_milli"], words),
            resource=words.get("resource", "cpu"),
            now_s=NOW_S,
            tolerance=tolerance_of(words),
            readiness=readiness_of(words),
        )

    return _answer(case, ask, average_as="raw_average_milli")


def _pods_metric(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, POD_METRIC | {"target_milli", "metric_age_s", "metric_window_s"})

    def ask() -> Proposal:
        return average_replicas(
            words["current_replicas"],
            words["target_milli"],
            pods_of(words),
            samples_of(words["metrics_milli"], words),
            resource=words.get("resource", ""),
            now_s=NOW_S,
            tolerance=tolerance_of(words),
            readiness=readiness_of(words),
        )

    return _answer(case, ask)


def _object_value(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, OBJECT_METRIC | {"value_milli"})
    return _answer(
        case,
        lambda: object_replicas(
            words["current_replicas"],
            words["target_milli"],
            words["value_milli"],
            pods_of(words),
            tolerance=tolerance_of(words),
        ),
    )


def _object_per_pod(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, OBJECT_METRIC | {"value_milli"})
    return _answer(
        case,
        lambda: object_per_pod_replicas(
            words.get("status_replicas", words["current_replicas"]),
            words["target_milli"],
            words["value_milli"],
            tolerance=tolerance_of(words),
        ),
    )


def _external_value(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, OBJECT_METRIC | {"values_milli"})
    return _answer(
        case,
        lambda: external_replicas(
            words["current_replicas"],
            words["target_milli"],
            words["values_milli"],
            pods_of(words),
            tolerance=tolerance_of(words),
        ),
    )


def _external_per_pod(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, OBJECT_METRIC | {"values_milli"})
    return _answer(
        case,
        lambda: external_per_pod_replicas(
            words.get("status_replicas", words["current_replicas"]),
            words["target_milli"],
            words["values_milli"],
            tolerance=tolerance_of(words),
        ),
    )


def _group_pods(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, {"resource", "pods", "metrics"} | READINESS)
    samples = {
        name: PodSample(0, at_s=instant_of(sample["age_s"]), window_s=sample["window_s"])
        for name, sample in words["metrics"].items()
    }
    groups = group_pods(
        pods_of(words),
        samples,
        resource=words["resource"],
        now_s=NOW_S,
        readiness=readiness_of(words),
    )
    return {
        "ready_count": groups.ready,
        "unready": sorted(groups.unready),
        "missing": sorted(groups.missing),
        "ignored": sorted(groups.ignored),
    }


def _legacy_limits(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, {"current_replicas", "desired", "min", "max"})
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
    refuse_strange(words, {"current_replicas", "rules", "scale_up_events", "scale_down_events"})
    pace = paces(Behavior(scale_up=rules_of(words["rules"]))).up
    changes = rescales(events_of(words, "scale_up_events"), events_of(words, "scale_down_events"))
    limit = replica_limit(words["current_replicas"], pace, changes, NOW_S, grows=True)
    return {"replicas": limit}


def _scale_down_limit(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, {"current_replicas", "rules", "scale_up_events", "scale_down_events"})
    pace = paces(Behavior(scale_down=rules_of(words["rules"]))).down
    changes = rescales(events_of(words, "scale_up_events"), events_of(words, "scale_down_events"))
    limit = replica_limit(words["current_replicas"], pace, changes, NOW_S, grows=False)
    return {"replicas": limit}


def _behavior_rate(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(
        words,
        {"current_replicas", "desired", "min", "max", "scale_up", "scale_down"}
        | {"scale_up_events", "scale_down_events"},
    )
    return _limited(
        bounded_rate(
            words["desired"],
            words["current_replicas"],
            paces(behavior_of(words)),
            min_replicas=words["min"],
            max_replicas=words["max"],
            up_events=events_of(words, "scale_up_events"),
            down_events=events_of(words, "scale_down_events"),
            now_s=NOW_S,
        )
    )


def _scale_events(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, {"events_before", "rules", "replica_change", "period_s"})
    before = events_of(words, "events_before")
    period_s = words["period_s"]
    after = before
    if words["rules"] is not None:
        # Which direction the rules belong to makes no difference to the bookkeeping.
        pace: Pace = paces(Behavior(scale_up=rules_of(words["rules"]))).up
        after = record_event(before, words["replica_change"], pace, NOW_S)
    return {
        f"change_in_last_{period_s}s": net_change(rescales(before), period_s, NOW_S),
        "events_after": [{"change": e.change, "outdated": e.outdated} for e in after],
    }


def _stabilize_legacy(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(words, {"desired", "recommendations", "window_s"})
    past = recommendations_of(words["recommendations"])
    stable = stabilize_down(words["desired"], past, words["window_s"], NOW_S)
    return {
        "replicas": stable.replicas,
        "stored_recommendations": len(stable.recommendations),
    }


def _stabilize_behavior(case: Case) -> dict[str, Any]:
    words = case["inputs"]
    refuse_strange(
        words,
        {"current_replicas", "desired", "recommendations"}
        | {"scale_up_window_s", "scale_down_window_s"},
    )
    stable = stabilize(
        words["desired"],
        words["current_replicas"],
        recommendations_of(words["recommendations"]),
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
    refuse_strange(
        words,
        {"min", "max", "spec_replicas", "status_replicas", "tolerance", "pods", "metrics"}
        | {"metric_age_s", "metric_window_s", "recommendations", "behavior", "gates"}
        | {"downscale_stabilization_s", "scaled_to_zero_condition"}
        | READINESS,
    )
    gates = words.get("gates", {})
    refuse_strange(gates, {"HPAScaleToZero", "HPAConfigurableTolerance"})
    autoscaler = Autoscaler(
        metrics=tuple(metric_of(metric, words) for metric in words["metrics"]),
        min_replicas=1 if words["min"] is None else words["min"],
        max_replicas=words["max"],
        behavior=None if words["behavior"] is None else behavior_of(words["behavior"]),
        tolerance=tolerance_of(words),
        readiness=readiness_of(words),
        down_window_s=words["downscale_stabilization_s"],
        scale_to_zero=gates.get("HPAScaleToZero", True),
        configurable_tolerance=gates.get("HPAConfigurableTolerance", True),
    )
    past = History(
        recommendations=None
        if words["recommendations"] is None
        else recommendations_of(words["recommendations"]),
        scaled_to_zero=words.get("scaled_to_zero_condition") or False,
    )
    scale = Scale(words["spec_replicas"], words["status_replicas"], pods_of(words))
    done = reconcile(autoscaler, scale, past, NOW_S)
    answer: dict[str, Any] = {"replicas": done.replicas}
    if done.error is not None:
        answer["error"] = True
    return answer


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
