"""The executors: who is there, how busy each was, and what each holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from penstock.core.model import ExecutorSample, Fleet
from penstock.spark.internals import Driver, Json
from penstock.spark.sensor.progress import parse_instant
from penstock.spark.sensor.stages import QueryStages

#: How often executors tell their memory.
HEARTBEAT_S = 10.0
#: Of a stage with more tasks than this, these stand for all.
TASKS_PER_STAGE = 128


class SchedulerFleet(Struct, frozen=True):
    """Who is registered and who of them takes work, as the scheduler has it, now."""

    target: int
    registered: tuple[str, ...]
    leaving: frozenset[str]

    @classmethod
    def of(cls, driver: Driver) -> SchedulerFleet:
        registered = tuple(driver.executor_ids())
        target = driver.requested_total_executors()
        leaving = frozenset(driver.leaving())
        # Before anybody asked for a number, it is whatever there is.
        return cls(len(registered) if target is None else target, registered, leaving)

    @property
    def active(self) -> int:
        return sum(1 for name in self.registered if name not in self.leaving)

    def fleet(self, cores_per_executor: int, target: int | None = None) -> Fleet:
        """The fleet in numbers, with the target that the caller knows of, if any."""
        target = self.target if target is None else target
        return Fleet(target, len(self.registered), self.active, cores_per_executor)


class Shares(Struct, frozen=True):
    """What each executor did, going by the newest batch.

    `records` of the interval that it read, partitions of state that it holds, and the processor
    time in a second of its tasks. ``None`` as long as no stage has told.
    """

    records: dict[str, float] | None
    state_partitions: dict[str, int] | None
    cpu_per_run: dict[str, float]


def shares(driver: Driver, queries: Iterable[QueryStages], *, stateful: bool) -> Shares:
    """Ask who ran the newest stage of each place that reads a source or holds state."""
    read_at_all = 0.0
    records: dict[str, float] = defaultdict(float)
    partitions: dict[str, float] = defaultdict(float)
    run_s: dict[str, float] = defaultdict(float)
    cpu_s: dict[str, float] = defaultdict(float)
    for query in queries:
        for place, role in zip(query.places, query.roles(), strict=True):
            if role == "source":
                read_at_all += place.tally.records_in
            if place.newest is None or role == "shuffle":
                continue
            tasks = [
                (task["executorId"], task["taskMetrics"])
                for task in driver.tasks(*place.newest, TASKS_PER_STAGE)
                if task["status"] == "SUCCESS" and "taskMetrics" in task
            ]
            read = sum(metrics["inputMetrics"]["recordsRead"] for _, metrics in tasks)
            for name, metrics in tasks:
                run_s[name] += metrics["executorRunTime"] / 1e3
                cpu_s[name] += metrics["executorCpuTime"] / 1e9
                if role == "state":
                    partitions[name] += place.tasks / len(tasks)
                elif read:
                    part = metrics["inputMetrics"]["recordsRead"] / read
                    records[name] += part * place.tally.records_in
    held = {name: round(count) for name, count in partitions.items()}
    return Shares(
        records if records or not read_at_all else None,
        held if held or not stateful else None,
        {name: cpu_s[name] / spent_s for name, spent_s in run_s.items() if spent_s > 0.0},
    )


class ExecutorWatch:
    """Task time of each executor between two readings.

    Spark adds a task to its executor's time when it ends; those under way count by how long they
    have been running, so that a long task does not look like idleness followed by overwork.
    Memory is the highest heap so far, garbage included: Spark tells no other.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._heap_bytes = driver.executor_memory_bytes()
        self._spent_s: dict[str, float] = {}
        self._peaks: dict[str, int] = {}
        self._peaks_at_s = -HEARTBEAT_S

    def read(
        self,
        crew: SchedulerFleet,
        now_s: float,
        wall_s: float | None,
        *,
        running: Iterable[tuple[int, int]],
        done: Shares,
    ) -> tuple[tuple[ExecutorSample, ...], int]:
        """A sample for each executor, and how many slots one has."""
        listed = self._driver.executors()
        slots = max((each["maxTasks"] for each in listed), default=1)
        under_way_s = self._under_way_s(running, now_s, at_most=slots * len(listed))
        spent_s = {
            each["id"]: each["totalDuration"] / 1e3 + under_way_s.get(each["id"], 0.0)
            for each in listed
        }
        if now_s - self._peaks_at_s >= HEARTBEAT_S:
            self._peaks, self._peaks_at_s = self._driver.heap_peaks(), now_s
        samples = tuple(
            self._sample(each, crew, now_s, wall_s, spent_s, done)
            for each in listed
            if each["isActive"]
        )
        self._spent_s = spent_s
        return samples, max(1, slots)

    def _sample(
        self,
        summary: Json,
        crew: SchedulerFleet,
        now_s: float,
        wall_s: float | None,
        spent_s: Mapping[str, float],
        done: Shares,
    ) -> ExecutorSample:
        name: str = summary["id"]
        started_at_s = parse_instant(summary["addTime"])
        ready = name in crew.registered and name not in crew.leaving
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

    def _under_way_s(
        self, running: Iterable[tuple[int, int]], now_s: float, at_most: int
    ) -> dict[str, float]:
        spent_s: dict[str, float] = {}
        for stage, attempt in running:
            for task in self._driver.tasks(stage, attempt, at_most, running=True):
                so_far_s = max(0.0, now_s - parse_instant(task["launchTime"]))
                name = task["executorId"]
                spent_s[name] = spent_s.get(name, 0.0) + so_far_s
        return spent_s
