"""What can be set, and what the operator takes if nothing is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

Aggregator = Literal["max", "min", "avg"]
Alignment = Literal[
    "balanced", "evenly_spread", "off", "legacy_evenly_spread", "legacy_maximize_utilisation"
]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]
Factor = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]

#: The largest parallelism that the operator can write down: no limit.
NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the autoscaler, under the names that their meaning suggests.

    The policy `flink` is these options and a few of its own, and explains each.
    """

    utilization_target: Annotated[float, Meta(gt=0, le=1)] = 0.7
    utilization_max: Fraction | None = None
    utilization_min: Fraction | None = None
    boundary: Fraction = 0.3
    catch_up_s: Seconds = 1800.0
    restart_s: Seconds = 300.0
    track_restarts: bool = False
    restart_limit_s: Seconds = 900.0
    backlog_threshold_s: Seconds = 300.0
    scale_down_interval_s: Seconds = 3600.0
    max_scale_down_factor: Fraction = 0.6
    max_scale_up_factor: Factor = 100_000.0
    vertex_min: Count = 1
    vertex_max: Count = 200
    alignment: Alignment = "balanced"
    observed_lag_threshold_s: Seconds = 30.0
    observed_switch_threshold: Factor = 0.15
    observed_min_observations: Count = 2
    effectiveness_enabled: bool = False
    effectiveness_threshold: Fraction = 0.1
    observed_scalability: bool = False
    observed_scalability_min_observations: Count = 3
    observed_scalability_coefficient_min: Annotated[float, Meta(ge=0.01, le=1)] = 0.5
    heap_threshold: Fraction = 1.0
