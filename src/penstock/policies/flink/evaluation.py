"""From the samples of a window to what each vertex can do and would have to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from penstock.policies.algorithms.dataflow import topological_order
from penstock.policies.flink.capacity import busy_ms_per_s, input_rps, true_processing_rps
from penstock.policies.flink.demand import (
    Band,
    Flow,
    VertexDemand,
    band,
    inner_demand,
    is_processing_backlog,
    source_demand,
)
from penstock.policies.flink.options import NO_LIMIT, Aggregator, Options
from penstock.policies.flink.windows import rate, rounded


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
    busy_ms: float | None = None
    observed_rps: float | None = None


class VertexLoad(Struct, frozen=True, gc=False):
    """What a vertex can do, would have to do, and within which band it is left alone."""

    capacity_rps: float | None
    demand: VertexDemand
    band: Band


#: Samples by vertex, each with its time, oldest first.
Samples = Mapping[str, Sequence[tuple[float, VertexSample]]]


def evaluate(
    vertices: Mapping[str, Vertex],
    samples: Samples,
    options: Options,
    *,
    restart_s: float,
    busy_aggregator: Aggregator = "max",
) -> dict[str, VertexLoad]:
    """Walk the job once from its sources on.

    `busy_aggregator` says which instance stands for a vertex: the busiest, the idlest, the mean.
    """
    flows = {name: _flow(samples[name]) for name in vertices}
    inputs = {name: vertex.inputs for name, vertex in vertices.items()}
    processing_backlog = any(
        is_processing_backlog(
            samples[name][-1][1].lag_records, flows[name].in_rps, options.backlog_threshold_s
        )
        for name, vertex in vertices.items()
        if not vertex.inputs
    )
    demands: dict[str, VertexDemand] = {}
    loads: dict[str, VertexLoad] = {}
    for name in topological_order(inputs):
        points = samples[name]
        if inputs[name]:
            demand = inner_demand(inputs, flows, demands, name)
        else:
            lag_growth_rps = rate((at_s, sample.lag_records) for at_s, sample in points)
            lag_records = points[-1][1].lag_records or 0.0
            demand = source_demand(
                flows[name].in_rps, lag_growth_rps, lag_records, options.catch_up_s
            )
        demand = VertexDemand(_rounded(demand.target_rps), _rounded(demand.catch_up_rps))
        demands[name] = demand
        loads[name] = VertexLoad(
            _rounded(capacity_rps(points, vertices[name].parallelism, options, busy_aggregator)),
            demand,
            band(demand, options, restart_s=restart_s, processing_backlog=processing_backlog),
        )
    return loads


def capacity_rps(
    points: Sequence[tuple[float, VertexSample]],
    parallelism: int,
    options: Options,
    aggregator: Aggregator,
) -> float | None:
    """The true processing rate of one vertex over a window."""
    return true_processing_rps(
        busy_ms_per_s(
            (sample.load_fraction for _, sample in points),
            ((at_s, sample.busy_ms) for at_s, sample in points),
            aggregator,
            parallelism,
        ),
        input_rps((sample.input_rps for _, sample in points), _records_in(points), aggregator),
        (sample.observed_rps for _, sample in points),
        switch_threshold=options.observed_switch_threshold,
        min_observations=options.observed_min_observations,
    )


def _records_in(
    points: Sequence[tuple[float, VertexSample]],
) -> Iterator[tuple[float, float | None]]:
    return ((at_s, sample.records_in) for at_s, sample in points)


def _flow(points: Sequence[tuple[float, VertexSample]]) -> Flow:
    records_out = ((at_s, sample.records_out) for at_s, sample in points)
    return Flow(rate(_records_in(points)), rate(records_out))


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)
