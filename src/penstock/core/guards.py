"""Limits that hold for every policy: each may override a decision, and says why when it does.

They are applied in the order of `Guards.check`; a later one has the last word, so the bounds always
hold. Each limit is implemented once for all policies.

>>> from penstock.core.model import Fleet, Limits, Reason
>>> guards = Guards(Limits(min_executors=2, max_executors=8))
>>> snapshot = Snapshot(at_s=0.0, fleet=Fleet(4, 4, 4), arrival_rps=100.0)
>>> decision = Decision.of(20, Reason("load_rises", "load rises"))
>>> decision = guards.check(decision, snapshot, Knowledge())
>>> decision.target_executors, decision.reasons[-1].text
(8, '20 executors wanted, 8 are the most allowed')
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor

from penstock.core.knowledge import DAY_S, Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot
from penstock.core.phrases import counted, duration, executors

NEARLY = 0.25  #: In this last part of the span that is paid for, an executor may leave.
GC_FRACTION = 0.1  #: Executors that collect garbage for more of their time need memory.


@dataclass(frozen=True, slots=True)
class Guards:
    """All guards in a row; those whose limit is not set pass every decision."""

    limits: Limits

    def check(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """The decision itself, or one with another target and the reasons for it."""
        limits, fleet, target = self.limits, snapshot.fleet, decision.target_executors
        changes_holds = limits.schedule or limits.max_executor_hours_per_day is not None
        # Nine turns in ten hold inside the bounds: these pass at once.
        if target == fleet.target and not changes_holds:
            partitions = snapshot.partitions
            is_fed = partitions is None or target * fleet.cores_per_executor <= partitions
            if is_fed and max(1, limits.min_executors) <= target < limits.max_executors:
                return decision
        guards: tuple[Callable[[Decision, Snapshot, Knowledge], Decision], ...] = (
            self._freshness, self._dead_band, self._stable, self._cooldown, self._lifetime,
            self._billing, self._step, self._fed, self._heap, self._schedule, self._budget,
            self._bounds,
        )  # fmt: skip
        for guard in guards:
            decision = guard(decision, snapshot, knowledge)
        return decision

    def _freshness(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """Hold on what was measured too long ago, or not at all."""
        fleet, age_s = snapshot.fleet.target, knowledge.now_s - snapshot.at_s
        if decision.target_executors == fleet or age_s <= self.limits.max_age_s:
            return decision
        text = f"holding {executors(fleet)}: measurements are {age_s:.0f} s old"
        return decision.limited_to(fleet, Reason("stale_data", text, {"age_s": age_s}))

    def _dead_band(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """Changes that are small against the fleet are not worth a rescale."""
        fleet, fraction = snapshot.fleet.target, self.limits.dead_band_fraction
        change = abs(decision.target_executors - fleet)
        if change == 0 or change >= fraction * fleet:
            return decision
        text = f"a change of {change} is less than {fraction:.0%} of {executors(fleet)}"
        return decision.limited_to(fleet, Reason("dead_band", text, {"change": float(change)}))

    def _stable(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """Grow only to the smallest, shrink only to the largest recommendation of the recent past.

        With recommendations 4, 9 and 6 in the window, a fleet of 5 does not grow to 8: the smallest
        of them is 4, so it stays at 5.
        """
        fleet, target = snapshot.fleet.target, decision.target_executors
        up_s, down_s = self.limits.stabilize_up_s, self.limits.stabilize_down_s
        if target == fleet or not (up_s > 0.0 or down_s > 0.0):
            return decision
        window_s = up_s if target > fleet else down_s
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

    def _cooldown(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """No rescale soon after the last one: its effect cannot be seen yet."""
        fleet, cooldown_s = snapshot.fleet.target, self.limits.cooldown_s
        if decision.target_executors == fleet or not cooldown_s > 0.0:
            return decision
        since_s = knowledge.since_rescale_s()
        if since_s is None or since_s >= cooldown_s:
            return decision
        text = f"the last rescale was {since_s:.0f} s ago, cooldown is {cooldown_s:.0f} s"
        return decision.limited_to(fleet, Reason("cooldown", text, {"since_rescale_s": since_s}))

    def _lifetime(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """No executor is removed soon after one was started."""
        fleet, lifetime_s = snapshot.fleet.target, self.limits.min_lifetime_s
        if decision.target_executors >= fleet or not lifetime_s > 0.0:
            return decision
        for past in reversed(knowledge.rescales):
            since_s = knowledge.now_s - past.at_s
            if since_s >= lifetime_s:
                break
            if past.after > past.before:
                text = (
                    f"the fleet grew {since_s:.0f} s ago, executors are kept for at least "
                    f"{lifetime_s:.0f} s"
                )
                reason = Reason("min_lifetime", text, {"since_growth_s": since_s})
                return decision.limited_to(fleet, reason)
        return decision

    def _billing(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """No executor is removed long before the span that is paid for ends: that saves nothing."""
        fleet, now_s, billing_s = snapshot.fleet.target, knowledge.now_s, self.limits.billing_s
        began_s = [one.started_at_s for one in snapshot.executors if one.ready]
        # Those that are still to come are not paid for.
        surplus = len(began_s) - decision.target_executors
        if surplus <= 0 or decision.target_executors >= fleet or not billing_s > 0.0:
            return decision
        left_s = sorted(billing_s - (now_s - at_s) % billing_s for at_s in began_s)
        due = sum(is_due(at_s, now_s, billing_s) for at_s in began_s)
        if due >= surplus:
            return decision
        paid = f"executors are paid for in spans of {duration(billing_s)}"
        text = f"{paid}: removing {surplus - due} more saves nothing for {duration(left_s[due])}"
        reason = Reason("billing", text, {"left_s": left_s[due]})
        return decision.limited_to(min(fleet, len(began_s) - due), reason)

    def _step(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """A largest change of one rescale, up or down."""
        fleet, target, step = snapshot.fleet.target, decision.target_executors, self.limits.max_step
        limited = target if step is None else min(max(target, fleet - step), fleet + step)
        if limited == target:
            return decision
        text = f"{target} is more than {step} away from {executors(fleet)}"
        return decision.limited_to(limited, Reason("step_limit", text, {"wanted": float(target)}))

    def _fed(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """Executors without a task to run do not help: cap at what the partitions can feed."""
        partitions = snapshot.partitions
        if partitions is None:
            return decision
        useful = -(-partitions // snapshot.fleet.cores_per_executor)
        if decision.target_executors <= useful:
            return decision
        text = f"{counted(partitions, 'task')} at most feed {executors(useful)}, more would idle"
        evidence = {"partitions": float(partitions)}
        return decision.limited_to(useful, Reason("parallelism_cap", text, evidence))

    def _heap(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """Say that executors need memory, where more are asked for or not allowed; change nothing.

        Three executors of which two spend a fifth of their time collecting garbage:

        >>> from penstock.core.model import ExecutorSample, Fleet
        >>> busy = [ExecutorSample(n, 0.0, memory_fraction=0.9, gc_fraction=0.2) for n in "12"]
        >>> snapshot = Snapshot(0.0, Fleet(3, 3, 3), executors=(*busy, ExecutorSample("3", 0.0)))
        >>> late = Decision.of(5, Reason("late", "late"))
        >>> Guards(Limits(max_executors=9)).check(late, snapshot, Knowledge()).reasons[-1].text
        'executors spend 20% of their time collecting garbage, with 90% of the heap in use: raise
        spark.executor.memory instead of the number of executors'
        """
        if decision.target_executors <= min(snapshot.fleet.target, self.limits.max_executors - 1):
            return decision
        gc = [one.gc_fraction for one in snapshot.executors if one.gc_fraction is not None]
        if not gc or (mean := sum(gc) / len(gc)) <= GC_FRACTION:
            return decision
        heaps = [one.memory_fraction for one in snapshot.executors if one.memory_fraction]
        in_use = f", with {max(heaps):.0%} of the heap in use" if heaps else ""
        text = (
            f"executors spend {mean:.0%} of their time collecting garbage{in_use}: "
            "raise spark.executor.memory instead of the number of executors"
        )
        reason = Reason("heap_pressure", text, {"gc_fraction": mean})
        return decision.limited_to(decision.target_executors, reason)

    def _schedule(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """Floors, ceilings and quiet periods at certain times; a floor wins over a ceiling."""
        fleet, wall_s = snapshot.fleet.target, knowledge.now_s + snapshot.clock_ahead_s
        for limit in self.limits.schedule:
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
            for limit in self.limits.schedule
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

    def _budget(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """The fleet of a day (UTC) uses no more executor-hours than it may.

        What is left must last for the fewest executors until midnight. All beyond that may be used
        in the next hour, so that a peak is carried early in the day, and the fleet shrinks in steps
        as the budget runs out.
        """
        least, budget_h = self.limits.min_executors, self.limits.max_executor_hours_per_day
        if budget_h is None:
            return decision
        target, used_h = decision.target_executors, knowledge.paid_today_s / 3600.0
        until_midnight_h = (DAY_S - knowledge.now_s % DAY_S) / 3600.0
        next_h = min(1.0, until_midnight_h)
        left_h = budget_h - used_h - least * (until_midnight_h - next_h)
        most = max(least, floor(left_h / next_h + 1e-9))
        if target <= most:
            return decision
        text = (
            f"{executors(target)} wanted, but {used_h:.1f} of the {budget_h:.1f} "
            f"executor-hours of today are used: the rest lasts for {executors(most)}"
        )
        evidence = {"wanted": float(target), "used_executor_h": used_h}
        return decision.limited_to(most, Reason("budget", text, evidence))

    def _bounds(self, decision: Decision, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        """The fleet never leaves the bounds that the user set; without any, nothing is measured."""
        target = decision.target_executors
        least, most = self.limits.min_executors, self.limits.max_executors
        if target == 0 == least and snapshot.arrival_rps is None:
            text = "0 executors measure nothing: 1 until the load is known"
            return decision.limited_to(1, Reason("min_executors", text, {"wanted": 0.0}))
        if least <= target <= most:
            return decision
        bound, code, side = least, "min_executors", "fewest"
        if target > most:
            bound, code, side = most, "max_executors", "most"
        verb = "is" if bound == 1 else "are"
        text = f"{executors(target)} wanted, {bound} {verb} the {side} allowed"
        return decision.limited_to(bound, Reason(code, text, {"wanted": float(target)}))


def is_due(started_at_s: float, now_s: float, billing_s: float) -> bool:
    """Whether the span that an executor is paid for has nearly ended: the last quarter."""
    last_s = min(60.0, NEARLY * billing_s)
    return billing_s <= 0.0 or billing_s - (now_s - started_at_s) % billing_s <= last_s
