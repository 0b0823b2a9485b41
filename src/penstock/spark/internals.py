"""Everything that Penstock uses of Spark beyond its public interface, in one place.

The calls run in the Java process of the driver, through py4j. One round trip costs about a
millisecond, so values are fetched as one JSON text rather than field by field. Spark 4.0 to 4.3
are known to work (`scaling.probe`). A call that fails raises one of `JVM_ERRORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Kinds of trigger, as ``DataStreamWriter.trigger`` names them.
Trigger: TypeAlias = Literal["processingTime", "availableNow", "once", "realTime", "continuous"]
Json: TypeAlias = dict[str, Any]
Errors: TypeAlias = tuple[type[Exception], ...]

#: What a call into the Java process can raise: PySpark translates some of its exceptions.
JVM_ERRORS: Errors = (Py4JError, PySparkException)
#: The same, or the Java process is gone.
JVM_GONE: Errors = (*JVM_ERRORS, OSError)
LOCALITY_WAIT = "spark.locality.wait"
#: Reports that wait to be read; with more than this nobody reads them.
QUEUE_REPORTS = 1000
_TRIGGERS: dict[str, Trigger] = {
    "AvailableNowTrigger": "availableNow",
    "OneTimeTrigger": "once",
    "RealTimeTrigger": "realTime",
    "ContinuousTrigger": "continuous",
}
# Fields of the status store that nobody here reads, by kind of entry.
_UNREAD = {
    "ExecutorSummary": "hostPort rddBlocks memoryUsed diskUsed isBlacklisted "
    "maxMemory removeTime removeReason executorLogs memoryMetrics blacklistedInStages "
    "peakMemoryMetrics attributes resources resourceProfileId isExcluded excludedInStages",
    "ExecutorStageSummary": "taskTime failedTasks succeededTasks killedTasks inputBytes "
    "inputRecords outputBytes outputRecords shuffleRead shuffleReadRecords shuffleWrite "
    "shuffleWriteRecords memoryBytesSpilled isBlacklistedForStage isExcludedForStage",
    "StageData": "details accumulatorUpdates rddIds killedTasksSummary "
    "executorSummary tasks speculationSummary taskMetricsDistributions "
    "executorMetricsDistributions",
    "TaskData": "taskId index attempt partitionId resultFetchStart host taskLocality "
    "speculative accumulatorUpdates errorMessage executorLogs schedulerDelay gettingResultTime",
    "TaskMetrics": "executorDeserializeTime executorDeserializeCpuTime resultSize jvmGcTime "
    "resultSerializationTime memoryBytesSpilled diskBytesSpilled peakExecutionMemory "
    "outputMetrics shuffleWriteMetrics",
    "ShuffleReadMetrics": "remoteBlocksFetched localBlocksFetched remoteBytesRead "
    "remoteBytesReadToDisk localBytesRead remoteReqsDuration shufflePushReadMetrics",
    "SQLExecutionUIData": "rootExecutionId description details physicalPlanDescription "
    "modifiedConfigs metrics submissionTime completionTime errorMessage jobs jobTags "
    "jobGroupId metricValues queryId sparkSessionId",
}
_PACKAGES = {"SQLExecutionUIData": "org.apache.spark.sql.execution.ui"}
_STATUS_PACKAGE = "org.apache.spark.status.api.v1"
_parse = msgspec.json.Decoder().decode


class SourceFacts(Struct, frozen=True):
    """A source of a query as the user wrote it: its format and its options."""

    format: str
    options: dict[str, str]


class SqlMetrics(Struct, frozen=True):
    """The stages of a SQL execution, and names and values of its metrics as Spark writes them."""

    stages: frozenset[int]
    metrics: tuple[tuple[str, str], ...]


class Driver:
    """The Java side of the driver that runs a Spark application."""

    def __init__(self, spark: SparkSession) -> None:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                "a Spark Connect client cannot see or change executors: "
                "attach Penstock inside the driver of the application"
            )
        python: Any = spark.sparkContext
        self.jvm, self.gateway, self.context = python._jvm, python._gateway, python._jsc.sc()
        self.backend: Any = self.context.schedulerBackend()
        # In ``local[*]`` the driver runs the tasks: there it counts as the only executor.
        self._is_local = "getExecutorIds" not in dir(self.backend)
        self.store: Any = self.context.statusStore()
        self._dag: Any = self.context.dagScheduler()
        java_session: Any = spark._jsparkSession
        self._session_conf: Any = java_session.conf()
        self._sql_store: Any = java_session.sharedState().statusStore()
        # Handles are looked up once: each dot of a Java name costs a round trip.
        store_api: Any = self.jvm.org.apache.spark.status.api.v1
        features: Any = self.jvm.com.fasterxml.jackson.databind.SerializationFeature
        self._to_json: Any = store_api.JacksonMessageWriter().mapper()
        self._to_json.disable(features.INDENT_OUTPUT)
        self._to_full_json: Any = store_api.JacksonMessageWriter().mapper()
        self._leave_out_unread()
        self._by_id: Any = store_api.TaskSorting.ID
        self._any_status: Any = self.jvm.java.util.ArrayList()
        self._is_running: Any = self.jvm.java.util.ArrayList()
        self._is_running.add(store_api.TaskStatus.RUNNING)
        self._collections: Any = self.jvm.org.apache.spark.api.python.PythonUtils
        self._no_quantiles = self.gateway.new_array(self.jvm.double, 0)

    # -- The fleet ------------------------------------------------------------------------------

    def request_total_executors(self, executors: int) -> bool:
        """Ask for that many. A number below the fleet removes none; it only stops replacement."""
        nowhere = self._collections.toScalaMap({})
        return bool(self.context.requestTotalExecutors(executors, 0, nowhere))

    def requested_total_executors(self) -> int | None:
        """The target that Spark has; ``None`` before the first request.

        A kill that adjusts the target while this is ``None`` sets it to zero for good: always
        request the present size first.
        """
        total: int | None = None
        if self._is_local:
            return total
        pairs = self.backend.getRequestedTotalExecutors().iterator()
        while pairs.hasNext():
            total = (total or 0) + int(pairs.next()._2())
        return total

    def executor_ids(self) -> list[str]:
        """All registered executors, those that are leaving included."""
        return ["driver"] if self._is_local else names_in(self.backend.getExecutorIds())

    def leaving(self) -> set[str]:
        """Registered executors that are being decommissioned or removed."""
        if self._is_local:
            return set()
        decommissioning = self.backend.executorsPendingDecommission().keysIterator()
        removed = self.backend.executorsPendingToRemove().keysIterator()
        return {*names_in(decommissioning), *names_in(removed)}

    def decommission(self, executor_ids: Sequence[str]) -> list[str]:
        """Let them finish their tasks, hand over their blocks and leave; returns which do.

        Works only on executors that were started with ``spark.decommission.enabled=true``: others
        take no more work but never leave. Spark replaces them as far as its target is higher.
        """
        scala = self.jvm.scala
        scheduler = self.jvm.org.apache.spark.scheduler
        info = scheduler.ExecutorDecommissionInfo("rescale", scala.Option.empty())
        pairs = self.gateway.new_array(scala.Tuple2, len(executor_ids))
        for place, executor_id in enumerate(executor_ids):
            pairs[place] = scala.Tuple2(executor_id, info)
        return names_in(self.backend.decommissionExecutors(pairs, False, False))

    def kill_idle(self, executor_ids: Iterable[str], *, adjust_target: bool = True) -> list[str]:
        """Kill those without a task, unreplaced with `adjust_target`; safe only between batches."""
        wanted = self._collections.toSeq(list(executor_ids))
        return names_in(self.backend.killExecutors(wanted, adjust_target, False, False))

    def locality_wait(self) -> str:
        """How long a task waits for the executor that has its data, such as ``3s``."""
        return str(self.context.conf().get(LOCALITY_WAIT, "3s"))

    def set_locality_wait(self, duration: str) -> None:
        """Set it for the tasks of stages that start from now on, such as ``0s``."""
        self.context.conf().set(LOCALITY_WAIT, duration)

    def conf(self, key: str, default: str = "") -> str:
        return str(self.context.conf().get(key, default))

    def executor_memory_bytes(self) -> int:
        """The heap that each executor is given."""
        return int(self.context.executorMemory()) * 1024 * 1024

    def uses_dynamic_allocation(self) -> bool:
        return bool(self.context.executorAllocationManager().isDefined())

    def stop_dynamic_allocation(self) -> bool:
        """Stop Spark's own scaler, if one runs; the fleet stays as it is. True if one ran."""
        is_on = self.uses_dynamic_allocation()
        if is_on:
            self.context.executorAllocationManager().get().stop()
        return is_on

    def runs_a_job(self) -> bool:
        """Whether any job runs; between two batches none does."""
        return len(self.context.statusTracker().getActiveJobIds()) > 0

    def is_stopped(self) -> bool:
        """Whether the application has ended, or its Java process is gone."""
        try:
            return bool(self.context.isStopped())
        except JVM_GONE:
            return True

    def master(self) -> str:
        """The cluster manager, such as ``spark://host:7077`` or ``local[*]``."""
        return str(self.context.master())

    def settings(self) -> dict[str, str]:
        """All settings of the running application that are set explicitly."""
        lines = str(self.context.conf().toDebugString()).split("\n")
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def session_settings(self) -> dict[str, str]:
        """All settings of the session, those of the application included."""
        pairs = str(self._session_conf.getAll().mkString("\0")).split("\0")
        return dict(pair.split(" -> ", 1) for pair in pairs if " -> " in pair)

    def resource_profiles(self) -> int:
        """How many resource profiles the application uses; 1 is usual."""
        return int(self.store.resourceProfileInfo().size())

    def exists(self, place: str) -> bool:
        """Whether a path that Spark can read exists, e.g. ``s3a://bucket/results``."""
        path = self.jvm.org.apache.hadoop.fs.Path(place)
        return bool(path.getFileSystem(self.context.hadoopConfiguration()).exists(path))

    # -- The status store -----------------------------------------------------------------------

    def executors(self) -> list[Json]:
        """``ExecutorSummary`` of each living executor, without the fields that nobody reads."""
        return self._executors(self._to_json, active_only=True)

    def executors_ever(self) -> list[Json]:
        """``ExecutorSummary`` of every executor, dead or alive. Costly: ask once, at the end."""
        return self._executors(self._to_full_json, active_only=False)

    def jobs_begun(self) -> int:
        """How many jobs were submitted so far, which is the id of the next one."""
        return int(self._dag.numTotalJobs())

    def job(self, job_id: int) -> Json | None:
        """``JobData``; ``None`` if it is not listed yet, or no longer."""
        return self._entry(lambda: self.store.job(job_id))

    def stage(self, stage_id: int) -> list[Json]:
        """``StageData`` of each attempt, each by its key: of a list Spark would sort all stages."""
        attempts: list[Json] = []
        while not attempts or attempts[-1]["status"] == "FAILED":
            found = self._entry(
                lambda: self.store.stageAttempt(
                    stage_id, len(attempts), False, self._any_status, False, self._no_quantiles
                )._1()
            )
            if found is None:
                break
            attempts.append(found)
        return attempts

    def tasks(
        self, stage_id: int, attempt: int, at_most: int, *, running: bool = False
    ) -> list[Json]:
        """``TaskData`` of the first tasks of a stage, or of its running ones."""
        status = self._is_running if running else self._any_status
        listed = self.store.taskList(stage_id, attempt, 0, at_most, self._by_id, status)
        tasks: list[Json] = _parse(self._to_json.writeValueAsString(listed))
        return tasks

    def _entry(self, read: Callable[[], Any]) -> Json | None:
        """What the status store answers; ``None`` if it has no such entry."""
        try:
            entry: Json = _parse(self._to_json.writeValueAsString(read()))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == "java.util.NoSuchElementException":
                return None
            raise
        return entry

    def _leave_out_unread(self) -> None:
        """Leave out fields that nobody reads: over 8 kB, Nagle's algorithm costs py4j 40 ms."""
        annotations: Any = self.jvm.com.fasterxml.jackson.annotation
        unread_value = getattr(annotations, "JsonIgnoreProperties$Value")
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for kind, unread in _UNREAD.items():
            java_class = loader.loadClass(f"{_PACKAGES.get(kind, _STATUS_PACKAGE)}.{kind}")
            override = self._to_json.configOverride(java_class)
            override.setIgnorals(unread_value.forIgnoredProperties(set(unread.split())))

    def stage_executors(self, stage_id: int, attempt: int) -> dict[str, Json]:
        """``ExecutorStageSummary`` of each executor of a stage: its peaks and what it spilled."""
        summaries = self.store.executorSummary(stage_id, attempt)
        found: dict[str, Json] = _parse(self._to_json.writeValueAsString(summaries))
        return found

    def sql_metrics(self, stages: Collection[int], newest: int) -> list[SqlMetrics]:
        """The metrics of those of the newest SQL executions that ran one of the stages."""
        store = self._sql_store
        listed = store.executionsList(max(0, store.executionsCount() - newest), newest)
        found = []
        for place, execution in enumerate(_parse(self._to_json.writeValueAsString(listed))):
            if set(stages).isdisjoint(execution["stages"]):
                continue
            names = _parse(self._to_json.writeValueAsString(listed.apply(place).metrics()))
            values = store.executionMetrics(execution["executionId"])
            texts = _parse(self._to_json.writeValueAsString(values))
            pairs = [(each["name"], texts.get(str(each["accumulatorId"]), "")) for each in names]
            found.append(SqlMetrics(frozenset(execution["stages"]), tuple(pairs)))
        return found

    def _executors(self, writer: Any, *, active_only: bool) -> list[Json]:
        summaries = _parse(writer.writeValueAsString(self.store.executorList(active_only)))
        return [each for each in summaries if self._is_local or each["id"] != "driver"]

    # -- A query --------------------------------------------------------------------------------

    def execution(self, query: StreamingQuery) -> Any:
        """Spark's ``StreamExecution`` of the query."""
        java_query: Any = query._jsq
        return java_query.streamingQuery()

    def trigger(self, query: StreamingQuery) -> Trigger:
        """How the query is triggered; only ``processingTime`` has batches to scale by."""
        name = str(self.execution(query).trigger().getClass().getSimpleName()).rstrip("$")
        return _TRIGGERS.get(name, "processingTime")

    def trigger_interval_s(self, query: StreamingQuery) -> float | None:
        """Seconds between micro-batches; ``None`` for other triggers."""
        if self.trigger(query) != "processingTime":
            return None
        return int(self.execution(query).trigger().intervalMs()) / 1000.0

    def query_methods(self) -> set[str]:
        """Names of the methods of a micro-batch query; its class moved in Spark 4.1."""
        package = "org.apache.spark.sql.execution.streaming"
        for name in (f"{package}.MicroBatchExecution", f"{package}.runtime.MicroBatchExecution"):
            try:
                methods = self.jvm.java.lang.Class.forName(name).getMethods()
            except Py4JJavaError:
                continue
            return {str(method.getName()) for method in methods}
        return set()

    def sources(self, query: StreamingQuery) -> list[SourceFacts]:
        """Format and options of each source, in the order in which progress lists them."""
        leaves = self.execution(query).analyzedPlan().collectLeaves().distinct().iterator()
        facts = []
        while leaves.hasNext():
            leaf = leaves.next()
            kind = str(leaf.getClass().getSimpleName())
            if kind == "StreamingRelationV2":
                options = dict(leaf.extraOptions().asCaseSensitiveMap())
            elif kind == "StreamingRelation":
                to_java = self.jvm.scala.jdk.javaapi.CollectionConverters.asJava
                options = dict(to_java(leaf.dataSource().options()))
            else:  # a table that is joined with the stream
                continue
            facts.append(SourceFacts(str(leaf.sourceName()), options))
        return facts

    def recent_progress(self, query: StreamingQuery) -> Iterator[str]:
        """Reports of the query as JSON, newest first, as far back as Spark keeps them."""
        java_query: Any = query._jsq
        for report in reversed(java_query.recentProgress()):
            yield str(report.json())

    def listen(self, spark: SparkSession) -> tuple[Callable[[], str | None], Callable[[], None]]:
        """A call that gives the next progress report of the session, and one that ends that.

        Java itself puts reports into a queue. A listener in Python would be called on the thread of
        each query that starts, and each of these leaves a Python thread and a socket behind.
        """
        name = "org.apache.spark.sql.streaming.PythonStreamingQueryListener"
        kind = self.jvm.java.lang.Class.forName(name)
        queue = self.jvm.java.util.concurrent.ArrayBlockingQueue(QUEUE_REPORTS)
        put = self.jvm.java.beans.EventHandler.create(
            kind, queue, "offer", "progress.json", "onQueryProgress"
        )
        wrapper = self.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        listener, manager = wrapper(put), spark.streams._jsqm
        manager.addListener(listener)

        def next_report() -> str | None:
            with suppress(*JVM_ERRORS):  # the next turn tries again
                return queue.poll()  # type: ignore[no-any-return]
            return None

        return next_report, lambda: manager.removeListener(listener)

    def register_metrics(self, name: str) -> tuple[Any, Callable[[], None]]:
        """A registry in Spark's metrics system, and a function that removes it.

        Gauges that are added to it later reach the sinks too. They are read inside the Java
        process: no sink calls back.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self.gateway)  # type: ignore[no-untyped-call]
        registry: Any = self.jvm.com.codahale.metrics.MetricRegistry()
        source = MetricsSource(name, registry)
        system = self.jvm.org.apache.spark.SparkEnv.get().metricsSystem()
        system.registerSource(source)
        return registry, lambda: system.removeSource(source)

    def new_gauge(self, registry: Any, name: str) -> Any:
        """A gauge of that registry; it has ``setValue``."""
        gauge = self.jvm.com.codahale.metrics.DefaultSettableGauge()
        registry.register(name, gauge)
        return gauge

    def limit_rows_per_trigger(self, query: StreamingQuery, rows: int | None) -> None:
        """Let each source give at most `rows` records to a batch, from the next one planned.

        ``None`` removes the limit. Not public: it replaces the sources and limits of the running
        query. A restarted query has the limits of its options again.
        """
        limits = self.jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        limit = limits.allAvailable() if rows is None else limits.maxRows(rows)
        execution = self.execution(query)
        pairs = execution.uniqueSources().iterator()
        changed = {}
        while pairs.hasNext():
            changed[pairs.next()._1()] = limit
        getattr(execution, "uniqueSources_$eq")(self._collections.toScalaMap(changed))


def session_of_java(gateway: Any) -> SparkSession | None:
    """The session that Java code has made, for use from Python; ``None`` before that."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    found = gateway.jvm.org.apache.spark.sql.SparkSession.getDefaultSession()
    if not found.isDefined():
        return None
    python = SparkContext._active_spark_context
    if python is None:
        java = gateway.jvm.JavaSparkContext.fromSparkContext(found.get().sparkContext())
        conf = SparkConf(_jconf=java.getConf())
        python = SparkContext(gateway=gateway, jsc=java, conf=conf)
    return SparkSession(python, found.get())


def first_line(error: Exception) -> str:
    """What went wrong in the Java process, without its stack trace.

    >>> first_line(Py4JError("Method stage([]) does not exist\\nTrace: ..."))
    'Method stage([]) does not exist'
    """
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return str(text).strip().partition("\n")[0]


def names_in(collection: Any) -> list[str]:
    """The names in a Scala collection, in one round trip."""
    joined = str(collection.mkString("\n"))
    return joined.split("\n") if joined else []


class MetricsSource:
    """A ``Source`` of Spark's metrics system; Java calls it back when it is registered."""

    def __init__(self, name: str, registry: Any) -> None:
        self._name, self._registry = name, registry

    def sourceName(self) -> str:  # noqa: N802
        return self._name

    def metricRegistry(self) -> Any:  # noqa: N802
        return self._registry

    def equals(self, other: Any) -> bool:
        """Asked for when it is removed."""
        return str(other.sourceName()) == self._name

    class Java:
        implements = ("org.apache.spark.metrics.source.Source",)
