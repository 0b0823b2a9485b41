"""What Penstock needs of Spark, on the versions that are installed: ``make test-versions``.

The second word of each test is the column of the table in docs/compatibility.md. What a test
records as ``seconds`` stands there too.
"""

from __future__ import annotations

import itertools
import json
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.clock import WallClock
from penstock.core.model import Limits
from penstock.spark.application import Missing, findings_of, probe
from penstock.spark.internals import Driver, SourceFacts
from penstock.testbed import Testbed, wait_until
from penstock.testbed.jars import CONNECTORS
from penstock.testbed.java import pyspark_version
from tests.spark.sensor.sensing import readings, row_limits, sensing
from tests.spark.test_attach import Dial, attached, come_to, committed, failed_tasks, settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CONNECTOR = CONNECTORS.get(".".join(pyspark_version().split(".")[:2]))
WITH_KAFKA = CONNECTOR is not None
EXECUTORS = 1
UP_S = 120.0
TOPIC, PARTITIONS, RECORDS_RPS = "numbers", 4, 200

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
Record = Callable[[str, object], None]


@pytest.fixture(scope="module", autouse=True)
def _what_was_tried(record_testsuite_property: Record, spark: SparkSession) -> None:
    properties = Driver(spark).jvm.java.lang.System
    record_testsuite_property("pyspark", spark.version)
    record_testsuite_property("python", platform.python_version())
    record_testsuite_property("java", properties.getProperty("java.version"))
    name = CONNECTOR.roots[0].rpartition("-")[2] if CONNECTOR else ""
    record_testsuite_property("source", f"Kafka, connector {name}" if CONNECTOR else "rate")


@contextmanager
def records_arrive(bed: Testbed) -> Iterator[None]:
    """A program that writes records to the topic, as long as the block lasts."""
    from confluent_kafka import Producer

    producer, ends = Producer(bed.broker.client_settings), threading.Event()

    def write() -> None:
        numbers = itertools.count()
        while not ends.wait(0.1):
            for number in itertools.islice(numbers, RECORDS_RPS // 10):
                producer.produce(TOPIC, value=str(number), partition=number % PARTITIONS)
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        producer.flush(10.0)


def source(bed: Testbed, spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("kafka" if WITH_KAFKA else "rate")
    if not WITH_KAFKA:
        return reader.option("rowsPerSecond", RECORDS_RPS).load()
    reader = reader.option("kafka.bootstrap.servers", bed.bootstrap_servers)
    values = reader.option("subscribe", TOPIC).load().selectExpr("CAST(value AS STRING) AS text")
    return values.selectExpr("CAST(text AS LONG) AS value")


@pytest.fixture(scope="module")
def query(
    bed: Testbed, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamingQuery]:
    """A stateful count, one batch a second, that has run two batches."""
    if WITH_KAFKA:
        bed.create_topic(TOPIC, PARTITIONS)
    counts = source(bed, spark).selectExpr("value % 50 AS key").groupBy("key").count()
    writer = counts.writeStream.format("noop").outputMode("update").queryName("counts")
    writer = writer.option("checkpointLocation", str(tmp_path_factory.mktemp("checkpoint")))
    running = writer.trigger(processingTime="1 second").start()
    try:
        if WITH_KAFKA:
            with records_arrive(bed):
                committed(running, 2)
                yield running
        else:
            committed(running, 2)
            yield running
    finally:
        running.stop()


@contextmanager
def timed(record: Record) -> Iterator[None]:
    clock = WallClock()
    begin_s = clock.now()
    yield
    record("seconds", f"{clock.now() - begin_s:.1f}")


def test_attach_finds_all_that_it_needs_and_decides(
    spark: SparkSession, query: StreamingQuery
) -> None:
    driver = Driver(spark)
    assert probe(driver) == Missing(*([""] * len(Missing.__struct_fields__)))
    driver.limit_rows_per_trigger(query, 5000)
    assert "5000" in row_limits(driver, query)
    driver.limit_rows_per_trigger(query, None)
    assert "All Available" in row_limits(driver, query)
    with attached(spark, Dial(1), spark_metrics=True) as handle:
        wait_until(lambda: handle.status().decisions >= 3, UP_S, "nothing was decided")
        committed(query, 2)
        status = handle.status()
    assert (status.rescales, status.losses, status.error) == (0, 0, "")
    assert driver.requested_total_executors() == 1


@pytest.mark.usefixtures("query")
def test_up_brings_executors_that_take_work(spark: SparkSession, record_property: Record) -> None:
    driver = Driver(spark)
    with attached(spark, Dial(3)) as handle:
        with timed(record_property):
            come_to(spark, 3)
        settled(handle)
        wait_until(
            lambda: all(each["completedTasks"] > 0 for each in driver.executors()),
            UP_S,
            "a new executor has no work",
        )
        assert len(driver.executors()) == 3
        assert handle.status().error == ""
    assert driver.locality_wait() == "3s"


def test_down_removes_executors_and_fails_no_task(
    bed: Testbed, spark: SparkSession, query: StreamingQuery, record_property: Record
) -> None:
    dial, failed = Dial(3), failed_tasks(spark)
    with attached(spark, dial) as handle:
        come_to(spark, 3)
        settled(handle)
        dial.executors = 1
        with timed(record_property):
            wait_until(lambda: len(bed.executors()) == 1, UP_S, "a process stayed behind")
        settled(handle)
        committed(query, 2)
        status = handle.status()
    assert (status.rescales, status.losses, status.error) == (1, 0, "")
    assert failed_tasks(spark) == failed


@pytest.mark.usefixtures("query")
def test_sensor_sees_load_batches_stages_and_executors(spark: SparkSession, tmp_path: Path) -> None:
    with sensing(spark) as sensor:
        last = readings(
            sensor,
            lambda seen: (
                seen.arrival_rps
                and any(batch.stages for batch in seen.batches)
                and len(seen.operators) == 2
                and all(each.busy_fraction is not None for each in seen.executors)
                and any(each.cpu_fraction for each in seen.executors)
                and sum(each.state_partitions or 0 for each in seen.executors) == 4
            ),
        )[-1]
    assert last.trigger_interval_s == 1.0
    assert last.arrival_rps == pytest.approx(RECORDS_RPS, rel=0.6)
    assert last.delay_s is not None
    assert last.state_bytes
    assert last.partitions == 4
    if WITH_KAFKA:
        assert last.backlog_records is not None
        assert [topic.topic for topic in last.topics] == [TOPIC]
    files = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(tmp_path))
    reading = files.writeStream.format("noop").start()
    try:
        (facts,) = Driver(spark).sources(reading)
    finally:
        reading.stop()
    expected = {"maxFilesPerTrigger": "1", "path": str(tmp_path)}
    assert facts == SourceFacts(facts.format, facts.options | expected)


def test_doctor_knows_this_version_and_finds_no_error(bed: Testbed, spark: SparkSession) -> None:
    findings = findings_of(Driver(spark), Limits(min_executors=1, max_executors=4))
    assert [each for each in findings if each.level == "error"] == []
    argv = [sys.executable, "-m", "penstock", "doctor", "--master", bed.master_url, "--json"]
    done = subprocess.run(
        argv, capture_output=True, text=True, env=bed.driver_environment, timeout=120
    )
    said = {each["check"]: each["reason"] for each in json.loads(done.stdout)}
    assert (done.returncode, done.stderr) == (0, "")
    assert said["machine"].startswith(f"PySpark {spark.version} on Java ")
    assert said["reach"] == f"{bed.master_url} answers"
