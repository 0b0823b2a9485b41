"""Dhalion: from symptom to diagnosis to cure, and no cure twice that did not help."""

from dataclasses import dataclass
from math import floor
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, resized
from penstock.policies.algorithms import measurements
from penstock.policies.algorithms.dataflow import instances_of

Cure = Literal["scale_up", "scale_down"]

WHOLE_JOB = "the job"  #: The pressed operator of a job that only shows pressure as a whole.


class Attempt(Struct, frozen=True, gc=False, array_like=True):
    """A cure that was tried and whose effect is still to be seen."""

    cure: Cure
    at_s: float
    pressure_ms: float
    throughput_rps: float | None = None


class Record(Struct, frozen=True, gc=False, array_like=True):
    """How often a cure was tried and did not help; once blacklisted, since when."""

    tried: int = 0
    failed: int = 0
    banned_at_s: float | None = None


class DhalionMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """The cure under observation, and what is known of each: two cures, so it stays small."""

    attempt: Attempt | None = None
    records: dict[str, Record] = {}


@dataclass(frozen=True, slots=True)
class Dhalion:
    """Self-regulation as in Heron: detect symptoms, diagnose the cause, resolve it, and watch.

    The rule: *symptoms* are backpressure above the noise and a skew of rates among executors.
    Backpressure without skew is *under-provisioning*: the operator that causes it grows to
    ``ceil(n (1 + min(bp / (1000 - bp), 4)))`` with ``bp`` in ms/s, suspended over normal time.
    No backpressure and an almost empty queue is *over-provisioning*:
    ``floor(n (1 - shrink_fraction))``. After `wait_s` the cure is judged: a growth helped if
    backpressure fell or throughput rose by 5 %, a shrink if no backpressure came. A cure that
    failed in at least `blacklist_ratio` of two or more tries is blacklisted for `blacklist_s`.

    A queue in front of the source that grows by ``g`` records/s while ``c`` are read presses
    the job as a whole by ``1000 g / (g + c)``: then it grows by ``g / c``, so that it stops.

    All operators share the executors, so the fleet grows to what the pressed operator needs;
    where stages take turns the job is pressed as a whole.
    """

    noise_ms: Annotated[float, Meta(ge=0)] = measurements.NOISE_MS
    skew_ratio: Annotated[float, Meta(ge=1)] = measurements.RATE_SKEW_RATIO
    growth_rps: Annotated[float, Meta(ge=0)] = measurements.QUEUE_GROWTH_RPS
    quiet_s: Annotated[float, Meta(ge=0)] = 1.0
    shrink_fraction: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    wait_s: Annotated[float, Meta(ge=0)] = 180.0
    blacklist_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    blacklist_s: Annotated[float, Meta(ge=0)] = 900.0
    period_s: Annotated[float, Meta(gt=0)] = 60.0

    default_limits: ClassVar[Limits] = Limits(cooldown_s=180.0)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = knowledge.recall(DhalionMemory)
        fleet = snapshot.fleet.target
        pressure = _pressure_ms(snapshot)
        if pressure is None:
            return not_measured(fleet, "backpressured_fraction", memory=memory)
        source_ms = self._source_ms(snapshot, knowledge)
        pressure[WHOLE_JOB] = max(pressure.get(WHOLE_JOB, 0.0), source_ms)
        attempt = memory.attempt
        if attempt is not None:
            rescale = knowledge.rescales[-1] if knowledge.rescales else None
            if rescale is None or rescale.at_s < attempt.at_s:
                # A guard may have refused, and then nothing was tried.
                memory = DhalionMemory(None, memory.records)
            elif snapshot.at_s - attempt.at_s < self.wait_s:
                cure = attempt.cure.replace("_", " ")
                why = f"the last {cure} is given {self.wait_s:.0f} s to show its effect"
                return measurements.hold(fleet, "waiting", why, memory=memory)
            else:
                memory = self._judged(memory, attempt, max(pressure.values()), snapshot)
        culprit = max(pressure, key=lambda name: pressure[name])
        if pressure[culprit] > self.noise_ms:
            return self._pressed(culprit, pressure[culprit], snapshot, memory)
        return self._unpressed(snapshot, memory)

    def _source_ms(self, snapshot: Snapshot, knowledge: Knowledge) -> float:
        """Pressure on the source: what it does not take in of what comes, by the backlog."""
        read_rps = snapshot.throughput_rps
        growth_rps = knowledge.slope(lambda s: s.backlog_records, self.wait_s)
        if not read_rps or growth_rps is None or growth_rps <= self.growth_rps:
            return 0.0
        if self._quiet(snapshot) is not False:
            return 0.0
        return 1000.0 * growth_rps / (growth_rps + read_rps)

    def _quiet(self, snapshot: Snapshot) -> bool | None:
        """Whether the queue before the source is almost empty; ``None`` if it was not measured."""
        if snapshot.backlog_records is None or snapshot.arrival_rps is None:
            return None
        # What arrives while a batch waits for its trigger and runs is no queue.
        quiet_s = self.quiet_s + 2.0 * (snapshot.trigger_interval_s or 0.0)
        return snapshot.backlog_records <= snapshot.arrival_rps * quiet_s

    def _pressed(
        self, culprit: str, pressure_ms: float, snapshot: Snapshot, memory: DhalionMemory
    ) -> Decision:
        fleet = snapshot.fleet.target
        symptoms: list[measurements.Symptom] = ["back_pressure"]
        rates = {one.id: one.throughput_rps for one in snapshot.executors if one.ready}
        measured = {name: rps for name, rps in rates.items() if rps is not None}
        fastest, _ = measurements.skew(measured, self.skew_ratio)
        if fastest:
            symptoms.append("rate_skew")
        evidence = {"backpressure_ms": pressure_ms}
        seen = f"{culprit} holds back what feeds it for {pressure_ms:.0f} ms/s"
        if not measurements.under_provisioned(symptoms):
            why = (
                f"{seen}, but among the executors, {', '.join(fastest)} process more than "
                f"{self.skew_ratio:g} times as much as others: more executors would not help"
            )
            return measurements.hold(fleet, "skewed", why, evidence, memory)
        target = _grown_fleet(culprit, pressure_ms, snapshot)
        text = f"{seen}, without skew: under-provisioned, {resized(fleet, target)}"
        return self._cure("scale_up", target, pressure_ms, text, evidence, snapshot, memory)

    def _unpressed(self, snapshot: Snapshot, memory: DhalionMemory) -> Decision:
        fleet = snapshot.fleet.target
        backlog, arrival_rps = snapshot.backlog_records, snapshot.arrival_rps
        if backlog is None or arrival_rps is None:
            unknown = measurements.missing(backlog_records=backlog, arrival_rps=arrival_rps)
            return not_measured(fleet, *unknown, memory=memory)
        evidence = {"backlog_records": backlog, "arrival_rps": arrival_rps}
        target = max(1, floor(fleet * (1.0 - self.shrink_fraction)))
        waits = counted(round(backlog), "record", "wait")
        if not self._quiet(snapshot) or target >= fleet:
            return measurements.hold(
                fleet, "healthy", f"no backpressure, {waits}", evidence, memory
            )
        text = f"no backpressure and only {waits}: over-provisioned, {resized(fleet, target)}"
        return self._cure("scale_down", target, 0.0, text, evidence, snapshot, memory)

    def _cure(
        self,
        cure: Cure,
        target: int,
        pressure_ms: float,
        text: str,
        evidence: dict[str, float],
        snapshot: Snapshot,
        memory: DhalionMemory,
    ) -> Decision:
        record = memory.records.get(cure, Record())
        if record.banned_at_s is not None:
            if snapshot.at_s - record.banned_at_s < self.blacklist_s:
                name = cure.replace("_", " ")
                failed = f"{record.failed} of {counted(record.tried, 'try', plural='tries')} failed"
                why = f"{text}, but {name} is blacklisted, as {failed}"
                return measurements.hold(
                    snapshot.fleet.target, "blacklisted", why, evidence, memory
                )
            memory = DhalionMemory(None, {**memory.records, cure: Record()})
        attempt = Attempt(cure, snapshot.at_s, pressure_ms, snapshot.throughput_rps)
        after = DhalionMemory(attempt, memory.records)
        return Decision.of(target, Reason(cure, text, evidence), memory=after)

    def _judged(
        self, memory: DhalionMemory, attempt: Attempt, pressure_ms: float, snapshot: Snapshot
    ) -> DhalionMemory:
        """What is known of a cure once its effect is seen."""
        helped = pressure_ms <= self.noise_ms
        if attempt.cure == "scale_up":
            before, after = attempt.throughput_rps, snapshot.throughput_rps
            faster = before is not None and after is not None and after > 1.05 * before
            helped = helped or faster or pressure_ms < attempt.pressure_ms
        old = memory.records.get(attempt.cure, Record())
        tried, failed = old.tried + 1, old.failed + (not helped)
        banned = tried >= 2 and failed >= self.blacklist_ratio * tried and not helped
        record = Record(tried, failed, snapshot.at_s if banned else None)
        return DhalionMemory(None, {**memory.records, attempt.cure: record})


def _pressure_ms(snapshot: Snapshot) -> dict[str, float] | None:
    """Backpressure by the operator that causes it, in ms/s; ``None`` if it is not known.

    Blocked time is measured at the victim, so an operator is charged with the worst of its
    upstream, unless it is itself blocked at least as much: then the cause lies further down.
    """
    shown = {operator.name: operator.backpressured_fraction for operator in snapshot.operators}
    blocked = {name: share for name, share in shown.items() if share is not None}
    if not blocked:
        held_back = measurements.held_back_fraction(snapshot)
        return None if held_back is None else {WHOLE_JOB: 1000.0 * held_back}
    pressure = dict.fromkeys(blocked, 0.0)
    for operator in snapshot.operators:
        worst = max((blocked.get(feed, 0.0) for feed in operator.upstream), default=0.0)
        if worst > blocked.get(operator.name, 0.0):
            pressure[operator.name] = 1000.0 * worst
    return pressure


def _grown_fleet(culprit: str, pressure_ms: float, snapshot: Snapshot) -> int:
    """The fleet in which the pressed operator has as many instances as the rule gives it."""
    fleet = snapshot.fleet
    operator = next((o for o in snapshot.operators if o.name == culprit), None)
    if operator is None:
        return measurements.grown(fleet.target, [pressure_ms])
    slots = measurements.grown(instances_of(operator, fleet, takes_turns=False), [pressure_ms])
    return max(fleet.target, -(-slots // fleet.cores_per_executor))
