"""From the producer over a real broker through a job on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testbed import Testbed, wait_until
from penstock.testbed.jobs.benchmark_jobs import find_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def produce(bed: Testbed, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.testbed.jobs.producer"]
    command += ["--bootstrap", bed.bootstrap_servers, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=bed.driver_environment
    )


def content(bed: Testbed, topic: str, partitions: int) -> Counter[tuple[object, ...]]:
    """How often each partition, key and value is in the topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(bed.broker.client_settings | {"group.id": "content"})
    try:
        places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=30.0)[1] for place in places]
        consumer.assign(places)
        found: Counter[tuple[object, ...]] = Counter()
        while (missing := sum(ends) - found.total()) > 0:
            # It waits for as many as it is asked for.
            messages = consumer.consume(min(missing, 5000), timeout=30.0)
            assert messages, "the broker gave fewer events than there are"
            found.update((each.partition(), each.key(), each.value()) for each in messages)
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("stream", "on_cluster"),
    [pytest.param("nexmark", True, marks=pytest.mark.long), ("vehicles", False)],
)
def test_spark_writes_the_same_events_to_the_same_partitions_as_the_local_producer(
    bed: Testbed, stream: str, on_cluster: bool
) -> None:
    load = "constant:rate=12k for 1s then constant:rate=1k for 2s"
    common = ["--stream", stream, "--workload", load, "--base-ms", "1700000000000", "--seed", "7"]
    topics = [f"{stream}-{place}" for place in ("local", "spark")]
    master = bed.master_url if on_cluster else "local[2]"
    for topic, place in zip(topics, ([], ["--on", "spark", "--master", master]), strict=True):
        bed.create_topic(topic, partitions=3)
        produced = produce(bed, "--topic", topic, *common, *place)
        assert produced.returncode == 0, produced.stderr
        report = json.loads(produced.stdout)
        assert report["planned_records"] == report["sent_records"] == 14_000
    here, there = (content(bed, topic, 3) for topic in topics)
    assert here.total() == 14_000
    assert here == there


@pytest.mark.parametrize("name", ["q1", "wordcount"])
def test_a_job_reads_every_event_that_the_producer_sent_once(
    bed: Testbed, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    topic, job = f"events-of-{name}", find_job(name)
    bed.create_topic(topic, partitions=4)
    load = "constant:rate=1k for 1s then constant:rate=3k for 1s"
    produced = produce(bed, "--topic", topic, "--stream", *job.streams, "--workload", load)
    assert produced.returncode == 0, produced.stderr
    report = json.loads(produced.stdout)
    assert (report["sent_records"], report["failed_records"]) == (4000, 0)
    query = job.start(
        spark,
        bootstrap=bed.bootstrap_servers,
        topics=[topic],
        checkpoint=str(tmp_path / "checkpoint"),
        trigger_s=0.5,
    )
    try:
        wait_until(
            lambda: sum(one["numInputRows"] for one in query.recentProgress) >= 4000,
            120.0,
            "the job did not read all events",
        )
        query.processAllAvailable()
        assert sum(one["numInputRows"] for one in query.recentProgress) == 4000
    finally:
        query.stop()


@pytest.mark.parametrize("place", [[], ["--on", "spark", "--master", "local[1]"]])
def test_a_topic_that_is_not_there_ends_the_producer_with_one_sentence(
    bed: Testbed, place: list[str]
) -> None:
    load = ["--workload", "constant", "--seconds", "1"]
    produced = produce(bed, "--topic", "gone", *load, *place)
    assert produced.returncode == 2
    assert produced.stderr.startswith("producer: there is no topic 'gone' at 127.0.0.1:")
    assert produced.stderr.count("\n") == 1
