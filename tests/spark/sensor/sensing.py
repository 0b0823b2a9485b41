"""A sensor for as long as a block lasts, and its readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.core.clock import WallClock
from penstock.core.model import Snapshot
from penstock.spark.internals import Driver
from penstock.spark.sensor.sensor import SparkSensor
from penstock.testbed import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

now_s = WallClock().now


@contextmanager
def sensing(spark: SparkSession, **options: Any) -> Iterator[SparkSensor]:
    # A busy machine may answer later than the second that a turn usually waits.
    sensor = SparkSensor(spark, **{"store_timeout_s": 20.0, **options})
    try:
        yield sensor
    finally:
        sensor.close()


def readings(sensor: SparkSensor, until: Callable[[Snapshot], object]) -> list[Snapshot]:
    """One reading a second until one shows what is waited for."""
    taken: list[Snapshot] = []

    def shows() -> object:
        taken.append(sensor.read(now_s()))
        return until(taken[-1])

    wait_until(shows, 90.0, "no reading shows it", every_s=1.0)
    return taken


def row_limits(driver: Driver, query: StreamingQuery) -> str:
    """The sources of a query and their limits, as Spark writes them."""
    return str(driver.execution(query).uniqueSources().toString())
