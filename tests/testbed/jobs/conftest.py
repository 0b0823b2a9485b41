"""One Spark for a file of tests; its JVM ends with them, so that the next starts afresh."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drivers import end_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    end_driver()  # the session of other tests runs on another cluster
    home: Path = tmp_path_factory.mktemp("spark")
    # Workers of this Python, which has what the jobs compute with, whatever `python3` is.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = _start(SparkSession.builder, home)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    end_driver()


def _start(builder: SparkSession.Builder, home: Path) -> SparkSession:
    return (
        builder.master("local[2]")
        .appName("penstock-jobs-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
