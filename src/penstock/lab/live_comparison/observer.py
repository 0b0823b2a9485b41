"""Measures a live run, independently of what sizes its fleet.

Nothing here asks Penstock. Executors are counted as processes of the system, arrivals are the end
offsets of the partitions at the broker, records are done when the query reports their batch, and
failed tasks are those of Spark's own status store.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf
from threading import Event, Thread

from msgspec import Struct

from penstock.core.clock import WallClock
from penstock.core.errors import PenstockError
from penstock.simulation.engines.engine import Curve, Level, Outcome
from penstock.testbed.demo.environment import DemoEnvironment

SAMPLE_EVERY_S = 0.5
ONE_RESCALE_S = 5.0  #: Executors that come, or go, closer together than this are one rescale.


class ExecutorLifetime(Struct, frozen=True):
    """An executor's process, in seconds since the load began; ``None`` is what did not happen."""

    id: str
    launched_s: float
    registered_s: float | None
    gone_s: float | None
    failed_tasks: int = 0


class Committed(Struct, frozen=True):
    """A batch, and how many records were done with it since the load began."""

    started_s: float
    duration_s: float
    records: int
    done_records: int
    stages_s: float | None = None  #: The part of its time that Spark counts to its stages.


class Observation(Struct, frozen=True):
    """All that was seen of a run."""

    span_s: float
    arrived: list[tuple[float, int]]  #: Instants, and the number of records until then.
    batches: list[Committed]
    lives: list[ExecutorLifetime]
    task_s: float = 0.0  #: Of all tasks that ended.

    @property
    def failed_tasks(self) -> int:
        return sum(life.failed_tasks for life in self.lives)

    def fleet_at(self, at_s: float) -> int:
        """Executors that took work at an instant."""
        spans_s = [(life.registered_s, life.gone_s) for life in self.lives]
        return sum(
            came_s is not None and came_s <= at_s and (gone_s is None or at_s < gone_s)
            for came_s, gone_s in spans_s
        )

    def outcome(self) -> Outcome:
        """The run in the form of a simulated one, so that both get their score in the same way."""
        at_s = [at for at, _ in self.arrived]
        records = [float(count) for _, count in self.arrived]
        departed_s, departed = [0.0], [0.0]
        for batch in self.batches:
            end_s = batch.started_s + batch.duration_s
            if 0.0 <= end_s <= self.span_s:
                departed_s += [end_s, end_s]
                departed += [departed[-1], float(batch.done_records)]
        departures = Curve([*departed_s, self.span_s], [*departed, departed[-1]])
        paid = levels(self.lives, self.span_s)
        return Outcome(self.span_s, Curve(at_s, records), departures, paid, rescaled(paid))


def levels(lives: Iterable[ExecutorLifetime], span_s: float) -> list[Level]:
    """How many executors there were, from launch to end, over the run.

    >>> two = [ExecutorLifetime("1", -20.0, -15.0, None), ExecutorLifetime("2", 10.0, 14.0, 40.0)]
    >>> [(level.at_s, level.executors) for level in levels(two, 60.0)]
    [(0.0, 1), (10.0, 2), (40.0, 1)]
    """
    changes: dict[float, int] = {0.0: 0}
    for life in lives:
        gone_s = inf if life.gone_s is None else life.gone_s
        if gone_s <= 0.0 or life.launched_s >= span_s:
            continue
        begin_s = max(0.0, life.launched_s)
        changes[begin_s] = changes.get(begin_s, 0) + 1
        if gone_s < span_s:
            changes[gone_s] = changes.get(gone_s, 0) - 1
    instants = sorted(changes)
    counts = accumulate(changes[at_s] for at_s in instants)
    return [Level(at_s, count) for at_s, count in zip(instants, counts, strict=True)]


def rescaled(paid: Sequence[Level]) -> list[Level]:
    """The same levels with changes in one direction that are close together taken as one.

    Two executors launched half a second apart are one rescale by two:

    >>> steps = [Level(0.0, 1), Level(10.0, 2), Level(10.5, 3), Level(40.0, 2)]
    >>> [(level.at_s, level.executors) for level in rescaled(steps)]
    [(0.0, 1), (10.0, 3), (40.0, 2)]
    """
    found = list(paid[:1])
    last_s = -inf
    for level in paid[1:]:
        change = level.executors - found[-1].executors
        before = found[-1].executors - found[-2].executors if len(found) > 1 else 0
        if change * before > 0 and level.at_s - last_s <= ONE_RESCALE_S:
            found[-1] = Level(found[-1].at_s, level.executors)
        elif change:
            found.append(level)
        last_s = level.at_s
    return found


class Observer:
    """Watches a demo in a thread of its own until closed."""

    def __init__(self, environment: DemoEnvironment) -> None:
        from penstock.spark.internals import Driver
        from penstock.spark.sensor.kafka import Brokers

        self._environment = environment
        self._driver = Driver(environment.spark)
        self._task_s_before = self._task_s()
        self._brokers = Brokers({"bootstrap.servers": environment.bed.bootstrap_servers})
        plan = environment.plan
        self._partitions = [
            (topic, number) for topic in plan.topics.values() for number in range(plan.partitions)
        ]
        self._seen_at_s: dict[str, float] = {}
        self._gone_at_s: dict[str, float] = {}
        self._ends: list[tuple[float, int]] = []
        self._began_at_s = WallClock().now()
        self._closed = Event()
        self._sample(self._began_at_s)
        self._thread = Thread(target=self._follow, name="penstock-observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def observation(self) -> Observation:
        """All that was seen, after a last sample; then the observer is closed."""
        self.close()
        now_s = WallClock().now()
        self._sample(now_s)
        done_at_start, batches = self._batches()
        # Records that were not done at the start wait: they count as arrived.
        arrived = [
            (round(at_s - self._began_at_s, 3), count - done_at_start) for at_s, count in self._ends
        ]
        span_s, task_s = now_s - self._began_at_s, self._task_s() - self._task_s_before
        return Observation(span_s, arrived, batches, self._lives(), task_s)

    def _follow(self) -> None:
        for now_s in WallClock(sleep=self._closed.wait).ticks(SAMPLE_EVERY_S):
            if self._closed.is_set():
                return
            self._sample(now_s)

    def _sample(self, now_s: float) -> None:
        alive = {executor.id for executor in self._environment.bed.executors()}
        for name in alive:
            self._seen_at_s.setdefault(name, now_s)
        for name in self._seen_at_s.keys() - alive:
            self._gone_at_s.setdefault(name, now_s)
        try:
            ends = self._brokers.end_offsets(self._partitions)
        except PenstockError:
            return  # the curve has a gap of half a second, over which it is a straight line
        self._ends.append((WallClock().now(), sum(ends.values())))

    def _batches(self) -> tuple[int, list[Committed]]:
        """The records that were done at the start, and the batches since."""
        from penstock.spark.sensor.progress import parse_progress

        reports = self._driver.recent_progress(self._environment.query)
        done_at_start, found = 0, []
        for progress in sorted(map(parse_progress, reports), key=lambda report: report.batch_id):
            batch = progress.batch
            if batch is None:
                continue
            upto = records_until(source.end_offset for source in progress.sources)
            if batch.started_at_s + batch.duration_s <= self._began_at_s:
                done_at_start = upto
                continue
            start_s, records = batch.started_at_s - self._began_at_s, batch.input_records
            done, stages_s = upto - done_at_start, batch.phases.get("addBatch")
            found.append(Committed(start_s, batch.duration_s, records, done, stages_s))
        return done_at_start, found

    def _task_s(self) -> float:
        return float(sum(each["totalDuration"] for each in self._driver.executors_ever())) / 1e3

    def _lives(self) -> list[ExecutorLifetime]:
        from penstock.spark.sensor.progress import parse_instant

        summaries = {each["id"]: each for each in self._driver.executors_ever()}
        lives = []
        for name, seen_s in self._seen_at_s.items():
            missed_s = self._gone_at_s.get(name)
            gone_s = None if missed_s is None else missed_s - self._began_at_s
            launched_s, registered_s, failed = seen_s - self._began_at_s, None, 0
            if (summary := summaries.get(name)) is not None:
                registered_s = parse_instant(summary["addTime"]) - self._began_at_s
                # A process from before the first sample was launched before it registered.
                launched_s, failed = min(launched_s, registered_s), int(summary["failedTasks"])
            lives.append(ExecutorLifetime(name, launched_s, registered_s, gone_s, failed))
        return lives


def records_until(end_offsets: Iterable[object]) -> int:
    """The records before the end offsets of all sources; a topic that is read twice counts once.

    >>> records_until([{"auctions": {"0": 70, "1": 30}}, {"persons": {"0": 5}}])
    105
    >>> records_until([{"bids": {"0": 70}}, {"bids": {"0": 70}}])
    70
    """
    from penstock.spark.sensor.progress import partition_offsets

    ends: dict[tuple[str, int], int] = {}
    for offsets in end_offsets:
        ends |= partition_offsets(offsets) or {}
    return sum(ends.values())


def startups_s(observations: Iterable[Observation]) -> list[float]:
    """How long executors that were launched during a run took to register, in order."""
    return sorted(
        life.registered_s - life.launched_s
        for one in observations
        for life in one.lives
        if life.launched_s > 0.0 and life.registered_s is not None
    )
