"""Runs an unmodified PySpark script in this process, and attaches to its first query.

The script notices nothing: two methods of PySpark are wrapped while it runs. A session that
cannot be scaled is refused as soon as it exists; Penstock attaches when the first query has
started.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ConfigError
from penstock.spark.attach import Attachment
from penstock.spark.doctor import Application, connect, master, refuse_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Kafka's client says in the words of Java, and what it means to whoever reads it.
KAFKA_FAULTS = {
    "UnknownTopicOrPartitionException": (
        "a topic that the job reads does not exist: create it, or correct the option subscribe"
    ),
    "Timed out waiting for a node assignment": (
        "the broker does not answer: start it, or correct the option kafka.bootstrap.servers"
    ),
    "No resolvable bootstrap urls": (
        "the broker's name cannot be resolved: correct the option kafka.bootstrap.servers"
    ),
}


class Launch:
    """One run of a script.

    Parameters
    ----------
    check
        Called with the first session; a `ConfigError` ends the script.
    attach
        Called with the session of the first query once that has started.
    master
        The cluster to run on, in place of the one that the script names.
    """

    def __init__(
        self,
        check: Callable[[SparkSession], object],
        attach: Callable[[SparkSession], Attachment],
        master: str | None = None,
    ) -> None:
        self.handle: Attachment | None = None
        self._check = check
        self._attach = attach
        self._master = master
        self._checked = False

    def run(self, script: Path, arguments: Sequence[str]) -> None:
        """Run it to its end. What the script raises is raised; sessions of its own stay."""
        with self._wrapped(), _as_main(script, arguments):
            try:
                runpy.run_path(str(script), run_name="__main__")
            except Exception as error:
                if (sentence := kafka_fault(error)) is not None:
                    raise ConfigError(sentence) from error
                raise
            finally:
                if self.handle is not None:
                    self.handle.stop()
        if self.handle is None:
            raise ConfigError(
                f"{script} ended without starting a streaming query: Penstock scales what "
                "writeStream...start() begins"
            )

    @contextmanager
    def _wrapped(self) -> Iterator[None]:
        from pyspark.sql import SparkSession
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        builder: Any = SparkSession.Builder
        writer: Any = DataStreamWriter
        usual = {
            (builder, "getOrCreate"): builder.getOrCreate,
            (writer, "start"): writer.start,
            (writer, "toTable"): writer.toTable,
        }
        builder.getOrCreate = self._creating(builder.getOrCreate)
        writer.start = self._starting(writer.start)
        writer.toTable = self._starting(writer.toTable)
        try:
            yield
        finally:
            for (kind, name), method in usual.items():
                setattr(kind, name, method)

    def _creating(self, create: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(create)
        def checked(builder: Any) -> Any:
            if self._master is not None:
                builder.master(self._master)
            options = {key: str(value) for key, value in builder._options.items()}
            if "SPARK_REMOTE" in os.environ:
                options.setdefault("spark.remote", os.environ["SPARK_REMOTE"])
            application = Application(options)
            refuse_errors([*connect(application), *master(application)])
            session = create(builder)
            if not self._checked:
                self._checked = True
                try:
                    self._check(session)
                except ConfigError:
                    session.stop()
                    raise
            return session

        return checked

    def _starting(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def attached(writer: Any, *arguments: Any, **options: Any) -> Any:
            query = start(writer, *arguments, **options)
            if self.handle is None:
                try:
                    self.handle = self._attach(writer._df.sparkSession)
                except ConfigError:
                    query.stop()
                    raise
            return query

        return attached


@contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Arguments and import path as if Python had been called with the script."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def kafka_fault(error: BaseException) -> str | None:
    """What is wrong with the topic or its brokers; ``None`` if that is not what went wrong.

    >>> kafka_fault(RuntimeError("...UnknownTopicOrPartitionException: This server does not..."))
    'a topic that the job reads does not exist: create it, or correct the option subscribe'
    """
    text = str(error)
    return next((words for sign, words in KAFKA_FAULTS.items() if sign in text), None)
