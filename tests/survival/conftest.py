"""A broker, a cluster of four slots and an application, for each module; nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.testbed import Testbed, wait_until
from tests.survival.scene import Feed, commit, counting, mentioning, new_topic, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    directory = tmp_path_factory.mktemp("testbed")
    with Testbed(slots=4, run_directory=directory) as running:
        yield running
    wait_until(lambda: not mentioning(str(directory)), 30.0, "some process stayed behind")


@pytest.fixture(scope="module")
def spark(bed: Testbed) -> Iterator[SparkSession]:
    """It starts with one executor, and may ask for more than the cluster has."""
    with session(bed, executors=1, **{"spark.cores.max": "16"}) as running:
        yield running


@pytest.fixture(scope="module")
def query(
    bed: Testbed, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamingQuery]:
    """A stateful job under a light load that has run two batches."""
    topic, output = new_topic(bed), new_topic(bed)
    checkpoint = tmp_path_factory.mktemp("state")
    with (
        Feed(bed, topic, rate_rps=100.0),
        counting(bed, spark, topic, output, checkpoint, cost_s=0.002) as running,
    ):
        commit(running, 2)
        yield running
