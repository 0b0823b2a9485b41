"""A Spark driver whose every answer comes from a JSON text, and the sensor that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.core.errors import ModelError, SensorError
from penstock.core.model import Snapshot
from penstock.spark.internals import Driver, SourceFacts, SqlMetrics
from penstock.spark.internals.queries import Trigger
from penstock.spark.sensor.sensor import SparkSensor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NOW_S = 1_795_000_000.0
RUN = "f8a0e289-7e53-40a4-be1a-dccb49bd4f18"


class AnsweringDriver(Driver):
    """Answers with what a text says, or with nothing."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers, self.gateway = answers, None
        self._jobs = 0

    def leaving(self) -> set[str]:
        return set()

    def executor_ids(self) -> list[str]:
        return ["1", "2"]

    def requested_total_executors(self) -> int | None:
        return 2

    def conf(self, key: str, default: str = "") -> str:
        return default

    def executor_memory_bytes(self) -> int:
        return 1 << 30

    def jobs_begun(self) -> int:
        self._jobs += 1
        return self._jobs

    def executors(self) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self._answers["executors"])

    def job(self, job_id: int) -> dict[str, Any] | None:
        return cast(dict[str, Any] | None, self._answers["job"])

    def stage(self, stage_id: int) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self._answers["stage"])

    def tasks(
        self, stage_id: int, attempt: int, at_most: int, *, running: bool = False
    ) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self._answers["tasks"])

    def stage_executors(self, stage_id: int, attempt: int) -> dict[str, dict[str, Any]]:
        return cast(dict[str, dict[str, Any]], self._answers["stage_executors"])

    def sql_metrics(self, stages: Any, newest: int) -> list[SqlMetrics]:
        pairs = tuple((name, text) for name, text in self._answers["metrics"].items())
        return [SqlMetrics(frozenset(stages), pairs)]

    def trigger(self, query: StreamingQuery) -> Trigger:
        return "processingTime"

    def trigger_interval_s(self, query: StreamingQuery) -> float | None:
        return 1.0

    def sources(self, query: StreamingQuery) -> list[SourceFacts]:
        return [SourceFacts("rate", {})]

    def recent_progress(self, query: StreamingQuery) -> Iterator[str]:
        for report in self._answers.get("progress", ()):
            yield msgspec.json.encode(report).decode()

    def listen(self, spark: SparkSession) -> tuple[Callable[[], str | None], Callable[[], None]]:
        return lambda: None, lambda: None


def read_sensor(answers: dict[str, Any]) -> list[Snapshot]:
    """Three turns. What the controller holds on is no snapshot; any other error is a bug."""
    query = SimpleNamespace(runId=RUN, id=RUN, name="q", status={"isTriggerActive": False})
    spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[query]))
    sensor = SparkSensor(spark, driver=AnsweringDriver(answers))
    taken = []
    try:
        for turn in range(3):
            try:
                taken.append(sensor.read(NOW_S + 10.0 * turn))
            except (SensorError, ModelError):
                continue
    finally:
        sensor.close()
    return taken


STAGE = {
    "status": "COMPLETE", "stageId": 1, "attemptId": 0, "numTasks": 4, "executorRunTime": 900,
    "executorDeserializeTime": 20, "inputRecords": 100, "shuffleReadRecords": 0,
    "shuffleWriteRecords": 10, "outputRecords": 0, "diskBytesSpilled": 0,
    "firstTaskLaunchedTime": "2026-11-18T10:26:41.000GMT",
    "completionTime": "2026-11-18T10:26:42.000GMT",
    "peakExecutorMetrics": {"JVMHeapMemory": 100},
}  # fmt: skip
TASK = {
    "executorId": "1", "duration": 500, "status": "SUCCESS",
    "launchTime": "2026-11-18T10:26:41.000GMT",
    "taskMetrics": {
        "executorRunTime": 450, "executorCpuTime": 300_000_000,
        "inputMetrics": {"recordsRead": 50},
        "shuffleReadMetrics": {"fetchWaitTime": 1, "recordsRead": 0},
    },
}  # fmt: skip
EXECUTOR = {
    "id": "1", "isActive": True, "maxTasks": 1, "totalDuration": 1000, "totalShuffleRead": 10,
    "totalShuffleWrite": 10, "totalInputBytes": 10, "totalGCTime": 5,
    "addTime": "2026-11-18T10:00:00.000GMT",
}  # fmt: skip
ANSWERS = {
    "executors": [EXECUTOR, EXECUTOR | {"id": "2"}],
    "job": {"jobId": 0, "jobGroup": RUN, "description": "batch = 7", "stageIds": [1],
            "status": "SUCCEEDED"},
    "stage": [STAGE],
    "tasks": [TASK, TASK | {"executorId": "2"}],
    "stage_executors": {"1": {"peakMemoryMetrics": {"JVMHeapMemory": 9}, "diskBytesSpilled": 5}},
    "metrics": {"time to run Python workers": "66 ms"},
    "progress": [{
        "id": RUN, "runId": RUN, "name": "q", "timestamp": "2026-11-18T10:26:40.000Z",
        "batchId": 7, "numInputRows": 80, "stateOperators": [{"numShufflePartitions": 4}],
        "durationMs": {"addBatch": 505, "triggerExecution": 820},
        "sources": [{"startOffset": 0, "endOffset": 2, "latestOffset": 2, "numInputRows": 80}],
    }],
}  # fmt: skip
