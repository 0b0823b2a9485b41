"""Changes the fleet of a running application: up, down, and back to what was asked for.

`SparkActuator.apply` states a target and returns at once. What it takes to get there happens in
`SparkActuator.tend`, which the same thread calls every moment: the target is read back and
repaired, executors that are too many go at a quiet moment, those that do not go are helped, and
tasks may go anywhere while the fleet moves (`locality`). Both must be called from one thread of
ours and never from a listener of Spark: they wait for answers from the scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.core.errors import ActuatorError
from penstock.core.model import Receipt, Snapshot
from penstock.spark.actuator.locality import Batches, LocalityGuard, LocalitySetting
from penstock.spark.actuator.victims import RemovalCandidate, choose
from penstock.spark.internals import JVM_ERRORS, first_line
from penstock.spark.sensor.progress import parse_instant

log = logging.getLogger(__name__)

WAYS_TO_MORE = "add workers, raise spark.cores.max or the quota, or lower max"


class Patience(Struct, frozen=True):
    """How long to wait for what.

    Parameters
    ----------
    look_every_s
        Between two looks at a fleet that stands still.
    quiet_s
        For a moment without a running job before executors are decommissioned in the middle of
        one; those that can only be killed wait for as long as it takes.
    leave_s
        For a decommissioned executor to go before it is killed as soon as it is idle.
    arrive_s
        For executors that were asked for before the cluster is held to have no more.
    ask_again_s
        Before the cluster is asked for more again after that.
    """

    look_every_s: float = 1.0
    quiet_s: float = 60.0
    leave_s: float = 90.0
    arrive_s: float = 120.0
    ask_again_s: float = 600.0


class FleetDriver(LocalitySetting, Protocol):
    """What the actuator needs of `internals.Driver`."""

    def request_total_executors(self, executors: int) -> bool: ...

    def requested_total_executors(self) -> int | None: ...

    def executor_ids(self) -> list[str]: ...

    def leaving(self) -> set[str]: ...

    def executors(self) -> list[dict[str, Any]]: ...

    def decommission(
        self, executor_ids: Iterable[str], *, adjust_target: bool = ..., why: str = ...
    ) -> list[str]: ...

    def kill_idle(self, executor_ids: Iterable[str], *, adjust_target: bool = ...) -> list[str]: ...

    def runs_a_job(self) -> bool: ...


class FleetView(Struct, frozen=True):
    """The fleet at one instant: what Spark is asked for, who takes work, who is told to go."""

    requested: int | None
    active: frozenset[str]
    leaving: frozenset[str]


class SparkActuator:
    """Keeps the fleet of one application at the size last asked for.

    Parameters
    ----------
    driver
        The Java side of the driver.
    batches
        The number of the last batch that each query has committed.
    can_decommission
        Whether executors were started with ``spark.decommission.enabled``; otherwise they are
        killed, idle and between two batches.
    patience
        How long to wait for what.
    """

    def __init__(
        self,
        driver: FleetDriver,
        batches: Batches,
        *,
        can_decommission: bool,
        patience: Patience | None = None,
    ) -> None:
        self.target: int | None = None
        self.repairs = 0
        self.losses = 0
        self._driver = driver
        self._patience = patience or Patience()
        self._can_decommission = can_decommission
        self._locality = LocalityGuard(driver, batches)
        self._state: Mapping[str, int | None] = {}
        self._known: frozenset[str] | None = None
        self._told_at_s: dict[str, float] = {}
        self._helped: set[str] = set()
        self._surplus_since_s: float | None = None
        self._short_since_s: float | None = None
        self._came = 0
        self._came_at_s = 0.0
        self._ceiling: int | None = None
        self._ceiling_at_s = 0.0
        self._next_look_at_s = 0.0
        self._is_deaf = False

    # -- What the controller calls --------------------------------------------------------------

    def begin(self, target_executors: int, now_s: float) -> None:
        """Tell Spark the size that the fleet has now.

        Before anybody asked for a number, Spark counts down from nothing: the first executor that
        goes sets its target to zero for good, and none that is lost later is ever replaced.
        """
        self._ask(target_executors)
        self.target = target_executors
        self._next_look_at_s = now_s

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Ask for that many executors and return at once; asking twice changes nothing."""
        before = self.target
        if before == target_executors:
            return Receipt(True, f"{target_executors} executors are asked for already")
        if refusal := self._beyond_ceiling(target_executors, now_s):
            return Receipt(False, refusal)
        try:
            self._locality.open()
            self._ask(target_executors)
        except JVM_ERRORS as error:
            raise ActuatorError(f"the fleet cannot be changed: {first_line(error)}") from error
        self.target = target_executors
        self._surplus_since_s = self._short_since_s = None
        self._next_look_at_s = now_s
        return Receipt(True, f"asked for {target_executors} executors instead of {before}")

    def observe(self, snapshot: Snapshot) -> None:
        """Take over how much state each executor keeps; that decides who goes."""
        self._state = {each.id: each.state_partitions for each in snapshot.executors}

    # -- What the thread calls every moment -----------------------------------------------------

    def reconcile(self, now_s: float) -> None:
        """Move the fleet on towards its target, if it is time to look."""
        if self.target is None or now_s < self._next_look_at_s:
            return
        self._next_look_at_s = now_s + self._patience.look_every_s
        try:
            self._tend(self.target, now_s)
        except JVM_ERRORS as error:
            if not self._is_deaf:
                log.warning("the fleet cannot be tended now: %s", first_line(error))
            self._is_deaf = True
        else:
            self._is_deaf = False

    def end(self) -> None:
        """Leave the fleet as it is, and give the locality wait back."""
        try:
            self._locality.close()
        except JVM_ERRORS as error:
            log.warning("spark.locality.wait could not be restored: %s", first_line(error))

    @property
    def is_settled(self) -> bool:
        """Whether the fleet has its size and tasks wait for their data as usual."""
        return not self._told_at_s and self._surplus_since_s is None and not self._locality.is_open

    def _tend(self, target: int, now_s: float) -> None:
        sight = self._look()
        self._repair(target, sight)
        self._notice_changes(sight)
        self._remove_surplus(target, sight, now_s)
        self._help_leaving(sight, now_s)
        self._learn_ceiling(target, sight, now_s)
        self._locality.reconcile(
            is_settled=len(sight.active) == target and not sight.leaving, state=self._state
        )

    def _look(self) -> FleetView:
        leaving = frozenset(self._driver.leaving())
        ids = frozenset(self._driver.executor_ids())
        return FleetView(self._driver.requested_total_executors(), ids - leaving, leaving & ids)

    def _ask(self, executors: int) -> None:
        if not self._driver.request_total_executors(executors):
            raise ActuatorError(f"the cluster manager refused to go to {executors} executors")

    def _repair(self, target: int, sight: FleetView) -> None:
        """Somebody else changed the target, or Spark lost it: say so, and ask again."""
        if sight.requested == target:
            return
        log.info("the target was %s executors, back to %d", sight.requested, target)
        self.repairs += 1
        if not self._driver.request_total_executors(target):
            log.warning("the cluster manager refused to go back to %d executors", target)

    def _notice_changes(self, sight: FleetView) -> None:
        """Newcomers should take state; a loss leaves state that any executor may load."""
        alive = sight.active | sight.leaving
        self._told_at_s = {each: told for each, told in self._told_at_s.items() if each in alive}
        if self._known is not None:
            if come := sight.active - self._known:
                self._locality.open()
                self._locality.welcome(set(come))
            if lost := self._known - alive:
                self.losses += len(lost)
                log.warning("lost executor %s", ", ".join(sorted(lost)))
                self._locality.open()
        self._known = sight.active

    def _remove_surplus(self, target: int, sight: FleetView, now_s: float) -> None:
        """Executors beyond the target go between two batches, the cheapest ones first."""
        surplus = len(sight.active) - target
        if surplus <= 0:
            self._surplus_since_s = None
            return
        if self._surplus_since_s is None:
            self._surplus_since_s = now_s
            self._locality.open()
        # Look again at once: the moment between two batches is short.
        self._next_look_at_s = now_s
        waited_s = now_s - self._surplus_since_s
        may_interrupt = self._can_decommission and waited_s >= self._patience.quiet_s
        if self._driver.runs_a_job() and not may_interrupt:
            return
        victims = choose(self._candidates(sight.active), surplus)
        # The target is lower already: adjusting it once more would take others with them.
        if self._can_decommission:
            gone = self._driver.decommission(victims, adjust_target=False)
        else:
            gone = self._driver.kill_idle(victims, adjust_target=False)
        if gone:
            log.info("executors %s go, %d stay", ", ".join(gone), target)
        self._told_at_s |= dict.fromkeys(gone, now_s)
        self._known = sight.active - set(gone)

    def _candidates(self, active: frozenset[str]) -> Sequence[RemovalCandidate]:
        started = {each["id"]: parse_instant(each["addTime"]) for each in self._driver.executors()}
        return [
            RemovalCandidate(each, started.get(each, 0.0), self._state.get(each)) for each in active
        ]

    def _help_leaving(self, sight: FleetView, now_s: float) -> None:
        """One that was told to go and is still here is killed once it is idle."""
        for each in sight.leaving:
            told_at_s = self._told_at_s.setdefault(each, now_s)
            if now_s - told_at_s < self._patience.leave_s or self._driver.runs_a_job():
                continue
            if each not in self._helped:
                self._helped.add(each)
                log.warning(
                    "executor %s was told to go %.0f s ago and is still here: it is killed as "
                    "soon as it is idle",
                    each,
                    now_s - told_at_s,
                )
            self._driver.kill_idle([each], adjust_target=False)
        self._helped &= sight.leaving

    def _learn_ceiling(self, target: int, sight: FleetView, now_s: float) -> None:
        """What was asked for long ago and has not come will not come soon; stragglers may."""
        active = len(sight.active)
        if self._ceiling is not None and active > self._ceiling:
            self._ceiling = None
        if active >= target:
            self._short_since_s = None
            return
        if self._short_since_s is None:
            self._short_since_s = self._came_at_s = now_s
        elif active > self._came:
            self._came_at_s = now_s
        self._came = active
        waited_s = now_s - self._short_since_s
        if self._ceiling is None and now_s - self._came_at_s >= self._patience.arrive_s:
            self._ceiling, self._ceiling_at_s = active, now_s
            log.warning(
                "%d executors were asked for %.0f s ago and %d are there: %s",
                target, waited_s, active, WAYS_TO_MORE,
            )  # fmt: skip

    def _beyond_ceiling(self, target: int, now_s: float) -> str:
        """Why a bigger target is not asked for; empty if it is."""
        ceiling = self._ceiling
        if ceiling is None or target <= max(ceiling, self.target or 0):
            return ""
        if now_s - self._ceiling_at_s >= self._patience.ask_again_s:
            self._ceiling = self._short_since_s = None
            return ""
        return f"the cluster has given no more than {ceiling} executors: {WAYS_TO_MORE}"
