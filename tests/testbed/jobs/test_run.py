"""A job from the command line: refusals, and one run on a real broker and a real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigError
from penstock.testbed import Testbed, wait_until
from penstock.testbed.jobs.run import StreamingJob, main

WHERE: dict[str, Any] = {"bootstrap": "127.0.0.1:1", "topic": "events", "checkpoint": "unused"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"job": "q12"}, "unknown job 'q12'"),
        ({"job": "q1", "sink": "parquet"}, "the sink parquet needs an output: which directory?"),
        ({"job": "q1", "sink": "kafka"}, "the sink kafka needs an output: which topic?"),
        (
            {"job": "wordcount", "sink": "parquet", "output": "out"},
            "wordcount changes results that it gave before",
        ),
        ({"job": "q1", "trigger_s": -1.0}, "the trigger must be 0 s or more, not -1"),
    ],
)
def test_a_job_that_cannot_work_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        StreamingJob(**WHERE, **options)
    assert sentence in str(refusal.value)


def test_a_refusal_is_one_sentence_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--job", "q2", "--bootstrap", "x", "--topic", "t", "--checkpoint", "c"]
    assert main(options) == 2
    assert capsys.readouterr().err.startswith("job: unknown job 'q2': did you mean")


def test_a_setting_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--job", "q1", "--bootstrap", "x", "--topic", "t", "--checkpoint", "c"]
    with pytest.raises(SystemExit) as end:
        main([*options, "--conf", "spark.master"])
    assert end.value.code == 2
    assert "must be KEY=VALUE, not 'spark.master'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(slots=2) as running:
        yield running


def values(bed: Testbed, topic: str) -> list[bytes]:
    """All that is in a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**bed.broker.client_settings, "group.id": "test"})
    try:
        found: list[bytes] = []
        for partition in range(
            len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        ):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=10)
            consumer.assign([place])
            wanted = len(found) + end
            while len(found) < wanted:
                message = consumer.poll(10)
                assert message is not None
                value = message.value()
                assert value is not None
                found.append(value)
        return found
    finally:
        consumer.close()


def python(bed: Testbed, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, "--bootstrap", bed.bootstrap_servers, *arguments],
        env=bed.driver_environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
def test_every_bid_goes_from_the_producer_through_spark_into_a_topic_once(
    bed: Testbed, tmp_path: Path
) -> None:
    bed.create_topic("events", partitions=4)
    bed.create_topic("euros", partitions=2)
    produced = python(
        bed, "penstock.testbed.jobs.producer", "--topic", "events",
        "--workload", "constant:rate=1k for 1s then constant:rate=3k for 1s",
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    report = json.loads(produced.stdout)
    assert report["sent_records"] == 4000
    assert report["failed_records"] == 0

    settings = bed.spark_conf(initial_executors=1)
    conf = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    job = python(
        bed, "penstock.testbed.jobs.run", "--job", "q1", "--topic", "events", "--available-now",
        "--sink", "kafka", "--output", "euros", "--checkpoint", str(tmp_path / "checkpoint"),
        "--pace-s", "0.0001", "--kafka-option", "maxOffsetsPerTrigger=1500", *conf,
    )  # fmt: skip
    assert job.returncode == 0, job.stderr

    events = [json.loads(value) for value in values(bed, "events")]
    assert len(events) == 4000
    bids = [event["bid"] for event in events if "bid" in event]
    converted = [json.loads(value, parse_float=Decimal) for value in values(bed, "euros")]
    assert Counter(
        (row["auction"], row["bidder"], row["price"], row["extra"]) for row in converted
    ) == Counter(
        (bid["auction"], bid["bidder"], Decimal("0.908") * bid["price"], bid["extra"])
        for bid in bids
    )


@pytest.mark.slow
def test_a_running_job_ends_in_order_on_a_signal(bed: Testbed, tmp_path: Path) -> None:
    bed.create_topic("sessions", partitions=2)
    produced = python(
        bed, "penstock.testbed.jobs.producer", "--topic", "sessions",
        "--workload", "constant:rate=1k", "--seconds", "1",
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    settings = bed.spark_conf(initial_executors=1, **{"spark.sql.shuffle.partitions": "2"})
    arguments = [
        sys.executable, "-m", "penstock.testbed.jobs.run", "--job", "q11", "--topic", "sessions",
        "--bootstrap", bed.bootstrap_servers, "--checkpoint", str(tmp_path / "checkpoint"),
        *(text for key, value in settings.items() for text in ("--conf", f"{key}={value}")),
    ]  # fmt: skip
    log = tmp_path / "log"
    with log.open("w") as stderr:
        job = subprocess.Popen(arguments, env=bed.driver_environment, stderr=stderr)
    commits = tmp_path / "checkpoint" / "commits"
    try:
        wait_until(lambda: (commits / "0").exists(), 240.0, "the first batch was not committed")
        job.send_signal(signal.SIGINT)
        assert job.wait(timeout=60) == 0, log.read_text()
    finally:
        job.kill()
        job.wait()
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_a_topic_that_is_not_there_ends_both_with_one_sentence(bed: Testbed) -> None:
    produced = python(
        bed,
        "penstock.testbed.jobs.producer",
        "--topic",
        "gone",
        "--workload",
        "constant",
        "--seconds",
        "1",
    )
    assert produced.returncode == 2
    assert produced.stderr.startswith("producer: there is no topic 'gone' at 127.0.0.1:")
