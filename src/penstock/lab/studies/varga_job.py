"""The state-size job of Varga et al. on real Spark: a driver of its own, which takes JSON.

Each key holds one random string, in RocksDB. A batch that renews all of them commits a snapshot of
all the state. A query that is started again from its checkpoint has to load it; its batches bring
one string each, so that loading is nearly all there is to do in the first.

A snapshot is how long the commits took, a load the processor time of the tasks that hold state,
less that of a later batch: a difference of two durations would show what else the machine was
doing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.testbed.jobs.state_size import STRING_CHARACTERS, kept_strings
from penstock.testbed.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Stores of state, whatever the number of executors: as Flink has its key groups.
PARTITIONS = 8
BATCH_TIMEOUT_S = 120.0


class Order(Struct, frozen=True):
    """What to measure: the fleet, the sizes of state, how often each; and Spark's settings."""

    executors: int
    sizes_bytes: list[float]
    repeats: int
    directory: str
    settings: dict[str, str]


class StateSample(Struct, frozen=True):
    """One snapshot or load: of how much state, on how many executors, and how long it took."""

    what: str
    state_bytes: float
    executors: int
    took_s: float  #: Of all stores, one after the other.


def main(text: str) -> None:
    """Measure as ordered, and write each sample to standard output at once."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    order = msgspec.json.decode(text, type=Order)
    conf = SparkConf().setAll(list(order.settings.items()))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        _wait_for_executors(spark, order.executors)
        _measured(spark, order, order.sizes_bytes[0], "warm-up")
        for size_bytes in order.sizes_bytes:
            for sample in _measured(spark, order, size_bytes, f"{size_bytes:.0f}"):
                sys.stdout.write(msgspec.json.encode(sample).decode() + "\n")
                sys.stdout.flush()
    finally:
        spark.stop()


def _measured(spark: SparkSession, order: Order, size_bytes: float, name: str) -> list[StateSample]:
    """Snapshots of a state of that size, then loads of it."""
    checkpoint = str(Path(order.directory) / f"{name}-{order.executors}")
    keys = max(1, round(size_bytes / STRING_CHARACTERS))
    samples = []

    def sample(what: str, took_ms: float) -> StateSample:
        return StateSample(what, float(keys * STRING_CHARACTERS), order.executors, took_ms / 1e3)

    for _ in range(order.repeats):
        # One batch and then none for long: a batch that is cut short would be run again.
        query = start(spark, keys, keys, checkpoint, every="1 hour")
        (progress,) = _batches(query, 1)
        query.stop()
        samples.append(sample("snapshot", progress["stateOperators"][0]["commitTimeMs"]))
    for _ in range(order.repeats):
        query = start(spark, keys, 1, checkpoint, every="0 seconds")
        run_id = str(query.runId)
        batches = [progress["batchId"] for progress in _batches(query, 3)]
        query.stop()
        cold_ms, *warm_ms = state_task_ms(spark, run_id, batches)
        samples.append(sample("load", max(0.0, cold_ms - min(warm_ms))))
    return samples


def start(
    spark: SparkSession, keys: int, rows_per_batch: int, checkpoint: str, *, every: str
) -> StreamingQuery:
    """The job: each row gives the key of its number a new random string."""
    from pyspark.sql import functions as f

    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_per_batch)
        .option("numPartitions", PARTITIONS)
        .load()
    )
    # One digest over and over is random enough for a store that does not compress, and cheap.
    digest = f.sha2(f.rand().cast("string"), 512)
    text = f.repeat(digest, STRING_CHARACTERS // 128).alias("text")
    number = f.col("value").alias("number")
    strings = rows.select(number, (f.col("value") % keys).alias("key"), text)
    return (
        kept_strings(strings)
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=every)
        .start()
    )


def _batches(query: StreamingQuery, count: int) -> list[dict[str, Any]]:
    """The progress of the first batches of a query."""

    def done() -> list[dict[str, Any]]:
        if not query.isActive:
            raise ConfigError(f"the state-size job ended: {query.exception()}")
        every = [msgspec.json.decode(each.json) for each in query.recentProgress]
        found = [each for each in every if each["stateOperators"] and each["numInputRows"]]
        return found[:count] if len(found) >= count else []

    return wait_until(done, BATCH_TIMEOUT_S, "a batch of the state-size job did not end")


def state_task_ms(spark: SparkSession, run_id: str, batches: list[int]) -> list[float]:
    """Of each batch the processor time of the tasks of its last stage: those that hold state."""
    from penstock.spark.internals import Driver

    driver = Driver(spark)
    found: dict[int, float] = {}
    for number in range(driver.jobs_begun()):
        job = driver.job(number)
        if job is None or job.get("jobGroup") != run_id:
            continue
        batch = int(str(job.get("description")).rpartition("batch = ")[2])
        last = driver.store.lastStageAttempt(max(job["stageIds"]))
        found[batch] = float(last.executorCpuTime()) / 1e6
    return [found[batch] for batch in batches]


def _wait_for_executors(spark: SparkSession, count: int) -> None:
    """The driver counts as one in the list of those that store blocks."""
    context: Any = spark.sparkContext
    status, failed = context._jsc.sc(), f"{count} executors did not start"
    wait_until(lambda: status.getExecutorMemoryStatus().size() > count, BATCH_TIMEOUT_S, failed)


if __name__ == "__main__":
    main(sys.argv[1])
