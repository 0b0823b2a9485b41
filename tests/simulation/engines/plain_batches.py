"""A Spark-like job for mental arithmetic, and how its runs are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from penstock.core.model import Batch
from penstock.simulation.engines.engine import Curve, Outcome
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.stages import Stage
from penstock.simulation.faults import (
    Fault,
)

# Nothing left to chance, and numbers for mental arithmetic. With n executors of 2 cores:
#   n     waves  base                            per record       fits 2 s
#   1     4      0.1 + 0.1 + 2 x 4 x 10 ms       2 x 4/8 x 1 ms   1.72 s / 1    ms =  860/s
#   2, 3  2      0.2 + 0.04 = 0.24 s             0.5 ms           1.76 s / 0.5  ms = 1760/s
#   4     1      0.2 + 0.02 = 0.22 s             0.25 ms          1.78 s / 0.25 ms = 3560/s
PLAIN = MicroBatchJob(
    planning_s=0.1,
    commit_s=0.1,
    stages=(
        Stage("map", tasks=8, core_s_per_record=1e-3, task_overhead_s=0.01),
        Stage("count", tasks=8, core_s_per_record=1e-3, stateful=True, task_overhead_s=0.01),
    ),
    contention=0.0,
    speed_spread=0.0,
    noise_fraction=0.0,
    straggler_probability=0.0,
    startup=Startup(10.0, 10.0),
    cold_s=0.0,
    state_bytes=0.0,
)


def at(curve: Curve, records: float) -> float:
    """When a curve first reaches so many records."""
    place = bisect_left(curve.records, records - 1e-9)
    if curve.records[place] <= records:
        return curve.at_s[place]
    low, high = curve.records[place - 1], curve.records[place]
    since_s, until_s = curve.at_s[place - 1], curve.at_s[place]
    return since_s + (records - low) / (high - low) * (until_s - since_s)


def delay_s(outcome: Outcome, record: float) -> float:
    return at(outcome.departures, record) - at(outcome.arrivals, record)


def durations(batches: Sequence[Batch]) -> list[float]:
    return [batch.duration_s for batch in batches]


def longest_s(job: MicroBatchJob, rate: float, executors: int, *faults: Fault) -> float:
    """The longest of the last ten batches in five minutes of constant load."""
    run = job.start([rate] * 300, executors=executors, seed=1, faults=faults)
    return max(durations(run.read(300.0).batches)[-10:])
