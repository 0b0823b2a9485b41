"""Runs an unmodified PySpark script in this process, and attaches to its first query.

The script notices nothing: three methods of PySpark are wrapped while it runs. An application that
cannot be scaled is a warning with the reason, and the script runs on at the size that it has.
"""

from __future__ import annotations

import functools
import logging
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ConfigError
from penstock.observe.notices import show_log
from penstock.settings.spark_conf import file_of, layers
from penstock.settings.toml import Settings, settle
from penstock.spark.application import check_application
from penstock.spark.attach import CONFIGURED, Attachment
from penstock.spark.changes import SettingsSource
from penstock.spark.internals import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: From the Spark configuration of a session to all settings.
Load = Callable[[Mapping[str, str]], Settings]
#: What the messages of Kafka's client mean, and what to do.
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
    """One run of a script, on `master` in place of the one that the script names.

    `load` makes the settings; `config` is the settings file that the command line names, if any.
    """

    def __init__(self, load: Load, config: Path | None = None, master: str | None = None) -> None:
        self.handle: Attachment | None = None
        self._load, self._config, self._master = load, config, master
        self._checked = False
        self._warnings: set[str] = set()

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
        if self.handle is None and not self._warnings:
            raise ConfigError(
                f"{script} ended without starting a streaming query: Penstock scales what "
                "writeStream...start() begins"
            )

    def attach(self, spark: SparkSession) -> None:
        """Attach with the settings of the session, unless this was done before."""
        if self.handle is not None:
            return
        with self._as_warning():
            conf = Driver(spark).session_settings()
            settings = self._load(conf)
            source = SettingsSource(file_of(conf, self._config), lambda: self._load(conf))
            self.handle = Attachment(spark, settings, source=source)

    @contextmanager
    def _wrapped(self) -> Iterator[None]:
        from pyspark.sql import SparkSession
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        os.environ["PENSTOCK_HOOK"] = "off"  # or a script that enables it is attached to twice
        with ExitStack() as stack:
            for kind, name, wrap in (
                (SparkSession.Builder, "getOrCreate", self._creating),
                (DataStreamWriter, "start", self._starting),
                (DataStreamWriter, "toTable", self._starting),
            ):
                usual = getattr(kind, name)
                stack.callback(setattr, kind, name, usual)
                setattr(kind, name, wrap(usual))
            yield

    def _creating(self, create: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(create)
        def checked(builder: Any) -> Any:
            if self._master is not None:
                builder.master(self._master)
            session = create(builder)
            if not self._checked:
                self._checked = True
                with self._as_warning():
                    settings = self._load(Driver(session).session_settings())
                    check_application(session, settings.spec.limits, settings.live)
            return session

        return checked

    def _starting(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def attached(writer: Any, *arguments: Any, **options: Any) -> Any:
            query = start(writer, *arguments, **options)
            self.attach(writer._df.sparkSession)
            return query

        return attached

    @contextmanager
    def _as_warning(self) -> Iterator[None]:
        """Log why the application cannot be scaled, each reason once."""
        try:
            yield
        except ConfigError as error:
            if str(error) not in self._warnings:
                self._warnings.add(str(error))
                log.warning("not scaled: %s; the script runs on at its own size", error)


_configured: dict[str, Launch] = {}


def attach_configured(spark: SparkSession) -> None:
    """Attach as the Spark configuration says, once to an application; a refusal is a warning.

    Called when a query of a script that does not know Penstock has started (`penstock_hook`).
    """
    application = str(Driver(spark).context.applicationId())
    launch = _configured.setdefault(application, Launch(lambda conf: settle(layers(conf))))
    if not logging.getLogger("penstock").hasHandlers():
        show_log()
    launch.attach(spark)
    if launch.handle is not None:
        CONFIGURED[application] = launch.handle


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
