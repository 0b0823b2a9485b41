"""The whole controller of Kubernetes' horizontal pod autoscaler: one pass over all its metrics.

`penstock.policies.kubernetes.pacing.settle` must decide the same with a shorter memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from msgspec import Struct

from penstock.policies.kubernetes.metrics import (
    MetricError,
    Pod,
    PodSample,
    Proposal,
    Readiness,
    Tolerance,
    object_per_pod_replicas,
    utilization_replicas,
)
from penstock.policies.kubernetes.pacing import (
    Behavior,
    ReplicaRecommendation,
    paces,
)
from tests.conformance.reference.kubernetes_rules import (
    Limited,
    ScaleEvent,
    average_replicas,
    bounded_rate,
    external_per_pod_replicas,
    external_replicas,
    legacy_limited,
    object_replicas,
    record_event,
    stabilize,
    stabilize_down,
)


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
