"""Our own rule: plan the next quarter of an hour, do the first step, plan again."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, QuerySample, Reason, Snapshot, not_measured
from penstock.core.phrases import duration, executors
from penstock.policies.penstock.capacity import WARM_UP_S, Capacity, learn
from penstock.policies.penstock.days import Days, rounded
from penstock.policies.penstock.dynamic_program import Prices, StartState, measured_lag_s
from penstock.policies.penstock.estimate import CapacityEstimate
from penstock.policies.penstock.explanation import catch_up_decision, explain_plan
from penstock.policies.penstock.forecasters import PAST_BINS, Forecast, load_ahead
from penstock.policies.penstock.outlook import expect
from penstock.policies.penstock.planning import (
    BINS,
    PlanInputs,
    compare,
    largest_useful_fleet,
    sizes,
)
from penstock.policies.penstock.rescaling import (
    ASSUMED_STARTUP_S,
    Growth,
    HoldUp,
    learn_growth,
    learn_hold_ups,
    learn_startup,
)
from penstock.policies.penstock.surges import BIN_S, Surges, watch

Known = TypeVar("Known")

FAR_BEHIND = 3.0  #: With a lag of more SLOs than this, catching up is all that counts.
#: The assumed hold-up before one was seen: of a query that grows, of a dataflow.
GROW_HOLD_UP_S, FLOW_HOLD_UP_S = 2.0, 6.0
LEAST_HOLD_UP_S = 0.5  #: A shorter hold-up by executors that leave is none.
RISING = 0.1  #: A load that is higher by this than a minute ago rises.
LEAST_DOUBT = 0.05  #: A capacity that may be higher by less is not in doubt.
FEWEST_SAMPLES = 4.0  #: With fewer measurements of the capacity the fleet does not shrink.
#: Growing that brought less than this part of what was expected is not repeated for a while. It is
#: judged this long after the executors have come.
LEAST_GAIN, INEFFECTIVE_S, SETTLING_S = 0.1, 300.0, 60.0
#: A plan leaves batches this much time, in triggers for two of them.
LEAST_TRIGGERS = 2.2
LOAD_HOLDS_S = 120.0  #: The last rate that was measured holds this long.
TIMES_S = 1e6  #: Larger numbers are instants, of which milliseconds count.
BEFORE_S = 60.0  #: A decision says how the load has changed since this long ago.


def with_short_numbers(known: Known) -> Known:
    """The same in the digits that mean something: each turn's memory is a part of its journal line.

    >>> with_short_numbers(Growth(1794918083.65999, 2, 4, 1234.56789))
    Growth(at_s=1794918083.66, before=2, after=4, before_rps=1234.57, expected_rps=0.0, gain=None,
        known_at_s=0.0)
    """
    if isinstance(known, float):
        return round(known, 3) if abs(known) >= TIMES_S else rounded(known, 6)  # type: ignore[return-value]
    if isinstance(known, tuple):
        return tuple(map(with_short_numbers, known))  # type: ignore[return-value]
    if isinstance(known, Struct):
        fields = [with_short_numbers(getattr(known, name)) for name in known.__struct_fields__]
        first = len(fields) - len(known.__struct_defaults__)
        # Defaults are left out of the line if they are the same object.
        for place, default in enumerate(known.__struct_defaults__, first):
            fields[place] = default if fields[place] == default else fields[place]
        return type(known)(*fields)
    return known


class PenstockMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """What the rule has learned of its job."""

    track: CapacityEstimate = CapacityEstimate()
    mean_rps: float = 0.0
    seen_s: float = 0.0
    startup_s: float | None = None
    hold_up: HoldUp = HoldUp()  #: Of growing; of a dataflow, of any change.
    surges: Surges = Surges()
    days: Days = Days()
    growth: Growth = Growth()
    query: str = ""
    others: dict[str, CapacityEstimate] = {}
    shrink_hold_up: HoldUp = HoldUp()

    def of_query(self, snapshot: Snapshot) -> "PenstockMemory":
        """The memory with what is known of the query that this snapshot is about."""
        names = [each.name for each in snapshot.queries if not each.excluded]
        name = names[0] if names else ""
        if name == self.query:
            return self
        known = {**self.others, self.query: self.track}
        track = known.pop(name, CapacityEstimate())
        others = {each: known[each] for each in known.keys() & set(names)}
        return msgspec.structs.replace(
            self, query=name, track=track, others=others, growth=Growth()
        )


@dataclass(frozen=True, slots=True)
class Penstock:
    """Model-predictive control: the cheapest plan for the next 15 minutes, made again each turn.

    The rule: with a forecast of the load and the learned capacity C(n) of each size, find by
    dynamic programming over executors and lag the plan with the least

        executor-seconds + late_price x late records + move_price x moves

    and take its first step. The SLO is a budget: a queue that stays inside it costs nothing, so
    the fleet runs near full use and the queue absorbs the noise. What is uncertain stays so: the
    load follows one of five scenarios about the forecast and may change from one to another, and a
    plan knows that it will see which and can still react. Surges are a scenario of their own: how
    likely they begin and end, and how high they rise, is learned from those before, so that the
    fleet keeps the reserve that pays for itself, or grows just before one that comes by the clock.
    What the load does at each time of day is learned over days, and counts as far as it has proved
    better than the last hours. Of several queries, it plans for the one that is nearest to missing
    its SLO, on the slots that the others leave.

    Parameters
    ----------
    slo_s: Records that wait longer are late.
    late_price: All records late all the time cost as much as this many full fleets.
    move_price: Starting or removing one executor, in executor-hours.
    bin_s: The load is forecast in bins of this many seconds, 31 of them ahead; what counts as a
        surge, and for how long, scales with it.
    period_s: Seconds between decisions.
    executor_warmup_s: Younger executors are slower than they will be, and are not measured.
    assumed_startup_s: How long executors take to start, until some have been seen to.

    Examples
    --------
    A dataflow with 2 executors that are 90 % busy at a constant 19 k/s:

    >>> from penstock.core.model import Fleet, OperatorSample, Step
    >>> def seen(at_s, load):
    ...     window = OperatorSample("window", busy_fraction=0.9, input_rps=load, output_rps=load)
    ...     return Snapshot(at_s, Fleet(2, 2, 2), arrival_rps=load, throughput_rps=load,
    ...         backlog_records=0.0, delay_s=0.0, operators=(window,))
    >>> knowledge, policy = Knowledge(), Penstock()
    >>> for turn in range(60):
    ...     snapshot = seen(10.0 * turn, 19_000.0)
    ...     knowledge.learn(snapshot, snapshot.at_s)
    ...     decision = policy.decide(snapshot, knowledge)
    ...     knowledge.remember(Step(snapshot.at_s, snapshot, decision))
    >>> decision.target_executors, decision.reasons[0].code
    (2, 'plan_holds')

    References
    ----------
    Receding-horizon control over a queue; the forecasters, the capacity model, the memory of surges
    and the dynamic program are in files of their own beside this one.

    Where we differ
    ---------------
    It is ours. From Daedalus and Phoebe it takes that capacity is learned and load is forecast;
    instead of a recovery time it uses the delay of records itself.

    Wins and loses
    --------------
    Wins on smooth loads and on those that repeat themselves, where it runs the fleet nearly full
    without being late. Loses to a fleet that happens to be large enough (`static:12`) on the first
    surge of a job: no forecast predicts it, and executors take longer to start than it leaves.
    """

    slo_s: Annotated[float, Meta(gt=0)] = 10.0
    late_price: Annotated[float, Meta(ge=0)] = 10.0
    move_price: Annotated[float, Meta(ge=0)] = 1.0 / 60.0
    bin_s: Annotated[float, Meta(gt=0)] = BIN_S
    period_s: Annotated[float, Meta(gt=0)] = 10.0
    executor_warmup_s: Annotated[float, Meta(ge=0)] = WARM_UP_S
    assumed_startup_s: Annotated[float, Meta(ge=0)] = ASSUMED_STARTUP_S

    # A plan to shrink must hold for a while: where a change stops the job, it is expensive to undo
    # one at the next swing of the load.
    default_limits: ClassVar[Limits] = Limits(stabilize_down_s=30.0)
    wakes_on_surge: ClassVar[bool] = True

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        counted = [each for each in snapshot.queries if not each.excluded]
        leader, trigger_s = counted[0] if counted else QuerySample(""), snapshot.trigger_interval_s
        slo_s, late_price = leader.slo_s or self.slo_s, leader.weight * self.late_price
        # Records wait for two triggers, whatever the fleet: what is more than that can be planned.
        least_s = LEAST_TRIGGERS * (trigger_s or 0.0)
        own = dataclasses.replace(self, slo_s=max(slo_s, least_s), late_price=late_price)
        decision = own._decide(snapshot, knowledge)
        first, *others = decision.reasons
        if len(counted) > 1:
            text = f"{leader.name} is the nearest to its SLO of {duration(slo_s)}: {first.text}"
            first = msgspec.structs.replace(first, text=text)
        if least_s > slo_s:
            text = (
                f"records wait for up to two triggers of {duration(trigger_s or 0.0)}: the SLO of "
                f"{duration(slo_s)} cannot be met with any fleet; use a shorter trigger"
            )
            others.append(Reason("trigger_bound", text))
        return msgspec.structs.replace(decision, reasons=(first, *others))

    def _decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        target = snapshot.fleet.target
        memory = self._learned(snapshot, knowledge)
        load = self._load(snapshot, knowledge)
        if load is None:
            return self._without_load(snapshot, memory)
        lag_is_known = snapshot.delay_s is not None or snapshot.backlog_records is not None
        # The lag of a micro-batch job shows in the duration of its batches as well.
        if not lag_is_known and (snapshot.trigger_interval_s is None or not snapshot.batches):
            return not_measured(target, "delay_s", "backlog_records", memory=memory)
        plain = self.ahead(knowledge.window(PAST_BINS * self.bin_s) or [snapshot], memory.surges)
        wall_s = snapshot.at_s + snapshot.clock_ahead_s
        ahead = memory.days.improved(wall_s, load, plain, self.bin_s)
        days = memory.days.observed(wall_s, load, plain, self.bin_s)
        memory = msgspec.structs.replace(memory, days=days)
        if memory.track.work_s is None:
            return self._without_capacity(snapshot, memory)
        inputs = self._inputs(snapshot, knowledge, memory, load, ahead)
        most = largest_useful_fleet(inputs)
        # More than any fleet carries: all sizes are late, and the cheapest would be the smallest.
        over = inputs.coming_rps / max(inputs.capacity.rps(most), 1e-9)
        overloaded, certainly = over > 1.0, over > 1.0 + inputs.capacity.doubt
        if (certainly or inputs.start.lag_s > FAR_BEHIND * self.slo_s) and most > target:
            return self._checked(catch_up_decision(inputs, most, memory), snapshot, memory)
        choices = sizes(inputs)
        solved = compare(inputs, choices)
        cost_s = solved.cost_s
        planned = most if overloaded else choices[int(np.argmin(cost_s))]
        best = self._sure_growth(planned, inputs, snapshot, knowledge)
        # The same holds where the job is late already and stays so up to the horizon.
        if overloaded or inputs.waits_s > self.slo_s:
            best = max(best, min(target, inputs.limits.max_executors))
        saved_s = float(cost_s[choices.index(target)] - cost_s.min()) if target in choices else 0.0
        decision = explain_plan(inputs, best, saved_s, memory, expect(inputs, best, solved))
        if best < planned:
            doubt = inputs.capacity.doubt
            text = f"{planned} if the capacity were not in doubt: it may be {doubt:.0%} higher"
            unsure = Reason("capacity_unsure", text, {"doubt_fraction": rounded(doubt)})
            decision = msgspec.structs.replace(decision, reasons=(*decision.reasons, unsure))
        return self._checked(decision, snapshot, memory)

    def _sure_growth(
        self, best: int, inputs: PlanInputs, snapshot: Snapshot, knowledge: Knowledge
    ) -> int:
        """The size to grow to while the capacity is in doubt, because it was measured cold or once.

        As far as the load that is expected needs it even if the capacity is as high as it may be.
        Beyond that by one, if all executors are warm and the lag grows: that is measured.
        """
        target, capacity = inputs.start.target, inputs.capacity
        if best <= target or capacity.doubt < LEAST_DOUBT:
            return best
        hopeful = msgspec.structs.replace(capacity, hope=capacity.doubt)
        expected, before_rps = inputs.load, inputs.earlier and inputs.earlier.arrival_rps
        # What a load that rises may still do is no doubt about the capacity.
        if not inputs.surge_rises and inputs.load_rps <= (1.0 + RISING) * (before_rps or 0.0):
            expected = msgspec.structs.replace(expected, deviation=[0.0] * len(expected.mean))
        hoped = dataclasses.replace(inputs, capacity=hopeful, load=expected)
        choices = sizes(hoped)
        needed = max(target, choices[int(np.argmin(compare(hoped, choices).cost_s))])
        youngest_s = max((one.started_at_s for one in snapshot.executors), default=0.0)
        warm = snapshot.at_s - youngest_s >= self.executor_warmup_s or youngest_s <= 0.0
        before = [measured_lag_s(one) for one in knowledge.latest(2)[:-1]]
        grows = not before or inputs.start.lag_s > before[0] or inputs.waits_s > self.slo_s
        return min(best, max(needed, target + 1 if warm and grows else target))

    def _checked(self, decision: Decision, snapshot: Snapshot, memory: PenstockMemory) -> Decision:
        """The decision, unless too little is known to shrink, or growing has not helped lately."""
        target, best, growth = snapshot.fleet.target, decision.target_executors, memory.growth
        samples = memory.track.measurements
        if best < target and samples < FEWEST_SAMPLES:
            text = f"the capacity is known from {samples:.0f} measurements: no shrinking"
            return decision.limited_to(target, Reason("capacity_unsure", text))
        hold_s = INEFFECTIVE_S * self.bin_s / BIN_S - (snapshot.at_s - growth.known_at_s)
        helped = growth.gain is None or growth.gain >= LEAST_GAIN or growth.after != target
        if best <= target or helped or hold_s <= 0.0:
            return decision
        text = (
            f"{executors(growth.after, 'carry')} about as much as {growth.before} did: "
            f"no growth for {duration(hold_s)}; look for what they wait for"
        )
        reason = Reason("growth_ineffective", text, {"gain": growth.gain or 0.0})
        return decision.limited_to(target, reason)

    def ahead(self, seen: Sequence[Snapshot], surges: Surges) -> Forecast:
        """The load in bins from now on, from what was seen; the lab replaces it by the truth."""
        return load_ahead(seen, surges, BINS, self.bin_s)

    def _load(self, snapshot: Snapshot, knowledge: Knowledge) -> float | None:
        """What arrives; a source that tells nothing while a batch runs has its last rate."""
        if snapshot.arrival_rps is not None or snapshot.trigger_interval_s is None:
            return snapshot.arrival_rps
        recent = (one.arrival_rps for one in reversed(knowledge.window(LOAD_HOLDS_S)))
        return next((load for load in recent if load is not None), None)

    def _without_load(self, snapshot: Snapshot, memory: PenstockMemory) -> Decision:
        """Where nothing says what arrives, batches that are too long ask for more executors."""
        target, trigger_s = snapshot.fleet.target, snapshot.trigger_interval_s
        took_s = min((batch.duration_s for batch in snapshot.batches), default=0.0)
        settled = snapshot.fleet.active == target
        if trigger_s is None or took_s <= trigger_s or not settled:
            return not_measured(target, "arrival_rps", memory=memory)
        grown = min(2 * target, ceil(target * took_s / max(trigger_s, 0.5 * took_s)))
        text = (
            f"it is not known what arrives, and batches take {duration(took_s)} where the trigger "
            f"is {duration(trigger_s)}: from {target} to {executors(grown)}"
        )
        evidence = {"batch_s": took_s, "trigger_s": trigger_s}
        return Decision.of(grown, Reason("batches_too_long", text, evidence), memory=memory)

    def _without_capacity(self, snapshot: Snapshot, memory: PenstockMemory) -> Decision:
        """Before anything is known of its capacity, a job grows only if it is late."""
        target, delay_s = snapshot.fleet.target, snapshot.delay_s or 0.0
        if delay_s <= self.slo_s or snapshot.fleet.active < target:
            return not_measured(target, "capacity", memory=memory)
        grown = target + max(1, target // 2)
        text = (
            f"records wait {duration(delay_s)}, the SLO is {duration(self.slo_s)}, and the capacity"
            f" is not known yet: from {target} to {grown} executors"
        )
        return Decision.of(grown, Reason("late_unknown", text), memory=memory)

    def _inputs(
        self,
        snapshot: Snapshot,
        knowledge: Knowledge,
        memory: PenstockMemory,
        load_rps: float,
        ahead: Forecast,
    ) -> PlanInputs:
        fleet, trigger_s, limits = snapshot.fleet, snapshot.trigger_interval_s, knowledge.limits
        # A dataflow runs one instance per worker, a batch one task per core.
        most = snapshot.partitions
        if most is not None and trigger_s is not None:
            most = ceil(most / fleet.cores_per_executor)
        startup_s = self.assumed_startup_s if memory.startup_s is None else memory.startup_s
        grow_s = memory.hold_up.seconds(snapshot.state_bytes)
        if grow_s is None:
            grow_s = FLOW_HOLD_UP_S if trigger_s is None else GROW_HOLD_UP_S
        shrink_s = memory.shrink_hold_up.seconds(snapshot.state_bytes)
        if trigger_s is None:
            shrink_s = grow_s
        elif shrink_s is None or shrink_s < LEAST_HOLD_UP_S:
            shrink_s = 0.0
        late_s, move_s = self.late_price * limits.max_executors, 3600.0 * self.move_price
        recent = (one for one in knowledge.window(BEFORE_S) if one.at_s < snapshot.at_s)
        return PlanInputs(
            at_s=snapshot.at_s,
            start=StartState.seen(snapshot, knowledge.since_rescale_s(), startup_s),
            prices=Prices(late_s, move_s, max(memory.mean_rps, 1e-6)),
            load_rps=load_rps,
            earlier=next((one for one in recent if one.arrival_rps is not None), None),
            load=ahead,
            surges=memory.surges,
            capacity=Capacity(memory.track, fleet.cores_per_executor, most, of_all=True),
            rescale_s=grow_s,
            shrink_s=shrink_s,
            state_bytes=snapshot.state_bytes,
            batch=snapshot.batches[-1] if snapshot.batches else None,
            trigger_s=trigger_s,
            bin_s=self.bin_s,
            slo_s=self.slo_s,
            limits=limits,
        )

    def _learned(self, snapshot: Snapshot, knowledge: Knowledge) -> PenstockMemory:
        """The memory with what this turn shows."""
        memory = knowledge.recall(PenstockMemory).of_query(snapshot)
        history, rescales = knowledge.history, knowledge.rescales
        previous = history[-2] if len(history) > 1 else None
        gap_s = min(600.0, snapshot.at_s - previous.at_s) if previous is not None else 0.0
        seen_s, mean_rps, surges = memory.seen_s, memory.mean_rps, memory.surges
        if (load := snapshot.arrival_rps) is not None:
            surges = watch(surges, snapshot.at_s, load, self.bin_s / BIN_S)
            if seen_s == 0.0:
                mean_rps = load
            if gap_s > 0.0:
                # The mean over the last day: lateness is charged against it.
                seen_s = min(86_400.0, seen_s + gap_s)
                mean_rps += (load - mean_rps) * gap_s / seen_s
        track, startup_s = memory.track, memory.startup_s
        hold_ups = memory.hold_up, memory.shrink_hold_up
        asked_s = rescales[-1].at_s if rescales else None
        # A late measurement of a fleet that has changed since says nothing about the present one.
        if asked_s is None or not asked_s >= snapshot.at_s:
            track = learn(track, snapshot, previous, self.executor_warmup_s)
        if asked_s is not None:
            if rescales[-1].after > rescales[-1].before:
                startup_s = learn_startup(startup_s, snapshot, previous, asked_s)
            hold_ups = learn_hold_ups(*hold_ups, track, knowledge.window(100.0), asked_s)
        settling_s = (startup_s or self.assumed_startup_s) + SETTLING_S * self.bin_s / BIN_S
        growth = learn_growth(memory.growth, track, snapshot, rescales, settling_s)
        learned = msgspec.structs.replace(
            memory, track=track, mean_rps=mean_rps, seen_s=seen_s, startup_s=startup_s,
            hold_up=hold_ups[0], shrink_hold_up=hold_ups[1], surges=surges, growth=growth,
        )  # fmt: skip
        # The mean over a day changes by less than six digits show.
        return msgspec.structs.replace(with_short_numbers(learned), mean_rps=mean_rps)
