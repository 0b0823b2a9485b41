"""Executors, jobs, stages and tasks, from Spark's status stores.

An answer is fetched as one JSON text, without the fields that nobody here reads.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from penstock.spark.internals.java_side import JavaSide, Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Fields that nobody here reads, by kind of entry.
_UNREAD: dict[str, str] = tomllib.loads(Path(__file__).with_name("unread.toml").read_text("utf-8"))
_PACKAGES = {"SQLExecutionUIData": "org.apache.spark.sql.execution.ui"}
_STATUS_PACKAGE = "org.apache.spark.status.api.v1"
_parse = msgspec.json.Decoder().decode


class SqlMetrics(Struct, frozen=True):
    """The stages of a SQL execution, and names and values of its metrics as Spark writes them."""

    stages: frozenset[int]
    metrics: tuple[tuple[str, str], ...]


class StatusStore(JavaSide):
    """What Spark keeps of the work of an application."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.store: Any = self.context.statusStore()
        self._dag: Any = self.context.dagScheduler()
        self._sql_store: Any = self._java_session.sharedState().statusStore()
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
        self._no_quantiles = self.gateway.new_array(self.jvm.double, 0)

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
        return list(self._read(listed))

    def _read(self, value: Any) -> Any:
        """A Java value, fetched as JSON."""
        return _parse(self._to_json.writeValueAsString(value))

    def _entry(self, ask: Callable[[], Any]) -> Json | None:
        """What the status store answers; ``None`` if it has no such entry."""
        try:
            return dict(self._read(ask()))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == "java.util.NoSuchElementException":
                return None
            raise

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
        return dict(self._read(self.store.executorSummary(stage_id, attempt)))

    def sql_metrics(self, stages: Collection[int], newest: int) -> list[SqlMetrics]:
        """The metrics of those of the newest SQL executions that ran one of the stages."""
        store = self._sql_store
        listed = store.executionsList(max(0, store.executionsCount() - newest), newest)
        found = []
        for place, execution in enumerate(self._read(listed)):
            if set(stages).isdisjoint(execution["stages"]):
                continue
            names = self._read(listed.apply(place).metrics())
            texts = self._read(store.executionMetrics(execution["executionId"]))
            pairs = [(each["name"], texts.get(str(each["accumulatorId"]), "")) for each in names]
            found.append(SqlMetrics(frozenset(execution["stages"]), tuple(pairs)))
        return found

    def _executors(self, writer: Any, *, active_only: bool) -> list[Json]:
        summaries = _parse(writer.writeValueAsString(self.store.executorList(active_only)))
        return [each for each in summaries if self._is_local or each["id"] != "driver"]
