"""The executors: which there are, how busy each was, and what each holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from penstock.core.model import ExecutorSample, Fleet
from penstock.spark.internals import Driver, Json
from penstock.spark.sensor.progress import parse_instant
from penstock.spark.sensor.python_time import PythonTimes
from penstock.spark.sensor.stage_executors import StageExecutorWatch
from penstock.spark.sensor.stages import Place, QueryStages
from penstock.spark.sensor.tasks import FinishedTask, finished_tasks


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
    """What each executor did, by the newest batch; ``None`` until a stage has reported."""

    records: dict[str, float] | None  #: Read in the interval.
    state_partitions: dict[str, int] | None  #: Held.
    cpu_per_busy: dict[str, float]  #: Per second of its tasks, Python workers included.


class ShareWatch:
    """Who ran the newest stage of each place."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._python = PythonTimes(driver)

    def read(self, queries: Iterable[QueryStages], *, stateful: bool) -> Shares:
        """The shares by the places that read a source, hold state or run Python."""
        ran = [
            (place, role, finished_tasks(self._driver, place.newest))
            for query in queries
            for place, role in zip(query.places, query.roles(), strict=True)
            if role != "shuffle" or place.may_run_python
        ]
        python = self._python_fractions([(place, tasks) for place, _, tasks in ran])
        for place, _, tasks in ran:
            place.observe_tasks(tasks, runs_python=python.get(_stage(place), 0.0) > 0.0)
        sources = [(place, tasks) for place, role, tasks in ran if role == "source"]
        records: dict[str, float] = defaultdict(float)  # of the interval, divided as in this stage
        for place, tasks in sources:
            total = sum(task.records for task in tasks)
            for task in tasks if total else ():
                records[task.executor] += place.tally.records_in * task.records / total
        held: dict[str, float] = defaultdict(float)
        for place, tasks in ((place, tasks) for place, role, tasks in ran if role == "state"):
            for task in tasks:  # if not all tasks were read, those that were stand for all
                held[task.executor] += place.tasks / len(tasks)
        was_read = any(place.tally.records_in for place, _ in sources)
        return Shares(
            records if records or not was_read else None,
            {name: round(count) for name, count in held.items()} if held or not stateful else None,
            cpu_per_busy([(python.get(_stage(place), 0.0), tasks) for place, _, tasks in ran]),
        )

    def _python_fractions(
        self, ran: Iterable[tuple[Place, list[FinishedTask]]]
    ) -> dict[int, float]:
        """By stage: how much of the time that its tasks spent off the cpu Python workers ran."""
        off_cpu_s = {
            # If not all tasks were read, those that were stand for all.
            _stage(place): sum(task.off_cpu_s for task in tasks) * place.tasks / len(tasks)
            for place, tasks in ran
            if tasks and place.may_run_python
        }
        seconds = self._python.read(off_cpu_s) if off_cpu_s else {}
        return {
            stage: min(1.0, seconds[stage] / spent_s)
            for stage, spent_s in off_cpu_s.items()
            if spent_s and stage in seconds
        }


def _stage(place: Place) -> int:
    return -1 if place.newest is None else place.newest[0]


def cpu_per_busy(ran: Iterable[tuple[float, list[FinishedTask]]]) -> dict[str, float]:
    """Processor time by time in a slot, by executor.

    Each stage comes with the fraction of its tasks' time off the cpu in which Python workers ran;
    each executor gets that fraction of its own tasks' time off the cpu, so never more than all.

    A task held its slot for 2 s and ran 1.9 s: 0.2 s in Java, 0.1 s waiting for a shuffle. Of the
    1.6 s that are left, Python ran for three quarters: 0.2 + 1.2 s of 2 s.

    >>> cpu_per_busy([(0.75, [FinishedTask("1", 2.0, 1.9, 0.2, 0.1)])])
    {'1': 0.7}
    """
    busy_s: dict[str, float] = defaultdict(float)
    cpu_s: dict[str, float] = defaultdict(float)
    for python_fraction, tasks in ran:
        for task in tasks:
            busy_s[task.executor] += task.duration_s
            cpu_s[task.executor] += task.cpu_s + python_fraction * task.off_cpu_s
    return {name: cpu_s[name] / spent_s for name, spent_s in busy_s.items() if spent_s > 0.0}


class Totals(Struct, frozen=True, gc=False):
    """What an executor has spent in tasks and moved since it started."""

    spent_s: float = 0.0
    network_bytes: float = 0.0
    disk_bytes: float = 0.0
    gc_s: float = 0.0


class ExecutorWatch:
    """Task time, memory, network and disk of each executor between two readings.

    Spark adds the time of a task when it ends. Running tasks count by how long they have run, so
    that a long task does not look like an idle executor followed by an overloaded one.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._heap_bytes = driver.executor_memory_bytes()
        self._totals: dict[str, Totals] = {}
        self._in_stages = StageExecutorWatch(driver)

    def read(
        self,
        fleet: SchedulerFleet,
        now_s: float,
        wall_s: float | None,
        *,
        running: Iterable[tuple[int, int]],
        reported: Iterable[tuple[int, int]],
        done: Shares,
    ) -> tuple[tuple[ExecutorSample, ...], int]:
        """A sample of each executor, and the slots that one has.

        `running` stages have running tasks; `reported` ones have peaks of memory, or spilled.
        """
        listed = self._driver.executors()
        slots = max((each["maxTasks"] for each in listed), default=1)
        running_s = self._running_s(running, now_s, at_most=slots * len(listed))
        self._in_stages.read(reported, now_s)
        self._in_stages.heap.keep(each["id"] for each in listed)
        totals = {each["id"]: self._total(each, running_s.get(each["id"], 0.0)) for each in listed}
        samples = tuple(
            self._sample(each, fleet, now_s, wall_s, totals[each["id"]], done)
            for each in listed
            if each["isActive"]
        )
        self._totals = totals
        return samples, max(1, slots)

    def _total(self, summary: Json, running_s: float) -> Totals:
        spilled = self._in_stages.spilled_bytes.get(summary["id"], 0)
        return Totals(
            summary["totalDuration"] / 1e3 + running_s,
            summary["totalShuffleRead"] + summary["totalShuffleWrite"],
            summary["totalInputBytes"] + spilled,
            summary["totalGCTime"] / 1e3,
        )

    def _sample(
        self,
        summary: Json,
        fleet: SchedulerFleet,
        now_s: float,
        wall_s: float | None,
        total: Totals,
        done: Shares,
    ) -> ExecutorSample:
        name: str = summary["id"]
        started_at_s = parse_instant(summary["addTime"])
        ready = name in fleet.active
        in_use = self._in_stages.heap.in_use(name, now_s)
        memory = None if in_use is None else round(in_use / self._heap_bytes, 4)
        if wall_s is None:
            return ExecutorSample(name, started_at_s, ready, memory_fraction=memory)
        there_s = min(wall_s, max(1e-3, now_s - started_at_s))
        before = self._totals.get(name, Totals())
        worked_s = max(0.0, total.spent_s - before.spent_s)
        cpu, held = done.cpu_per_busy.get(name), done.state_partitions
        busy = min(1.0, worked_s / (max(1, summary["maxTasks"]) * there_s))
        collecting = max(0.0, total.gc_s - before.gc_s) / worked_s if worked_s else None
        records = None if done.records is None else done.records.get(name, 0.0)
        moved = max(0.0, total.network_bytes - before.network_bytes)
        read = max(0.0, total.disk_bytes - before.disk_bytes)
        # Rounded, since the journal keeps a sample of each executor at each turn.
        return ExecutorSample(
            name,
            started_at_s,
            ready,
            cpu_fraction=None if cpu is None else round(busy * cpu, 4),
            busy_fraction=round(busy, 4),
            memory_fraction=memory,
            throughput_rps=None if records is None else round(records / wall_s, 1),
            state_partitions=None if held is None else held.get(name, 0),
            network_bytes_per_s=round(moved / wall_s),
            disk_bytes_per_s=round(read / wall_s),
            # Spark counts a collection to each task that ran meanwhile, as it does its run time.
            gc_fraction=None if collecting is None else round(min(1.0, collecting), 4),
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
