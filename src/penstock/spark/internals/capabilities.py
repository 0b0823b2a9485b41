"""What this Spark has of the capabilities that Penstock uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

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
    """What this Spark lets us see and do."""

    request_executors: Capability
    read_target: Capability
    decommission: Capability
    kill_idle: Capability
    locality_wait: Capability
    stop_dynamic_allocation: Capability
    count_resource_profiles: Capability
    executor_list: Capability
    stages: Capability
    query_plan: Capability
    admission_control: Capability


def probe(spark: SparkSession) -> Capabilities:
    """Look for each capability without changing anything."""
    driver = Driver(spark)
    backend = _members(driver.backend, driver.context.master())
    execution = _execution_members(driver)
    return Capabilities(
        request_executors=backend("requestTotalExecutors"),
        read_target=backend("getRequestedTotalExecutors"),
        decommission=_decommission(driver, backend("decommissionExecutors")),
        kill_idle=backend("killExecutors"),
        locality_wait=_tried(driver.locality_wait),
        stop_dynamic_allocation=_tried(driver.uses_dynamic_allocation),
        count_resource_profiles=_tried(driver.resource_profiles),
        executor_list=_tried(driver.executors),
        stages=_tried(lambda: (driver.jobs_begun(), driver.stage(0))),
        query_plan=_has(execution, "analyzedPlan", "a streaming query"),
        admission_control=_has(execution, "uniqueSources_$eq", "a streaming query"),
    )


def _decommission(driver: Driver, member: Capability) -> Capability:
    if member.available and driver.conf("spark.decommission.enabled", "false") != "true":
        return Capability(False, "spark.decommission.enabled is not true")
    return member


def _members(backend: Any, master: Any) -> Callable[[str], Capability]:
    names = set(dir(backend))
    where = f"the scheduler of {master}"
    return lambda name: _has(names, name, where)


def _has(names: Iterable[str], name: str, where: str) -> Capability:
    return Capability(True) if name in names else Capability(False, f"{where} has no {name}")


def _execution_members(driver: Driver) -> set[str]:
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
