"""The executors: which there are, how busy each was, and what each holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TypeAlias

from msgspec import Struct

from penstock.core.model import ExecutorSample, Fleet
from penstock.spark.internals import Driver, Json
from penstock.spark.sensor.progress import parse_instant
from penstock.spark.sensor.stages import Place, QueryStages

#: How often executors report their memory.
HEARTBEAT_S = 10.0
#: A stage with more tasks than this is judged by its first ones.
TASKS_PER_STAGE = 128

#: An executor and the metrics of a task that it finished.
FinishedTask: TypeAlias = tuple[str, Json]
#: Amounts by executor; an executor may occur more than once.
Amounts: TypeAlias = list[tuple[str, float]]


class SchedulerFleet(Struct, frozen=True):
    """The executors that the scheduler has, which of them are leaving, and Spark's target."""

    requested: int | None
    registered: frozenset[str]
    leaving: frozenset[str]

    @classmethod
    def of(cls, driver: Driver) -> SchedulerFleet:
        leaving = frozenset(driver.leaving())
        registered = frozenset(driver.executor_ids())
        return cls(driver.requested_total_executors(), registered, leaving & registered)

    @property
    def active(self) -> frozenset[str]:
        return self.registered - self.leaving

    def measured(self, cores_per_executor: int, target: int | None = None) -> Fleet:
        """The fleet in numbers, with the target that the caller knows, if any."""
        size = len(self.registered)
        # Before the first request there is no target: it is the present size.
        target = next((each for each in (target, self.requested) if each is not None), size)
        return Fleet(target, size, len(self.active), cores_per_executor)


class Shares(Struct, frozen=True):
    """What each executor did, by the newest batch.

    `records` that it read in the interval, partitions of state that it holds, and the processor
    time per second of its tasks. ``None`` until a stage has reported.
    """

    records: dict[str, float] | None
    state_partitions: dict[str, int] | None
    cpu_per_run: dict[str, float]


def shares(driver: Driver, queries: Iterable[QueryStages], *, stateful: bool) -> Shares:
    """Who ran the newest stage of each place that reads a source or holds state."""
    places = [
        (place, role)
        for query in queries
        for place, role in zip(query.places, query.roles(), strict=True)
        if role != "shuffle"
    ]
    ran = [(place, role, _finished_tasks(driver, place)) for place, role in places]
    records = _sums(_records_read(place, tasks) for place, role, tasks in ran if role == "source")
    held = _sums(_state_held(place, tasks) for place, role, tasks in ran if role == "state")
    done = [task for *_, tasks in ran for task in tasks]
    run_s = _sums([[(name, metrics["executorRunTime"] / 1e3) for name, metrics in done]])
    cpu_s = _sums([[(name, metrics["executorCpuTime"] / 1e9) for name, metrics in done]])
    was_read = any(place.tally.records_in for place, role in places if role == "source")
    return Shares(
        records if records or not was_read else None,
        {name: round(count) for name, count in held.items()} if held or not stateful else None,
        {name: cpu_s[name] / spent_s for name, spent_s in run_s.items() if spent_s > 0.0},
    )


def _finished_tasks(driver: Driver, place: Place) -> list[FinishedTask]:
    """The executor and the metrics of each task of the newest complete stage of a place."""
    if place.newest is None:
        return []
    return [
        (task["executorId"], task["taskMetrics"])
        for task in driver.tasks(*place.newest, TASKS_PER_STAGE)
        if task["status"] == "SUCCESS" and "taskMetrics" in task
    ]


def _records_read(place: Place, tasks: list[FinishedTask]) -> Amounts:
    """The records of the interval, divided as the newest stage divided its own."""
    read = [(name, metrics["inputMetrics"]["recordsRead"]) for name, metrics in tasks]
    total = sum(records for _, records in read)
    return [(name, records / total * place.tally.records_in) for name, records in read if total]


def _state_held(place: Place, tasks: list[FinishedTask]) -> Amounts:
    """Partitions of state; if not all tasks were read, those that were stand for all."""
    return [(name, place.tasks / len(tasks)) for name, _ in tasks]


def _sums(amounts: Iterable[Amounts]) -> dict[str, float]:
    """All amounts added up by executor."""
    sums: dict[str, float] = defaultdict(float)
    for name, amount in chain.from_iterable(amounts):
        sums[name] += amount
    return sums


class ExecutorWatch:
    """Task time of each executor between two readings.

    Spark adds the time of a task when it ends. Running tasks count by how long they have run, so
    that a long task does not look like an idle executor followed by an overloaded one. Memory is
    the highest heap so far, garbage included: Spark reports no other.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._heap_bytes = driver.executor_memory_bytes()
        self._spent_s: dict[str, float] = {}
        self._peaks: dict[str, int] = {}
        self._peaks_at_s = -HEARTBEAT_S

    def read(
        self,
        fleet: SchedulerFleet,
        now_s: float,
        wall_s: float | None,
        *,
        running: Iterable[tuple[int, int]],
        done: Shares,
    ) -> tuple[tuple[ExecutorSample, ...], int]:
        """A sample of each executor, and the slots that one has."""
        listed = self._driver.executors()
        slots = max((each["maxTasks"] for each in listed), default=1)
        running_s = self._running_s(running, now_s, at_most=slots * len(listed))
        spent_s = {
            each["id"]: each["totalDuration"] / 1e3 + running_s.get(each["id"], 0.0)
            for each in listed
        }
        if now_s - self._peaks_at_s >= HEARTBEAT_S:
            self._peaks, self._peaks_at_s = self._driver.heap_peaks(), now_s
        samples = tuple(
            self._sample(each, fleet, now_s, wall_s, spent_s, done)
            for each in listed
            if each["isActive"]
        )
        self._spent_s = spent_s
        return samples, max(1, slots)

    def _sample(
        self,
        summary: Json,
        fleet: SchedulerFleet,
        now_s: float,
        wall_s: float | None,
        spent_s: Mapping[str, float],
        done: Shares,
    ) -> ExecutorSample:
        name: str = summary["id"]
        started_at_s = parse_instant(summary["addTime"])
        ready = name in fleet.active
        peak = self._peaks.get(name)
        memory = peak / self._heap_bytes if peak else None
        if wall_s is None:
            return ExecutorSample(name, started_at_s, ready, memory_fraction=memory)
        there_s = min(wall_s, max(1e-3, now_s - started_at_s))
        worked_s = max(0.0, spent_s[name] - self._spent_s.get(name, 0.0))
        cpu_per_run, held = done.cpu_per_run.get(name), done.state_partitions
        busy = min(1.0, worked_s / (max(1, summary["maxTasks"]) * there_s))
        return ExecutorSample(
            name,
            started_at_s,
            ready,
            cpu_fraction=None if cpu_per_run is None else busy * cpu_per_run,
            busy_fraction=busy,
            memory_fraction=memory,
            throughput_rps=None if done.records is None else done.records.get(name, 0.0) / wall_s,
            state_partitions=None if held is None else held.get(name, 0),
        )

    def _running_s(
        self, running: Iterable[tuple[int, int]], now_s: float, at_most: int
    ) -> dict[str, float]:
        spent_s: dict[str, float] = defaultdict(float)
        for stage, attempt in running:
            for task in self._driver.tasks(stage, attempt, at_most, running=True):
                so_far_s = max(0.0, now_s - parse_instant(task["launchTime"]))
                spent_s[task["executorId"]] += so_far_s
        return spent_s
