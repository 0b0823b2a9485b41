"""A parallelism that suits the number of partitions or key groups.

Ten partitions on six tasks are no faster than on five: four of the six have two each. So the
parallelism is moved, within the direction of scaling, to one that divides the load well.
"""

from __future__ import annotations

from math import ceil, isfinite

from penstock.core.errors import ConfigError
from penstock.policies.flink.evaluation import Vertex
from penstock.policies.flink.options import NO_LIMIT, Alignment


def scale(
    vertex: Vertex,
    factor: float,
    *,
    lower_limit: int = 1,
    upper_limit: int = NO_LIMIT,
    alignment: Alignment = "balanced",
) -> int:
    """`factor` times the parallelism, rounded up, within limits, aligned.

    >>> scale(Vertex(200, keyed=True, max_parallelism=720), 1.3, alignment="evenly_spread")
    360
    >>> scale(Vertex(200, max_parallelism=720), 1.3)
    260
    """
    if lower_limit > upper_limit:
        raise ConfigError(
            f"the least parallelism ({lower_limit}) must not exceed the most ({upper_limit})"
        )
    current = vertex.parallelism
    wanted = factor * current
    raw = min(ceil(wanted), NO_LIMIT) if isfinite(wanted) else NO_LIMIT
    target = min(max(lower_limit, raw), vertex.max_parallelism, upper_limit)
    if target == current or not is_alignable(vertex):
        return target
    return align(
        vertex, target, lower_limit=lower_limit, upper_limit=upper_limit, alignment=alignment
    )


def is_alignable(vertex: Vertex) -> bool:
    """Sources with partitions, and vertices behind a shuffle by key."""
    return vertex.source_partitions > 0 or vertex.keyed


def align(
    vertex: Vertex,
    target: int,
    *,
    lower_limit: int = 1,
    upper_limit: int = NO_LIMIT,
    alignment: Alignment = "balanced",
) -> int:
    """The first parallelism from `target` on that divides the load well; else the target.

    Growing may go on to the limits, shrinking only up to where it came from. The legacy modes
    look below the target next, and rather do nothing than turn the direction around.

    >>> vertex = Vertex(16, keyed=True, max_parallelism=128)
    >>> align(vertex, 24, alignment="evenly_spread"), align(vertex, 24), align(vertex, 24,
    ...     alignment="off")
    (32, 26, 24)
    """
    if alignment == "off":
        return target
    current, groups = vertex.parallelism, vertex.source_partitions or vertex.max_parallelism
    is_growing = target > current
    last = min(groups, vertex.max_parallelism, upper_limit)
    if not is_growing:
        last = min(last, current)
    takes_any_relief = alignment in ("balanced", "legacy_maximize_utilisation")
    aligned = _first_aligned(groups, target, last, takes_any_relief=takes_any_relief)
    if aligned is not None:
        return aligned
    if alignment in ("balanced", "evenly_spread"):
        return target
    fallback = max(_relaxed(groups, target), lower_limit)
    turns_around = fallback <= current if is_growing else fallback >= current
    return current if turns_around else fallback


def _first_aligned(groups: int, target: int, last: int, *, takes_any_relief: bool) -> int | None:
    """Where groups divide evenly or, if that will do, where a task has fewer of them."""
    at_target = groups // target
    if takes_any_relief and at_target:
        # The first parallelism at which the quotient drops; no need to try those before it.
        last = min(last, groups // at_target + 1)
    for parallelism in range(target, last + 1):
        if groups % parallelism == 0 or (takes_any_relief and groups // parallelism < at_target):
            return parallelism
    return None


def _relaxed(groups: int, target: int) -> int:
    """The least parallelism below the target at which a task has no more groups than there."""
    at_target = groups // target
    for parallelism in range(target, 0, -1):
        if groups // parallelism > at_target:
            return parallelism + 1 if groups % parallelism else parallelism
    return 0
