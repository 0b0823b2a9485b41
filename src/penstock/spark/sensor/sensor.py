"""The live sensor: a running Spark application as a `Snapshot`.

The scheduler knows the fleet; without it there is no snapshot. The queries report each batch to a
listener; reports that it did not hand over in time are asked for. Spark's status store knows
executors and stages; a slow store costs details and not the turn. The brokers know what waits.

A session may run several queries, which share one fleet. They make one snapshot:

- arrival, throughput, backlog and state are sums; if one query's is unknown, so is the sum;
- trigger, batches, delay and latency are those of the query that is nearest to missing its SLO; the
  mean delay is that over all partitions;
- operators have the name of their query as a prefix;
- partitions add up, since the queries' tasks run side by side;
- of a query that the settings exclude, only what it takes of slots, partitions and state counts.

Queries of other sessions of the same application are not seen, but the time that their tasks take
is part of how busy executors are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTimeError
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from penstock.core.clock import JUMP_S
from penstock.core.errors import SensorError
from penstock.core.model import Batch, ExecutorSample, OperatorSample, Snapshot, TopicSample
from penstock.settings.goal import Goal
from penstock.spark.internals import JVM_ERRORS, Driver, Errors, first_line
from penstock.spark.sensor.executors import ExecutorWatch, SchedulerFleet, ShareWatch
from penstock.spark.sensor.offsets import SourceReading
from penstock.spark.sensor.progress import Progress, parse_progress
from penstock.spark.sensor.query import QueryView, combine_sources, if_all_known
from penstock.spark.sensor.several import nearest_to_miss, not_running, sample
from penstock.spark.sensor.stages import QueryStages, StageWatch, share_idle_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: What a query that ends while it is read may raise.
QUERY_ENDS: Errors = (*JVM_ERRORS, SensorError)
#: A report that is later than this is delayed by another listener of the application.
OVERDUE_S = 5.0


class Details(Struct, frozen=True):
    """What the status store says."""

    executors: tuple[ExecutorSample, ...] = ()
    operators: tuple[OperatorSample, ...] = ()
    slots: int | None = None
    tasks: Mapping[str, int | None] = {}
    queries: Mapping[str, QueryStages] = {}
    busy_slots: Mapping[str, float] = {}


class SparkSensor:
    """Reads the application of a session until closed.

    A turn waits at most `store_timeout_s` for the status store. `target` gives the requested size,
    if known: the scheduler's may have been changed by somebody else, which the actuator corrects.
    Spark goes by the wall clock, which is `ahead_s` ahead of the time of the loop.
    """

    def __init__(
        self,
        spark: SparkSession,
        goal: Goal | None = None,
        driver: Driver | None = None,
        *,
        commit_offsets_to: str = "",
        store_timeout_s: float = 1.0,
        target: Callable[[], int | None] = lambda: None,
        ahead_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._spark = spark
        self.goal = goal or Goal()
        self._leader: str | None = None  # the query that was nearest to missing its SLO
        self._driver = driver = driver or Driver(spark)
        self._group = commit_offsets_to
        self._store_timeout_s = store_timeout_s
        self._target = target
        self._clock_ahead_s, self._ahead_s = ahead_s, ahead_s()
        self._stamped_after_s = 0.0  # earlier reports have the times of another clock
        self._started_at_s: dict[str, float] = {}  # executors, in the time of the loop
        self._views: dict[str, QueryView] = {}
        # The first batch of each query that was asked for before the listener reported it.
        self._unreported: dict[str, Batch] = {}
        self._stages = StageWatch(driver)
        self._shares = ShareWatch(driver)
        self._executors = ExecutorWatch(driver)
        self._read_at_s: float | None = None
        self._details_at_s: float | None = None
        task_cpus = int(driver.conf("spark.task.cpus", "1"))
        self._slots = max(1, int(driver.conf("spark.executor.cores", "1")) // task_cpus)
        self._warned: set[str] = set()
        self._store_thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-status")
        self._pending: Future[Details] | None = None
        self._next_report, self._stop_listening = driver.listen(spark)

    def close(self) -> None:
        """Stop reading; the job goes on."""
        self._store_thread.shutdown(wait=False, cancel_futures=True)
        for view in self._views.values():
            view.close()
        try:
            self._stop_listening()
        except JVM_ERRORS as error:
            log.debug("the listener is gone with its session: %s", first_line(error))

    def read(self, now_s: float) -> Snapshot:
        """The job now. Rates are means since the last reading, so the first has none."""
        try:
            fleet = SchedulerFleet.of(self._driver)
        except JVM_ERRORS as error:
            raise SensorError(f"the fleet cannot be read: {first_line(error)}") from error
        wall_s = self._wall_s(self._read_at_s, now_s)
        self._notice_jump(now_s)
        clock_s = now_s + self._ahead_s
        views = self._follow_queries()
        self._take_reports(views, clock_s)
        details = self._details(fleet, views, now_s)
        batches = {view.run_id: _with_stages(view, details, self._ahead_s) for view in views}
        sources = {view.run_id: self._read_sources(view, clock_s) for view in views}
        counted = [view for view in views if view.name not in self.goal.excluded]
        waiting = combine_sources([sources[view.run_id] for view in counted])
        waits_s = {view.name: view.waits_s(sources[view.run_id].delay_s) for view in counted}
        self._leader = nearest_to_miss(waits_s, self.goal, self._leader)
        leader = next((view for view in counted if view.name == self._leader), None)
        for about, hint in not_running(self.goal, [view.name for view in views]):
            self._warn_once(about, hint)
        self._read_at_s = now_s
        rates_rps = {run_id: _throughput_rps(each, wall_s) for run_id, each in batches.items()}
        return Snapshot(
            at_s=now_s,
            fleet=fleet.measured(details.slots or self._slots, self._target()),
            trigger_interval_s=None if leader is None else leader.trigger_interval_s,
            batches=() if leader is None else batches[leader.run_id],
            arrival_rps=waiting.arrival_rps,
            throughput_rps=if_all_known([rates_rps[view.run_id] for view in counted], sum),
            backlog_records=waiting.backlog_records,
            partition_backlog_records=waiting.partition_backlog,
            delay_s=None if leader is None else sources[leader.run_id].delay_s,
            mean_delay_s=waiting.mean_delay_s,
            latency_s=None if leader is None else leader.latency_s,
            executors=self._aged(details.executors),
            operators=_with_arrivals(
                details.operators if counted else (),
                {_prefix(view, views): sources[view.run_id] for view in counted},
            ),
            partitions=_partitions(views, details),
            state_bytes=if_all_known([view.state_bytes for view in views], sum),
            clock_ahead_s=self._ahead_s,
            topics=tuple(chain.from_iterable(each.topics for each in sources.values())),
            queries=tuple(
                sample(view, self.goal.of_query(view.name), sources[run], rates_rps[run], busy)
                for view in sorted(views, key=lambda view: view is not leader)
                for run, busy in [(view.run_id, details.busy_slots.get(view.run_id))]
                if len(views) > 1 or self.goal.queries
            ),
        )

    def has_surged(self) -> bool:
        """Whether the load has jumped since the last reading; makes no call."""
        views, excluded = self._views.values(), self.goal.excluded
        return any(view.has_surged for view in views if view.name not in excluded)

    def _wall_s(self, before_s: float | None, now_s: float) -> float | None:
        return None if before_s is None or now_s <= before_s else now_s - before_s

    def _notice_jump(self, now_s: float) -> None:
        """If the wall clock was set to another time, go by the new one from now on."""
        before_s, self._ahead_s = self._ahead_s, self._clock_ahead_s()
        if abs(jump_s := self._ahead_s - before_s) < JUMP_S:
            return
        log.warning("the clock of this machine was set by %+.0f s to another time", jump_s)
        for view in self._views.values():
            view.forget_times()
        self._unreported.clear()
        self._stamped_after_s = (self._read_at_s or now_s) + self._ahead_s

    def _aged(self, samples: tuple[ExecutorSample, ...]) -> tuple[ExecutorSample, ...]:
        """The executors, each with the start that it had when it was first seen."""
        began, ahead_s = self._started_at_s, self._ahead_s
        began = {one.id: began.get(one.id, one.started_at_s - ahead_s) for one in samples}
        self._started_at_s = began
        return tuple(structs.replace(one, started_at_s=began[one.id]) for one in samples)

    def _follow_queries(self) -> list[QueryView]:
        """The queries that run now, in the order in which they were first seen."""
        try:
            active = {str(query.runId): query for query in self._spark.streams.active}
        except JVM_ERRORS as error:
            self._warn_once("the list of queries", f"cannot be read: {first_line(error)}")
            return list(self._views.values())
        self._clear_warning("the list of queries")
        for run_id in self._views.keys() - active.keys():
            self._views.pop(run_id).close()
            self._unreported.pop(run_id, None)
        for run_id, query in active.items():
            if run_id not in self._views:
                try:
                    view = QueryView(self._driver, query, run_id, self._group)
                except QUERY_ENDS as error:
                    # It may have ended since it was listed; if not, the next turn retries.
                    log.debug("query %s cannot be followed yet: %s", run_id, error)
                    continue
                self._views[run_id] = view
                log.info("following query %s (%s)", view.name, view.trigger)
        return list(self._views.values())

    def _take_reports(self, views: list[QueryView], now_s: float) -> None:
        known = {view.run_id: view.last for view in views}
        for report in iter(self._next_report, None):
            try:
                progress = parse_progress(report)
            except SensorError as error:
                self._warn_once("a report", f"is skipped: {error}")
                continue
            run_id = progress.run_id
            if run_id in self._views and self._is_stamped_now(progress, now_s):
                self._views[run_id].take(progress)
            if run_id in self._unreported and progress.batch_id >= self._unreported[run_id].id:
                del self._unreported[run_id]
        for view in views:
            if view.last is known[view.run_id]:
                self._take_missed(view, now_s)
        ends_s = [batch.started_at_s + batch.duration_s for batch in self._unreported.values()]
        if any(now_s - end_s > OVERDUE_S for end_s in ends_s):
            self._warn_once(
                "the listener",
                "is delayed by another listener of the application: queries are asked instead",
            )
        elif not self._unreported:
            self._clear_warning("the listener")

    def _is_stamped_now(self, progress: Progress, now_s: float) -> bool:
        """Not if the clock was set since: its times and durations mean nothing then."""
        after_s = self._stamped_after_s
        return not after_s or after_s <= progress.started_at_s <= now_s + JUMP_S

    def _take_missed(self, view: QueryView, now_s: float) -> None:
        """Read reports from the query, in case another listener delays ours."""
        try:
            missed = view.missed()
        except QUERY_ENDS as error:
            log.debug("query %s ends: %s", view.name, error)
            return
        for progress in (one for one in missed if self._is_stamped_now(one, now_s)):
            view.take(progress)
            if progress.batch is not None:
                self._unreported.setdefault(view.run_id, progress.batch)

    def _read_sources(self, view: QueryView, now_s: float) -> SourceReading:
        try:
            reading = view.read(now_s)
            own = reading.topics or (TopicSample("", "", reading.backlog_records, reading.delay_s),)
            topics = tuple(structs.replace(each, query=view.name) for each in own)
            return structs.replace(reading, topics=topics)
        except JVM_ERRORS as error:
            log.debug("query %s ends: %s", view.name, error)
            return SourceReading()

    def _details(self, fleet: SchedulerFleet, views: list[QueryView], now_s: float) -> Details:
        """Executors and stages from the status store; empty if it is slow or fails."""
        if self._pending is None:
            self._pending = self._store_thread.submit(self._read_store, fleet, views, now_s)
        try:
            details = self._pending.result(timeout=self._store_timeout_s)
        except NotInTimeError:
            # The request stays open; another one would only make the store slower.
            self._warn_once("the status store", f"takes over {self._store_timeout_s:g} s")
            return Details()
        except Exception as error:  # a store of another version of Spark may answer anything
            self._pending = None
            self._warn_once("the status store", f"cannot be read: {first_line(error)}")
            return Details()
        self._pending = None
        if self._details_at_s != now_s:
            return Details()  # the answer to the request of an earlier turn
        self._clear_warning("the status store")
        self._slots = details.slots or self._slots
        return details

    def _read_store(self, fleet: SchedulerFleet, views: list[QueryView], now_s: float) -> Details:
        wall_s = self._wall_s(self._details_at_s, now_s)
        self._details_at_s = now_s
        queries = self._stages.read({view.run_id: view.state_partitions for view in views})
        stateful = any(view.state_partitions for view in views)
        executors, slots = self._executors.read(
            fleet,
            now_s + self._ahead_s,
            wall_s,
            running=self._stages.running,
            reported=self._stages.reported,
            done=self._shares.read(queries.values(), stateful=stateful),
        )
        tasks = {run_id: query.most_tasks for run_id, query in queries.items()}
        if wall_s is None:
            return Details(executors, (), slots, tasks, queries)
        operators: list[OperatorSample] = []
        all_slots = slots * len(fleet.active)
        for view in views:
            operators += queries[view.run_id].operators(wall_s, all_slots, _prefix(view, views))
        excluded = tuple(f"{name}/" for name in self.goal.excluded)
        shared = [x for x in share_idle_time(operators) if not x.name.startswith(excluded)]
        busy = {run_id: round(query.busy_s / wall_s, 3) for run_id, query in queries.items()}
        return Details(executors, tuple(shared), slots, tasks, queries, busy)

    def _warn_once(self, about: str, problem: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            log.warning("%s %s", about, problem)

    def _clear_warning(self, about: str) -> None:
        if about in self._warned:
            self._warned.discard(about)
            log.info("%s can be read again", about)


def _prefix(view: QueryView, views: list[QueryView]) -> str:
    """What the names of a query's operators begin with; by its run where names are the same."""
    if len(views) == 1:
        return ""
    is_unique = sum(each.name == view.name for each in views) == 1
    return f"{view.name if is_unique else view.run_id[:8]}/"


def _with_stages(view: QueryView, details: Details, ahead_s: float) -> tuple[Batch, ...]:
    """The batches since the last reading, with their stages where the status store has them."""
    stages = details.queries.get(view.run_id)
    batches = view.batches()
    batches = batches if stages is None else tuple(map(stages.with_stages, batches))
    return tuple(structs.replace(one, started_at_s=one.started_at_s - ahead_s) for one in batches)


def _with_arrivals(
    operators: tuple[OperatorSample, ...], sources: Mapping[str, SourceReading]
) -> tuple[OperatorSample, ...]:
    """The operators; those that read a source with how much its arrivals vary."""
    cv2 = {prefix: reading.arrival_cv2 for prefix, reading in sources.items()}
    return tuple(
        operator
        if operator.upstream
        else structs.replace(
            operator, arrival_cv2=cv2.get(operator.name[: operator.name.rfind("/") + 1])
        )
        for operator in operators
    )


def _throughput_rps(batches: tuple[Batch, ...], wall_s: float | None) -> float | None:
    return None if wall_s is None else sum(batch.input_records for batch in batches) / wall_s


def _partitions(views: list[QueryView], details: Details) -> int | None:
    """The most tasks that can run at once: those of each query's widest stage, added up.

    A small batch has fewer tasks than the sources have partitions; the next may need them all.
    """
    widest = [
        max(details.tasks.get(view.run_id) or 0, view.last.tasks_at_once if view.last else 0)
        for view in views
    ]
    known = [tasks for tasks in widest if tasks]
    return sum(known) if known and len(known) == len(widest) else None
