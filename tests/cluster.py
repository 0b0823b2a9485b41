"""A cluster and a session for each module that needs the real thing; Kafka where it says so.

A conftest.py imports both fixtures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.testbed import Testbed
from tests.drivers import end_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """Four slots; a module with ``WITH_KAFKA = True`` has a broker too."""
    kafka: bool = getattr(request.module, "WITH_KAFKA", False)
    directory = tmp_path_factory.mktemp("testbed")
    with Testbed(slots=4, run_directory=directory, kafka=kafka) as running:
        yield running


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, bed: Testbed) -> Iterator[SparkSession]:
    """A session with two executors, or ``EXECUTORS`` of the module, and four shuffle partitions."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    executors: int = getattr(request.module, "EXECUTORS", 2)
    end_driver()  # another session's Java would not have this cluster's class path
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bed.driver_environment.items():
            patch.setenv(name, value)
        # Workers of this Python, which has pandas, whatever `python3` is.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        own = {
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.streaming.noDataProgressEventInterval": "500",
        }
        settings = SparkConf().setAll(
            list(bed.spark_conf(initial_executors=executors, **own).items())
        )
        session = SparkSession.builder.config(conf=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        end_driver()
