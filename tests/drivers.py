"""The Java process behind PySpark, ended between two sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


def end_driver() -> None:
    """End the application and the Java process behind PySpark, which would serve the next too."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    with suppress(Exception):  # its Java may be gone already
        if (running := SparkSession._instantiatedSession) is not None:
            running.stop()
        elif SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkSession._instantiatedSession = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def java_gateway() -> Iterator[Any]:
    """The Java process behind PySpark without an application in it.

    It has to be PySpark's own: what sessions of the same tests installed to translate Java's errors
    asks the process that PySpark knows.
    """
    from pyspark import SparkContext

    end_driver()
    SparkContext._ensure_initialized()
    try:
        yield SparkContext._gateway
    finally:
        end_driver()
