"""What can be set, and from the samples of a window what each vertex can do and has to do.

Around what it has to do lies the band of capacities in which nothing is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, isinf
from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.policies.algorithms.dataflow import topological_order
from penstock.policies.flink.capacity import MS_PER_S, mean, rate, rounded, true_processing_rps

Alignment = Literal[
    "balanced", "evenly_spread", "off", "legacy_evenly_spread", "legacy_maximize_utilisation"
]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]
Factor = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]

NO_LIMIT = 2**31 - 1  #: The largest parallelism that the operator can write down: no limit.


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options, under names that their meaning suggests; the policy `flink` explains each."""

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


class Vertex(Struct, frozen=True, gc=False):
    """A vertex as the job graph has it; 0 partitions: not a source with partitions."""

    parallelism: int
    inputs: tuple[str, ...] = ()
    max_parallelism: int = NO_LIMIT
    source_partitions: int = 0
    keyed: bool = False


class VertexSample(Struct, frozen=True, gc=False):
    """What was collected of one vertex at one time; counters count from the start of the job."""

    records_in: float | None = None
    records_out: float | None = None
    lag_records: float | None = None
    load_fraction: float | None = None
    input_rps: float | None = None
    observed_rps: float | None = None


class Flow(Struct, frozen=True, gc=False):
    """Records per second that go into a vertex and come out of it."""

    in_rps: float | None = None
    out_rps: float | None = None


class VertexDemand(Struct, frozen=True, gc=False):
    """What arrives for a vertex, and what it should work off on top of that."""

    target_rps: float | None
    catch_up_rps: float | None


class Band(Struct, frozen=True, gc=False):
    """Capacities between which a vertex is left alone."""

    scale_up_below_rps: float | None
    scale_down_above_rps: float | None

    def is_left_by(self, capacity_rps: float) -> bool:
        low, high = self.scale_up_below_rps, self.scale_down_above_rps
        return (low is not None and capacity_rps < low) or (
            high is not None and capacity_rps > high
        )


class VertexLoad(Struct, frozen=True, gc=False):
    """What a vertex can do, would have to do, and within which band it is left alone."""

    capacity_rps: float | None
    demand: VertexDemand
    band: Band


Inputs = Mapping[str, Sequence[str]]  #: Who feeds whom: the vertices that a vertex reads from.
#: The samples of a vertex, each with its time, oldest first.
Points = Sequence[tuple[float, VertexSample]]


def source_demand(
    input_rps: float | None, lag_growth_rps: float | None, lag_records: float, catch_up_s: float
) -> VertexDemand:
    """What really arrives is what was read plus what the backlog grew by.

    >>> source_demand(100.0, 50.0, 1000.0, catch_up_s=2.0)
    VertexDemand(target_rps=150.0, catch_up_rps=500.0)
    """
    catch_up_rps = lag_records / catch_up_s if catch_up_s else 0.0
    if input_rps is None or lag_growth_rps is None:
        return VertexDemand(None, catch_up_rps)
    return VertexDemand(max(0.0, input_rps + lag_growth_rps), catch_up_rps)


def edge_rps(inputs: Inputs, flows: Mapping[str, Flow], upstream: str, vertex: str) -> float | None:
    """How much goes from one vertex to the next, which no counter shows.

    What `vertex` reads is the surest measure, less what others give it if they give to it alone;
    else all that `upstream` puts out.
    """
    into_rps = flows[vertex].in_rps
    others = [feeder for feeder in inputs[vertex] if feeder != upstream]
    given = [out_rps for feeder in others if (out_rps := flows[feeder].out_rps) is not None]
    feed_others = any(sum(feeder in of for of in inputs.values()) > 1 for feeder in others)
    if feed_others or len(given) < len(others):
        return flows[upstream].out_rps
    return None if into_rps is None else into_rps - sum(given)


def output_ratio(inputs: Inputs, flows: Mapping[str, Flow], upstream: str, vertex: str) -> float:
    """Records for `vertex` per record that `upstream` reads; 0 where that is not known.

    >>> inputs = {"read": (), "split": ("read",)}
    >>> output_ratio(inputs, {"read": Flow(100.0), "split": Flow(200.0)}, "read", "split")
    2.0
    """
    into_rps = flows[upstream].in_rps
    if into_rps is None or into_rps <= 0.0:
        return 0.0
    along_rps = edge_rps(inputs, flows, upstream, vertex)
    return along_rps / into_rps if along_rps is not None and along_rps > 0.0 else 0.0


def inner_demand(
    inputs: Inputs, flows: Mapping[str, Flow], loads: Mapping[str, VertexLoad], vertex: str
) -> VertexDemand:
    """What a vertex gets to do if all before it do what they have to."""
    target_rps: float | None = 0.0
    catch_up_rps: float | None = 0.0
    for upstream in inputs[vertex]:
        ratio, demand = output_ratio(inputs, flows, upstream, vertex), loads[upstream].demand
        target_rps = _plus(target_rps, demand.target_rps, ratio)
        catch_up_rps = _plus(catch_up_rps, demand.catch_up_rps, ratio)
    return VertexDemand(target_rps, catch_up_rps)


def _plus(total: float | None, part: float | None, ratio: float) -> float | None:
    return None if total is None or part is None else total + part * ratio


def required_rps(
    demand: VertexDemand, utilization: float, options: Options, restart_s: float | None = None
) -> float | None:
    """The capacity that meets a demand at some utilisation, a whole number.

    With `restart_s` it also works off in time what the restart of a rescale leaves lying.

    >>> required_rps(VertexDemand(700.0, 350.0), 0.7, Options(catch_up_s=60.0), restart_s=300.0)
    4850.0
    """
    target_rps, total_rps = demand.target_rps, demand.catch_up_rps
    if target_rps is None or total_rps is None:
        return None
    utilization = min(max(utilization, 0.0), 1.0)
    if utilization == 0.0:
        return inf
    restart_rps = 0.0
    if restart_s is not None and options.catch_up_s:
        restart_rps = target_rps * restart_s / options.catch_up_s
    total_rps = total_rps + restart_rps + target_rps / utilization
    return float(floor(total_rps + 0.5)) if isfinite(total_rps) else total_rps


def band(
    demand: VertexDemand, options: Options, *, restart_s: float, processing_backlog: bool = False
) -> Band:
    """Where nothing is done. While a backlog is worked off nothing shrinks, and nothing grows
    that can just bear the load.

    >>> options = Options(utilization_max=0.9, utilization_min=0.7, catch_up_s=2.0)
    >>> band(VertexDemand(700.0, 0.0), options, restart_s=1.0)
    Band(scale_up_below_rps=778.0, scale_down_above_rps=1350.0)
    """
    highest, lowest = 1.0, 0.0
    if not processing_backlog:
        target, boundary = options.utilization_target, options.boundary
        above, below = options.utilization_max, options.utilization_min
        highest = target + boundary if above is None else above
        lowest = target - boundary if below is None else below
    return Band(
        required_rps(demand, highest, options), required_rps(demand, lowest, options, restart_s)
    )


def is_processing_backlog(
    lag_records: float | None, input_rps: float | None, threshold_s: float
) -> bool:
    """Whether more waits before a source than it reads in `threshold_s`; unmeasured lag is none.

    >>> is_processing_backlog(54_000.0, 200.0, threshold_s=300.0)
    False
    """
    if input_rps is None or lag_records is None:
        return False
    if input_rps == 0.0:
        return lag_records > 0.0
    return lag_records / input_rps > threshold_s


def evaluate(
    vertices: Mapping[str, Vertex],
    samples: Mapping[str, Points],
    options: Options,
    *,
    restart_s: float,
) -> dict[str, VertexLoad]:
    """Walk the job once from its sources on."""
    flows = {name: _flow(samples[name]) for name in vertices}
    inputs = {name: vertex.inputs for name, vertex in vertices.items()}
    processing_backlog = any(
        is_processing_backlog(
            samples[name][-1][1].lag_records, flows[name].in_rps, options.backlog_threshold_s
        )
        for name, vertex in vertices.items()
        if not vertex.inputs
    )
    loads: dict[str, VertexLoad] = {}
    for name in topological_order(inputs):
        points = samples[name]
        if inputs[name]:
            demand = inner_demand(inputs, flows, loads, name)
        else:
            growth_rps = rate((at_s, sample.lag_records) for at_s, sample in points)
            lag = points[-1][1].lag_records or 0.0
            demand = source_demand(flows[name].in_rps, growth_rps, lag, options.catch_up_s)
        demand = VertexDemand(rounded(demand.target_rps), rounded(demand.catch_up_rps))
        loads[name] = VertexLoad(
            rounded(_capacity_rps(points, options)),
            demand,
            band(demand, options, restart_s=restart_s, processing_backlog=processing_backlog),
        )
    return loads


def _capacity_rps(points: Points, options: Options) -> float | None:
    load = mean(sample.load_fraction for _, sample in points)
    sampled_rps = mean(sample.input_rps for _, sample in points)
    if sampled_rps is None or isinf(sampled_rps):
        sampled_rps = rate(_records_in(points))
    return true_processing_rps(
        None if load is None else load * MS_PER_S,
        sampled_rps,
        (sample.observed_rps for _, sample in points),
        switch_threshold=options.observed_switch_threshold,
        min_observations=options.observed_min_observations,
    )


def _records_in(points: Points) -> Iterator[tuple[float, float | None]]:
    return ((at_s, sample.records_in) for at_s, sample in points)


def _flow(points: Points) -> Flow:
    records_out = ((at_s, sample.records_out) for at_s, sample in points)
    return Flow(rate(_records_in(points)), rate(records_out))
