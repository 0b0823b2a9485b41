"""A Spark session inside a program that people watch and interrupt."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


def start_session(conf: SparkConf, log: Path = Path(os.devnull)) -> SparkSession:
    """A session whose Java writes its errors into `log`, and that leaves Ctrl-C as it was.

    A new session would put a handler of its own in the place of ours.
    """
    from pyspark.sql import SparkSession

    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with _standard_error_in(log):
            return SparkSession.builder.config(conf=conf).getOrCreate()
    finally:
        signal.signal(signal.SIGINT, interrupt)


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
