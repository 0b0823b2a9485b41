"""The whole controller of Kubernetes' horizontal pod autoscaler, as far as no policy needs it.

Metrics of other objects, recommendations kept as the controller keeps them, and one pass over
all: `penstock.policies.kubernetes.pacing.settle` must decide the same with a shorter memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

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
    utilization_replicas,
)
from penstock.policies.kubernetes.pacing import (
    Behavior,
    Pace,
    Paces,
    ReplicaRecommendation,
    paces,
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


class Scale(Struct, frozen=True):
    """What is scaled: replicas asked for, replicas there, and the pods behind them."""

    spec_replicas: int
    status_replicas: int
    pods: tuple[Pod, ...] = ()


class View(Struct, frozen=True):
    """What a metric is judged with: the scale, the time, and what is tolerated."""

    scale: Scale
    now_s: float = 0.0
    tolerance: Tolerance = Tolerance()
    readiness: Readiness = Readiness()


class MetricSpec(Protocol):
    """One entry of ``spec.metrics``; `works_from_zero` if it exists without any pod."""

    works_from_zero: ClassVar[bool]

    def proposal(self, view: View) -> Proposal:
        """The replicas that it asks for, or `MetricError`."""
        ...


class UtilizationMetric(Struct, frozen=True):
    """A resource as percent of the request."""

    works_from_zero: ClassVar[bool] = False

    target_pct: int
    samples: Mapping[str, PodSample]
    resource: str = "cpu"

    def proposal(self, view: View) -> Proposal:
        return utilization_replicas(
            view.scale.spec_replicas,
            self.target_pct,
            view.scale.pods,
            self.samples,
            resource=self.resource,
            now_s=view.now_s,
            tolerance=view.tolerance,
            readiness=view.readiness,
        )


class AverageMetric(Struct, frozen=True):
    """A resource, or with an empty `resource` a custom metric, as a mean over pods."""

    works_from_zero: ClassVar[bool] = False

    target_milli: int
    samples: Mapping[str, PodSample]
    resource: str = ""

    def proposal(self, view: View) -> Proposal:
        return average_replicas(
            view.scale.spec_replicas,
            self.target_milli,
            view.scale.pods,
            self.samples,
            resource=self.resource,
            now_s=view.now_s,
            tolerance=view.tolerance,
            readiness=view.readiness,
        )


class ObjectMetric(Struct, frozen=True):
    """A metric of another object, as a whole or `per_pod`; ``None`` could not be read."""

    works_from_zero: ClassVar[bool] = True

    target_milli: int
    value_milli: int | None
    per_pod: bool = False

    def proposal(self, view: View) -> Proposal:
        if self.value_milli is None:
            raise MetricError("unable to get metric: no metrics returned from custom metrics API")
        scale = view.scale
        if self.per_pod:
            return object_per_pod_replicas(
                scale.status_replicas, self.target_milli, self.value_milli, tolerance=view.tolerance
            )
        return object_replicas(
            scale.spec_replicas,
            self.target_milli,
            self.value_milli,
            scale.pods,
            tolerance=view.tolerance,
        )


class ExternalMetric(Struct, frozen=True):
    """A metric from outside the cluster, as a whole or `per_pod`; no values: could not be read."""

    works_from_zero: ClassVar[bool] = True

    target_milli: int
    values_milli: tuple[int, ...]
    per_pod: bool = False

    def proposal(self, view: View) -> Proposal:
        scale = view.scale
        if self.per_pod:
            return external_per_pod_replicas(
                scale.status_replicas,
                self.target_milli,
                self.values_milli,
                tolerance=view.tolerance,
            )
        return external_replicas(
            scale.spec_replicas,
            self.target_milli,
            self.values_milli,
            scale.pods,
            tolerance=view.tolerance,
        )


class UnknownMetric(Struct, frozen=True):
    """A metric of a type that does not exist: always an error."""

    works_from_zero: ClassVar[bool] = False

    name: str = ""

    def proposal(self, view: View) -> Proposal:
        raise MetricError(f"unknown metric source type {self.name!r}")


class Autoscaler(Struct, frozen=True):
    """The object that a user writes, and the flags and gates of the cluster."""

    metrics: tuple[MetricSpec, ...]
    max_replicas: int
    min_replicas: int = 1
    behavior: Behavior | None = None
    tolerance: Tolerance = Tolerance()
    readiness: Readiness = Readiness()
    down_window_s: float = 300.0
    scale_to_zero: bool = True
    configurable_tolerance: bool = True


class History(Struct, frozen=True):
    """What the controller remembers; ``None`` for recommendations is the very first pass."""

    recommendations: tuple[ReplicaRecommendation, ...] | None = None
    up_events: tuple[ScaleEvent, ...] = ()
    down_events: tuple[ScaleEvent, ...] = ()
    scaled_to_zero: bool = False


class ReconcileResult(Struct, frozen=True):
    """How a pass ended: the replicas, which limit spoke, what failed, what to remember."""

    replicas: int
    reason: str
    error: str | None
    past: History


class MaxProposal(Struct, frozen=True, gc=False):
    """The most that any metric asks for; ``None`` if nothing may be done. And the first error."""

    replicas: int | None
    error: str | None


def reconcile(autoscaler: Autoscaler, scale: Scale, past: History, now_s: float) -> ReconcileResult:
    """One pass.

    >>> load = ExternalMetric(target_milli=10_000, values_milli=(65_000,), per_pod=True)
    >>> one = reconcile(Autoscaler((load,), max_replicas=20), Scale(3, 3), History(), now_s=0.0)
    >>> one.replicas, one.reason  # 7 are wanted, a pass at most doubles
    (6, 'ScaleUpLimit')
    """
    current = scale.spec_replicas
    if past.recommendations is None:
        past = _with(past, recommendations=(ReplicaRecommendation(current, now_s),))
    zeroed = autoscaler.scale_to_zero and past.scaled_to_zero
    if current == 0:
        from_zero = any(metric.works_from_zero for metric in autoscaler.metrics)
        if not zeroed or (autoscaler.min_replicas == 0 and not from_zero):
            return ReconcileResult(0, "ScalingDisabled", None, past)
    elif current > autoscaler.max_replicas:
        return _scaled(autoscaler, past, current, autoscaler.max_replicas, "TooManyReplicas", now_s)
    elif current < autoscaler.min_replicas:
        return _scaled(autoscaler, past, current, autoscaler.min_replicas, "TooFewReplicas", now_s)

    view = View(scale, now_s, _tolerance(autoscaler), autoscaler.readiness)
    wanted = strongest(autoscaler.metrics, view)
    if wanted.replicas is None:
        return ReconcileResult(current, "FailedComputeMetricsReplicas", wanted.error, past)
    desired = max(0, wanted.replicas)
    limited, past = _normalized(autoscaler, past, current, desired, now_s)
    replicas = limited.replicas
    if current == 0 and zeroed:
        replicas = max(replicas, autoscaler.min_replicas)
    done = _scaled(autoscaler, past, current, replicas, limited.reason, now_s)
    return ReconcileResult(done.replicas, done.reason, wanted.error, done.past)


def strongest(metrics: Sequence[MetricSpec], view: View) -> MaxProposal:
    """The maximum over metrics; with some of them blind, only as long as nothing shrinks."""
    most: int | None = None
    error = None
    for metric in metrics:
        try:
            replicas = metric.proposal(view).replicas
        except MetricError as failure:
            error = error or str(failure)
        else:
            most = replicas if most is None else max(most, replicas)
    if error is not None and (most is None or most < view.scale.spec_replicas):
        return MaxProposal(None, error)
    # Without any metric Kubernetes goes on with nothing wanted; its API server lets none through.
    return MaxProposal(0 if most is None else most, error)


def _tolerance(autoscaler: Autoscaler) -> Tolerance:
    behavior = autoscaler.behavior
    if behavior is None or not autoscaler.configurable_tolerance:
        return autoscaler.tolerance
    down, up = behavior.scale_down.tolerance, behavior.scale_up.tolerance
    return Tolerance(
        autoscaler.tolerance.down if down is None else down,
        autoscaler.tolerance.up if up is None else up,
    )


def _normalized(
    autoscaler: Autoscaler, past: History, current: int, desired: int, now_s: float
) -> tuple[Limited, History]:
    """Stabilise, then limit; the raw wish is what is remembered."""
    recommendations = past.recommendations or ()
    least, most = autoscaler.min_replicas, autoscaler.max_replicas
    if autoscaler.behavior is None:
        stable = stabilize_down(desired, recommendations, autoscaler.down_window_s, now_s)
        limited = legacy_limited(stable.replicas, current, min_replicas=least, max_replicas=most)
        return limited, _with(past, recommendations=stable.recommendations)
    rules = paces(autoscaler.behavior, autoscaler.down_window_s)
    stable = stabilize(
        desired,
        current,
        recommendations,
        up_window_s=rules.up.window_s,
        down_window_s=rules.down.window_s,
        now_s=now_s,
    )
    limited = bounded_rate(
        stable.replicas,
        current,
        rules,
        min_replicas=least,
        max_replicas=most,
        up_events=past.up_events,
        down_events=past.down_events,
        now_s=now_s,
    )
    return limited, _with(past, recommendations=stable.recommendations)


def _scaled(
    autoscaler: Autoscaler, past: History, current: int, replicas: int, reason: str, now_s: float
) -> ReconcileResult:
    """Write the new size and the event down."""
    if replicas == current:
        return ReconcileResult(current, reason, None, past)
    up_events, down_events = past.up_events, past.down_events
    if autoscaler.behavior is not None:
        rules = paces(autoscaler.behavior, autoscaler.down_window_s)
        if replicas > current:
            up_events = record_event(up_events, replicas - current, rules.up, now_s)
        else:
            down_events = record_event(down_events, current - replicas, rules.down, now_s)
    zeroed = (
        autoscaler.scale_to_zero
        and replicas == 0
        and autoscaler.min_replicas == 0
        and any(metric.works_from_zero for metric in autoscaler.metrics)
    )
    return ReconcileResult(
        replicas, reason, None, History(past.recommendations, up_events, down_events, zeroed)
    )


def _with(past: History, *, recommendations: tuple[ReplicaRecommendation, ...]) -> History:
    return History(recommendations, past.up_events, past.down_events, past.scaled_to_zero)
