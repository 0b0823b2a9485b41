"""What the survival tests and the live benchmarks put on: a stream whose truth is known.

Record number n counts for key ``n % keys``, so how often a key was fed and what its numbers add up
to is arithmetic. A job that loses a record or counts one twice differs in one or the other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest

from penstock.core.clock import WallClock
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.spark.internals import Driver
from penstock.spark.sensor.progress import parse_progress, partition_offsets
from penstock.testbed import Testbed, paced, wait_until
from tests.drivers import end_driver

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Generous: an executor may take half a minute to start on a machine that does other things.
PATIENCE_S = 180.0
PARTITIONS = 8
KEYS = 100
FEED_TICK_S = 0.05

now_s = WallClock().now

Totals = dict[int, tuple[int, int]]


@dataclass
class Dial:
    """A policy that wants what was set; without the metric that it `needs` it holds."""

    executors: int
    needs: str = ""
    period_s: float = 0.5
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        if self.needs and getattr(snapshot, self.needs) in (None, ()):
            return not_measured(snapshot.fleet.target, self.needs)
        return Decision.of(self.executors, Reason("dial", f"{self.executors} are wanted"))


class Feed:
    """Writes numbered records to a topic at a rate that may change, until the block is left.

    It is the producer that must not write twice what a silent broker did not confirm, so it is
    idempotent; records that wait for a paused broker are sent when it is back.
    """

    def __init__(
        self, bed: Testbed, topic: str, rate_rps: float, partitions: int = PARTITIONS
    ) -> None:
        from confluent_kafka import Producer

        self.rate_rps = rate_rps
        self.partitions = partitions
        self.sent = 0
        self._topic = topic
        self._producer = Producer(
            bed.broker.client_settings | {"enable.idempotence": True, "linger.ms": 10}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.end()
        self._stopping.set()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def flush(self, timeout_s: float) -> int:
        """Wait for the broker; returns how many records it has not confirmed."""
        return self._producer.flush(timeout_s)

    def known_partitions(self) -> int:
        """Of the topic, as the producer sees them: it refuses to write to others."""
        found = self._producer.list_topics(self._topic, timeout=10.0)
        return len(found.topics[self._topic].partitions)

    def end(self) -> int:
        """Write no more; returns how many records there are now."""
        self._stopping.set()
        self._thread.join()
        waiting = self.flush(60.0)
        assert waiting == 0, f"{waiting} records were never written"
        return self.sent

    def write(self, records: int) -> None:
        """So many at once."""
        for number in range(self.sent, self.sent + records):
            while True:
                try:
                    self._producer.produce(
                        self._topic, value=str(number), partition=number % self.partitions
                    )
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
        self.sent += records
        self._producer.poll(0)

    def _run(self) -> None:
        due, before_s = 0.0, None
        for at_s in WallClock(sleep=self._stopping.wait).ticks(FEED_TICK_S):
            if self._stopping.is_set():
                return
            if before_s is not None:
                due += self.rate_rps * (at_s - before_s)
            before_s = at_s
            self.write(int(due))
            due -= int(due)


def truth(records: int, keys: int = KEYS) -> Totals:
    """How often each key came among the first records, and what its numbers add up to.

    >>> truth(records=5, keys=2)
    {0: (3, 6), 1: (2, 4)}
    """
    return {key: _total(range(key, records, keys)) for key in range(min(keys, records))}


def _total(numbers: range) -> tuple[int, int]:
    return len(numbers), sum(numbers)


def new_topic(bed: Testbed, partitions: int = PARTITIONS) -> str:
    name = f"topic-{uuid4().hex[:8]}"
    bed.create_topic(name, partitions)
    return name


def read_stream(bed: Testbed, spark: SparkSession, topic: str, **options: str) -> DataFrame:
    settings = {"kafka.bootstrap.servers": bed.bootstrap_servers, "subscribe": topic}
    reader = spark.readStream.format("kafka").options(**settings, **options)
    return reader.option("startingOffsets", "earliest").load()


def totals_of(records: DataFrame, keys: int = KEYS, cost_s: float = 0.0) -> DataFrame:
    """The stateful job: count and sum of each key's numbers."""
    from pyspark.sql import functions as f

    numbers = paced(records, cost_s).selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS number")
    keyed = numbers.select((f.col("number") % keys).alias("key"), "number")
    return keyed.groupBy("key").agg(f.count("*").alias("count"), f.sum("number").alias("sum"))


@contextmanager
def counting(
    bed: Testbed,
    spark: SparkSession,
    topic: str,
    output: str,
    checkpoint: Path,
    *,
    cost_s: float = 0.0,
    trigger_s: float = 1.0,
    keys: int = KEYS,
) -> Iterator[StreamingQuery]:
    """The job from one topic to another, until the block is left."""
    totals = totals_of(read_stream(bed, spark, topic), keys, cost_s)
    rows = totals.selectExpr("CAST(key AS STRING) AS key", "to_json(struct(count, sum)) AS value")
    writer = rows.writeStream.format("kafka").outputMode("update").queryName(output)
    writer = writer.option("kafka.bootstrap.servers", bed.bootstrap_servers)
    writer = writer.option("topic", output).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()
    try:
        yield query
    finally:
        query.stop()


class Results:
    """The last result of each key. A batch that is run again may write a result again."""

    def __init__(self, bed: Testbed, output: str) -> None:
        self._bed, self._output = bed, output
        self._ends = dict.fromkeys(range(PARTITIONS), 0)  # what is read already
        self._found: Totals = {}

    def read(self) -> Totals:
        """Those of now; only what is new is read."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": self._output, "enable.auto.commit": False}
        consumer = Consumer(self._bed.broker.client_settings | settings)
        try:
            begins = [TopicPartition(self._output, *each) for each in self._ends.items()]
            ends = [consumer.get_watermark_offsets(each, timeout=30.0)[1] for each in begins]
            consumer.assign(begins)
            while left := sum(max(0, ends[at] - offset) for at, offset in self._ends.items()):
                records = consumer.consume(min(left, 10_000), timeout=30.0)
                assert records, f"{left} results cannot be read"
                for record in records:
                    self._take(record)
        finally:
            consumer.close()
        return self._found

    def _take(self, record: Message) -> None:
        assert record.error() is None, record.error()
        key, value = record.key(), record.value()
        assert isinstance(key, bytes)
        assert value is not None
        total = json.loads(value)
        result = (total["count"], total["sum"])
        self._found[int(key)] = max(self._found.get(int(key), (0, 0)), result)
        self._ends[record.partition() or 0] = (record.offset() or 0) + 1


def results(bed: Testbed, output: str) -> Totals:
    """The last result of each key."""
    return Results(bed, output).read()


def processed(query: StreamingQuery) -> int:
    """How many records of its topic the query has committed, going by offsets."""
    progress: Any = query.lastProgress
    if progress is None:
        return 0
    (source,) = parse_progress(progress.json).sources
    return sum((partition_offsets(source.end_offset) or {}).values())


def last_batch(query: StreamingQuery) -> int:
    progress: Any = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def commit(query: StreamingQuery, batches: int) -> None:
    """Wait until it has committed so many more."""
    first = last_batch(query)

    def done() -> bool:
        assert query.isActive, query.exception()
        return last_batch(query) >= first + batches

    wait_until(done, PATIENCE_S, "the query stands still")


def active(spark: SparkSession) -> set[str]:
    """Executors that take work."""
    driver = Driver(spark)
    return set(driver.executor_ids()) - driver.leaving()


def come_to(spark: SparkSession, executors: int) -> None:
    wait_until(
        lambda: len(active(spark)) == executors,
        PATIENCE_S,
        f"the fleet did not come to {executors}",
    )


@contextmanager
def broker_away(bed: Testbed) -> Iterator[None]:
    bed.pause_broker()
    try:
        yield
    finally:
        bed.resume_broker()


def passes_s(seconds: float) -> None:
    """Let time pass while something is broken, which is all that there is to wait for."""
    until_s = now_s() + seconds
    wait_until(lambda: now_s() >= until_s, seconds + 10.0, "the clock stands still")


@contextmanager
def session(bed: Testbed, executors: int, **conf: str) -> Iterator[SparkSession]:
    """An application on the cluster, its Java process included."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    end_driver()  # another session's Java would not have this cluster's class path
    own = {
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.streaming.noDataProgressEventInterval": "500",
        **conf,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bed.driver_environment.items():
            patch.setenv(name, value)
        settings = SparkConf().setAll(
            list(bed.spark_conf(initial_executors=executors, **own).items())
        )
        try:
            running = SparkSession.builder.config(conf=settings).getOrCreate()
            running.sparkContext.setLogLevel("OFF")
            yield running
        finally:
            end_driver()


def mentioning(text: str) -> list[int]:
    """Processes with this text among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
