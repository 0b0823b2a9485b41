"""The stages of micro-batches: what each read, wrote and cost since the last reading.

Each batch runs the same stages under new numbers. So a stage is identified by its place in the
batch: the first of each batch is one operator, the second another. Only finished tasks are counted,
so that time and records belong together. Stages take turns on the same slots: the busy time of a
stage is its share of the time of all slots.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Literal

from msgspec import Struct, structs

from penstock.core.model import Batch, BatchStage, OperatorSample
from penstock.spark.internals import Driver, Json
from penstock.spark.sensor.progress import parse_instant
from penstock.spark.sensor.stage_executors import has_something
from penstock.spark.sensor.tasks import FinishedTask, Spread

Role = Literal["source", "state", "shuffle"]

#: At most this many jobs are read at once; older ones are taken to be like them.
JOBS_PER_READING = 60
SPREADS = 12  #: The time per record is judged by this number of stages of a place.
BATCHES_KEPT = 100  #: The stages of this many batches are kept until the query reports them.
#: After this number of batches with records and without Python a place is known to run none.
BATCHES_WITHOUT_PYTHON = 3

_BATCH = re.compile(r"batch = (\d+)")


class Tally(Struct, frozen=True, gc=False):
    """Sums over the finished tasks of a stage."""

    run_s: float = 0.0
    records_in: float = 0.0
    records_out: float = 0.0

    def plus(self, other: Tally, times: float = 1.0) -> Tally:
        return Tally(
            self.run_s + times * other.run_s,
            self.records_in + times * other.records_in,
            self.records_out + times * other.records_out,
        )

    @classmethod
    def of(cls, attempts: Collection[Json]) -> Tally:
        """The sums over all attempts at one stage, failed ones included."""
        return cls(
            run_s=sum(each["executorRunTime"] for each in attempts) / 1e3,
            records_in=sum(each["inputRecords"] + each["shuffleReadRecords"] for each in attempts),
            records_out=sum(
                each["shuffleWriteRecords"] or each["outputRecords"] for each in attempts
            ),
        )


class RunStage(Struct, frozen=True, gc=False):
    """A stage of one batch; one that is not complete has no end."""

    tasks: int
    work_s: float
    began_at_s: float
    ended_at_s: float | None

    @classmethod
    def of(cls, attempts: Collection[Json]) -> RunStage | None:
        """The sums over all attempts at one stage; ``None`` before its first task."""
        *_, last = attempts
        begun = [at for each in attempts if (at := each.get("firstTaskLaunchedTime"))]
        if not begun:
            return None
        ended = last.get("completionTime") if last["status"] == "COMPLETE" else None
        work_ms = sum(
            each["executorRunTime"] + each["executorDeserializeTime"] for each in attempts
        )
        return cls(
            tasks=last["numTasks"],
            work_s=work_ms / 1e3,
            began_at_s=min(map(parse_instant, begun)),
            ended_at_s=None if ended is None else parse_instant(ended),
        )


class Place:
    """One place in the batches of a query: the same stage in each batch."""

    def __init__(self) -> None:
        self.role: Role | None = None
        self.tasks = 0
        self.newest: tuple[int, int] | None = None  # the last complete stage, and its attempt
        self.tally = Tally()
        self._observed: tuple[int, int] | None = None  # whose tasks were read last
        self._without_python = 0.0  # batches with records
        self._spreads: deque[Spread] = deque(maxlen=SPREADS)

    @property
    def may_run_python(self) -> bool:
        """The plan of a query stays: a place that ran no Python in a few batches never will."""
        return self._without_python < BATCHES_WITHOUT_PYTHON

    @property
    def service_cv2(self) -> float | None:
        squares = sum(spread.squares for spread in self._spreads)
        return Spread(squares, sum(spread.freedom for spread in self._spreads)).cv2

    def observe_tasks(self, tasks: list[FinishedTask], *, runs_python: bool) -> None:
        """Take what the tasks of the newest stage show."""
        if self.newest == self._observed or not any(task.records for task in tasks):
            return
        self._observed = self.newest
        self._spreads.append(Spread.of(tasks))
        if runs_python:
            self._without_python = -inf
        else:
            self._without_python += 1

    def observe(self, stage: Json, state_partitions: int) -> None:
        """Take the role of this place from the newest attempt at a stage."""
        self.tasks = stage["numTasks"]
        if stage["status"] == "COMPLETE":
            self.newest = (stage["stageId"], stage["attemptId"])
        if stage["inputRecords"]:
            self.role = "source"
        elif stage["shuffleReadRecords"]:
            self.role = "state" if self.tasks == state_partitions else "shuffle"


class QueryStages:
    """The places of one query, and the sums of each since the last reading."""

    def __init__(self) -> None:
        self._batch: int | None = None
        self._stages: dict[int, int] = {}  # stage to place, of the current batch
        self._counted: dict[int, Tally] = {}  # of stages of the current batch
        self._run: dict[int, dict[int, RunStage]] = {}  # the stages of the last batches
        self._widest = 0  # the most tasks of a stage with something to read, of the current batch
        #: The same of all committed batches: the current one may have wider stages to come.
        self.most_tasks: int | None = None
        self.places: list[Place] = []

    @property
    def busy_s(self) -> float:
        """The time of all tasks that ended in the interval."""
        return sum(max(0.0, place.tally.run_s) for place in self.places)

    def begin(self) -> None:
        """Start a new interval."""
        for place in self.places:
            place.tally = Tally()

    def observe(
        self, batch: int, attempts: list[Json], state_partitions: int, times: float
    ) -> None:
        """Count what is new of a stage. Stages come in ascending order."""
        stage = attempts[-1]
        if stage["status"] == "SKIPPED":
            return
        number: int = stage["stageId"]
        if batch != self._batch:
            self._commit()
            self._batch, self._stages, self._counted = batch, {}, {}
        # A batch without records has one task, however many the next one has.
        if stage["inputRecords"] or stage["shuffleReadRecords"]:
            self._widest = max(self._widest, stage["numTasks"])
        if (ran := RunStage.of(attempts)) is not None:
            self._run.setdefault(batch, {})[number] = ran
            while len(self._run) > BATCHES_KEPT:
                del self._run[min(self._run)]
        at = self._stages.setdefault(number, len(self._stages))
        if at == len(self.places):
            self.places.append(Place())
        place = self.places[at]
        place.observe(stage, state_partitions)
        tally = Tally.of(attempts)
        # A stage is read again while its job runs, also when it is complete.
        new = tally.plus(self._counted.get(number, Tally()), -1.0)
        self._counted[number] = tally
        place.tally = place.tally.plus(new, times)

    def _commit(self) -> None:
        self.most_tasks = max(self.most_tasks or 0, self._widest) or None
        self._widest = 0

    def with_stages(self, batch: Batch) -> Batch:
        """A committed batch with its stages; as it is if one of them is not known whole."""
        if batch.id == self._batch:
            self._commit()
        ran = self._run.pop(batch.id, {}).values()
        stages = []
        for stage in sorted(ran, key=lambda one: one.began_at_s):
            if stage.ended_at_s is None:
                return batch
            # Spark's clock has milliseconds: a stage may seem to begin just before its batch.
            begin_s = max(0.0, stage.began_at_s - batch.started_at_s)
            end_s = max(begin_s, stage.ended_at_s - batch.started_at_s)
            stages.append(BatchStage(stage.tasks, stage.work_s, round(begin_s, 3), round(end_s, 3)))
        return structs.replace(batch, stages=tuple(stages)) if stages else batch

    def roles(self) -> list[Role]:
        """The role of each place; one that never had a record gets its role by its position."""
        return [
            place.role or ("source" if number == 0 else "shuffle")
            for number, place in enumerate(self.places)
        ]

    def operators(self, wall_s: float, slots: int, prefix: str) -> tuple[OperatorSample, ...]:
        """The places as samples: ``source``, ``source 2``, ``state`` and so on.

        A stage that reads a shuffle is taken to read all earlier output that no stage reads yet,
        which is right for chains and for joins. A stage without records before the first source,
        such as a table that is broadcast, is left out.
        """
        samples = []
        waiting: list[str] = []
        seen: Counter[str] = Counter()
        reads_source = [place.role == "source" for place in self.places]
        for number, (place, role) in enumerate(zip(self.places, self.roles(), strict=True)):
            if place.role is None and any(reads_source[number:]):
                continue
            seen[role] += 1
            name = prefix + (role if seen[role] == 1 else f"{role} {seen[role]}")
            upstream: tuple[str, ...] = ()
            if role != "source":
                upstream, waiting = tuple(waiting), []
            waiting.append(name)
            samples.append(_sample(place, name, upstream, wall_s, slots))
        return tuple(samples)


def _sample(
    place: Place, name: str, upstream: tuple[str, ...], wall_s: float, slots: int
) -> OperatorSample:
    tally = place.tally
    records_in, records_out = max(0.0, tally.records_in), max(0.0, tally.records_out)
    run_s = max(0.0, tally.run_s)
    return OperatorSample(
        name,
        upstream,
        input_rps=records_in / wall_s,
        # Most sinks do not report what they wrote.
        output_rps=records_out / wall_s if records_out or not records_in else None,
        busy_fraction=min(1.0, run_s / (max(1, slots) * wall_s)),
        service_time_s=run_s / records_in if records_in >= 1.0 else None,
        service_cv2=place.service_cv2,
        tasks=place.tasks,
    )


def share_idle_time(samples: Iterable[OperatorSample]) -> tuple[OperatorSample, ...]:
    """The stages of all queries, each with the idle share of the slots that they take turns on.

    >>> source = OperatorSample("source", busy_fraction=0.5)
    >>> state = OperatorSample("state", busy_fraction=0.25)
    >>> [(each.busy_fraction, each.idle_fraction) for each in share_idle_time([source, state])]
    [(0.5, 0.25), (0.25, 0.25)]
    """
    stages = tuple(samples)
    idle = max(0.0, 1.0 - sum(stage.busy_fraction or 0.0 for stage in stages))
    return tuple(structs.replace(stage, idle_fraction=idle) for stage in stages)


class StageWatch:
    """Follows the jobs of an application by query and place."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._next_job = driver.jobs_begun()
        self._open: dict[int, int] = {}  # jobs to read again, and how often they were missing
        self._queries: dict[str, QueryStages] = {}
        # Stages and their attempts: with running tasks, and with reports of their executors.
        self.running: list[tuple[int, int]] = []
        self.reported: list[tuple[int, int]] = []

    def read(self, state_partitions: Mapping[str, int]) -> dict[str, QueryStages]:
        """What happened since the last reading, by run id.

        The argument names the runs to follow, and how many partitions of state each has.
        """
        driver, begun = self._driver, self._driver.jobs_begun()
        first = max(self._next_job, begun - JOBS_PER_READING)
        skipped, taken = first - self._next_job, begun - first
        times = 1.0 + skipped / taken if taken else 1.0
        again = self._open
        self._open, self.running, self.reported, self._next_job = {}, [], [], begun
        self._queries = {run: self._queries.get(run) or QueryStages() for run in state_partitions}
        for query in self._queries.values():
            query.begin()
        for number in (*again, *range(first, begun)):
            job = driver.job(number)
            if job is None:
                # Not listed yet; if it is missing a second time, it is no longer listed.
                if number not in again:
                    self._open[number] = 1
                continue
            run = job.get("jobGroup")
            if run in self._queries:
                self._read_job(job, self._queries[run], state_partitions[run], times)
        return self._queries

    def _read_job(self, job: Json, query: QueryStages, partitions: int, times: float) -> None:
        batch = _BATCH.search(job.get("description") or "")
        if batch is None:
            return
        for stage in sorted(job["stageIds"]):
            attempts = self._driver.stage(stage)
            if not attempts:
                continue
            query.observe(int(batch[1]), attempts, partitions, times)
            if attempts[-1]["status"] == "ACTIVE":
                self.running.append((stage, attempts[-1]["attemptId"]))
            if has_something(attempts[-1]):
                self.reported.append((stage, attempts[-1]["attemptId"]))
        if job["status"] == "RUNNING":
            self._open[job["jobId"]] = 0
