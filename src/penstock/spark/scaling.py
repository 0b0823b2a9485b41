"""The loop of a live job: `Controller.run` over Spark's sensor and actuator, in a thread.

An application that cannot be scaled is refused before it begins (`check_application`). Whatever
goes wrong in it, the job continues at the size that it has.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.clock import LiveClock, LoopTime, WallClock
from penstock.core.errors import ConfigError
from penstock.core.journal import FileJournal, JournalHeader, LiveJournal, read_tail
from penstock.core.model import Receipt, Step
from penstock.core.phrases import executors
from penstock.core.protocols import InstantActuator
from penstock.observe.metrics import RECOMMENDED, Values, recommended_account
from penstock.observe.notices import JsonLines, Notice, notices, show_log
from penstock.settings.header import journal_header
from penstock.settings.policy_spec import rewire, wire
from penstock.settings.toml import JournalSettings, Mode, Settings
from penstock.spark.actuator.actuator import PATIENCE_ON, Patience, SparkActuator
from penstock.spark.actuator.admission import Admission
from penstock.spark.application import (
    Missing,
    application_of,
    check_application,
    findings_of,
    last_target,
    present_size,
    unscalable,
)
from penstock.spark.changes import Change, SettingsSource, SwitchFile, WatchedFile
from penstock.spark.claim import FleetClaim
from penstock.spark.doctor import HOW_TO_GET_MORE
from penstock.spark.internals import JVM_ERRORS, Driver, Errors, first_line
from penstock.spark.outlets import Outlets
from penstock.spark.sensor.query import query_name
from penstock.spark.sensor.sensor import SparkSensor
from penstock.spark.store_journal import StoreFolder, StoreJournal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

EXPLAINED_STEPS = 100  #: Steps that `Attachment.explain` can show.
#: Whether the application still runs is asked once in this number of wake-ups of the clock.
POLLS_PER_CHECK = 10
TAKE_OVER_FAILS: Errors = (ConfigError, *JVM_ERRORS)  #: What taking over a fleet may raise.


class RecommendOnly(InstantActuator):
    """An actuator that moves nothing."""

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        return Receipt(False, RECOMMENDED)


class ScalingLoop:
    """Scales one application until it is stopped; others may read its public fields meanwhile."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        claim: FleetClaim,
        journal: str | Path | FileJournal | None = None,
        patience: Patience | None = None,
        source: SettingsSource | None = None,
    ) -> None:
        spec, goal, live = settings.spec, settings.goal, settings.live
        self.steps: deque[Step] = deque(maxlen=EXPLAINED_STEPS)
        self.decisions = self.rescales = 0
        self.error = ""
        self.is_paused = threading.Event()
        self.stopping = threading.Event()
        self.spec, self.goal, self.mode = spec, goal, live.mode
        self._changes: deque[Change] = deque()  # to be taken over before the next turn
        self._cannot_act = False
        self._switch = SwitchFile(live.switch)
        self._source = source
        self._settings_file = None if source is None else WatchedFile(source.path)
        self._spark = spark
        self._live = live
        self._patience = patience
        self._driver = Driver(spark)
        self._claim = claim
        missing = check_application(spark, spec.limits, live)
        for finding in findings_of(self._driver, spec.limits):
            if finding.level == "warning":
                log.info("%s; better: %s", finding.reason, finding.change)
            elif finding.level == "error":  # in mode recommend, which only looks
                log.warning("mode act is not possible: %s: %s", finding.reason, finding.change)
        self._refused_queries: set[str] = set()
        self._polls = 0
        self._turn_began_s = 0.0
        self._has_room = True
        self.actuator: SparkActuator | None = None
        with ExitStack() as undo:  # what has been opened until something fails
            self._journal, past = _open_journal(
                self._driver, journal or settings.journal, journal_header(spec, goal)
            )
            if self._journal is not None:
                undo.callback(self._journal.close)
            self._time = LoopTime(past[-1].at_s if past else 0.0)
            shortest_s = min([goal.slo_s, *(each.slo_s or goal.slo_s for each in goal.queries)])
            self._admission = self._admission_control(missing, shortest_s)
            if live.log == "json":
                show_log(JsonLines())
            self.outlets = Outlets(self._driver, live, self._now)
            undo.callback(self.outlets.close)
            if self.outlets.dashboard is not None:
                self.outlets.dashboard.begin(spec.label, past, spec.limits, goal)
            if live.mode == "act":
                self.actuator = self._take_over(missing, last_target(past))
                undo.callback(self.actuator.end)
            self._sensor = SparkSensor(
                spark,
                goal,
                self._driver,
                commit_offsets_to=live.commit_offsets_to,
                target=self._requested_size,
                ahead_s=self._time.ahead_s,
            )
            undo.callback(self._sensor.close)
            actuator = self.actuator or RecommendOnly()
            self._controller = wire(spec, self._sensor, actuator, journal=self._journal, past=past)
            undo.pop_all()

    def run(self) -> None:
        """Take turns until the loop is stopped, the application ends, or something fails."""
        try:
            for step in self._controller.run(self._clock(), self._live.every_s):
                self._after_turn(step)
        except Exception as error:
            # Nothing of ours may take the job down; an application that ended is no failure.
            if not self._driver.is_stopped():
                self.error = f"{type(error).__name__}: {error}"
                log.exception("Penstock failed and lets go; the job goes on at its size")
        finally:
            self._let_go()

    def _clock(self) -> LiveClock:
        wakes = self._controller.policy.wakes_on_surge
        return LiveClock(
            is_over=self._is_over,
            is_paused=self.is_on_hold,
            may_turn=self._may_turn,
            has_surged=self._sensor.has_surged if wakes else lambda: False,
            wall=WallClock(self._time.now, self.stopping.wait),
        )

    def _is_over(self) -> bool:
        self._polls += 1
        is_check = self._polls % POLLS_PER_CHECK == 1
        return self.stopping.is_set() or (is_check and self._driver.is_stopped())

    def update(self, change: Change) -> None:
        """Take over another spec, goal and mode before the next turn; may be called at any time."""
        self.spec, self.goal = change.spec, change.goal
        self._changes.append(change)

    def is_on_hold(self) -> bool:
        return self.is_paused.is_set() or self._switch.says() == "pause"

    def _may_turn(self) -> bool:
        if self._settings_file is not None and self._settings_file.has_changed():
            self._reread()
        while self._changes:
            change = self._changes.popleft()
            rewire(self._controller, change.spec)
            self._sensor.goal = change.goal
            if self.actuator is not None:
                self.actuator.limits = change.spec.limits
            self.mode, self._cannot_act = change.mode, False
            if self._journal is not None:
                self._journal.begin(journal_header(change.spec, change.goal))
            log.info("new settings: %s", change.words)
        says = self._switch.says()
        self._set_mode("recommend" if "recommend" in (says, self.mode) and says != "act" else "act")
        self._turn_began_s = self._time.now()
        return self._is_scalable()

    def _reread(self) -> None:
        """Take over limits, SLO and mode of the settings file; one with a mistake is left out."""
        if self._source is None:
            return
        try:
            settings = self._source.load()
        except ConfigError as error:
            log.warning("the changed settings are not taken over: %s", error)
            return
        spec = settings.spec
        if type(spec.policy) is not type(self.spec.policy):
            log.warning("another policy in %s needs a restart", self._source.path)
            spec = dataclasses.replace(self.spec, limits=spec.limits)
        words = f"as in {self._source.path}"
        self.update(Change(spec, settings.goal, settings.live.mode, words))

    def _set_mode(self, mode: Mode) -> None:
        """Begin or cease to size the fleet."""
        if (mode == "act") == (self.actuator is not None) or (mode == "act" and self._cannot_act):
            return
        if mode == "recommend":
            if self.actuator is not None:
                self.actuator.end()
            self._claim.release()
            self.actuator = None
            self._controller.actuator = RecommendOnly()
            log.info("the fleet is left as it is from now on: mode recommend")
            return
        try:
            self.actuator = self._take_over(check_application(self._spark, self.spec.limits))
        except TAKE_OVER_FAILS as error:
            self._claim.release()
            self._cannot_act = True  # until the settings change
            log.warning("mode act is not possible: %s", first_line(error))
            return
        self._controller.actuator = self.actuator
        log.info("Penstock sizes the fleet from now on: mode act")

    def _is_scalable(self) -> bool:
        """Whether all queries can be scaled; one that cannot is logged once."""
        is_scalable = True
        try:
            for query in self._spark.streams.active:
                if (refusal := unscalable(self._driver, query)) is None:
                    continue
                is_scalable = False
                if str(query.runId) not in self._refused_queries:
                    self._refused_queries.add(str(query.runId))
                    log.warning("%s; the fleet is left alone while it runs", refusal)
        except JVM_ERRORS as error:
            # A query ended while it was read; there is a next turn.
            log.debug("the queries cannot be listed now: %s", first_line(error))
            return False
        return is_scalable

    def _after_turn(self, step: Step) -> None:
        acts, turn_s = self.actuator is not None, self._time.now() - self._turn_began_s
        new = list(notices(step, self.steps[-1] if self.steps else None, acts=acts))
        for notice in new:
            level = logging.WARNING if notice.kind == "blind" else logging.INFO
            log.log(level, "%s", notice.text, extra={"notice": notice})
            self.rescales += notice.kind == "rescale"
        self.steps.append(step)
        self.decisions += 1
        new += self._without_room(step)
        self.outlets.take(step, new, self.spec.limits, self.goal, acts, turn_s)
        if self._admission is not None and step.snapshot is not None:
            with suppress(*JVM_ERRORS):  # a query ended while it was listed
                active, excluded = self._spark.streams.active, self.goal.excluded
                counted = [query for query in active if query_name(query) not in excluded]
                self._admission.reconcile(step.snapshot, counted)

    def _without_room(self, step: Step) -> Iterator[Notice]:
        """A notice when the cluster turns out to have no room; the actuator has logged it."""
        ceiling = None if self.actuator is None else self.actuator.ceiling
        had_room = self._has_room
        self._has_room = ceiling is None
        if had_room and ceiling is not None:
            target = step.decision.target_executors
            text = f"the cluster gave only {executors(ceiling)} of {target}"
            yield Notice("no_room", step.at_s, text, target)

    def account(self) -> str:
        """What acting would have saved so far; empty in mode act."""
        acts = self.actuator is not None
        return "" if acts else recommended_account(self.outlets.values(), self.goal)

    def _now(self) -> Values:
        """The metrics that no step has."""
        actuator = self.actuator
        return {
            ("failed",): float(bool(self.error)),
            ("paused",): float(self.is_on_hold()),
            ("acting",): float(actuator is not None),
            ("losses_total",): float(actuator.losses if actuator else 0),
            ("repairs_total",): float(actuator.repairs if actuator else 0),
        }

    # -- Before the first turn and after the last -------------------------------------------------

    def _take_over(self, missing: Missing, recorded: int | None = None) -> SparkActuator:
        """Be the only one who sizes the fleet, and start from the size that was recorded, or is."""
        self._claim.take()
        driver = self._driver
        if driver.stop_dynamic_allocation():
            log.info("Spark's dynamic allocation is stopped: Penstock sizes the fleet from now on")
        application = application_of(driver, self.spec.limits)
        actuator = SparkActuator(
            driver,
            self._committed_batches,
            can_decommission=not missing.decommission,
            limits=self.spec.limits,
            patience=self._patience or PATIENCE_ON.get(application.manager),
            advice=HOW_TO_GET_MORE[application.manager],
            failures=application.failure_limit,
        )
        size = present_size(driver, self.spec.limits, recorded)
        if recorded is not None:
            log.info("the fleet begins with %s, as the journal ends", executors(size))
        actuator.begin(size, self._time.now())
        return actuator

    def _admission_control(self, missing: Missing, slo_s: float) -> Admission | None:
        if not self._live.admission or self._live.mode != "act":
            return None
        if missing.admission_control:
            log.warning("no admission control: %s", missing.admission_control)
            return None
        # Half of the time that a record may wait: it waits for one batch and is in the next.
        return Admission(self._driver, slo_s / 2)

    def _let_go(self) -> None:
        if account := self.account():
            log.info("%s", account)
        for each in (self._admission, self.actuator):
            if each is not None and not self._driver.is_stopped():
                each.end()
        self._claim.release()
        with suppress(Exception):  # the loop is over: there is nothing left to do about it
            self._sensor.close()
        if self._journal is not None:
            with suppress(OSError):
                self._journal.close()
        if not self.error:  # a failure can be seen until the scaler is stopped
            self.outlets.close()

    def _requested_size(self) -> int | None:
        """What was asked for here; in recommend mode, what Spark itself has."""
        return None if self.actuator is None else self.actuator.target

    def _committed_batches(self) -> dict[str, int]:
        """The last batch of each query that did some work."""
        batches = {}
        for query in self._spark.streams.active:
            progress: Any = query.lastProgress
            if progress is not None and "addBatch" in progress["durationMs"]:
                batches[str(progress["runId"])] = int(progress["batchId"])
        return batches


def _open_journal(
    driver: Driver, journal: str | Path | FileJournal | JournalSettings, header: JournalHeader
) -> tuple[LiveJournal | StoreJournal | None, list[Step]]:
    """The journal to write, with the header of this run, and the steps that it already has."""
    if isinstance(journal, JournalSettings):
        if (opened := journal.open(header)) is None:
            return None, []
        journal = opened
    if isinstance(journal, str) and "://" in journal:
        kept = StoreJournal(journal, lambda: StoreFolder(driver, journal), header)
        return kept, kept.recall()
    past = list(read_tail(journal.path if isinstance(journal, FileJournal) else Path(journal)))
    if not isinstance(journal, FileJournal):
        return LiveJournal(FileJournal(Path(journal), header)), past
    own = journal.header  # its own facts stay if the rest is that of this run
    if (own.policy, own.limits, own.goal) != (header.policy, header.limits, header.goal):
        journal.begin(header)
    return LiveJournal(journal), past
