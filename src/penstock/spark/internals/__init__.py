"""Everything that Penstock uses of Spark beyond its public interface, in one place.

The calls run in the Java process of the driver, through py4j. One round trip costs about a
millisecond, so values are fetched as one JSON text rather than field by field. Spark 3.5 to 4.3
are known to work (`application.probe`). A call that fails raises one of `JVM_ERRORS`.
"""

from penstock.spark.internals.java_side import (
    JVM_ERRORS,
    JVM_GONE,
    Errors,
    Json,
    first_line,
    session_of_java,
)
from penstock.spark.internals.metrics import MetricsSystem
from penstock.spark.internals.queries import Queries, SourceFacts
from penstock.spark.internals.scheduler import Scheduler
from penstock.spark.internals.status_store import SqlMetrics, StatusStore

__all__ = [
    "JVM_ERRORS", "JVM_GONE", "Driver", "Errors", "Json", "SourceFacts", "SqlMetrics",
    "first_line", "session_of_java",
]  # fmt: skip


class Driver(Scheduler, StatusStore, Queries, MetricsSystem):
    """The Java side of the driver that runs a Spark application."""
