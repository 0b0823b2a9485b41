"""The Java process of the driver: what calls into it raise and return, and what it calls back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

#: What a call into the Java process can raise: PySpark translates some of its exceptions.
JVM_ERRORS: tuple[type[Exception], ...] = (Py4JError, PySparkException)


def is_missing(error: Py4JJavaError) -> bool:
    """Whether the status store has no such entry."""
    return bool(error.java_exception.getClass().getName() == "java.util.NoSuchElementException")


def first_line(error: Exception) -> str:
    """What went wrong in the Java process, without its stack trace.

    >>> first_line(Py4JError("Method stage([]) does not exist\\nTrace: ..."))
    'Method stage([]) does not exist'
    """
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).partition("\n")[0]
    return str(error).strip().partition("\n")[0]


def names_in(collection: Any) -> list[str]:
    """The names in a Scala collection, in one round trip."""
    joined = str(collection.mkString("\n"))
    return joined.split("\n") if joined else []


def java_list(jvm: Any, items: Sequence[Any]) -> Any:
    """The items as a list of Java."""
    listed = jvm.java.util.ArrayList()
    for item in items:
        listed.add(item)
    return listed


class Listener:
    """A ``StreamingQueryListener`` that Java calls back. Its methods must return at once."""

    def __init__(self, hand_over: Callable[[str], None]) -> None:
        self._hand_over = hand_over

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._hand_over(str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
