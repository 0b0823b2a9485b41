"""The live sensor against a real broker: what waits, since when, and when nobody answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from penstock.core.model import Snapshot
from penstock.spark.internals import Driver
from penstock.testbed import Testbed, wait_until
from tests.spark.sensor.sensing import now_s, readings, row_limits, sensing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WITH_KAFKA = True

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def topic(bed: Testbed) -> str:
    name = f"topic-{uuid4().hex[:8]}"
    bed.create_topic(name, 4)
    return name


def produce(bed: Testbed, topic: str, records: int, age_s: float = 0.0) -> None:
    """Write records evenly over the four partitions, as old as is said."""
    from confluent_kafka import Producer

    producer = Producer(bed.broker.client_settings)
    written_at_s = now_s() - age_s
    for number in range(records):
        producer.produce(
            topic, value=b"x" * 50, partition=number % 4, timestamp=int(written_at_s * 1000)
        )
    assert producer.flush(30.0) == 0


@contextmanager
def reading(
    bed: Testbed, spark: SparkSession, topic: str, checkpoint: Path, **options: str
) -> Iterator[StreamingQuery]:
    reader = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": bed.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
    )
    writer = reader.load().writeStream.format("noop").trigger(processingTime="1 second")
    query = writer.option("checkpointLocation", str(checkpoint / topic)).start()
    try:
        yield query
    finally:
        query.stop()


def processed(query: StreamingQuery) -> int:
    return sum(report["numInputRows"] for report in query.recentProgress)


def test_arrivals_are_counted_at_the_broker_and_all_of_them_are_processed(
    bed: Testbed, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    produce(bed, topic, 100)
    with reading(bed, spark, topic, tmp_path), sensing(spark) as sensor:
        readings(sensor, lambda seen: seen.backlog_records == 0.0)
        before = sensor.read(now_s())
        produce(bed, topic, 1200)
        taken = [before, *readings(sensor, lambda seen: seen.backlog_records == 0.0)]
    assert sum(batch.input_records for seen in taken[1:] for batch in seen.batches) == 1200
    # The broker is asked moments after the turn began, so a rate covers not quite the turn; where
    # the jump is taken for a surge, it covers only what came since, and is higher.
    arrived = [
        (seen.arrival_rps or 0.0) * (seen.at_s - earlier.at_s) for earlier, seen in pairwise(taken)
    ]
    assert sum(arrived) >= 0.8 * 1200
    assert sum(records > 0.0 for records in arrived) <= 2  # and none is counted again
    assert taken[-1].delay_s == 0.0
    assert taken[-1].partitions == 4
    assert taken[-1].operators[0].name == "source"


def test_how_much_arrivals_and_service_vary_is_measured(
    bed: Testbed, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """400 records with every other reading, so every two seconds: far from the 1 of Poisson."""
    turns = cycle((400, 0))

    def produced_and_shown(seen: Snapshot) -> object:
        produce(bed, topic, next(turns))
        return seen.operators and seen.operators[0].arrival_cv2 is not None

    produce(bed, topic, 4)
    with reading(bed, spark, topic, tmp_path), sensing(spark) as sensor:
        source = readings(sensor, produced_and_shown)[-1].operators[0]
    assert source.arrival_cv2 is not None
    assert source.arrival_cv2 > 10.0
    assert source.service_cv2 is not None


def test_a_load_that_jumps_is_noticed_without_a_reading_and_its_rate_is_that_after_the_jump(
    bed: Testbed, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    produce(bed, topic, 4)
    with reading(bed, spark, topic, tmp_path), sensing(spark) as sensor:
        calm = iter(range(10))
        readings(sensor, lambda seen: seen.backlog_records == 0.0 and next(calm, None) is None)
        assert not sensor.has_surged()
        produce(bed, topic, 4000)
        wait_until(sensor.has_surged, 30.0, "nobody noticed")
        seen = sensor.read(now_s())
        assert not sensor.has_surged()
    assert seen.arrival_rps is not None
    # All of them came within the second or two since the last sample that had none.
    assert seen.arrival_rps > 400.0


def test_what_a_cap_leaves_behind_is_the_backlog_and_grows_old(
    bed: Testbed, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    produce(bed, topic, 4)
    with reading(bed, spark, topic, tmp_path, maxOffsetsPerTrigger="40") as query:
        wait_until(lambda: processed(query) >= 4, 90.0, "no batch was committed")
        with sensing(spark) as sensor:
            readings(sensor, lambda seen: seen.backlog_records == 0.0)
            produced_at_s = now_s()
            produce(bed, topic, 800)
            done = 0
            for seen in readings(sensor, lambda seen: (seen.delay_s or 0.0) > 5.0):
                done += sum(batch.input_records for batch in seen.batches)
            assert seen.backlog_records == 800 - done
            assert seen.delay_s == pytest.approx(seen.at_s - produced_at_s, abs=1.5)
            # Each of the four partitions has a quarter of it, and each waits since then.
            assert sum(seen.partition_backlog_records) == seen.backlog_records
            assert len(seen.partition_backlog_records) == 4
            assert seen.mean_delay_s == pytest.approx(seen.delay_s, abs=1.5)


def test_records_from_before_the_sensor_came_have_their_age(
    bed: Testbed, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """Half of them an hour old, the other half ten minutes; the sensor has seen none arrive.

    Many, so that a machine on which the sensor comes late has not processed the older half.
    """
    produced_at_s = now_s()
    produce(bed, topic, 4000, age_s=3600.0)
    produce(bed, topic, 4000, age_s=600.0)
    with reading(bed, spark, topic, tmp_path, maxOffsetsPerTrigger="40") as query:
        wait_until(lambda: processed(query) >= 40, 90.0, "no batch was committed")
        with sensing(spark) as sensor:
            # The first question to the brokers may take longer than its second.
            seen = readings(sensor, lambda seen: seen.backlog_records is not None)[-1]
    assert seen.backlog_records is not None
    assert seen.backlog_records > 4000
    # Minutes pass on a busy machine between writing and reading.
    assert seen.delay_s == pytest.approx(now_s() - produced_at_s + 3600.0, rel=0.03)


def test_a_broker_that_is_silent_makes_its_metrics_unknown_and_says_so_once(
    bed: Testbed,
    spark: SparkSession,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    produce(bed, topic, 100)
    with (
        caplog.at_level(logging.INFO, "penstock"),
        reading(bed, spark, topic, tmp_path),
        sensing(spark) as sensor,
    ):
        readings(sensor, lambda seen: seen.arrival_rps is not None)
        caplog.clear()  # a busy machine may have been slow to connect
        bed.pause_broker()
        try:
            blind = readings(sensor, lambda seen: seen.backlog_records is None)[-1]
            still_blind = sensor.read(now_s())
        finally:
            bed.resume_broker()
        for seen in (blind, still_blind):
            assert (seen.arrival_rps, seen.backlog_records, seen.delay_s) == (None, None, None)
            assert seen.fleet.registered == 2
        back = readings(sensor, lambda seen: seen.backlog_records is not None)[-1]
        assert back.arrival_rps is not None
    said = [record.getMessage() for record in caplog.records if record.name.endswith("kafka")]
    assert len([sentence for sentence in said if "offsets cannot be read" in sentence]) == 1
    assert said.count("Kafka offsets can be read again") == 1


def test_the_cap_of_a_running_query_can_be_changed(
    bed: Testbed, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    driver = Driver(spark)
    produce(bed, topic, 40)
    with reading(bed, spark, topic, tmp_path) as query, sensing(spark) as sensor:
        readings(sensor, lambda seen: seen.backlog_records == 0.0)
        driver.limit_rows_per_trigger(query, 80)
        assert "80" in row_limits(driver, query)
        produce(bed, topic, 400)
        taken = readings(sensor, lambda seen: seen.backlog_records == 0.0)
        sizes = [batch.input_records for seen in taken for batch in seen.batches]
        assert sum(sizes) == 400
        assert max(sizes) <= 160  # a batch that was planned before the limit may pass it
        driver.limit_rows_per_trigger(query, None)
        assert "All Available" in row_limits(driver, query)
