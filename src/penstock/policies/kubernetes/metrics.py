"""From one metric to a number of replicas: what the autoscaler does with each of its metrics.

All values are integers in thousandths of their unit. A metric that gives no number raises
`MetricError`; its texts are the ones that Kubernetes reports, so that they can be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from penstock.core.errors import SensorError
from penstock.policies.kubernetes.numbers import ceil_int32, ceil_int64, divide, quotient
from penstock.policies.kubernetes.pods import (
    READINESS,
    Pod,
    PodGroups,
    PodSample,
    Readiness,
    group_pods,
)

Values = Mapping[str, int]


class MetricError(SensorError):
    """A metric could not be read, or not be turned into a number of replicas."""


class Tolerance(Struct, frozen=True, gc=False):
    """How far usage may lie off its target, as a fraction, before anything is done."""

    down: float = 0.1
    up: float = 0.1

    def covers(self, ratio: float) -> bool:
        """Whether usage/target is near enough to 1; both ends are.

        >>> Tolerance().covers(1.1), Tolerance().covers(0.89)
        (True, False)
        """
        return 1.0 - self.down <= ratio <= 1.0 + self.up


#: The value that Kubernetes ships.
TOLERANCE = Tolerance()


class Proposal(Struct, frozen=True, gc=False):
    """The replicas that one metric asks for, and the usage that it saw."""

    replicas: int
    usage_milli: int
    utilization_pct: int | None = None


def utilization_replicas(
    current: int,
    target_pct: int,
    pods: Sequence[Pod],
    samples: Mapping[str, PodSample],
    *,
    resource: str = "cpu",
    now_s: float = 0.0,
    tolerance: Tolerance = TOLERANCE,
    readiness: Readiness = READINESS,
) -> Proposal:
    """Replicas for a share of the request: ``ceil(utilisation/target x ready pods)``.

    >>> pods = [Pod(name, started_at_s=-900.0, request_milli=1000) for name in ("a", "b", "c")]
    >>> busy = {"a": PodSample(300), "b": PodSample(500), "c": PodSample(700)}
    >>> utilization_replicas(3, 30, pods, busy)
    Proposal(replicas=5, usage_milli=500, utilization_pct=50)
    """
    if not samples:
        raise MetricError(
            f"unable to get metrics for resource {resource}: "
            "no metrics returned from resource metrics API"
        )
    groups = grouped_pods(pods, samples, resource, now_s, readiness)
    values = counted_values(samples, groups)
    requests = _requests(pods, resource)

    def ratio_of(values: Values) -> float:
        return divide(float(_utilization(values, requests)[0]), float(target_pct))

    def missing_milli(name: str) -> int:
        return requests[name] * max(100, target_pct) // 100

    percent, average_milli = _utilization(values, requests)
    replicas = replicas_by_ratio(current, groups, values, ratio_of, missing_milli, tolerance)
    return Proposal(replicas, average_milli, percent)


def object_per_pod_replicas(
    status_replicas: int, target_milli: int, value_milli: int, *, tolerance: Tolerance = TOLERANCE
) -> Proposal:
    """Replicas for one value to be shared out: ``ceil(value/target)``.

    Within tolerance the answer is the number of replicas that exist, not that were asked for.

    >>> object_per_pod_replicas(3, 10_000, 40_000)
    Proposal(replicas=4, usage_milli=13334, utilization_pct=None)
    """
    value = float(value_milli)
    replicas = status_replicas
    if not tolerance.covers(divide(value, float(target_milli) * status_replicas)):
        replicas = ceil_int32(divide(value, float(target_milli)))
    return Proposal(replicas, ceil_int64(divide(value, float(status_replicas))))


def _utilization(values: Values, requests: Mapping[str, int]) -> tuple[int, int]:
    """Percent of the requests in use, and its mean in thousandths; unknown pods are left out."""
    used = requested = count = 0
    for name, value in values.items():
        request = requests.get(name)
        if request is not None:
            used += value
            requested += request
            count += 1
    if requested == 0:
        raise MetricError("no metrics returned matched known pods")
    return quotient(used * 100, requested), quotient(used, count)


def replicas_by_ratio(
    current: int,
    groups: PodGroups,
    values: Values,
    ratio_of: Callable[[Values], float],
    missing_milli: Callable[[str], int],
    tolerance: Tolerance,
) -> int:
    """Replicas by the pods that count; the others are filled in against the direction.

    What is not known must not make a change larger: on the way down unmeasured pods count as
    busy, on the way up they and the unready ones count as idle.
    """
    ratio = ratio_of(values)
    if not groups.missing and not (groups.unready and ratio > 1.0):
        return current if tolerance.covers(ratio) else ceil_int32(ratio * groups.ready)
    filled = dict(values)
    if ratio < 1.0:
        filled.update((name, missing_milli(name)) for name in groups.missing)
    elif ratio > 1.0:
        filled.update(dict.fromkeys((*groups.missing, *groups.unready), 0))
    again = ratio_of(filled)
    if tolerance.covers(again) or ratio < 1.0 < again or again < 1.0 < ratio:
        return current
    replicas = ceil_int32(again * len(filled))
    contradicts = replicas > current if again < 1.0 else replicas < current
    return current if contradicts else replicas


def grouped_pods(
    pods: Sequence[Pod],
    samples: Mapping[str, PodSample],
    resource: str,
    now_s: float,
    readiness: Readiness,
) -> PodGroups:
    if not pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    return group_pods(pods, samples, resource=resource, now_s=now_s, readiness=readiness)


def counted_values(samples: Mapping[str, PodSample], groups: PodGroups) -> dict[str, int]:
    dropped = {*groups.ignored, *groups.unready}
    values = {name: s.value_milli for name, s in samples.items() if name not in dropped}
    if not values:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return values


def _requests(pods: Sequence[Pod], resource: str) -> dict[str, int]:
    requests = {}
    for pod in pods:
        if pod.request_milli is None:
            raise MetricError(f"missing request for {resource} in Pod {pod.name}")
        requests[pod.name] = pod.request_milli
    return requests
