"""A recorded run as rows, and how far a simulated one is off it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from penstock.core.model import Snapshot, Step
from penstock.simulation.engines.engine import Engine

FEWEST_ROWS = 20  #: Fewer samples say too little about a job, or about how well it is predicted.


class RecordedSample(Struct, frozen=True, gc=False):
    """One sample of a recorded run; ``None`` is what was not measured."""

    at_s: float
    arrival_rps: float
    workers: int
    throughput_rps: float | None = None
    backlog_records: float | None = None
    delay_s: float | None = None
    cpu_fraction: float | None = None
    busy_fraction: float | None = None  #: The mean over operators.
    backpressured_fraction: float | None = None  #: The largest of all operators.
    idle_fraction: float | None = None  #: The mean over operators.


Rows: TypeAlias = Sequence[RecordedSample]


class Errors(Struct, frozen=True):
    """How far a simulated run is off a recorded one; ``None`` where nothing was recorded."""

    throughput: float | None  #: The sum of deviations over the sum of what was recorded.
    delay: float | None  #: Of the mean delay, as a fraction.
    cpu: float | None  #: The mean deviation of a fraction, as of `busy`.
    busy: float | None


def rows_of(steps: Iterable[Step]) -> list[RecordedSample]:
    """The rows of a journal: its snapshots with arrivals and at least one worker."""
    snapshots = [step.snapshot for step in steps if step.snapshot is not None]
    seen = [(one, one.arrival_rps) for one in snapshots if one.fleet.active > 0]
    return [row_of(one, rps) for one, rps in seen if rps is not None]


def row_of(seen: Snapshot, arrival_rps: float) -> RecordedSample:
    cpu = _measured(seen.executors, "cpu_fraction")
    busy = _measured(seen.operators, "busy_fraction")
    if seen.trigger_interval_s and busy:
        busy = [min(1.0, sum(busy))]  # Stages take turns on the same slots.
    idle = _measured(seen.operators, "idle_fraction")
    held = _measured(seen.operators, "backpressured_fraction")
    measured = seen.throughput_rps, seen.backlog_records, seen.delay_s
    used = fmean(cpu) if cpu else None, fmean(busy) if busy else None
    waits = max(held) if held else None, fmean(idle) if idle else None
    return RecordedSample(seen.at_s, arrival_rps, seen.fleet.active, *measured, *used, *waits)


def _measured(samples: Sequence[Struct], metric: str) -> list[float]:
    found = [getattr(one, metric) for one in samples]
    return [value for value in found if value is not None]


def errors(recorded: Rows, simulated: Rows) -> Errors:
    def pairs(metric: str) -> list[tuple[float, float]]:
        """What was recorded with what was simulated, where both were measured."""
        every = zip(recorded, simulated, strict=True)
        both = [(getattr(theirs, metric), getattr(mine, metric)) for theirs, mine in every]
        return [pair for pair in both if None not in pair]

    rates, delays = pairs("throughput_rps"), pairs("delay_s")
    total, total_s = sum(theirs for theirs, _ in rates), sum(theirs for theirs, _ in delays)
    off, off_s = sum(abs(mine - theirs) for theirs, mine in rates), sum(d for _, d in delays)
    return Errors(
        throughput=off / total if total > 0.0 else None,
        delay=abs(off_s - total_s) / total_s if total_s > 0.0 else None,
        cpu=_mean_deviation(pairs("cpu_fraction")),
        busy=_mean_deviation(pairs("busy_fraction")),
    )


def _mean_deviation(pairs: Sequence[tuple[float, float]]) -> float | None:
    return fmean([abs(mine - theirs) for theirs, mine in pairs]) if pairs else None


def looks(rows: Rows, origin_s: float) -> list[tuple[float, tuple[int, float] | None]]:
    """When to look at a run that begins at `origin_s`, once for each row after the first.

    Before that comes the change of workers, if there is one: how many, and when. It is taken to
    have happened halfway between two rows.
    """
    found: list[tuple[float, tuple[int, float] | None]] = []
    for before, row in pairwise(rows):
        halfway_s = (before.at_s + row.at_s) / 2.0 - origin_s
        change = None if row.workers == before.workers else (row.workers, halfway_s)
        found.append((row.at_s - origin_s, change))
    return found


def followed(run: Engine, rows: Rows, origin_s: float) -> Iterator[RecordedSample]:
    """What a run that begins at `origin_s` shows at each later row, given their workers."""
    for row, (at_s, change) in zip(rows[1:], looks(rows, origin_s), strict=True):
        if change is not None:
            run.apply(*change)
        seen = row_of(run.read(at_s), row.arrival_rps)
        yield msgspec.structs.replace(seen, at_s=row.at_s)


def rates(rows: Rows, window_s: float) -> list[float]:
    """One arrival rate per second; a mean over a window tells of the time half of it ago."""
    at_s = np.array([row.at_s for row in rows]) - rows[0].at_s
    lead_s = max(0.0, (window_s - float(np.median(np.diff(at_s)))) / 2.0)
    seconds = np.arange(int(at_s[-1]) + 1) + 0.5 + lead_s
    arrivals = np.array([row.arrival_rps for row in rows])
    # What is measured since the last sample holds for all the time since then.
    index = np.clip(np.searchsorted(at_s, seconds), 0, len(rows) - 1)
    found = np.interp(seconds, at_s, arrivals) if lead_s > 0.0 else arrivals[index]
    return list(found.tolist())


def averaged(rows: Rows, window_s: float) -> Rows:
    """Throughput and busy time as means over a trailing window, as some recordings have them."""
    if window_s <= 0.0 or len(rows) < 2:
        return rows
    width = max(1, round(window_s / median(b.at_s - a.at_s for a, b in pairwise(rows))))
    metrics = ("throughput_rps", "busy_fraction", "backpressured_fraction")
    means = [trailing([getattr(row, metric) or 0.0 for row in rows], width) for metric in metrics]
    return [
        msgspec.structs.replace(row, **dict(zip(metrics, values, strict=True)))
        for row, values in zip(rows, zip(*means, strict=True), strict=True)
    ]


def trailing(values: Sequence[float], width: int) -> list[float]:
    """Means of each value and those before it, `width` of them.

    >>> trailing([2.0, 4.0, 6.0], 2)
    [2.0, 3.0, 5.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - width)
    return list(((sums[ends] - sums[begins]) / (ends - begins)).tolist())
