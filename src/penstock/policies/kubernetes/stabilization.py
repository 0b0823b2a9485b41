"""Past recommendations: what keeps an autoscaler from following every dip.

The `stabilize` functions keep the list as the controller does, old places reused. A policy that
decides every few seconds needs only what can still matter: of the past, `keep_highest` keeps
recommendations with none as high after them, `keep_lowest` the mirror image. The answers are
the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class ReplicaRecommendation(Struct, frozen=True, gc=False, array_like=True):
    """How many replicas the metrics asked for, and when."""

    replicas: int
    at_s: float


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


def keep_highest(
    past: tuple[ReplicaRecommendation, ...], newest: ReplicaRecommendation, cutoff_s: float
) -> tuple[ReplicaRecommendation, ...]:
    """Add a recommendation; the first of the answer is the highest since `cutoff_s`.

    >>> past = (ReplicaRecommendation(9, 0.0), ReplicaRecommendation(4, 15.0))
    >>> keep_highest(past, ReplicaRecommendation(6, 30.0), cutoff_s=0.0)
    (ReplicaRecommendation(replicas=9, at_s=0.0), ReplicaRecommendation(replicas=6, at_s=30.0))
    """
    replicas = newest.replicas
    if not past or past[0].replicas <= replicas:
        return (newest,)
    kept = [old for old in past if old.at_s >= cutoff_s and old.replicas > replicas]
    kept.append(newest)
    return tuple(kept)


def keep_lowest(
    past: tuple[ReplicaRecommendation, ...], newest: ReplicaRecommendation, cutoff_s: float
) -> tuple[ReplicaRecommendation, ...]:
    """Add a recommendation; the first of the answer is the lowest since `cutoff_s`."""
    replicas = newest.replicas
    if not past or past[0].replicas >= replicas:
        return (newest,)
    kept = [old for old in past if old.at_s >= cutoff_s and old.replicas < replicas]
    kept.append(newest)
    return tuple(kept)


def _stored(
    past: Sequence[ReplicaRecommendation], reuse: int | None, newest: ReplicaRecommendation
) -> tuple[ReplicaRecommendation, ...]:
    if reuse is None:
        return (*past, newest)
    return (*past[:reuse], newest, *past[reuse + 1 :])
