"""Past recommendations: what keeps an autoscaler from following every dip.

The controller keeps a list of all of them. A policy that decides every few seconds needs only
those with none as high (or as low) after them; the answers are the same.
"""

from __future__ import annotations

from msgspec import Struct


class ReplicaRecommendation(Struct, frozen=True, gc=False, array_like=True):
    """How many replicas the metrics asked for, and when."""

    replicas: int
    at_s: float


def keep_extreme(
    past: tuple[ReplicaRecommendation, ...],
    newest: ReplicaRecommendation,
    cutoff_s: float,
    sign: int,
) -> tuple[ReplicaRecommendation, ...]:
    """Add a recommendation; the first of the answer is the highest since `cutoff_s`.

    With a `sign` of -1 it is the lowest.

    >>> past = (ReplicaRecommendation(9, 0.0), ReplicaRecommendation(4, 15.0))
    >>> keep_extreme(past, ReplicaRecommendation(6, 30.0), cutoff_s=0.0, sign=1)
    (ReplicaRecommendation(replicas=9, at_s=0.0), ReplicaRecommendation(replicas=6, at_s=30.0))
    """
    least = sign * newest.replicas
    if not past or sign * past[0].replicas <= least:
        return (newest,)
    kept = [old for old in past if old.at_s >= cutoff_s and sign * old.replicas > least]
    return (*kept, newest)
