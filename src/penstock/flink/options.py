"""What can be set, and what the operator takes if nothing is."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Aggregator = Literal["max", "min", "avg"]
Alignment = Literal[
    "balanced",
    "evenly_spread",
    "off",
    "legacy_evenly_spread",
    "legacy_maximize_utilisation",
]

#: The largest parallelism that the operator can write down: no limit.
NO_LIMIT = 2**31 - 1


class Options(Struct, frozen=True, kw_only=True, gc=False):
    """The options of the autoscaler, under the names that their meaning suggests.

    Parameters
    ----------
    utilization_target
        Part of its time that a vertex should be busy after a rescale.
    utilization_max, utilization_min
        Nothing is done in between; left out, `boundary` above and below the target.
    boundary
        Half the width of that band.
    catch_up_s
        Time in which the backlog should be worked off; 0 leaves backlog and restart out.
    restart_s
        Assumed downtime of one rescale.
    track_restarts, restart_limit_s
        Use the longest measured restart instead, but no more than the limit.
    backlog_threshold_s
        With more backlog than so many seconds of input, nothing shrinks.
    scale_down_interval_s
        How long to wait with a scale down, and for how long the largest wish counts.
    vertex_min, vertex_max
        Bounds of the parallelism; a vertex that lies outside already may stay there.
    max_scale_down_factor, max_scale_up_factor
        One step leaves at least ``1 - down`` and makes at most ``1 + up`` times the parallelism.
    alignment
        How to choose a parallelism that suits partitions or key groups.
    busy_aggregator
        Which instance stands for the vertex: the busiest, the idlest, or the mean.
    observed_lag_threshold_s
        From so many seconds of backlog on, the rate of a source shows its capacity.
    observed_switch_threshold
        Prefer that capacity if the one from busy time is higher by this fraction.
    observed_min_observations
        Samples that this takes.
    effectiveness_enabled, effectiveness_threshold
        Refuse another scale up if the last one brought less than this part of its promise.
    observed_scalability, observed_scalability_min_observations
        Learn from so many past scalings that capacity grows less than linearly.
    observed_scalability_coefficient_min
        The least that a doubling may be found to bring, as a part of what it should.
    gc_threshold, heap_threshold
        Scale nothing above these fractions of time in garbage collection and of heap in use.
    """

    utilization_target: float = 0.7
    utilization_max: float | None = None
    utilization_min: float | None = None
    boundary: float = 0.3
    catch_up_s: float = 1800.0
    restart_s: float = 300.0
    track_restarts: bool = False
    restart_limit_s: float = 900.0
    backlog_threshold_s: float = 300.0
    scale_down_interval_s: float = 3600.0
    vertex_min: int = 1
    vertex_max: int = 200
    max_scale_down_factor: float = 0.6
    max_scale_up_factor: float = 100_000.0
    alignment: Alignment = "balanced"
    busy_aggregator: Aggregator = "max"
    observed_lag_threshold_s: float = 30.0
    observed_switch_threshold: float = 0.15
    observed_min_observations: int = 2
    effectiveness_enabled: bool = False
    effectiveness_threshold: float = 0.1
    observed_scalability: bool = False
    observed_scalability_min_observations: int = 3
    observed_scalability_coefficient_min: float = 0.5
    gc_threshold: float = 1.0
    heap_threshold: float = 1.0
