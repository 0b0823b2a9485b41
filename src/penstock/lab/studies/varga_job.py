"""The state-size job of Varga et al. on real Spark: a driver of its own, which takes JSON.

Each key holds one random string, in RocksDB. The first batch of a query sets all of them and
commits a snapshot of all the state. The query is then stopped and started again from its
checkpoint, so that it has to load it; its batches bring one string each, so that loading is nearly
all there is to do in the first. At last an executor leaves, and the other loads the stores that it
had.

The time of a store's commit is Spark's own, that of its load what its task took longer than those
of later batches.
"""

from __future__ import annotations

import re
import shutil
import sys
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.testbed.jobs.state_size import STRING_CHARACTERS, kept_strings
from penstock.testbed.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.internals import Driver
    from penstock.spark.sensor.tasks import FinishedTask

EXECUTORS = 2
WARM_UP_BYTES, WARM_BATCHES = 20e6, 3
BATCH_TIMEOUT_S = 900.0
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class StatePart(Struct, frozen=True):
    """What is measured in one go: state of a size, in how many stores, with changelogs or not."""

    state_bytes: float
    stores: int
    changelog: bool
    repeats: int = 5


class StateSample(Struct, frozen=True):
    """How long it took: a store's snapshot or load, or the downtime of a restart or a rescale."""

    what: str
    state_bytes: float
    stores: int
    changelog: bool
    mean_s: float  #: Over the stores.
    max_s: float


class Order(Struct, frozen=True):
    """A part to measure, where its state goes, and Spark's settings."""

    part: StatePart
    directory: str
    settings: dict[str, str]


def main(text: str) -> None:
    """Measure as ordered, and write each sample to standard output at once."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    order = msgspec.json.decode(text, type=Order)
    conf = SparkConf().setAll(list(order.settings.items()))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        _measured(spark, msgspec.structs.replace(order.part, state_bytes=WARM_UP_BYTES), order)
        for _ in range(order.part.repeats):
            for sample in _measured(spark, order.part, order):
                sys.stdout.write(msgspec.json.encode(sample).decode() + "\n")
                sys.stdout.flush()
    finally:
        spark.stop()


def _measured(spark: SparkSession, part: StatePart, order: Order) -> list[StateSample]:
    """A snapshot, a restart with its loads, and a rescale, of new state."""
    from penstock.spark.internals import Driver

    driver = Driver(spark)
    _wait_for_executors(driver)
    keys = max(1, round(part.state_bytes / STRING_CHARACTERS))
    # One batch and then none for long: a batch that is cut short would be run again.
    query = start(spark, keys, keys, part, order.directory, every="1 hour")
    (progress,) = _batches(query, 1)
    total_s = progress["stateOperators"][0]["commitTimeMs"] / 1e3
    snapshot = total_s / part.stores, _longest_commit_s(driver) or total_s / part.stores
    stopped_at_s = WallClock().now()
    query.stop()
    query = start(spark, keys, 1, part, order.directory, every="0 seconds")
    cold, *warm = _batches(query, 1 + WARM_BATCHES)
    tasks = _state_tasks(driver, str(query.runId))
    usual_s = min(fmean(task.run_s for task in tasks[each["batchId"]]) for each in warm)
    loads_s = [max(0.0, task.run_s - usual_s) for task in tasks[cold["batchId"]]]
    restart_s = _ended_at_s(cold) - stopped_at_s
    driver.request_total_executors(EXECUTORS)
    leaves = tasks[warm[-1]["batchId"]][0].executor
    wait_until(lambda: driver.kill_idle([leaves]), BATCH_TIMEOUT_S, "no executor could leave")
    newest = _batches(query, 1)[-1]["batchId"]
    after_s = [_took_s(each) for each in _batches(query, WARM_BATCHES, since=newest + 1)]
    query.stop()
    rescale_s = max(after_s) - min(after_s)
    driver.request_total_executors(EXECUTORS)
    shutil.rmtree(order.directory, ignore_errors=True)
    found = {
        "snapshot": snapshot,
        "load": (fmean(loads_s), max(loads_s)),
        "restart": (restart_s, restart_s),
        "rescale": (rescale_s, rescale_s),
    }
    made = (float(keys * STRING_CHARACTERS), part.stores, part.changelog)
    return [StateSample(what, *made, *took) for what, took in found.items()]


def start(
    spark: SparkSession, keys: int, rows: int, part: StatePart, checkpoint: str, *, every: str
) -> StreamingQuery:
    """The job: each of the `rows` of a batch gives the key of its number a new random string."""
    from pyspark.sql import functions as f

    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", max(part.stores, EXECUTORS))
        .load()
    )
    # One digest over and over is random enough for a store that does not compress, and cheap.
    digest = f.sha2(f.rand().cast("string"), 512)
    text = f.repeat(digest, STRING_CHARACTERS // 128).alias("text")
    number = f.col("value").alias("number")
    strings = numbers.select(number, (f.col("value") % keys).alias("key"), text)
    return (
        kept_strings(strings)
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=every)
        .start()
    )


def _batches(query: StreamingQuery, count: int, since: int = 0) -> list[dict[str, Any]]:
    """The progress of all batches of a query from one on, once there are as many."""

    def done() -> list[dict[str, Any]]:
        if not query.isActive:
            raise ConfigError(f"the state-size job ended: {query.exception()}")
        every = [msgspec.json.decode(each.json) for each in query.recentProgress]
        found = [
            each
            for each in every
            if each["stateOperators"] and each["numInputRows"] and each["batchId"] >= since
        ]
        return found if len(found) >= count else []

    return wait_until(done, BATCH_TIMEOUT_S, "a batch of the state-size job did not end")


def _took_s(progress: dict[str, Any]) -> float:
    return float(progress["durationMs"]["triggerExecution"]) / 1e3


def _ended_at_s(progress: dict[str, Any]) -> float:
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    return began.timestamp() + _took_s(progress)


def _state_tasks(driver: Driver, run_id: str) -> dict[int, list[FinishedTask]]:
    """Of each batch the tasks of its last stage: those that hold state."""
    from penstock.spark.sensor.tasks import finished_tasks

    found = {}
    for number in range(driver.jobs_begun()):
        job = driver.job(number)
        if job is None or job.get("jobGroup") != run_id:
            continue
        batch = int(str(job.get("description")).rpartition("batch = ")[2])
        found[batch] = finished_tasks(driver, (max(job["stageIds"]), 0))
    return found


def _longest_commit_s(driver: Driver) -> float | None:
    """The longest commit of a store in the newest execution."""
    newest = driver.sql_metrics(range(10**6), 1)
    texts = [text for each in newest for name, text in each.metrics if "commit changes" in name]
    return longest_s(texts[0]) if texts else None


def longest_s(text: str) -> float | None:
    """The third time in brackets, in seconds; ``None`` if there is one task only.

    >>> longest_s("total (min, med, max)\\n2.5 s (0.9 s, 1.2 s, 1.4 s (stage 3.0: task 7))")
    1.4
    """
    found = re.search(r"\(.*?, .*?, ([\d.]+) (ms|s|m|h) \(stage", text.partition("\n")[2])
    return float(found[1]) * _UNITS[found[2]] if found else None


def _wait_for_executors(driver: Driver) -> None:
    failed = f"{EXECUTORS} executors did not start"
    wait_until(lambda: len(driver.executor_ids()) >= EXECUTORS, BATCH_TIMEOUT_S, failed)


if __name__ == "__main__":
    main(sys.argv[1])
