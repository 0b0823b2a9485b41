"""From the producer over a real broker through a job on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
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
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


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


def test_a_topic_that_is_not_there_ends_the_producer_with_one_sentence(bed: Testbed) -> None:
    produced = produce(bed, "--topic", "gone", "--workload", "constant", "--seconds", "1")
    assert produced.returncode == 2
    assert produced.stderr.startswith("producer: there is no topic 'gone' at 127.0.0.1:")
