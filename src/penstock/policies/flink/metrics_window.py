"""Penstock's snapshots as Flink's autoscaler would have collected them.

- *Continuous* jobs: an operator is a vertex. All vertices share slots, so the widest of them
  says how many executors it takes.
- *Micro-batch* jobs: stages take turns on the same slots, so all of them together are one
  vertex. It is as busy as they are in sum, it reads what the sources read, and its parallelism
  is the slots of the fleet.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf

from msgspec import Struct

from penstock.core.model import OperatorSample, Snapshot
from penstock.policies.flink.capacity import MS_PER_S, SourceSample, observed_series_rps
from penstock.policies.flink.evaluation import Options, Points, Vertex, VertexSample

STAGES = "all stages"  #: The one vertex of a micro-batch job.


class MetricsWindow(Struct, frozen=True, gc=False):
    """A job's vertices, their samples, and the slots that an executor has for them."""

    vertices: dict[str, Vertex]
    samples: Mapping[str, Points]
    slots_per_executor: float

    def executors(self, parallelism: int) -> int:
        """Executors that offer this many slots."""
        # What comes out of a division may lie a hair above the whole number that it is.
        return ceil(parallelism / self.slots_per_executor - 1e-9)


def reports_lag(history: Iterable[Snapshot]) -> bool:
    """Whether a backlog was ever measured; that of a job without one counts as none."""
    return any(
        snapshot.backlog_records is not None
        or any(operator.backlog_records is not None for operator in snapshot.operators)
        for snapshot in history
    )


def missing(snapshot: Snapshot, *, lag_counts: bool = True) -> tuple[str, ...]:
    """What the autoscaler needs and this snapshot does not have."""
    operators = snapshot.operators
    if not operators:
        return ("operators",)
    names = []
    if any(operator.input_rps is None for operator in operators):
        names.append("input_rps of every operator")
    if any(operator.busy_fraction is None for operator in operators):
        names.append("busy_fraction of every operator")
    sources = [operator for operator in operators if not operator.upstream]
    lags = [_lag_records(operator, sources, snapshot) for operator in sources]
    if lag_counts and None in lags:
        names.append("backlog_records")
    return tuple(names)


def unchanged(
    snapshot: Snapshot, history: Iterable[Snapshot], rescaled_at_s: float, horizon_s: float
) -> tuple[list[Snapshot], float]:
    """The snapshots of the job as it runs now, oldest first, and since when it does.

    `history` is newest first. Another number of active executors, a rescale or a clock that was
    set back ends the past. Minus infinity stands for "since before the horizon".
    """
    active, now_s = snapshot.fleet.active, snapshot.at_s
    seen = [snapshot]
    for earlier in history:
        if earlier is snapshot:
            continue
        if earlier.at_s < now_s - horizon_s:
            return seen[::-1], -inf
        same = earlier.fleet.active == active and rescaled_at_s < earlier.at_s < seen[-1].at_s
        if not same:
            return seen[::-1], max(seen[-1].at_s, min(rescaled_at_s, now_s))
        seen.append(earlier)
    # Nothing but this was ever seen: the youngest executor shows when the job was last changed.
    started = (one.started_at_s for one in snapshot.executors if one.ready)
    return seen[::-1], min(max(started, default=-inf), now_s)


def vertices_of(
    snapshots: Sequence[Snapshot], options: Options, *, lag_counts: bool = True
) -> MetricsWindow:
    """A window of snapshots, oldest first, the last one without `missing` values."""
    last = snapshots[-1]
    measured = [s for s in snapshots if not missing(s, lag_counts=lag_counts)]
    active = max(1, last.fleet.active)
    if last.trigger_interval_s is not None:
        slots = active * last.fleet.cores_per_executor
        vertex = Vertex(slots, source_partitions=last.partitions or 0)
        return MetricsWindow({STAGES: vertex}, {STAGES: _turns(measured)}, slots / active)
    known = {operator.name for operator in last.operators}
    rows = [(snapshot, {o.name: o for o in snapshot.operators}) for snapshot in measured]
    vertices, samples = {}, {}
    for operator in last.operators:
        name = operator.name
        inputs = tuple(upstream for upstream in operator.upstream if upstream in known)
        partitions = 0 if operator.upstream else last.partitions or 0
        vertices[name] = Vertex(operator.tasks or active, inputs, source_partitions=partitions)
        samples[name] = _samples(name, rows, options)
    widest = max(vertex.parallelism for vertex in vertices.values())
    return MetricsWindow(vertices, samples, widest / active)


def heap_fraction(snapshots: Iterable[Snapshot]) -> float | None:
    """Mean over the window of how full the fullest executor is."""
    fullest = [
        max(full)
        for snapshot in snapshots
        if (full := [x for one in snapshot.executors if (x := one.memory_fraction) is not None])
    ]
    return sum(fullest) / len(fullest) if fullest else None


def _samples(
    name: str, rows: Sequence[tuple[Snapshot, dict[str, OperatorSample]]], options: Options
) -> list[tuple[float, VertexSample]]:
    """Samples of one operator; rates since the last one make up its counters."""
    points = []
    for snapshot, operators in rows:
        if (operator := operators.get(name)) is not None:
            lag = None if operator.upstream else _lag_records(operator, (), snapshot) or 0.0
            points.append((snapshot.at_s, operator, lag))
    seen: Sequence[float | None] = [None] * len(points)
    is_source = not points[-1][1].upstream
    blocked = [o.backpressured_fraction for _, o, _ in points]
    if is_source and None not in blocked:
        seen = observed_series_rps(
            [
                SourceSample(o.input_rps, lag or 0.0, (o.backpressured_fraction or 0.0) * MS_PER_S)
                for _, o, lag in points
            ],
            lag_threshold_s=options.observed_lag_threshold_s,
            min_observations=options.observed_min_observations,
        )
    samples = []
    records_in, records_out, before_s = 0.0, 0.0, points[0][0]
    for (at_s, operator, lag), observed in zip(points, seen, strict=True):
        records_in += (operator.input_rps or 0.0) * (at_s - before_s)
        records_out += (operator.output_rps or 0.0) * (at_s - before_s)
        before_s = at_s
        sample = VertexSample(
            records_in,
            None if operator.output_rps is None else records_out,
            lag,
            operator.busy_fraction,
            None if is_source else operator.input_rps,
            observed_rps=observed,
        )
        samples.append((at_s, sample))
    return samples


def _turns(snapshots: Sequence[Snapshot]) -> list[tuple[float, VertexSample]]:
    """Samples of all stages together."""
    samples = []
    records_in, before_s = 0.0, snapshots[0].at_s
    for snapshot in snapshots:
        sources = [operator for operator in snapshot.operators if not operator.upstream]
        read_rps = sum(operator.input_rps or 0.0 for operator in sources)
        busy = sum(operator.busy_fraction or 0.0 for operator in snapshot.operators)
        lag = snapshot.backlog_records
        if lag is None:
            lag = sum(operator.backlog_records or 0.0 for operator in sources)
        records_in += read_rps * (snapshot.at_s - before_s)
        before_s = snapshot.at_s
        samples.append((before_s, VertexSample(records_in, lag_records=lag, load_fraction=busy)))
    return samples


def _lag_records(
    operator: OperatorSample, sources: Sequence[OperatorSample], snapshot: Snapshot
) -> float | None:
    """What waits before a source; a single one has all that waits before the job."""
    if operator.backlog_records is not None:
        return operator.backlog_records
    is_batched = snapshot.trigger_interval_s is not None
    return snapshot.backlog_records if is_batched or len(sources) <= 1 else None
