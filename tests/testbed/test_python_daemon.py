"""Python workers of the testbed, started by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
# PySpark leaves the socket of a result to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_workers_read_no_archives_and_collect_no_modules(spark: SparkSession) -> None:
    def look(_: object) -> Iterator[tuple[list[str], int]]:
        import gc
        import os
        import sys

        home = os.environ["SPARK_HOME"]
        known = {*sys.path, *sys.path_importer_cache}
        archives = [each for each in known if each.startswith(home) and os.path.isfile(each)]
        yield archives, gc.get_freeze_count()

    [(archives, exempt)] = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert archives == []
    assert exempt > 10_000
