"""Which of the capabilities that Penstock needs this Spark has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from penstock.spark.internals.driver import Driver
from penstock.spark.internals.java import JVM_ERRORS, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Capability(Struct, frozen=True):
    """Whether something can be done here, and if not, why."""

    available: bool
    reason: str = ""


class Capabilities(Struct, frozen=True):
    """What this Spark lets Penstock do."""

    request_executors: Capability
    decommission: Capability
    stop_dynamic_allocation: Capability
    count_resource_profiles: Capability
    admission_control: Capability


def probe(spark: SparkSession) -> Capabilities:
    """Look for each capability without changing anything."""
    driver = Driver(spark)
    scheduler, where = set(dir(driver.backend)), f"the scheduler of {driver.context.master()}"
    decommission = _has(scheduler, "decommissionExecutors", where)
    if decommission.available and driver.conf("spark.decommission.enabled", "false") != "true":
        decommission = Capability(False, "spark.decommission.enabled is not true")
    query = _query_methods(driver)
    return Capabilities(
        request_executors=_has(scheduler, "requestTotalExecutors", where),
        decommission=decommission,
        stop_dynamic_allocation=_tried(driver.uses_dynamic_allocation),
        count_resource_profiles=_tried(driver.resource_profiles),
        admission_control=_has(query, "uniqueSources_$eq", "a streaming query"),
    )


def _has(names: set[str], name: str, where: str) -> Capability:
    return Capability(True) if name in names else Capability(False, f"{where} has no {name}")


def _query_methods(driver: Driver) -> set[str]:
    """Names of the methods of a micro-batch query; its class moved in Spark 4.1."""
    package = "org.apache.spark.sql.execution.streaming"
    for name in (f"{package}.MicroBatchExecution", f"{package}.runtime.MicroBatchExecution"):
        try:
            methods = driver.jvm.java.lang.Class.forName(name).getMethods()
        except Py4JJavaError:
            continue
        return {str(method.getName()) for method in methods}
    return set()


def _tried(call: Callable[[], object]) -> Capability:
    try:
        call()
    except JVM_ERRORS as error:
        return Capability(False, first_line(error))
    return Capability(True)
