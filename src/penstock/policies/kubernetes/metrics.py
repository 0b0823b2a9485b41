"""From one metric to a number of replicas: what the autoscaler does with each of its metrics.

All values are integers in thousandths of their unit. A metric that gives no number raises
`MetricError`; its texts are the ones that Kubernetes reports, so that they can be looked up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf, isnan, nan
from typing import Literal

from msgspec import Struct

from penstock.core.errors import SensorError

MAX_INT32 = 2**31 - 1
MIN_INT32 = -(2**31)
MAX_INT64 = 2**63 - 1

Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
Values = Mapping[str, int]


class MetricError(SensorError):
    """A metric could not be read, or not be turned into a number of replicas."""


class Pod(Struct, frozen=True, gc=False):
    """What the autoscaler needs to know of a pod."""

    name: str
    phase: Phase = "Running"
    ready: bool | None = True  #: ``None``: it has no such condition yet.
    deleting: bool = False
    started_at_s: float | None = None
    ready_changed_at_s: float | None = None  #: The condition.
    request_milli: int | None = None  #: ``None``: a container without a request.


class PodSample(Struct, frozen=True, gc=False):
    """One pod's metric, in thousandths, measured over the `window_s` that end at `at_s`."""

    value_milli: int
    at_s: float = 0.0
    window_s: float = 0.0


class Readiness(Struct, frozen=True, gc=False):
    """How long the cpu of a starting pod is not trusted.

    For `cpu_initialization_s` after its start a pod's cpu counts only while it is ready, and only
    if the whole sample was taken after it became ready. An unready pod whose condition last
    changed within `initial_delay_s` of its start was never ready.
    """

    cpu_initialization_s: float = 300.0
    initial_delay_s: float = 30.0


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


READINESS, TOLERANCE = Readiness(), Tolerance()  #: The values that Kubernetes ships.


class PodGroups(Struct, frozen=True):
    """How many pods count, and the names of those that do not, by why."""

    ready: int
    unready: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


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
    groups, values = measured_pods(pods, samples, resource, now_s, readiness)
    requests = _requests(pods, resource)

    def ratio_of(values: Values) -> float:
        return divide(_utilization(values, requests)[0], target_pct)

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
        replicas = bounded_ceil(divide(value, target_milli))
    return Proposal(replicas, bounded_ceil(divide(value, status_replicas), MAX_INT64))


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
        return current if tolerance.covers(ratio) else bounded_ceil(ratio * groups.ready)
    filled = dict(values)
    if ratio < 1.0:
        filled.update((name, missing_milli(name)) for name in groups.missing)
    elif ratio > 1.0:
        filled.update(dict.fromkeys((*groups.missing, *groups.unready), 0))
    again = ratio_of(filled)
    if tolerance.covers(again) or ratio < 1.0 < again or again < 1.0 < ratio:
        return current
    replicas = bounded_ceil(again * len(filled))
    contradicts = replicas > current if again < 1.0 else replicas < current
    return current if contradicts else replicas


def measured_pods(
    pods: Sequence[Pod],
    samples: Mapping[str, PodSample],
    resource: str,
    now_s: float,
    readiness: Readiness,
) -> tuple[PodGroups, dict[str, int]]:
    """The pods in their groups, and the values of those that are neither unready nor gone."""
    if not pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    groups = group_pods(pods, samples, resource=resource, now_s=now_s, readiness=readiness)
    dropped = {*groups.ignored, *groups.unready}
    values = {name: s.value_milli for name, s in samples.items() if name not in dropped}
    if not values:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return groups, values


def group_pods(
    pods: Iterable[Pod],
    samples: Mapping[str, PodSample],
    *,
    resource: str,
    now_s: float,
    readiness: Readiness = READINESS,
) -> PodGroups:
    """Sort pods into those that count and those that are unready, unmeasured or gone.

    Readiness counts for cpu only: a starting process burns cpu without serving anything.

    >>> young = Pod("young", started_at_s=50.0, ready_changed_at_s=50.0)
    >>> fresh = {"young": PodSample(900, at_s=60.0, window_s=30.0)}
    >>> group_pods([young, Pod("gone", deleting=True)], fresh, resource="cpu", now_s=60.0)
    PodGroups(ready=0, unready=('young',), missing=(), ignored=('gone',))
    >>> group_pods([young], fresh, resource="memory", now_s=60.0).ready
    1
    """
    ready = 0
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    for pod in pods:
        if pod.deleting or pod.phase == "Failed":
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif (sample := samples.get(pod.name)) is None:
            missing.append(pod.name)
        elif resource == "cpu" and not _cpu_counts(pod, sample, now_s, readiness):
            unready.append(pod.name)
        else:
            ready += 1
    return PodGroups(ready, tuple(unready), tuple(missing), tuple(ignored))


def bounded_ceil(value: float, largest: int = MAX_INT32) -> int:
    """The next whole number up, or the largest that a replica count (or a metric) can hold.

    >>> bounded_ceil(2.1), bounded_ceil(1e30) == MAX_INT32
    (3, True)
    """
    if isnan(value):
        return 0
    return largest if value >= largest else ceil(max(value, -float(largest)))


def divide(value: float, by: float) -> float:
    """Division of floats that knows infinity, as hardware does: ``1/0`` is inf, ``0/0`` NaN."""
    if by != 0.0:
        return float(value) / float(by)
    return nan if value == 0.0 else inf if value > 0.0 else -inf


def quotient(total: int, count: int) -> int:
    """Division that drops the rest, so that it rounds towards zero on both sides.

    >>> quotient(7, 2), quotient(-7, 2)
    (3, -3)
    """
    return total // count if total >= 0 else -(-total // count)


def _cpu_counts(pod: Pod, sample: PodSample, now_s: float, readiness: Readiness) -> bool:
    if pod.ready is None or pod.started_at_s is None:
        return False
    changed_at_s = -inf if pod.ready_changed_at_s is None else pod.ready_changed_at_s
    if pod.started_at_s + readiness.cpu_initialization_s > now_s:
        return pod.ready and sample.at_s >= changed_at_s + sample.window_s
    return pod.ready or changed_at_s >= pod.started_at_s + readiness.initial_delay_s


def _utilization(values: Values, requests: Mapping[str, int]) -> tuple[int, int]:
    """Percent of the requests in use, and its mean in thousandths; unknown pods are left out."""
    known = [name for name in values if name in requests]
    used, requested = sum(values[name] for name in known), sum(requests[name] for name in known)
    if requested == 0:
        raise MetricError("no metrics returned matched known pods")
    return quotient(used * 100, requested), quotient(used, len(known))


def _requests(pods: Sequence[Pod], resource: str) -> dict[str, int]:
    requests = {}
    for pod in pods:
        if pod.request_milli is None:
            raise MetricError(f"missing request for {resource} in Pod {pod.name}")
        requests[pod.name] = pod.request_milli
    return requests
