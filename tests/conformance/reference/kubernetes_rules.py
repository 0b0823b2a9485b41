"""The rules of Kubernetes' horizontal pod autoscaler that no policy needs: sizes and limits.

Metrics of other objects, and recommendations and scale events kept as the controller keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from penstock.core.knowledge import Rescale
from penstock.policies.kubernetes.metrics import (
    MAX_INT64,
    READINESS,
    TOLERANCE,
    MetricError,
    Pod,
    PodSample,
    Proposal,
    Readiness,
    Tolerance,
    Values,
    bounded_ceil,
    divide,
    measured_pods,
    object_per_pod_replicas,
    quotient,
    replicas_by_ratio,
)
from penstock.policies.kubernetes.pacing import (
    Pace,
    Paces,
    ReplicaRecommendation,
    replica_limit,
)


def serving(pods: Iterable[Pod]) -> int:
    """How many pods are running and ready.

    >>> serving([Pod("a"), Pod("b", ready=False), Pod("c", phase="Pending")])
    1
    """
    return sum(1 for pod in pods if pod.phase == "Running" and pod.ready)


def average_replicas(
    current: int,
    target_milli: int,
    pods: Sequence[Pod],
    samples: Mapping[str, PodSample],
    *,
    resource: str = "",
    now_s: float = 0.0,
    tolerance: Tolerance = TOLERANCE,
    readiness: Readiness = READINESS,
) -> Proposal:
    """Replicas for a mean over pods: ``ceil(mean/target x ready pods)``.

    `resource` is empty for a custom metric; for ``cpu``, readiness is looked at.

    >>> pods = [Pod("a"), Pod("b")]
    >>> average_replicas(2, 15_000, pods, {"a": PodSample(20_000), "b": PodSample(40_000)})
    Proposal(replicas=4, usage_milli=30000, utilization_pct=None)
    """
    if not samples:
        asked = f"metrics for resource {resource}" if resource else "metric"
        source = "resource" if resource else "custom"
        raise MetricError(f"unable to get {asked}: no metrics returned from {source} metrics API")
    groups, values = measured_pods(pods, samples, resource, now_s, readiness)

    def ratio_of(values: Values) -> float:
        return divide(float(_average(values)), float(target_milli))

    replicas = replicas_by_ratio(
        current, groups, values, ratio_of, lambda _: target_milli, tolerance
    )
    return Proposal(replicas, _average(values))


def _average(values: Values) -> int:
    return quotient(sum(values.values()), len(values))


def object_replicas(
    current: int,
    target_milli: int,
    value_milli: int,
    pods: Sequence[Pod],
    *,
    tolerance: Tolerance = TOLERANCE,
) -> Proposal:
    """Replicas for one value as a whole: ``ceil(value/target x serving pods)``.

    From zero replicas there are no pods to multiply with, and no tolerance: ``ceil(value/target)``.

    >>> object_replicas(0, 15_000, 20_000, []).replicas
    2
    """
    ratio = divide(float(value_milli), float(target_milli))
    if current == 0:
        return Proposal(bounded_ceil(ratio), value_milli)
    if tolerance.covers(ratio):
        return Proposal(current, value_milli)
    if not pods:
        raise MetricError(
            "unable to calculate ready pods: "
            "no pods returned by selector while calculating replica count"
        )
    return Proposal(bounded_ceil(ratio * serving(pods)), value_milli)


def external_replicas(
    current: int,
    target_milli: int,
    values_milli: Sequence[int],
    pods: Sequence[Pod],
    *,
    tolerance: Tolerance = TOLERANCE,
) -> Proposal:
    """Replicas for the sum of a metric from outside the cluster, as a whole."""
    if not values_milli:
        raise MetricError(
            "unable to get external metric: no metrics returned from external metrics API"
        )
    total = 0
    for value in values_milli:
        total += value
        if total > MAX_INT64:
            total = MAX_INT64
            break
    return object_replicas(current, target_milli, total, pods, tolerance=tolerance)


class Stabilized(Struct, frozen=True):
    """The replicas to go on with, and the list to keep."""

    replicas: int
    recommendations: tuple[ReplicaRecommendation, ...]


def stabilize_down(
    desired: int, past: Sequence[ReplicaRecommendation], window_s: float, now_s: float
) -> Stabilized:
    """Without ``spec.behavior``: the highest recommendation that is at most `window_s` old.

    >>> past = [ReplicaRecommendation(9, -540.0), ReplicaRecommendation(5, -120.0)]
    >>> stabilize_down(3, past, 300.0, now_s=0.0).replicas
    5
    """
    cutoff_s = now_s - window_s
    highest = desired
    reuse = None
    for index, recommendation in enumerate(past):
        if recommendation.at_s < cutoff_s:
            reuse = index
        else:
            highest = max(highest, recommendation.replicas)
    return Stabilized(highest, _stored(past, reuse, ReplicaRecommendation(desired, now_s)))


def stabilize(
    desired: int,
    current: int,
    past: Sequence[ReplicaRecommendation],
    *,
    up_window_s: float,
    down_window_s: float,
    now_s: float,
) -> Stabilized:
    """With ``spec.behavior``: `current`, moved no further than all recent recommendations agree.

    >>> past = [ReplicaRecommendation(4, -60.0), ReplicaRecommendation(9, -90.0)]
    >>> stabilize(8, 5, past, up_window_s=300.0, down_window_s=300.0, now_s=0.0).replicas
    5
    >>> stabilize(8, 5, past, up_window_s=0.0, down_window_s=300.0, now_s=0.0).replicas
    8
    """
    up_cutoff_s, down_cutoff_s = now_s - up_window_s, now_s - down_window_s
    lowest = highest = desired
    reuse = None
    for index, recommendation in enumerate(past):
        if recommendation.at_s > up_cutoff_s:
            lowest = min(lowest, recommendation.replicas)
        if recommendation.at_s > down_cutoff_s:
            highest = max(highest, recommendation.replicas)
        if recommendation.at_s < up_cutoff_s and recommendation.at_s < down_cutoff_s:
            reuse = index
    replicas = min(max(current, lowest), highest)
    return Stabilized(replicas, _stored(past, reuse, ReplicaRecommendation(desired, now_s)))


def _stored(
    past: Sequence[ReplicaRecommendation], reuse: int | None, newest: ReplicaRecommendation
) -> tuple[ReplicaRecommendation, ...]:
    if reuse is None:
        return (*past, newest)
    return (*past[:reuse], newest, *past[reuse + 1 :])


class ScaleEvent(Struct, frozen=True, gc=False):
    """A rescale that was made; `change` is how many pods, up or down."""

    change: int
    at_s: float
    outdated: bool = False


def rescales(
    up_events: Iterable[ScaleEvent], down_events: Iterable[ScaleEvent] = ()
) -> list[Rescale]:
    """The same events as Penstock remembers them: only the differences of sizes matter."""
    return [Rescale(event.at_s, 0, event.change) for event in up_events] + [
        Rescale(event.at_s, event.change, 0) for event in down_events
    ]


class Limited(Struct, frozen=True, gc=False):
    """What the limits left of a desired size, and which limit it was."""

    replicas: int
    reason: str


def bounded_rate(
    desired: int,
    current: int,
    rules: Paces,
    *,
    min_replicas: int,
    max_replicas: int,
    up_events: Iterable[ScaleEvent] = (),
    down_events: Iterable[ScaleEvent] = (),
    now_s: float = 0.0,
) -> Limited:
    """The desired size after the policies and the bounds of its direction.

    >>> from penstock.policies.kubernetes.pacing import Behavior, paces
    >>> bounded_rate(50, 1, paces(Behavior()), min_replicas=1, max_replicas=100)
    Limited(replicas=5, reason='ScaleUpLimit')
    """
    changes = rescales(up_events, down_events)
    if desired > current:
        limit = replica_limit(current, rules.up, changes, now_s, grows=True)
        allowed = max(current, limit)
        if desired > min(max_replicas, allowed):
            if max_replicas > allowed:
                return Limited(allowed, "ScaleUpLimit")
            return Limited(max_replicas, "TooManyReplicas")
    elif desired < current:
        limit = replica_limit(current, rules.down, changes, now_s, grows=False)
        allowed = min(current, limit)
        if desired < max(min_replicas, allowed):
            if min_replicas < allowed:
                return Limited(allowed, "ScaleDownLimit")
            return Limited(min_replicas, "TooFewReplicas")
    return Limited(desired, "DesiredWithinRange")


def external_per_pod_replicas(
    status_replicas: int,
    target_milli: int,
    values_milli: Sequence[int],
    *,
    tolerance: Tolerance = TOLERANCE,
) -> Proposal:
    """Replicas for the sum of a metric from outside the cluster, shared out.

    >>> external_per_pod_replicas(10, 1_000, [12_000]).replicas
    12
    >>> external_per_pod_replicas(10, 1_000, [11_000]).replicas  # 10 % more is within tolerance
    10
    """
    if not values_milli:
        raise MetricError(
            "unable to get external metric: no metrics returned from external metrics API"
        )
    total = 0
    for value in values_milli:
        total += value
        # A sum below zero is taken for an overflow, here and in Kubernetes.
        if not 0 <= total <= MAX_INT64:
            total = MAX_INT64
            break
    proposal = object_per_pod_replicas(status_replicas, target_milli, total, tolerance=tolerance)
    if float(total) >= float(MAX_INT64):
        return Proposal(proposal.replicas, MAX_INT64)
    return proposal


def legacy_limited(desired: int, current: int, *, min_replicas: int, max_replicas: int) -> Limited:
    """A wish without ``spec.behavior``: one pass at most doubles the fleet, or makes it 4.

    >>> legacy_limited(50, 1, min_replicas=1, max_replicas=100)
    Limited(replicas=4, reason='ScaleUpLimit')
    """
    if desired < min_replicas:
        return Limited(min_replicas, "TooFewReplicas")
    allowed = max(2 * current, 4)
    if desired > min(max_replicas, allowed):
        if max_replicas > allowed:
            return Limited(allowed, "ScaleUpLimit")
        return Limited(max_replicas, "TooManyReplicas")
    return Limited(desired, "DesiredWithinRange")


def record_event(
    events: Iterable[ScaleEvent], change: int, pace: Pace, now_s: float
) -> tuple[ScaleEvent, ...]:
    """Remember a rescale; it takes the last place that is older than every policy looks back."""
    cutoff_s = now_s - pace.longest_s
    kept = [
        ScaleEvent(event.change, event.at_s, event.outdated or event.at_s < cutoff_s)
        for event in events
    ]
    newest = ScaleEvent(change, now_s)
    for index in range(len(kept) - 1, -1, -1):
        if kept[index].outdated:
            kept[index] = newest
            return tuple(kept)
    return (*kept, newest)
