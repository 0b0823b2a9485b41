"""A Flink-like job for mental arithmetic, and how its runs are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.engine import Curve, Engine
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.faults import (
    Fault,
)

#: No noise and no spread: 1,000 records/s per worker, 4 s of downtime, 10 s to start.
PLAIN = ContinuousJob(
    operators=(
        Operator("source", 0.2e-3),
        Operator("map", 0.3e-3, upstream=("source",)),
        Operator("window", 0.5e-3, upstream=("map",), selectivity=0.1, keyed=True),
    ),
    contention=0.0,
    speed_spread=0.0,
    capacity_noise=0.0,
    measurement_noise=0.0,
    startup=Startup(10.0, 10.0),
    restart_s=3.0,
    restart_spread=0.0,
    state_bytes=100e6,
    restore_bytes_per_s=100e6,
    detect_loss_s=5.0,
    checkpoint_interval_s=10.0,
    busy_at_saturation=1.0,
    full_cpu_fraction=0.98,
)


def run(
    rates: Sequence[float],
    *,
    executors: int = 2,
    job: ContinuousJob = PLAIN,
    faults: Sequence[Fault] = (),
    seed: int = 1,
) -> Engine:
    return job.start(rates, executors=executors, seed=seed, faults=faults)


def value_at(curve: Curve, at_s: float) -> float:
    """The value of a polyline; at a vertical piece, its upper end."""
    after = bisect_left(curve.at_s, at_s)
    while after + 1 < len(curve.at_s) and curve.at_s[after + 1] == at_s:
        after += 1
    if curve.at_s[after] == at_s:
        return curve.records[after]
    part = (at_s - curve.at_s[after - 1]) / (curve.at_s[after] - curve.at_s[after - 1])
    return curve.records[after - 1] + part * (curve.records[after] - curve.records[after - 1])


def backlog(engine: Engine, at_s: float) -> float:
    waiting = engine.read(at_s).backlog_records
    assert waiting is not None
    return waiting
