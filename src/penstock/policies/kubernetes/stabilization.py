"""Past recommendations: what keeps an autoscaler from following every dip.

The `stabilize` functions keep the list as the controller does, old places reused. A policy that
decides every few seconds needs only what can still matter: of the past, `keep_highest` keeps
recommendations with none as high after them, `keep_lowest` the mirror image. The answers are
the same.
"""

from __future__ import annotations

from msgspec import Struct


class ReplicaRecommendation(Struct, frozen=True, gc=False, array_like=True):
    """How many replicas the metrics asked for, and when."""

    replicas: int
    at_s: float


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
