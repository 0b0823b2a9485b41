"""Starting a Spark session inside a program that people look at and interrupt."""

from __future__ import annotations

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
    """A session whose Java complains into `log`, and that leaves Ctrl-C as it was.

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
def _standard_error_in(log: Path) -> Iterator[None]:
    """Programs that are started meanwhile write their complaints into a file."""
    sys.stderr.flush()
    usual = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)
