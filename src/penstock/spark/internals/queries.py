"""Streaming queries: their triggers, sources and reports, and the limit of their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from penstock.spark.internals.java_side import JVM_ERRORS, JavaSide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Kinds of trigger, as ``DataStreamWriter.trigger`` names them.
Trigger: TypeAlias = Literal["processingTime", "availableNow", "once", "realTime", "continuous"]
_TRIGGERS: dict[str, Trigger] = {
    "AvailableNowTrigger": "availableNow",
    "OneTimeTrigger": "once",
    "RealTimeTrigger": "realTime",
    "ContinuousTrigger": "continuous",
}
QUEUE_REPORTS = 1000  #: Reports that wait to be read; with more than this nobody reads them.


class SourceFacts(Struct, frozen=True):
    """A source of a query as the user wrote it: its format and its options."""

    format: str
    options: dict[str, str]


class Queries(JavaSide):
    """What Spark knows of a query beyond what PySpark shows."""

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
                to_java = self.jvm.scala.collection.JavaConverters.mapAsJavaMap  # Scala 2.12 too
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
