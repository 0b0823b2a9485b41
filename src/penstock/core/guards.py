"""Limits that hold for every policy: each may override a decision, and says why when it does.

They are applied in the order of `chain`; a later one has the last word, so the bounds always
hold. Each limit is implemented once for all policies.

>>> from penstock.core.model import Fleet, Limits, Reason
>>> guards = chain(Limits(min_executors=2, max_executors=8))
>>> snapshot = Snapshot(at_s=0.0, fleet=Fleet(4, 4, 4), arrival_rps=100.0)
>>> decision = Decision.of(20, Reason("load_rises", "load rises"))
>>> for guard in guards:
...     decision = guard.check(decision, snapshot, Knowledge())
>>> decision.target_executors, decision.reasons[-1].text
(8, '20 executors wanted, 8 are the most allowed')
"""

from dataclasses import dataclass
from math import floor

from penstock.core.knowledge import DAY_S, Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot
from penstock.core.phrases import counted, duration, executors
from penstock.core.protocols import Guard
from penstock.core.schedule import ScheduledLimit

NEARLY = 0.25  #: In this last part of the span that is paid for, an executor may leave.


def chain(limits: Limits) -> tuple[Guard, ...]:
    """The guards that these limits ask for, in the order in which they are applied."""
    guards: list[Guard] = [Freshness(limits.max_age_s)]
    if limits.dead_band_fraction > 0.0:
        guards.append(DeadBand(limits.dead_band_fraction))
    if limits.stabilize_up_s > 0.0 or limits.stabilize_down_s > 0.0:
        guards.append(Stabilization(limits.stabilize_up_s, limits.stabilize_down_s))
    if limits.cooldown_s > 0.0:
        guards.append(Cooldown(limits.cooldown_s))
    if limits.min_lifetime_s > 0.0:
        guards.append(Lifetime(limits.min_lifetime_s))
    if limits.billing_s > 0.0:
        guards.append(Billing(limits.billing_s))
    if limits.max_step is not None:
        guards.append(StepLimit(limits.max_step))
    guards += [ParallelismCap(), HeapPressure(limits.max_executors)]
    bounds = Bounds(limits.min_executors, limits.max_executors)
    if limits.schedule:
        guards.append(Schedule(limits.schedule))
    if (hours := limits.max_executor_hours_per_day) is not None:
        guards.append(Budget(hours, limits.min_executors))
    if limits.schedule or hours is not None:  # these change a decision to hold too
        return (*guards, bounds)
    return (Chain((*guards, bounds), bounds.least, bounds.most),)


@dataclass(frozen=True, slots=True)
class Chain:
    """All guards in a row. Nine turns in ten hold inside the bounds: these pass at once."""

    guards: tuple[Guard, ...]
    least: int
    most: int

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, target = snapshot.fleet, decision.target_executors
        if target == fleet.target and max(1, self.least) <= target < self.most:
            partitions = snapshot.partitions
            if partitions is None or target * fleet.cores_per_executor <= partitions:
                return decision
        for guard in self.guards:
            decision = guard.check(decision, snapshot, knowledge)
        return decision


@dataclass(frozen=True, slots=True)
class Freshness:
    """Hold on what was measured too long ago, or not at all."""

    max_age_s: float

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, age_s = snapshot.fleet.target, knowledge.now_s - snapshot.at_s
        if decision.target_executors == fleet or age_s <= self.max_age_s:
            return decision
        text = f"holding {executors(fleet)}: measurements are {age_s:.0f} s old"
        return decision.limited_to(fleet, Reason("stale_data", text, {"age_s": age_s}))


@dataclass(frozen=True, slots=True)
class DeadBand:
    """Changes that are small against the fleet are not worth a rescale."""

    fraction: float

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet.target
        change = abs(decision.target_executors - fleet)
        if change == 0 or change >= self.fraction * fleet:
            return decision
        text = f"a change of {change} is less than {self.fraction:.0%} of {executors(fleet)}"
        return decision.limited_to(fleet, Reason("dead_band", text, {"change": float(change)}))


@dataclass(frozen=True, slots=True)
class Stabilization:
    """Grow only to the smallest, shrink only to the largest recommendation of the recent past.

    With recommendations 4, 9 and 6 in the window, a fleet of 5 does not grow to 8: the smallest of
    them is 4, so it stays at 5.
    """

    up_s: float
    down_s: float

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, target = snapshot.fleet.target, decision.target_executors
        if target == fleet:
            return decision
        window_s = self.up_s if target > fleet else self.down_s
        stable = target
        for past in reversed(knowledge.recommendations):
            if knowledge.now_s - past.at_s > window_s:
                break
            stable = min(stable, past.executors) if target > fleet else max(stable, past.executors)
        stable = max(stable, fleet) if target > fleet else min(stable, fleet)
        if stable == target:
            return decision
        side = "smallest" if target > fleet else "largest"
        text = f"{stable} is the {side} recommendation of the last {window_s:.0f} s, {target} waits"
        evidence = {"wanted": float(target), "window_s": window_s}
        return decision.limited_to(stable, Reason("stabilization", text, evidence))


@dataclass(frozen=True, slots=True)
class Cooldown:
    """No rescale soon after the last one: its effect cannot be seen yet."""

    seconds: float

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet.target
        since_s = knowledge.since_rescale_s()
        if decision.target_executors == fleet or since_s is None or since_s >= self.seconds:
            return decision
        text = f"the last rescale was {since_s:.0f} s ago, cooldown is {self.seconds:.0f} s"
        return decision.limited_to(fleet, Reason("cooldown", text, {"since_rescale_s": since_s}))


@dataclass(frozen=True, slots=True)
class Lifetime:
    """No executor is removed soon after one was started."""

    seconds: float

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, now_s = snapshot.fleet.target, knowledge.now_s
        if decision.target_executors >= fleet:
            return decision
        for past in reversed(knowledge.rescales):
            since_s = now_s - past.at_s
            if since_s >= self.seconds:
                break
            if past.after > past.before:
                text = (
                    f"the fleet grew {since_s:.0f} s ago, executors are kept for at least "
                    f"{self.seconds:.0f} s"
                )
                reason = Reason("min_lifetime", text, {"since_growth_s": since_s})
                return decision.limited_to(fleet, reason)
        return decision


@dataclass(frozen=True, slots=True)
class Billing:
    """No executor is removed long before the span that is paid for ends: that saves nothing."""

    seconds: float

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, now_s = snapshot.fleet.target, knowledge.now_s
        began_s = [one.started_at_s for one in snapshot.executors if one.ready]
        # Those that are still to come are not paid for.
        surplus = len(began_s) - decision.target_executors
        if surplus <= 0 or decision.target_executors >= fleet:
            return decision
        left_s = sorted(self.seconds - (now_s - at_s) % self.seconds for at_s in began_s)
        due = sum(is_due(at_s, now_s, self.seconds) for at_s in began_s)
        if due >= surplus:
            return decision
        paid = f"executors are paid for in spans of {duration(self.seconds)}"
        text = f"{paid}: removing {surplus - due} more saves nothing for {duration(left_s[due])}"
        reason = Reason("billing", text, {"left_s": left_s[due]})
        return decision.limited_to(min(fleet, len(began_s) - due), reason)


def is_due(started_at_s: float, now_s: float, billing_s: float) -> bool:
    """Whether the span that an executor is paid for has nearly ended: the last quarter."""
    last_s = min(60.0, NEARLY * billing_s)
    return billing_s <= 0.0 or billing_s - (now_s - started_at_s) % billing_s <= last_s


@dataclass(frozen=True, slots=True)
class StepLimit:
    """A largest change of one rescale, up or down."""

    executors: int

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, target = snapshot.fleet.target, decision.target_executors
        limited = min(max(target, fleet - self.executors), fleet + self.executors)
        if limited == target:
            return decision
        text = f"{target} is more than {self.executors} away from {executors(fleet)}"
        return decision.limited_to(limited, Reason("step_limit", text, {"wanted": float(target)}))


@dataclass(frozen=True, slots=True)
class ParallelismCap:
    """Executors without a task to run do not help: cap at what the partitions can feed."""

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        partitions = snapshot.partitions
        if partitions is None:
            return decision
        useful = -(-partitions // snapshot.fleet.cores_per_executor)
        if decision.target_executors <= useful:
            return decision
        text = f"{counted(partitions, 'task')} at most feed {executors(useful)}, more would idle"
        evidence = {"partitions": float(partitions)}
        return decision.limited_to(useful, Reason("parallelism_cap", text, evidence))


@dataclass(frozen=True, slots=True)
class HeapPressure:
    """Says that executors need memory, where more are asked for or not allowed; changes nothing.

    Three executors of which two spend a fifth of their time collecting garbage:

    >>> from penstock.core.model import ExecutorSample, Fleet
    >>> busy = [ExecutorSample(str(n), 0.0, memory_fraction=0.9, gc_fraction=0.2) for n in range(2)]
    >>> snapshot = Snapshot(0.0, Fleet(3, 3, 3), executors=(*busy, ExecutorSample("3", 0.0)))
    >>> grown = HeapPressure(9).check(Decision.of(5, Reason("late", "late")), snapshot, Knowledge())
    >>> grown.reasons[-1].text
    'executors spend 20% of their time collecting garbage, with 90% of the heap in use: raise \
spark.executor.memory instead of the number of executors'
    """

    most: int
    gc_fraction: float = 0.1

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        if decision.target_executors <= min(snapshot.fleet.target, self.most - 1):
            return decision
        gc = [one.gc_fraction for one in snapshot.executors if one.gc_fraction is not None]
        if not gc or (mean := sum(gc) / len(gc)) <= self.gc_fraction:
            return decision
        heaps = [one.memory_fraction for one in snapshot.executors if one.memory_fraction]
        in_use = f", with {max(heaps):.0%} of the heap in use" if heaps else ""
        text = (
            f"executors spend {mean:.0%} of their time collecting garbage{in_use}: "
            "raise spark.executor.memory instead of the number of executors"
        )
        reason = Reason("heap_pressure", text, {"gc_fraction": mean})
        return decision.limited_to(decision.target_executors, reason)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Floors, ceilings and quiet periods at certain times; a floor wins over a ceiling."""

    limits: tuple[ScheduledLimit, ...]

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet, wall_s = snapshot.fleet.target, knowledge.now_s + snapshot.clock_ahead_s
        for limit in self.limits:
            target = decision.target_executors
            if not limit.is_on(wall_s):
                continue
            if limit.quiet and target != fleet:
                text = f"{limit.label} keeps {executors(fleet)}, {target} would be wanted"
                evidence = {"wanted": float(target)}
                decision = decision.limited_to(fleet, Reason("scheduled_quiet", text, evidence))
        for code, side in (("max_executors", "most"), ("min_executors", "fewest")):
            decision = self._bounded(decision, wall_s, code, side)
        return decision

    def _bounded(self, decision: Decision, wall_s: float, bound: str, side: str) -> Decision:
        """The decision inside the tightest bound that holds now."""
        held = [
            (value, limit)
            for limit in self.limits
            if (value := getattr(limit, bound)) is not None and limit.is_on(wall_s)
        ]
        if not held:
            return decision
        pick = min if bound == "max_executors" else max
        value, limit = pick(held, key=lambda one: one[0])
        target = decision.target_executors
        if pick(target, value) == target:
            return decision
        text = f"{executors(target)} wanted, {limit.label} has {value} as the {side}"
        reason = Reason(f"scheduled_{bound.partition('_')[0]}", text, {"wanted": float(target)})
        return decision.limited_to(value, reason)


@dataclass(frozen=True, slots=True)
class Budget:
    """The fleet of a day (UTC) uses no more executor-hours than it may.

    What is left must last for the fewest executors until midnight. All beyond that may be used in
    the next hour, so that a peak is carried early in the day, and the fleet shrinks in steps as the
    budget runs out.
    """

    executor_hours: float
    least: int

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        target, used_h = decision.target_executors, knowledge.paid_today_s / 3600.0
        until_midnight_h = (DAY_S - knowledge.now_s % DAY_S) / 3600.0
        next_h = min(1.0, until_midnight_h)
        left_h = self.executor_hours - used_h - self.least * (until_midnight_h - next_h)
        most = max(self.least, floor(left_h / next_h + 1e-9))
        if target <= most:
            return decision
        text = (
            f"{executors(target)} wanted, but {used_h:.1f} of the {self.executor_hours:.1f} "
            f"executor-hours of today are used: the rest lasts for {executors(most)}"
        )
        evidence = {"wanted": float(target), "used_executor_h": used_h}
        return decision.limited_to(most, Reason("budget", text, evidence))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fleet never leaves the bounds that the user set; without any, nothing is measured."""

    least: int
    most: int

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        target = decision.target_executors
        if target == 0 == self.least and snapshot.arrival_rps is None:
            text = "0 executors measure nothing: 1 until the load is known"
            return decision.limited_to(1, Reason("min_executors", text, {"wanted": 0.0}))
        if self.least <= target <= self.most:
            return decision
        bound, code, side = self.least, "min_executors", "fewest"
        if target > self.most:
            bound, code, side = self.most, "max_executors", "most"
        verb = "is" if bound == 1 else "are"
        text = f"{executors(target)} wanted, {bound} {verb} the {side} allowed"
        return decision.limited_to(bound, Reason(code, text, {"wanted": float(target)}))
