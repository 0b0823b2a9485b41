"""Penstock inside a driver: one line, one thread, and a handle to it.

::

    import penstock

    with penstock.attach(spark, policy="ds2", min=2, max=8, slo_s=10):
        query = stream.writeStream.start()
        query.awaitTermination()

The thread reads the job, decides and changes the fleet (`controller`), and tends the fleet in
between (`actuator`). Whatever goes wrong in it, the job goes on at the size that it has.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.alarm import LOOK_AGAIN_S
from penstock.core.clock import WallClock
from penstock.core.controller import Controller
from penstock.core.errors import ConfigError
from penstock.core.guards import chain
from penstock.core.journal import FileJournal, read_tail
from penstock.core.knowledge import Knowledge
from penstock.core.model import Limits, Receipt, Step
from penstock.core.protocols import Policy
from penstock.observe.formatting import sentence
from penstock.policies import DEFAULT_POLICY
from penstock.settings.goal import Goal
from penstock.settings.live import LiveSettings, Mode
from penstock.settings.policy_spec import PolicySpec, read_policy_spec
from penstock.spark.actuator.actuator import Patience, SparkActuator
from penstock.spark.actuator.admission import Admission
from penstock.spark.fitness import check_application, findings_of, present_size, unscalable
from penstock.spark.internals import JVM_ERRORS, Capabilities, Driver, first_line
from penstock.spark.sensor.sensor import SparkSensor
from penstock.spark.status import State, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

#: How often the thread wakes; what it then does is mostly nothing.
TICK_S = 0.1
#: Decisions that `Attachment.explain` can tell.
EXPLAINED = 100
STOP_TIMEOUT_S = 30.0


class RecommendOnly:
    """An actuator that moves nothing."""

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        return Receipt(False, "recommended only, nothing was moved")


def attach(
    spark: SparkSession,
    policy: str | Policy = DEFAULT_POLICY,
    *,
    min: int = 1,  # noqa: A002
    max: int = 16,  # noqa: A002
    slo_s: float = 10.0,
    mode: Mode = "act",
    journal: str | Path | FileJournal | None = None,
    every_s: float | None = None,
    admission: bool = False,
    limits: Mapping[str, Any] | None = None,
    patience: Patience | None = None,
) -> Attachment:
    """Scale the streaming queries of a Spark application from inside its driver.

    Input that cannot work (Spark Connect, ``local[*]``, real-time mode, ...) is a `ConfigError`
    now; whatever fails later is logged, and the job goes on.

    Parameters
    ----------
    spark
        The session of the application; its queries may start before or after.
    policy
        A name of ``penstock policies``, with parameters as ``name:key=value,...``, or a policy.
    min, max
        Bounds of the fleet, in executors.
    slo_s
        A record that waits longer is late.
    mode
        ``act`` changes the fleet; ``recommend`` says what it would do and moves nothing.
    journal
        Where each turn is written. A journal that is there already is read first: the policy
        knows what it knew, and goes on.
    every_s
        Seconds between decisions; by default what the policy asks for.
    admission
        Cap each batch to what the fleet gets through in time (`admission`).
    limits
        Further limits that the guards enforce, such as ``{"cooldown_s": 60.0}``.
    patience
        How long to wait for executors to come and go.
    """
    live = LiveSettings(mode=mode, every_s=every_s, admission=admission)
    spec = _read_policy(policy, {"min_executors": min, "max_executors": max}, slo_s)
    return Attachment(
        spark,
        spec.policy,
        msgspec.structs.replace(spec.limits, **(limits or {})),
        name=spec.label,
        live=live,
        slo_s=slo_s,
        journal=journal,
        patience=patience,
    )


class Attachment:
    """A running scaler. Leaving it as a context manager stops it; the fleet stays as it is."""

    def __init__(
        self,
        spark: SparkSession,
        policy: Policy,
        limits: Limits,
        *,
        name: str,
        live: LiveSettings | None = None,
        slo_s: float = 10.0,
        journal: str | Path | FileJournal | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._live = live or LiveSettings()
        self._name = name
        self._spark = spark
        self._driver = Driver(spark)
        capabilities = check_application(spark, limits, self._live)
        for finding in findings_of(self._driver, limits):
            if finding.level == "warning":
                log.info("%s; better: %s", finding.reason, finding.change)
        self._steps: deque[Step] = deque(maxlen=EXPLAINED)
        self._decisions = self._rescales = 0
        self._is_blind = False
        self._refused: set[str] = set()
        self._refusal: tuple[int, str] | None = None
        self._error = ""
        self._is_paused = threading.Event()
        self._stopping = threading.Event()
        book, knowledge = _open_journal(journal, name, limits)
        self._journal = book
        self._admission = self._admission_control(capabilities, slo_s)
        self._actuator: SparkActuator | None = None
        if self._live.mode == "act":
            self._actuator = self._take_over(capabilities, limits, patience)
        self._sensor = SparkSensor(spark, driver=self._driver, target=self._asked_for)
        self._controller = Controller(
            self._sensor,
            policy,
            chain(limits),
            self._actuator or RecommendOnly(),
            book,
            knowledge,
        )
        self._every_s = self._live.every_s or policy.period_s
        self._wakes_on_surge: bool = getattr(policy, "wakes_on_surge", False)
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _take_over(
        self, capabilities: Capabilities, limits: Limits, patience: Patience | None
    ) -> SparkActuator:
        """Be the only one who sizes the fleet, and start from the size that it has."""
        driver = self._driver
        if driver.stop_dynamic_allocation():
            log.info("Spark's dynamic allocation is stopped: Penstock sizes the fleet from now on")
        actuator = SparkActuator(
            driver,
            self._committed_batches,
            can_decommission=capabilities.decommission.available,
            patience=patience,
        )
        actuator.begin(present_size(driver, limits), WallClock().now())
        return actuator

    def _admission_control(self, capabilities: Capabilities, slo_s: float) -> Admission | None:
        if not self._live.admission or self._live.mode != "act":
            return None
        if not capabilities.admission_control.available:
            log.warning("no admission control: %s", capabilities.admission_control.reason)
            return None
        # Half of the time that a record may wait: it waits for one batch and is in the next.
        return Admission(self._driver, slo_s / 2)

    # -- The handle -----------------------------------------------------------------------------

    def status(self) -> Status:
        """How things are, without asking Spark."""
        step = self._steps[-1] if self._steps else None
        seen = None if step is None else step.snapshot
        actuator = self._actuator
        return Status(
            state=self._state(),
            mode=self._live.mode,
            policy=self._name,
            target=actuator.target if actuator else (seen.fleet.target if seen else None),
            registered=seen.fleet.registered if seen else None,
            active=seen.fleet.active if seen else None,
            is_settled=actuator.is_settled if actuator else True,
            delay_s=seen.delay_s if seen else None,
            backlog_records=seen.backlog_records if seen else None,
            decisions=self._decisions,
            rescales=self._rescales,
            repairs=actuator.repairs if actuator else 0,
            losses=actuator.losses if actuator else 0,
            last=sentence(step) if step else "",
            error=self._error,
        )

    def explain(self, last: int = 5) -> list[str]:
        """The last decisions in words, oldest first."""
        return [sentence(step) for step in list(self._steps)[-last:]] if last > 0 else []

    def pause(self) -> None:
        """Decide nothing until `resume`; what is under way is brought to its end."""
        self._is_paused.set()

    def resume(self) -> None:
        self._is_paused.clear()

    def stop(self) -> None:
        """Let go: the fleet stays as it is, borrowed settings are given back. May be repeated."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)
        atexit.unregister(self.stop)

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _state(self) -> State:
        if self._error:
            return "failed"
        if not self._thread.is_alive() or self._stopping.is_set():
            return "stopped"
        return "paused" if self._is_paused.is_set() else "running"

    # -- The thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:
            # Nothing of ours may take the job down; an application that ended is no failure.
            if not self._driver.is_stopped():
                self._error = f"{type(error).__name__}: {error}"
                log.exception("Penstock failed and lets go; the job goes on at its size")
        finally:
            self._let_go()

    def _loop(self) -> None:
        next_turn_at_s = turned_at_s = next_check_at_s = 0.0
        for now_s in WallClock(sleep=self._stopping.wait).ticks(TICK_S):
            if self._stopping.is_set():
                return
            if now_s >= next_check_at_s:
                next_check_at_s = now_s + 1.0
                if self._driver.is_stopped():
                    return
            if self._actuator is not None:
                self._actuator.reconcile(now_s)
            surged = self._wakes_on_surge and self._sensor.has_surged()
            due_at_s = turned_at_s + LOOK_AGAIN_S if surged else next_turn_at_s
            if now_s >= due_at_s and not self._is_paused.is_set():
                turned_at_s = now_s
                # The first second of a surge is only a part of one, so the next look is soon.
                next_turn_at_s = now_s + (LOOK_AGAIN_S if surged else self._every_s)
                self._turn(now_s)

    def _turn(self, now_s: float) -> None:
        try:
            queries = self._spark.streams.active
            if self._refuse_new(queries):
                return
        except JVM_ERRORS as error:
            # One of them ended while it was looked at; there is a next turn.
            log.debug("the queries cannot be listed now: %s", first_line(error))
            return
        step = self._controller.turn(now_s)
        self._steps.append(step)
        self._decisions += 1
        self._tell(step)
        if step.snapshot is None:
            return
        if self._actuator is not None:
            self._actuator.observe(step.snapshot)
        if self._admission is not None:
            self._admission.reconcile(step.snapshot, queries)

    def _refuse_new(self, queries: list[StreamingQuery]) -> bool:
        """Whether a query runs that cannot be scaled: said once, and the fleet is left alone."""
        refused = False
        for query in queries:
            if (refusal := unscalable(self._driver, query)) is None:
                continue
            refused = True
            if str(query.runId) not in self._refused:
                self._refused.add(str(query.runId))
                log.warning("%s; the fleet is left alone while it runs", refusal)
        return refused

    def _tell(self, step: Step) -> None:
        """Changes only: a rescale, another refusal, sight lost, sight regained."""
        is_blind = step.snapshot is None
        if is_blind != self._is_blind:
            log.log(
                logging.WARNING if is_blind else logging.INFO,
                "%s",
                step.decision.reasons[0].text if is_blind else "the job can be seen again",
            )
        self._is_blind = is_blind
        receipt, told = step.receipt, self._refusal
        self._refusal = None
        if receipt is None:
            return
        if receipt.accepted:
            self._rescales += 1
        else:
            self._refusal = (step.decision.target_executors, receipt.text)
        if receipt.accepted or self._refusal != told:
            log.info("%s", sentence(step))

    def _let_go(self) -> None:
        for each in (self._admission, self._actuator):
            if each is not None and not self._driver.is_stopped():
                each.end()
        with suppress(Exception):  # nobody is left to tell
            self._sensor.close()
        if isinstance(self._journal, FileJournal):
            self._journal.close()

    def _asked_for(self) -> int | None:
        return None if self._actuator is None else self._actuator.target

    def _committed_batches(self) -> dict[str, int]:
        """The last batch of each query that did some work."""
        batches = {}
        for query in self._spark.streams.active:
            progress: Any = query.lastProgress
            if progress is not None and "addBatch" in progress["durationMs"]:
                batches[str(progress["runId"])] = int(progress["batchId"])
        return batches


def _read_policy(policy: str | Policy, bounds: Mapping[str, int], slo_s: float) -> PolicySpec:
    """A policy by its text or as an object; one that is read from a text gets the SLO."""
    if not 0.0 < slo_s < float("inf"):
        raise ConfigError(f"slo_s must be a positive number of seconds, not {slo_s}")
    if isinstance(policy, str):
        return read_policy_spec(policy, bounds, Goal(slo_s=slo_s))
    return PolicySpec.of(policy, msgspec.structs.replace(policy.default_limits, **bounds))


def _open_journal(
    journal: str | Path | FileJournal | None, name: str, limits: Limits
) -> tuple[FileJournal | None, Knowledge]:
    """The journal to write, and what the one that is there already knows."""
    if journal is None:
        return None, Knowledge(limits)
    path = journal.path if isinstance(journal, FileJournal) else Path(journal)
    knowledge = Knowledge.from_steps(read_tail(path) if path.exists() else (), limits)
    if isinstance(journal, FileJournal):
        return journal, knowledge
    return FileJournal(path, run={"policy": name}), knowledge
