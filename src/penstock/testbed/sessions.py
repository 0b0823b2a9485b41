"""A Spark session inside a program that people watch and interrupt."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError
from penstock.testbed.java import find_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


def start_session(conf: SparkConf, log: Path = Path(os.devnull)) -> SparkSession:
    """A session whose Java logs errors to `log`, and that leaves our Ctrl-C handler in place."""
    from pyspark.sql import SparkSession

    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with _standard_error_in(log):
            return SparkSession.builder.config(conf=conf).getOrCreate()
    finally:
        signal.signal(signal.SIGINT, interrupt)


@contextmanager
def open_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for the block; without `master`, that of spark-defaults.conf or this machine."""
    java = find_java()
    os.environ.setdefault("JAVA_HOME", str(java.home))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf

    conf = SparkConf().setAppName(name).set("spark.log.level", "ERROR")
    conf.set("spark.ui.showConsoleProgress", "false")
    if master is not None:
        conf.setMaster(master)
    conf.setAll(list((settings or {}).items()))
    try:
        spark = start_session(conf)
    except Exception as error:
        where = master or "the master of spark-defaults.conf"
        raise ConfigError(f"cannot start on Spark at {where}: {spark_cause(error)}") from error
    try:
        yield spark
    finally:
        spark.stop()


def spark_cause(error: Exception) -> str:
    """The line that matters of Spark's long message.

    >>> spark_cause(Exception("An error occurred while calling o1.run." + chr(10) +
    ... ": org.apache.spark.SparkException: Could not parse Master URL: 'moon'"))
    "org.apache.spark.SparkException: Could not parse Master URL: 'moon'"
    """
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    lacking = [line for line in lines if line.startswith("ModuleNotFoundError")]
    if lacking:
        return f"an executor's Python lacks a module ({lacking[0].partition(': ')[2]})"
    causes = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (causes or lines or [type(error).__name__])[0]


@contextmanager
def interrupt_once() -> Iterator[None]:
    """Keep Py4J from logging an interrupt in the middle of a call to Java as its own error.

    >>> with interrupt_once():
    ...     try:
    ...         raise KeyboardInterrupt
    ...     except KeyboardInterrupt:
    ...         logging.exception("KeyboardInterrupt while sending command.")
    """
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    level = py4j.level
    root.addFilter(_is_no_interrupt)
    py4j.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        py4j.setLevel(level)
        root.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, KeyboardInterrupt)


@contextmanager
def _standard_error_in(log: Path) -> Iterator[None]:
    """Programs that are started meanwhile write their errors into a file."""
    sys.stderr.flush()
    usual = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)
