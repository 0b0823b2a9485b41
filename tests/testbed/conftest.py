"""One testbed for all tests that need the real thing, and a Spark session for each file of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.testbed import Testbed
from tests.drivers import end_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """In a directory with spaces in its name, since users have such."""
    with Testbed(slots=4, run_directory=tmp_path_factory.mktemp("a test bed")) as running:
        yield running


@pytest.fixture(scope="module")
def spark(bed: Testbed) -> Iterator[SparkSession]:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    end_driver()  # another session's Java would not have the connector on its class path
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bed.driver_environment.items():
            patch.setenv(name, value)
        settings = SparkConf().setAll(list(bed.spark_conf(initial_executors=2).items()))
        session = SparkSession.builder.config(conf=settings).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
        end_driver()
