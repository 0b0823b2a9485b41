"""Penstock attached to a job that reads a real broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import penstock
from penstock.spark.internals import Driver
from penstock.testbed import Testbed, paced, wait_until
from tests.spark.sensor.sensing import row_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WITH_KAFKA = True
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def produce(bed: Testbed, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(bed.broker.client_settings)
    for number in range(records):
        producer.produce(topic, key=str(number % 97), value=str(number))
    assert producer.flush(30.0) == 0


def stream(bed: Testbed, spark: SparkSession, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bed.bootstrap_servers, "subscribe": topic}
    return spark.readStream.format("kafka").options(**options).load()


def last_batch(query: StreamingQuery) -> int:
    progress: Any = query.lastProgress
    return int(progress["batchId"])


def records_after(query: StreamingQuery, batch: int) -> list[int]:
    """How many records each later batch took."""
    reports: Any = query.recentProgress
    return [int(each["numInputRows"]) for each in reports if each["batchId"] > batch]


def test_a_backlog_is_worked_off_in_batches_of_usual_length_and_the_cap_is_given_back(
    bed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    """2 ms a record on 2 executors is at most 1000 records/s: 12,000 would be one of 12 s."""
    topic = f"topic-{uuid4().hex[:8]}"
    bed.create_topic(topic, 4)
    writer = paced(stream(bed, spark, topic), 0.002).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="1 second").start()
    try:
        # It is ready for records once it has looked at the topic.
        wait_until(lambda: query.lastProgress is not None, 60.0, "the query does not start")
        options: dict[str, Any] = {"min": 2, "max": 2, "every_s": 0.5, "slo_s": 4.0}
        with penstock.attach(spark, "static:2", admission=True, **options):
            produce(bed, topic, 400)
            wait_until(
                lambda: "MaxRows" in row_limits(Driver(spark), query), 60.0, "no cap was set"
            )
            small = last_batch(query)
            produce(bed, topic, 12_000)
            wait_until(
                lambda: sum(records_after(query, small + 1)) >= 5_000, 120.0, "no batch comes"
            )
            assert max(records_after(query, small + 1)) <= 4_000
        assert "All Available" in row_limits(Driver(spark), query)
    finally:
        query.stop()


GONE = """
import sys
from pyspark import SparkConf
from pyspark.sql import SparkSession

settings = dict(line.split("=", 1) for line in open(sys.argv[1]).read().splitlines())
spark = SparkSession.builder.config(conf=SparkConf().setAll(settings.items())).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
reader = spark.readStream.format("kafka").option("subscribe", "gone")
frame = reader.option("kafka.bootstrap.servers", sys.argv[2]).load()
frame.writeStream.format("noop").trigger(processingTime="1 second").start().awaitTermination()
"""


def test_a_topic_that_is_gone_is_one_sentence(bed: Testbed, tmp_path: Path) -> None:
    job, conf = tmp_path / "job.py", tmp_path / "conf"
    job.write_text(GONE)
    lines = [f"{key}={value}" for key, value in bed.spark_conf(initial_executors=1).items()]
    conf.write_text("\n".join(lines))
    argv = [sys.executable, "-m", "penstock", "run", str(job), str(conf), bed.bootstrap_servers]
    result = subprocess.run(
        argv, capture_output=True, text=True, env=bed.driver_environment, timeout=200
    )
    assert result.returncode == 2
    assert result.stderr.strip().splitlines()[-1] == (
        "penstock: a topic that the job reads does not exist: create it, or correct the option "
        "subscribe"
    )
