"""Makes events in the tasks of a Spark application, for loads that one process cannot send.

Each time that events are due the driver starts a Spark job whose tasks make blocks and write them
with Spark's Kafka sink, the same values to the same partitions. Within a partition events may be
out of order by as much as one job sends, and a task that is tried again writes some of them twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.errors import ConfigError, PenstockError
from penstock.testbed.jars import connector, fetch
from penstock.testbed.java import find_java, pyspark_version
from penstock.testbed.jobs.playback import EventStream
from penstock.testbed.jobs.streams import open_stream
from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.processes import wait_until
from penstock.testbed.sessions import spark_cause

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

#: How often the driver checks what is due: a Spark job takes about a tenth of a second at least.
TICK_S = 0.2
#: The first event is due this long after the start, when every Python worker has its stream.
LEAD_S = 3.0
#: At most this many in one Spark job, one to three seconds of work, so that the end is noticed.
BLOCKS_PER_CORE = 40
BROKER_PATIENCE_S = 10
EXECUTOR_PATIENCE_S = 60.0

SCHEMA = "value BINARY, partition INT"
#: As many records in a request as librdkafka sends, so that both burden the broker alike.
CLIENT_SETTINGS = {"linger.ms": "20", "batch.size": "1000000"}


@dataclass(frozen=True, slots=True)
class EventPlan:
    """All that the events of a stream depend on."""

    stream: str
    seed: int
    rates_rps: tuple[float, ...]
    base_ms: int


@lru_cache(maxsize=1)
def open_plan(plan: EventPlan) -> EventStream:
    """The stream, kept in each Python worker from task to task."""
    return open_stream(plan.stream, plan.seed, Timeline(plan.rates_rps), plan.base_ms)


def block_between(
    stream: EventStream, number: int, first: int, stop: int
) -> tuple[int, list[bytes]]:
    """The events of a block that are in a range, after the number of the first of them.

    >>> stream = open_stream("words", 1, Timeline([1.0]), 0)
    >>> start, lines = block_between(stream, 1, first=4_000, stop=7_000)
    >>> start, len(lines), lines == stream.block(1)[:2000]
    (5000, 2000, True)
    """
    begin = number * stream.block_size
    start = max(first, begin)
    return start, stream.block(number)[start - begin : max(stop - begin, 0)]


def connector_settings() -> dict[str, str]:
    """Spark's Kafka connector, sent from here to every executor."""
    jars = fetch(connector(pyspark_version()), find_java())
    return {"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))}


class SparkSender:
    """Sends ranges of events, made by the executors of a session with `connector_settings`.

    `bootstrap` is broker addresses, `host:port`, with commas between; the topic must exist.
    `settings` are further ones of Kafka's Java client, such as those of SASL and TLS.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        topic: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._settings = {"bootstrap.servers": bootstrap} | CLIENT_SETTINGS | dict(settings or {})
        self.partitions = self._count_partitions()

    def warm_up(self, plan: EventPlan) -> None:
        """Start executors and Python workers; make some blocks, and send nothing."""
        from penstock.spark.internals import Driver

        driver = Driver(self._spark)
        if not driver.master().startswith("local"):
            message = f"no executor has started at {driver.master()}: has the cluster room for one?"
            try:
                wait_until(driver.executor_ids, EXECUTOR_PATIENCE_S, message)
            except TimeoutError as error:
                raise ConfigError(str(error)) from None
        self._write(plan, range(self._cores()), 0, 0)

    def send(self, plan: EventPlan, first: int, stop: int) -> int:
        """Send events up to `stop`, whole blocks if any; how many, once they have arrived."""
        size = open_plan(plan).block_size
        stop = min(stop, first + BLOCKS_PER_CORE * self._cores() * size)
        whole = stop // size * size
        stop = whole if whole > first else stop
        self._write(plan, range(first // size, -(-stop // size)), first, stop)
        return stop - first

    def _write(self, plan: EventPlan, blocks: range, first: int, stop: int) -> None:
        from penstock.spark.internals import JVM_ERRORS

        partitions = self.partitions

        def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return make_records(batches, plan, first, stop, partitions)

        tasks = min(len(blocks), self._cores())
        numbers = self._spark.range(blocks.start, blocks.stop, 1, tasks)
        settings = {f"kafka.{key}": value for key, value in self._settings.items()}
        writer = numbers.mapInArrow(make, SCHEMA).write.format("kafka").option("topic", self._topic)
        try:
            writer.options(**settings).save()
        except JVM_ERRORS as error:
            problem = f"Spark could not send events {first} to {stop}"
            raise PenstockError(f"{problem}: {spark_cause(error)}") from error

    def _cores(self) -> int:
        """Those of all executors that are there now."""
        return self._spark.sparkContext.defaultParallelism

    def _count_partitions(self) -> int:
        """With the client that writes, so that it is clear at once whether its settings fit."""
        from penstock.spark.internals import JVM_ERRORS

        patience_ms = str(BROKER_PATIENCE_S * 1000)
        timeouts = {"default.api.timeout.ms": patience_ms, "request.timeout.ms": patience_ms}
        where = self._settings["bootstrap.servers"]
        kafka = self._spark.sparkContext._jvm.org.apache.kafka.clients.admin  # type: ignore[union-attr]
        try:
            admin = kafka.AdminClient.create(self._settings | timeouts)
            try:
                topics = admin.describeTopics([self._topic]).allTopicNames().get()
                return int(topics.get(self._topic).partitions().size())
            finally:
                admin.close()
        except JVM_ERRORS as error:
            why = spark_cause(error)
            if "UnknownTopicOrPartition" in why:
                problem = f"there is no topic '{self._topic}' at {where}: create it first"
            elif "TimeoutException" in why:
                problem = f"no broker answered at {where} within {BROKER_PATIENCE_S} s: {why}"
            else:
                problem = f"cannot send to {where}: {why}"
            raise ConfigError(problem) from error


def make_records(
    batches: Iterable[pa.RecordBatch], plan: EventPlan, first: int, stop: int, partitions: int
) -> Iterator[pa.RecordBatch]:
    """From numbers of blocks to the records of their events in a range."""
    import pyarrow as pa

    stream = open_plan(plan)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            start, values = block_between(stream, number, first, stop)
            places = np.arange(start, start + len(values), dtype=np.int64) % partitions
            columns = [pa.array(values, pa.binary()), pa.array(places.astype(np.int32))]
            yield pa.RecordBatch.from_arrays(columns, names=["value", "partition"])
