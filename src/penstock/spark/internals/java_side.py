"""What all parts share: the handles into the Java process, and what a call into it can raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json: TypeAlias = dict[str, Any]
Errors: TypeAlias = tuple[type[Exception], ...]

#: What a call into the Java process can raise: PySpark translates some of its exceptions.
JVM_ERRORS: Errors = (Py4JError, PySparkException)
JVM_GONE: Errors = (*JVM_ERRORS, OSError)  #: The same, or the Java process is gone.


class JavaSide:
    """The Java process of the driver that runs a Spark application."""

    def __init__(self, spark: SparkSession) -> None:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                "a Spark Connect client cannot see or change executors: "
                "attach Penstock inside the driver of the application"
            )
        python: Any = spark.sparkContext
        self.jvm, self.gateway, self.context = python._jvm, python._gateway, python._jsc.sc()
        self.backend: Any = self.context.schedulerBackend()
        # In ``local[*]`` the driver runs the tasks: there it counts as the only executor.
        self._is_local = "getExecutorIds" not in dir(self.backend)
        self._java_session: Any = spark._jsparkSession
        self._collections: Any = self.jvm.org.apache.spark.api.python.PythonUtils


def session_of_java(gateway: Any) -> SparkSession | None:
    """The session that Java code has made, for use from Python; ``None`` before that."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    found = gateway.jvm.org.apache.spark.sql.SparkSession.getDefaultSession()
    if not found.isDefined():
        return None
    python = SparkContext._active_spark_context
    if python is None:
        java = gateway.jvm.JavaSparkContext.fromSparkContext(found.get().sparkContext())
        conf = SparkConf(_jconf=java.getConf())
        python = SparkContext(gateway=gateway, jsc=java, conf=conf)
    return SparkSession(python, found.get())


def first_line(error: Exception) -> str:
    """What went wrong in the Java process, without its stack trace.

    >>> first_line(Py4JError("Method stage([]) does not exist\\nTrace: ..."))
    'Method stage([]) does not exist'
    """
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return str(text).strip().partition("\n")[0]


def names_in(collection: Any) -> list[str]:
    """The names in a Scala collection, in one round trip."""
    joined = str(collection.mkString("\n"))
    return joined.split("\n") if joined else []
