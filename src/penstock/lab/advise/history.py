"""The past of one application, put together from the parts of its log.

What had arrived is known at each trigger, from the newest offsets of the sources, and what was
processed at the end of each batch. From these two curves follow delays and backlog, as in a
simulation.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import median, mode

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.core.errors import PenstockError
from penstock.core.model import Batch, Decision, ExecutorSample, Fleet, Reason, Snapshot, Step
from penstock.lab.advise.events import (
    ExecutorChange,
    LogPart,
    QueryReport,
    StageRun,
    with_stages,
)
from penstock.simulation.engines.engine import Curve, Level, Outcome
from penstock.simulation.engines.fleet import Startup

#: Turns of the journal are at least this long.
TURN_S = 5.0
#: The first batches of a run compile code: they last many times as long as all others.
FIRST_BATCHES = 3
#: A first batch with a long backlog may look as if executors took longer to join.
MOST_JOIN_S = 15.0
#: Of several queries, those beside the busiest may take at most this part of the time of batches.
MOST_BESIDE = 0.2
#: Intervals that people choose, how late a batch may begin, and the part of them that has to be
#: on time: by chance it would be a tenth at most.
_INTERVALS_S = (
    0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600,
    900, 1200, 1800, 3600,
)  # fmt: skip
_LATE_S, _FEWEST_ALIGNED = 0.05, 0.25

Array = NDArray[np.float64]


class CannotSayError(PenstockError):
    """The log does not carry what advice needs; the sentence goes on from "cannot say, because"."""


class History(Struct, frozen=True):
    """One application: its busiest query from the first batch on that is judged, and its fleet.

    `fleets` are the executors that there were from an instant on, each with when it came; `paid`
    is how many were paid for, from the request, if the log has it, until they were gone. `join_s`
    is what a new one takes of a processor before it works like the others; `startup`, how long it
    takes to come, is ``None`` where the log does not say when any was asked for.
    """

    application: str
    name: str
    conf: Mapping[str, str]
    executor_cores: int
    cores: int
    trigger_s: float
    fleets: list[tuple[float, dict[str, float]]]
    paid: list[tuple[float, int]]
    triggers: list[QueryReport]
    batches: list[Batch]
    join_s: float = 0.0
    startup: Startup | None = None

    @property
    def begin_s(self) -> float:
        return self.triggers[0].at_s

    @property
    def end_s(self) -> float:
        """The last instant at which it is known what had arrived."""
        return self.triggers[-1].at_s

    def arrivals(self) -> tuple[Array, Array]:
        """When how many records had arrived since the beginning."""
        at_s = np.array([one.at_s for one in self.triggers])
        counts = np.array([one.arrived or 0.0 for one in self.triggers])
        return at_s, np.maximum.accumulate(counts - counts[0])

    def departures(self) -> tuple[Array, Array]:
        """When how many of them had been processed."""
        first = self.triggers[0].arrived or 0.0
        taken = [(one.taken or 0.0) - first for one in self.triggers if one.batch]
        ends_s = [batch.started_at_s + batch.duration_s for batch in self.batches]
        return np.array([self.begin_s, *ends_s]), np.maximum.accumulate([0.0, *taken])

    def outcome(self) -> Outcome:
        """What was paid and how late records were, to be judged like a simulated run."""
        (at_s, arrived), (gone_s, gone) = self.arrivals(), self.departures()
        count = int(np.searchsorted(gone_s, self.end_s, side="right"))
        # For each commit its foot and its top.
        gone_s, gone = np.repeat(gone_s[:count], 2)[1:], np.repeat(gone[:count], 2)[:-1]
        sizes = [Level(max(0.0, at - self.begin_s), count) for at, count in self.paid]
        earlier = [level for level in sizes if level.at_s == 0.0][-1:]
        levels = earlier + [one for one in sizes if 0.0 < one.at_s <= self.end_s - self.begin_s]
        return Outcome(
            self.end_s - self.begin_s,
            Curve((at_s - self.begin_s).tolist(), arrived.tolist()),
            Curve((gone_s - self.begin_s).tolist(), gone.tolist()),
            levels,
            levels,
        )

    def rates_rps(self) -> list[float]:
        """What arrived in each second."""
        seconds = self.begin_s + np.arange(int(self.end_s - self.begin_s) + 1)
        found: list[float] = np.diff(np.interp(seconds, *self.arrivals())).tolist()
        return found

    def steps(self) -> Iterator[Step]:
        """The journal that a sensor would have written beside the application."""
        (arrived_s, arrived), (gone_s, gone) = self.arrivals(), self.departures()
        rising = arrived + 1e-6 * np.arange(len(arrived))  # at a level there is no one instant
        fleets, batches = deque(self.fleets), deque(self.batches)
        samples: tuple[ExecutorSample, ...] = ()
        widest = max((one.tasks for batch in batches for one in batch.stages), default=None)
        before_s, before, done_before = self.begin_s, 0.0, 0.0
        for at_s in np.arange(self.begin_s, self.end_s + 1e-3, max(TURN_S, self.trigger_s)):
            while fleets and fleets[0][0] <= at_s:
                samples = tuple(ExecutorSample(*one) for one in fleets.popleft()[1].items())
            ended: list[Batch] = []
            while batches and batches[0].started_at_s + batches[0].duration_s <= at_s:
                ended.append(batches.popleft())
            here = float(np.interp(at_s, arrived_s, arrived))
            done = float(gone[np.searchsorted(gone_s, at_s, side="right") - 1])
            waits, span_s = here - done >= 1.0, float(at_s - before_s)
            size = len(samples)
            seen = Snapshot(
                float(at_s),
                Fleet(size, size, size, self.cores),
                trigger_interval_s=self.trigger_s,
                batches=tuple(ended),
                arrival_rps=(here - before) / span_s if span_s else None,
                throughput_rps=(done - done_before) / span_s if span_s else None,
                backlog_records=max(0.0, here - done),
                delay_s=max(0.0, float(at_s - np.interp(done, rising, arrived_s))) * waits,
                latency_s=ended[-1].duration_s if ended else None,
                executors=samples,
                partitions=widest,
            )
            before_s, before, done_before = at_s, here, done
            yield Step(seen.at_s, seen, Decision.of(size, Reason("recorded", "as it was")))


def history(parts: Sequence[LogPart]) -> History:
    """The past that the parts of a log tell, or why they do not tell enough."""
    parts = sorted(parts, key=lambda part: part.file.number)
    triggers = _judged([report for part in parts for report in part.reports])
    first = next((part for part in parts if part.application), parts[0])
    conf = next((part.conf for part in reversed(parts) if part.conf), {})
    changes = [one for part in parts for one in part.executors if one.id != "driver"]
    fleets, there = [(0.0, dict[str, float]())], dict[str, float]()
    moves = [(0.0, 0)]
    for change in sorted(changes, key=lambda one: one.at_s):
        if change.cores:
            there = {change.id: change.at_s, **there}
            moves.append((change.asked_at_s or change.at_s, 1))
        else:
            moves.append((change.at_s, -(change.id in there)))
            there = {name: at_s for name, at_s in there.items() if name != change.id}
        fleets.append((change.at_s, there))
    if not any(change.cores for change in changes):
        raise CannotSayError("it ran in local mode, without executors")
    stages: dict[tuple[str, int], list[StageRun]] = defaultdict(list)
    for stage in (stage for part in parts for stage in part.stages):
        stages[stage.run, stage.batch].append(stage)
    ran = [(one.run, one.batch) for one in triggers]
    batches = [with_stages(batch, stages[run, batch.id]) for run, batch in ran if batch]
    cpus = conf.get("spark.task.cpus", "1")
    cores = mode(one.cores for one in changes if one.cores)
    slots = max(1, cores // (int(cpus) if cpus.isdigit() else 1))
    trigger_s = _trigger_s([batch.started_at_s for batch in batches])
    named = first.application or first.file.log.rpartition("/")[2]
    cpu_s = sum(one.cpu_s for run, batch in ran if batch for one in stages[run, batch.id])
    records = sum(batch.input_records for batch in batches)
    join_s = _join_s(first, fleets, cpu_s / records if records else 0.0)
    times_s, counts = zip(*sorted(moves), strict=True)
    paid = list(zip(times_s, accumulate(counts), strict=True))
    return History(
        application=named,
        name=first.name,
        conf=conf,
        executor_cores=cores,
        cores=slots,
        trigger_s=trigger_s,
        fleets=fleets,
        paid=paid,
        triggers=triggers,
        batches=batches,
        join_s=join_s,
        startup=_startup(changes, triggers[0].at_s),
    )


def _startup(changes: Sequence[ExecutorChange], begin_s: float) -> Startup | None:
    """How long executors took to come: those of a running job, or else those of its start.

    At the start many come at once, perhaps to the same machines. One in ten took less and one in
    ten more: some wait for room for hours.
    """
    asked = [(one.asked_at_s, one.at_s) for one in changes if one.asked_at_s is not None]
    took_s = [at_s - asked_s for asked_s, at_s in asked if asked_s > begin_s]
    took_s = took_s or [at_s - asked_s for asked_s, at_s in asked]
    if not took_s:
        return None
    low_s, high_s = np.quantile(np.maximum(took_s, 0.0), [0.1, 0.9]).tolist()
    return Startup(low_s, high_s)


def _join_s(
    part: LogPart, fleets: Sequence[tuple[float, dict[str, float]]], record_s: float
) -> float:
    """What each executor took of a processor in the first batch, beside its records.

    There all are new: they load and compile code. The time of a processor does not depend on what
    else runs on their machines.
    """
    if not part.application or part.first is None or part.first.batch is None:
        return 0.0
    own = part.first.run, part.first.batch.id
    ran = [one for one in part.first_stages if (one.run, one.batch) == own]
    there = [len(fleet) for at_s, fleet in fleets if ran and at_s <= ran[-1].ended_at_s]
    beside_s = sum(one.cpu_s for one in ran) - record_s * part.first.batch.input_records
    return min(MOST_JOIN_S, max(0.0, beside_s) / max([1, *there[-1:]]))


def _judged(reports: Sequence[QueryReport]) -> list[QueryReport]:
    """Those of the busiest query, in order, from the first batch on that is no part of a start."""
    spent_s: Counter[str] = Counter()
    for one in reports:
        spent_s[one.query] += round(1e3 * one.batch.duration_s) if one.batch else 0
    if not sum(spent_s.values()):
        raise CannotSayError("it has no streaming query that committed a batch")
    busiest, own = spent_s.most_common(1)[0]
    if own < (1.0 - MOST_BESIDE) * (total := sum(spent_s.values())):
        part = f"the busiest has {own / total:.0%} of the time of batches"
        raise CannotSayError(f"{len(spent_s)} queries share the fleet, and {part}")
    triggers = sorted((one for one in reports if one.query == busiest), key=lambda one: one.at_s)
    batches = [place for place, one in enumerate(triggers) if one.batch]
    if len(batches) < FIRST_BATCHES + 2:
        raise CannotSayError(f"the log is too short: {len(batches)} batches")
    for one in triggers:
        if one.batch and (one.arrived is None or one.taken is None):
            source = one.source[:80] or "of an unknown kind"
            raise CannotSayError(f"the source {source} does not say how many records had arrived")
    return [one for one in triggers[batches[FIRST_BATCHES] :] if one.arrived is not None]


def _trigger_s(starts_s: Sequence[float]) -> float:
    """The time between triggers; where none is seen, the usual one between starts of batches.

    Spark begins batches at whole multiples of the interval since 1970, unless one takes longer.
    """
    aligned = {
        float(every_s): sum(at_s % every_s < _LATE_S for at_s in starts_s) / len(starts_s)
        for every_s in _INTERVALS_S
    }
    if (most := max(aligned.values())) >= _FEWEST_ALIGNED:
        return max(every_s for every_s, share in aligned.items() if share > 0.8 * most)
    return max(0.1, round(median(later - one for one, later in pairwise(starts_s)), 1))
