"""Whether a running application can be scaled, and what it has now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.model import Limits, Step
from penstock.settings.toml import LiveSettings
from penstock.spark.doctor import UNSCALABLE, Application, Finding, examine, refuse_errors
from penstock.spark.internals import JVM_ERRORS, Driver, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Missing(Struct, frozen=True):
    """What this Spark does not let Penstock do: why not, empty if it does."""

    request_executors: str
    decommission: str
    stop_dynamic_allocation: str
    count_resource_profiles: str
    admission_control: str


def probe(driver: Driver) -> Missing:
    """Look for what Penstock needs without changing anything."""
    scheduler, where = set(dir(driver.backend)), f"the scheduler of {driver.master()}"
    decommission = _absent(scheduler, "decommissionExecutors", where)
    if driver.conf("spark.decommission.enabled", "false") != "true":
        decommission = decommission or "spark.decommission.enabled is not true"
    return Missing(
        request_executors=_absent(scheduler, "requestTotalExecutors", where),
        decommission=decommission,
        stop_dynamic_allocation=_failure(driver.uses_dynamic_allocation),
        count_resource_profiles=_failure(driver.resource_profiles),
        admission_control=_absent(driver.query_methods(), "uniqueSources_$eq", "a streaming query"),
    )


def _absent(names: set[str], name: str, where: str) -> str:
    return "" if name in names else f"{where} has no {name}"


def _failure(call: Callable[[], object]) -> str:
    try:
        call()
    except JVM_ERRORS as error:
        return first_line(error)
    return ""


def check_application(
    spark: SparkSession, limits: Limits, live: LiveSettings | None = None
) -> Missing:
    """Refuse an application that cannot be scaled, in one sentence; returns what is missing.

    Mode recommend works on all that can be seen.
    """
    driver = Driver(spark)
    missing = probe(driver)
    if live is not None and live.mode == "recommend":
        return missing
    refuse_errors(findings_of(driver, limits))
    if missing.request_executors:
        raise ConfigError(
            f"executors cannot be added: {missing.request_executors}; "
            "run on a standalone cluster, YARN or Kubernetes"
        )
    has_scaler = driver.conf("spark.dynamicAllocation.enabled", "false") == "true"
    if has_scaler and missing.stop_dynamic_allocation:
        raise ConfigError(
            "Spark's dynamic allocation cannot be stopped here: "
            "set spark.dynamicAllocation.enabled=false"
        )
    if not missing.count_resource_profiles and driver.resource_profiles() > 1:
        raise ConfigError(
            f"the application uses {driver.resource_profiles()} resource profiles, and a fleet has "
            "one kind of executor: drop withResources, or run those stages as a job of their own"
        )
    for query in spark.streams.active:
        if (refusal := unscalable(driver, query)) is not None:
            raise ConfigError(refusal)
    return missing


def findings_of(driver: Driver, limits: Limits) -> list[Finding]:
    """What the doctor finds in the settings of the running application."""
    return examine(application_of(driver, limits))


def application_of(driver: Driver, limits: Limits) -> Application:
    conf = driver.settings() | {"spark.master": driver.master()}
    return Application(conf, limits.min_executors, limits.max_executors)


def unscalable(driver: Driver, query: StreamingQuery) -> str | None:
    """Why a query cannot be scaled, and what to do; ``None`` if it can."""
    found = UNSCALABLE.get(driver.trigger(query))
    return None if found is None else ": ".join(found)


def last_target(steps: list[Step]) -> int | None:
    """The size that the fleet of a recorded run had, or was to have, at its end."""
    for step in reversed(steps):
        if step.snapshot is not None:
            refused = step.receipt is not None and not step.receipt.accepted
            return step.snapshot.fleet.target if refused else step.decision.target_executors
    return None


def present_size(driver: Driver, limits: Limits, recorded: int | None = None) -> int:
    """The recorded size, or the executors with those on their way; within the bounds."""
    size = driver.requested_total_executors() if recorded is None else recorded
    if size is None:
        size = len(set(driver.executor_ids()) - driver.leaving())
        size = size or int(driver.conf("spark.executor.instances", "0"))
    return max(limits.min_executors, min(size, limits.max_executors))
