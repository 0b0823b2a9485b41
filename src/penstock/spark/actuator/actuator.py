"""Changes the fleet of a running application, and keeps it at its target.

`SparkActuator.apply` sets a target and returns at once; `SparkActuator.reconcile`, called several
times a second, brings the fleet there. Both wait for answers from the scheduler: call them from one
thread, never from a listener of Spark.
"""

import logging
from collections.abc import Mapping, Set
from math import inf

from msgspec import Struct

from penstock.core.errors import ActuatorError
from penstock.core.guards import is_due
from penstock.core.model import Limits, Receipt, Snapshot
from penstock.core.phrases import executors
from penstock.spark.actuator.locality import Batches, LocalityGuard, StatePartitions
from penstock.spark.doctor import HOW_TO_GET_MORE, FailureLimit
from penstock.spark.internals import JVM_ERRORS, Driver, first_line
from penstock.spark.sensor.executors import SchedulerFleet

log = logging.getLogger(__name__)


class Patience(Struct, frozen=True):
    """How long the actuator waits."""

    look_every_s: float = 1.0  #: Between two checks of a fleet that does not change.
    #: For a moment without a running job, before executors are decommissioned during one; where
    #: executors can only be killed, there is no limit.
    quiet_s: float = 60.0
    leave_s: float = 90.0  #: For a decommissioned executor, before it is killed once it is idle.
    explain_s: float = 10.0  #: For executors, before Kubernetes is asked what keeps them.
    arrive_s: float = 120.0  #: For executors, before the cluster is taken to have no more.
    ask_again_s: float = 600.0  #: Until more executors are requested again after that.


#: By cluster manager, where it is not the usual one: a node may have to be added first.
PATIENCE_ON = {"kubernetes": Patience(arrive_s=300.0)}


class SparkActuator:
    """Keeps the fleet of one application at the last target.

    A target outside of `limits` is refused. `batches` gives the number of the last committed batch
    of each query. Without `can_decommission` idle executors are killed between batches. `advice`
    says how to get more executors; `failures`, how many may fail.
    """

    def __init__(
        self,
        driver: Driver,
        batches: Batches,
        *,
        can_decommission: bool,
        limits: Limits,
        patience: Patience | None = None,
        advice: str = HOW_TO_GET_MORE["standalone"],
        failures: FailureLimit | None = None,
    ) -> None:
        self.target: int | None = None
        self.limits = limits
        self.repairs = 0
        self.losses = 0
        self._driver = driver
        self._patience = patience or Patience()
        self._can_decommission = can_decommission
        self._advice, self._failure_limit = advice, failures
        self._failed_at_s: list[float] = []
        self._locality = LocalityGuard(driver, batches)
        self._state: StatePartitions = {}
        self._started_at_s: dict[str, float] = {}
        self._known: frozenset[str] | None = None
        self._leaving_since_s: dict[str, float] = {}
        self._overdue: set[str] = set()
        self._surplus_since_s: float | None = None
        self._short_since_s: float | None = None
        self._came, self._came_at_s = 0, 0.0
        self._why_short: str | None = None  # not asked yet
        self.ceiling: int | None = None  #: All that the cluster has, if that is no room for more.
        self._ceiling_at_s = self._next_look_at_s = 0.0
        self._has_failed = False

    def begin(self, target_executors: int, now_s: float) -> None:
        """Request the present size from Spark.

        Without a first request Spark counts down from nothing: the first executor that leaves sets
        its target to zero for good, and no lost executor is ever replaced.
        """
        self._refuse_outside(target_executors)
        self._request(target_executors)
        self.target = target_executors
        self._next_look_at_s = now_s

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Request a size and return at once; the same request again changes nothing."""
        before = self.target
        self._refuse_outside(target_executors)
        if before == target_executors:
            return Receipt(True, f"the target is {target_executors} already")
        if refusal := self._beyond_ceiling(target_executors, now_s):
            return Receipt(False, refusal)
        try:
            self._locality.open()
            self._request(target_executors)
        except JVM_ERRORS as error:
            raise ActuatorError(f"the fleet cannot be changed: {first_line(error)}") from error
        self.target = target_executors
        self._surplus_since_s = self._short_since_s = None
        self._next_look_at_s = now_s
        return Receipt(True, f"requested {executors(target_executors)} instead of {before}")

    def observe(self, snapshot: Snapshot) -> None:
        """Take over the age and the state of each executor; they decide which leave."""
        self._state = {each.id: each.state_partitions for each in snapshot.executors}
        if snapshot.executors:  # otherwise they were not measured
            self._started_at_s = {each.id: each.started_at_s for each in snapshot.executors}

    def reconcile(self, now_s: float) -> None:
        """Bring the fleet closer to its target, if a check is due."""
        if self.target is None or now_s < self._next_look_at_s:
            return
        self._next_look_at_s = now_s + self._patience.look_every_s
        try:
            self._check(self.target, now_s)
        except JVM_ERRORS as error:
            if not self._has_failed:
                log.warning("the fleet cannot be checked now: %s", first_line(error))
            self._has_failed = True
        else:
            self._has_failed = False

    def end(self) -> None:
        """Leave the fleet as it is, and restore the locality wait."""
        try:
            self._locality.close()
        except JVM_ERRORS as error:
            log.warning("spark.locality.wait could not be restored: %s", first_line(error))

    @property
    def is_settled(self) -> bool:
        """Whether the fleet was seen at its size and the locality wait is restored."""
        return (
            (self.target is None or self._known is not None)
            and not self._leaving_since_s
            and self._short_since_s is None
            and self._surplus_since_s is None
            and not self._locality.is_open
        )

    def _check(self, target: int, now_s: float) -> None:
        fleet = SchedulerFleet.of(self._driver)
        self._repair(target, fleet)
        self._notice_changes(fleet, now_s)
        self._remove_surplus(target, fleet, now_s)
        self._kill_overdue(fleet, now_s)
        self._learn_ceiling(target, fleet, now_s)
        self._locality.reconcile(
            is_settled=len(fleet.active) == target and not fleet.leaving, state=self._state
        )

    def _refuse_outside(self, target: int) -> None:
        """The guards keep to the bounds; if they err, nothing is asked for."""
        least, most = self.limits.min_executors, self.limits.max_executors
        if not least <= target <= most:
            raise ActuatorError(f"{target} is outside of {least} to {executors(most)}")

    def _request(self, size: int) -> None:
        if not self._driver.request_total_executors(size):
            raise ActuatorError(f"the cluster manager refused a fleet of {size}")

    def _repair(self, target: int, fleet: SchedulerFleet) -> None:
        """If the target was changed by somebody else or lost, log that and request it again."""
        if fleet.requested == target:
            return
        log.info("the target was changed to %s, back to %d", fleet.requested, target)
        self.repairs += 1
        if not self._driver.request_total_executors(target):
            log.warning("the cluster manager refused the target %d", target)

    def _notice_changes(self, fleet: SchedulerFleet, now_s: float) -> None:
        """New executors should take state; the state of a lost one may go to any executor."""
        since_s = self._leaving_since_s.items()
        self._leaving_since_s = {each: at_s for each, at_s in since_s if each in fleet.registered}
        if self._known is not None:
            if come := fleet.active - self._known:
                self._locality.open()
                self._locality.new_executors |= come
            if gone := self._known - fleet.active:
                self._locality.open()
                self._count_losses(gone, fleet, now_s)
        self._known = fleet.active

    def _count_losses(self, gone: Set[str], fleet: SchedulerFleet, now_s: float) -> None:
        """Executors that are gone or leaving, and that nobody here removed."""
        self.losses += len(gone)
        if drained := gone & fleet.leaving:
            log.warning("the cluster takes executor %s away", ", ".join(sorted(drained)))
        if not (lost := gone - drained):
            return
        log.warning("lost executor %s", ", ".join(sorted(lost)))
        self._failed_at_s += [now_s] * len(lost)
        limit = self._failure_limit
        if limit is None:
            return
        within_s = inf if limit.within_s is None else limit.within_s
        self._failed_at_s = [at_s for at_s in self._failed_at_s if now_s - at_s < within_s]
        if 2 * len(self._failed_at_s) >= limit.executors:
            log.warning(
                "%d executors were lost, and Spark ends the application after %d failures: raise "
                "spark.executor.maxNumFailures, or set spark.executor.failuresValidityInterval",
                *(len(self._failed_at_s), limit.executors),
            )

    def _remove_surplus(self, target: int, fleet: SchedulerFleet, now_s: float) -> None:
        """Remove executors beyond the target between two batches, the cheapest ones first."""
        surplus = len(fleet.active) - target
        if surplus <= 0:
            self._surplus_since_s = None
            return
        if self._surplus_since_s is None:
            self._surplus_since_s = now_s
            self._locality.open()
        # Check again at once: the moment between two batches is short.
        self._next_look_at_s = now_s
        waited_s = now_s - self._surplus_since_s
        may_interrupt = self._can_decommission and waited_s >= self._patience.quiet_s
        if self._driver.runs_a_job() and not may_interrupt:
            return
        # Of what was read last: the status store may hang, and who is not in there is new.
        started_at_s = {each: self._started_at_s.get(each, now_s) for each in fleet.active}
        billing_s = self.limits.billing_s
        due = {each for each, at_s in started_at_s.items() if is_due(at_s, now_s, billing_s)}
        victims = choose_leaving(started_at_s, self._state, surplus, due)
        # The target is lower already: adjusting it would remove other executors too.
        if self._can_decommission:
            gone = self._driver.decommission(victims)
        else:
            gone = self._driver.kill_idle(victims, adjust_target=False)
        if gone:
            log.info("removing executors %s, %d stay", ", ".join(gone), target)
        self._leaving_since_s |= dict.fromkeys(gone, now_s)
        self._known = fleet.active - set(gone)

    def _kill_overdue(self, fleet: SchedulerFleet, now_s: float) -> None:
        """Kill executors that do not leave in time, once they are idle."""
        for each in fleet.leaving:
            since_s = self._leaving_since_s.setdefault(each, now_s)
            if now_s - since_s < self._patience.leave_s or self._driver.runs_a_job():
                continue
            if each not in self._overdue:
                self._overdue.add(each)
                log.warning(
                    "executor %s has been leaving for %.0f s: it is killed as soon as it is idle",
                    *(each, now_s - since_s),
                )
            self._driver.kill_idle([each], adjust_target=False)
        self._overdue &= fleet.leaving

    def _learn_ceiling(self, target: int, fleet: SchedulerFleet, now_s: float) -> None:
        """If requested executors do not come for long, take the fleet for all there is."""
        active = len(fleet.active)
        if self.ceiling is not None and active > self.ceiling:
            self.ceiling = None
        if active >= target:
            self._short_since_s = None
            return
        if self._short_since_s is None:
            self._short_since_s = self._came_at_s = now_s
            self._why_short = None
        elif active > self._came:
            self._came_at_s = now_s
        self._came = active
        if self._why_short is None and now_s - self._came_at_s >= self._patience.explain_s:
            self._why_short = ""
            if why := self._driver.why_pending():
                self._why_short = f"{why}; "
                log.warning("%s did not come: %s", executors(target - active), why)
        if self.ceiling is None and now_s - self._came_at_s >= self._patience.arrive_s:
            self.ceiling, self._ceiling_at_s = active, now_s
            log.warning(
                "the fleet is %d of %d executors after %.0f s: %s%s",
                *(active, target, now_s - self._short_since_s, self._why_short, self._advice),
            )

    def _beyond_ceiling(self, target: int, now_s: float) -> str:
        """Why a larger target is refused; empty if it is not."""
        ceiling = self.ceiling
        if ceiling is None or target <= max(ceiling, self.target or 0):
            return ""
        if now_s - self._ceiling_at_s >= self._patience.ask_again_s:
            self.ceiling = self._short_since_s = None
            return ""
        return f"the cluster gave only {executors(ceiling)}: {self._why_short or ''}{self._advice}"


def choose_leaving(
    started_at_s: Mapping[str, float],
    state: StatePartitions,
    count: int,
    due: Set[str] = frozenset(),
) -> list[str]:
    """The executors whose leaving costs least: those with the least state, of these the newest.

    Where executors are paid for in spans, those whose span ends (`due`) leave first.

    Others have to load the state of an executor that leaves, and a new executor is still cold.
    Unless the state of all is known, the newest leave: they had the least time to take state.

    >>> started_at_s, state = {"1": 0.0, "2": 0.0, "3": 60.0}, {"1": 6, "2": 4, "3": 4}
    >>> choose_leaving(started_at_s, state, 2)
    ['3', '2']
    >>> choose_leaving(started_at_s | {"4": 90.0}, state, 2)
    ['4', '3']
    >>> choose_leaving(started_at_s, state, 2, due={"1"})
    ['1', '3']
    """
    counted = all(state.get(each) is not None for each in started_at_s)

    def cost(each: str) -> tuple[bool, int, float, int, str]:
        held = (state.get(each) or 0) if counted else 0
        number = int(each) if each.isdecimal() else 0  # Spark counts up
        return each not in due, held, -started_at_s[each], -number, each

    return sorted(started_at_s, key=cost)[: max(0, count)]
