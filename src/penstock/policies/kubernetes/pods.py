"""Pods, their samples, and which of them count: the first step of every per-pod metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal

from msgspec import Struct

Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


class Pod(Struct, frozen=True, gc=False):
    """What the autoscaler needs to know of a pod.

    `ready` is ``None`` as long as the pod has no such condition; `ready_changed_at_s` is when it
    last changed. A `request_milli` of ``None`` is a container without a request.
    """

    name: str
    phase: Phase = "Running"
    ready: bool | None = True
    deleting: bool = False
    started_at_s: float | None = None
    ready_changed_at_s: float | None = None
    request_milli: int | None = None


class PodSample(Struct, frozen=True, gc=False):
    """One pod's metric, in thousandths, measured over the `window_s` that end at `at_s`."""

    value_milli: int
    at_s: float = 0.0
    window_s: float = 0.0


class Readiness(Struct, frozen=True, gc=False):
    """How long the cpu of a starting pod is not trusted.

    Parameters
    ----------
    cpu_initialization_s
        This long after its start a pod's cpu counts only while it is ready, and only if the whole
        sample was taken after it became ready.
    initial_delay_s
        An unready pod whose condition last changed this soon after its start was never ready.
    """

    cpu_initialization_s: float = 300.0
    initial_delay_s: float = 30.0


#: The values that Kubernetes ships.
READINESS = Readiness()


class PodGroups(Struct, frozen=True):
    """How many pods count, and the names of those that do not, by why."""

    ready: int
    unready: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


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


def _cpu_counts(pod: Pod, sample: PodSample, now_s: float, readiness: Readiness) -> bool:
    if pod.ready is None or pod.started_at_s is None:
        return False
    changed_at_s = -inf if pod.ready_changed_at_s is None else pod.ready_changed_at_s
    if pod.started_at_s + readiness.cpu_initialization_s > now_s:
        return pod.ready and sample.at_s >= changed_at_s + sample.window_s
    return pod.ready or changed_at_s >= pod.started_at_s + readiness.initial_delay_s
