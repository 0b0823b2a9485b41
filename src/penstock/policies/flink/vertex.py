"""The new parallelism of one vertex, and of all vertices of a job, which move together.

Ten partitions on six tasks are no faster than on five: four of the six have two each. So the
parallelism is moved, within the direction of scaling, to one that divides the load well.
"""

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite, isinf
from typing import Literal

from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.policies.flink.evaluation import (
    NO_LIMIT,
    Alignment,
    Options,
    Vertex,
    VertexLoad,
    required_rps,
)
from penstock.policies.flink.history import DelayedScaleDown, Pending, Scaling, scaling_coefficient

#: Why a vertex comes out as it does.
Cause = Literal[
    "unknown", "right_size", "scale_up", "ineffective", "scale_down", "scale_down_delayed"
]


class VertexChange(Struct, frozen=True, gc=False):
    """What becomes of one vertex."""

    parallelism: int  #: What it gets now.
    wanted: int  #: What its load asks for.
    cause: Cause
    outside: bool = False
    expected_rps: float | None = None
    pending: Pending | None = None
    gained_fraction: float | None = None  #: What the last scale up brought of its promise.


def decide_vertex(
    vertex: Vertex,
    load: VertexLoad,
    options: Options,
    *,
    restart_s: float,
    now_s: float,
    past: Sequence[Scaling] = (),
    pending: Pending | None = None,
) -> VertexChange:
    """Required capacity over capacity, times the parallelism; down later than up.

    `past` are the scalings of this vertex, oldest first; `pending` its scale down that waits.

    >>> from penstock.policies.flink.evaluation import VertexDemand, band
    >>> options, demand = Options(catch_up_s=0.0), VertexDemand(1100.0, 0.0)
    >>> load = VertexLoad(1000.0, demand, band(demand, options, restart_s=300.0))
    >>> change = decide_vertex(Vertex(10), load, options, restart_s=300.0, now_s=0.0)
    >>> change.parallelism, change.outside, change.expected_rps
    (16, True, 1600.0)
    """
    current, capacity_rps = vertex.parallelism, load.capacity_rps
    needed_rps = required_rps(load.demand, options.utilization_target, options, restart_s)
    if capacity_rps is None or needed_rps is None:
        return VertexChange(current, current, "unknown", pending=pending)
    factor = _scale_factor(needed_rps, capacity_rps, past, options)
    wanted = scale(
        vertex,
        factor,
        lower_limit=min(current, options.vertex_min),
        upper_limit=max(current, options.vertex_max),
        alignment=options.alignment,
    )
    if wanted == current:
        return VertexChange(current, current, "right_size")
    expected_rps = capacity_rps / current * wanted
    outside = load.band.is_left_by(capacity_rps)
    if wanted < current:
        request = DelayedScaleDown(now_s, wanted, outside)
        return _shrink(current, request, expected_rps, pending, options)
    gained = gained_fraction(past[-1], current, capacity_rps) if past else None
    was_effective = gained is None or gained >= options.effectiveness_threshold
    if options.effectiveness_enabled and not was_effective:
        return VertexChange(current, wanted, "ineffective", False, expected_rps, None, gained)
    return VertexChange(wanted, wanted, "scale_up", outside, expected_rps, None, gained)


def gained_fraction(last: Scaling, current: int, capacity_rps: float) -> float | None:
    """What the last scale up brought of its promise; ``None`` if the last was something else.

    >>> last = Scaling(0.0, before=10, after=20, capacity_rps=90.0, expected_rps=180.0)
    >>> gained_fraction(last, 20, 99.0)
    0.1
    """
    if last.after != current or last.after <= last.before:
        return None
    if last.capacity_rps is None or last.expected_rps is None:
        return None
    promised_rps = last.expected_rps - last.capacity_rps
    gained_rps = capacity_rps - last.capacity_rps
    if promised_rps:
        return gained_rps / promised_rps
    return inf if gained_rps > 0.0 else -inf


def _scale_factor(
    needed_rps: float, capacity_rps: float, past: Sequence[Scaling], options: Options
) -> float:
    """Within what one step may do, and larger if past steps brought less than they should."""
    if isinf(capacity_rps):
        factor = 0.0
    elif capacity_rps:
        factor = needed_rps / capacity_rps
    else:
        factor = inf if needed_rps else 0.0
    if options.observed_scalability:
        factor /= scaling_coefficient(
            [(scaling.before, scaling.capacity_rps) for scaling in past],
            min_observations=options.observed_scalability_min_observations,
            coefficient_min=options.observed_scalability_coefficient_min,
        )
    least, most = 1.0 - options.max_scale_down_factor, 1.0 + options.max_scale_up_factor
    return min(max(factor, least), most)


def _shrink(
    current: int,
    request: DelayedScaleDown,
    expected_rps: float,
    pending: Pending | None,
    options: Options,
) -> VertexChange:
    """At once if so configured; else wait, then take the largest request of the interval."""
    interval_s, wanted = options.scale_down_interval_s, request.parallelism
    if interval_s <= 0.0:
        return VertexChange(wanted, wanted, "scale_down", request.outside, expected_rps)
    pending = (pending or Pending(request.at_s)).with_request(request)
    window_start_s = request.at_s - interval_s
    if window_start_s < pending.since_s:
        return VertexChange(current, wanted, "scale_down_delayed", False, expected_rps, pending)
    pending = pending.since(window_start_s)
    largest = pending.requests[0]
    cause: Cause = "scale_down" if largest.parallelism < current else "scale_down_delayed"
    return VertexChange(largest.parallelism, wanted, cause, largest.outside, expected_rps, pending)


class JobPlan(Struct, frozen=True, gc=False):
    """What becomes of each vertex that takes part, and which of them are to be scaled."""

    changes: dict[str, VertexChange]
    scaled: dict[str, int]  #: Empty while no vertex that would change is outside its band.
    under_memory_pressure: bool = False

    @property
    def pending(self) -> dict[str, Pending]:
        """The scale downs that wait; a rescale ends them all."""
        return {name: c.pending for name, c in self.changes.items() if c.pending is not None}


def decide_job(
    vertices: Mapping[str, Vertex],
    loads: Mapping[str, VertexLoad],
    options: Options,
    *,
    restart_s: float,
    now_s: float,
    past: Mapping[str, Sequence[Scaling]] | None = None,
    pending: Mapping[str, Pending] | None = None,
    heap_fraction: float | None = None,
) -> JobPlan:
    """Each goes to its own target if one leaves its band and the heap is below its threshold."""
    if (heap_fraction or 0.0) > options.heap_threshold:
        return JobPlan({}, {}, under_memory_pressure=True)
    changes = {
        name: decide_vertex(
            vertex,
            loads[name],
            options,
            restart_s=restart_s,
            now_s=now_s,
            past=() if past is None else past.get(name, ()),
            pending=None if pending is None else pending.get(name),
        )
        for name, vertex in vertices.items()
    }
    scaled = {
        name: change.parallelism
        for name, change in changes.items()
        if change.parallelism != vertices[name].parallelism
    }
    if not any(changes[name].outside for name in scaled):
        scaled = {}
    return JobPlan(changes, scaled)


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
