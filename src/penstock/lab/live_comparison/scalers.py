"""Who sizes the fleet of a live run: a policy of Penstock, Spark itself, or nobody."""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Snapshot
from penstock.core.protocols import Policy
from penstock.lab.live_comparison.plan import LivePlan
from penstock.settings.policy_spec import PolicySpec, read_policy_spec
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.plan import with_scaled_time

SPARK = "spark"
#: The waits are Spark's own defaults, not those of the testbed, which keep its fleet.
DYNAMIC_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": str(sizes.MAX_EXECUTORS),
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "60s",
}
#: Those that are compared unless others are named.
DEFAULT_SCALERS = ("static", SPARK, "hpa", "ds2", "penstock")


class LiveScaler(Struct, frozen=True):
    """What sizes the fleet: a policy of Penstock, Spark by its settings, or nothing."""

    name: str
    executors: int  #: At the start.
    policy: str | None = None
    settings: dict[str, str] = {}


def scaler_of(text: str, plan: LivePlan) -> LiveScaler:
    """A scaler from its text: `spark`, `static`, `static:N`, or a policy of Penstock.

    >>> plan = LivePlan("q11", load_s=180)
    >>> scaler_of("static", plan).name, scaler_of("ds2", plan).executors
    ('static:5', 1)
    """
    if text == SPARK:
        return LiveScaler(SPARK, 1, settings=DYNAMIC_ALLOCATION)
    if text == "static":
        text = f"static:{plan.fleet_for(plan.peak_rps)}"
    policy: Any = with_scaled_time(text, plan).policy
    if text.startswith("static:"):
        executors = int(policy.executors)
        if not 1 <= executors <= sizes.MAX_EXECUTORS:
            raise ConfigError(
                f"{text}: a live fleet has 1 to {sizes.MAX_EXECUTORS} executors, not {executors}"
            )
        return LiveScaler(text, executors)
    return LiveScaler(text, plan.fleet_for(plan.low_rps), policy=text)


@dataclass(frozen=True, slots=True)
class WaitingIsWork:
    """Takes busy time for cpu, since in a paced job records wait where they would compute."""

    policy: Policy
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    @property
    def period_s(self) -> float:
        return self.policy.period_s

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        replace = msgspec.structs.replace
        busy = [replace(one, cpu_fraction=one.busy_fraction) for one in snapshot.executors]
        seen = replace(snapshot, executors=tuple(busy))
        if knowledge.history:
            # A policy that looks back must find the same there: the last one is the present one.
            knowledge.history[-1] = seen
        return self.policy.decide(seen, knowledge)


def entry_of(text: str, plan: LivePlan) -> PolicySpec:
    """A policy in the time of the plan; one that wakes on surges never decides by cpu."""
    entry = with_scaled_time(text, plan)
    if plan.cpu_share is not None or entry.policy.wakes_on_surge:
        return entry
    return PolicySpec(entry.label, WaitingIsWork(entry.policy), entry.limits)


def simulated_spec(one: LiveScaler, plan: LivePlan) -> PolicySpec:
    """What stands for a scaler in the simulation."""
    if one.policy is not None:
        return entry_of(one.policy, plan)
    bounds = {"min_executors": 1, "max_executors": sizes.MAX_EXECUTORS}
    if not one.settings:
        return read_policy_spec(f"static:{one.executors}", bounds)
    idle = one.settings["spark.dynamicAllocation.executorIdleTimeout"]
    return read_policy_spec(f"spark_dra:idle_timeout={idle}", bounds)
