"""The Java process of the driver as seen from Python: what calls into it raise and return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

#: What a call into the Java process can raise: PySpark words some of its exceptions anew.
JVM_ERRORS: tuple[type[Exception], ...] = (Py4JError, PySparkException)


def is_missing(error: Py4JJavaError) -> bool:
    """Whether the store says that it does not have what it was asked for."""
    return bool(error.java_exception.getClass().getName() == "java.util.NoSuchElementException")


def first_line(error: Exception) -> str:
    """What went wrong in the Java process, without its stack.

    >>> first_line(Py4JError("Method stage([]) does not exist\\nTrace: ..."))
    'Method stage([]) does not exist'
    """
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).partition("\n")[0]
    return str(error).strip().partition("\n")[0]


def words(names: Any) -> list[str]:
    """The names in a collection of Scala, in one round trip."""
    joined = str(names.mkString("\n"))
    return joined.split("\n") if joined else []


def java_list(jvm: Any, items: Sequence[Any]) -> Any:
    """The items as a list of Java."""
    listed = jvm.java.util.ArrayList()
    for item in items:
        listed.add(item)
    return listed
