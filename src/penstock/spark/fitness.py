"""Whether a running application can be scaled, and from which size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.model import Limits
from penstock.settings.toml import LiveSettings
from penstock.spark.doctor import UNSCALABLE, Application, Finding, examine, refuse_errors
from penstock.spark.internals import JVM_ERRORS, Driver, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


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


def probe(driver: Driver) -> Capabilities:
    """Look for each capability without changing anything."""
    scheduler, where = set(dir(driver.backend)), f"the scheduler of {driver.master()}"
    decommission = _has(scheduler, "decommissionExecutors", where)
    if decommission.available and driver.conf("spark.decommission.enabled", "false") != "true":
        decommission = Capability(False, "spark.decommission.enabled is not true")
    return Capabilities(
        request_executors=_has(scheduler, "requestTotalExecutors", where),
        decommission=decommission,
        stop_dynamic_allocation=_tried(driver.uses_dynamic_allocation),
        count_resource_profiles=_tried(driver.resource_profiles),
        admission_control=_has(driver.query_methods(), "uniqueSources_$eq", "a streaming query"),
    )


def _has(names: set[str], name: str, where: str) -> Capability:
    return Capability(True) if name in names else Capability(False, f"{where} has no {name}")


def _tried(call: Callable[[], object]) -> Capability:
    try:
        call()
    except JVM_ERRORS as error:
        return Capability(False, first_line(error))
    return Capability(True)


def check_application(
    spark: SparkSession, limits: Limits, live: LiveSettings | None = None
) -> Capabilities:
    """Refuse an application that cannot be scaled, in one sentence; returns what can be done."""
    driver = Driver(spark)
    refuse_errors(findings_of(driver, limits))
    capabilities = probe(driver)
    if not capabilities.request_executors.available:
        raise ConfigError(
            f"executors cannot be added: {capabilities.request_executors.reason}; "
            "run on a standalone cluster, YARN or Kubernetes"
        )
    acts = live is None or live.mode == "act"
    has_scaler = driver.conf("spark.dynamicAllocation.enabled", "false") == "true"
    if acts and has_scaler and not capabilities.stop_dynamic_allocation.available:
        raise ConfigError(
            "Spark's dynamic allocation cannot be stopped here: "
            "set spark.dynamicAllocation.enabled=false"
        )
    if capabilities.count_resource_profiles.available and driver.resource_profiles() > 1:
        raise ConfigError(
            f"the application uses {driver.resource_profiles()} resource profiles, and a fleet has "
            "one kind of executor: drop withResources, or run those stages as a job of their own"
        )
    for query in spark.streams.active:
        if (refusal := unscalable(driver, query)) is not None:
            raise ConfigError(refusal)
    return capabilities


def findings_of(driver: Driver, limits: Limits) -> list[Finding]:
    """What the doctor finds in the settings of the running application."""
    conf = driver.settings() | {"spark.master": driver.master()}
    return examine(Application(conf, limits.min_executors, limits.max_executors))


def unscalable(driver: Driver, query: StreamingQuery) -> str | None:
    """Why a query cannot be scaled, and what to do; ``None`` if it can."""
    found = UNSCALABLE.get(driver.trigger(query))
    return None if found is None else ": ".join(found)


def present_size(driver: Driver, limits: Limits) -> int:
    """The number of executors, those on their way included, within the bounds."""
    size = driver.requested_total_executors()
    if size is None:
        size = len(set(driver.executor_ids()) - driver.leaving())
        size = size or int(driver.conf("spark.executor.instances", "0"))
    return max(limits.min_executors, min(size, limits.max_executors))
