"""Our own rule: plan the next quarter of an hour, do the first step, plan again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.policies.penstock.capacity import WARM_UP_S, Capacity, learn
from penstock.policies.penstock.capacity_estimate import CapacityEstimate
from penstock.policies.penstock.delay import JobModel, behind_s
from penstock.policies.penstock.dynamic_program import Prices, StartState, first_costs, solve
from penstock.policies.penstock.explanation import catch_up_decision, explain_plan
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.load import PAST_BINS, load_ahead
from penstock.policies.penstock.plan_inputs import PlanInputs, largest_useful_fleet, sizes
from penstock.policies.penstock.rescaling import ASSUMED_STARTUP_S, learn_hold_up, learn_startup
from penstock.policies.penstock.scenarios import BINS, courses, steps_s
from penstock.policies.penstock.surges import Surges, watch

Array = NDArray[np.float64]

#: The bins of a load whose surges last for minutes.
BIN_S = 30.0
#: Further behind than so many SLOs, catching up is all that counts.
FAR_BEHIND = 3.0
#: What a change of the fleet is taken to cost before one was seen: of a query, and of a dataflow.
BATCH_HOLD_UP_S = 0.3
FLOW_HOLD_UP_S = 6.0


class PenstockMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """What the rule has learned of its job."""

    track: CapacityEstimate = CapacityEstimate()
    mean_rps: float = 0.0
    seen_s: float = 0.0
    startup_s: float | None = None
    rescale_s: float | None = None
    surges: Surges = Surges()


@dataclass(frozen=True, slots=True)
class Penstock:
    """Model-predictive control: the cheapest plan for the next 15 minutes, begun and made anew.

    The rule: with a forecast of the load and the learned capacity C(n) of each size, find by
    dynamic programming over executors and backlog the plan with the least

        executor-seconds + late_price x late records + move_price x moves

    and take its first step. The SLO is a budget: a queue that stays inside it costs nothing, so
    the fleet runs near full use and lets the queue take up the noise. What is uncertain stays so:
    the load follows one of five courses about the forecast and may change from one to another, and
    a plan knows that it will see which and can still react. Surges are a course of their own: how
    likely they begin and end, and how high they rise, is learned from those before, so that the
    fleet keeps what pays for itself, or grows just before one that comes by the clock.

    Parameters
    ----------
    slo_s
        Records that wait longer are late.
    late_price
        Every record late all the time costs as much as so many full fleets.
    move_price
        Starting or removing one executor, in executor-hours.
    bin_s
        The load is forecast in bins of so many seconds, 30 of them ahead; what is a surge, and for
        how long, is reckoned in bins as well.
    period_s
        Seconds between decisions.
    executor_warmup_s
        Executors that are younger are slower than they will be, and are not measured.

    Examples
    --------
    A dataflow with 2 executors that are 95 % busy at 19 k/s, at a load that has stood still:

    >>> from penstock.core.model import Fleet, OperatorSample, Step
    >>> def look(at_s, load):
    ...     window = OperatorSample("window", busy_fraction=0.9, input_rps=load, output_rps=load)
    ...     return Snapshot(at_s, Fleet(2, 2, 2), arrival_rps=load, throughput_rps=load,
    ...         backlog_records=0.0, delay_s=0.0, operators=(window,))
    >>> knowledge, policy = Knowledge(), Penstock()
    >>> for turn in range(60):
    ...     snapshot = look(10.0 * turn, 19_000.0)
    ...     knowledge.learn(snapshot, snapshot.at_s)
    ...     decision = policy.decide(snapshot, knowledge)
    ...     knowledge.remember(Step(snapshot.at_s, snapshot, decision))
    >>> decision.target_executors, decision.reasons[0].code
    (2, 'plan_holds')

    References
    ----------
    Receding-horizon control over a queue; the forecasters, the capacity model and the memory of
    surges and the dynamic program stand in files of their own beside this one.

    Where we differ
    ---------------
    It is ours. From Daedalus and Phoebe it takes that capacity is learned and load is forecast; in
    their place of a recovery time it puts the delay of records itself.

    Wins and loses
    --------------
    Wins on smooth loads and on those that repeat themselves, where it runs the fleet nearly full
    without being late. Loses to a fleet that happens to be large enough (`static:12`) on the first
    surge of its life: no forecast sees it, and executors take longer to come than it leaves.
    """

    slo_s: Annotated[float, Meta(gt=0)] = 10.0
    late_price: Annotated[float, Meta(ge=0)] = 10.0
    move_price: Annotated[float, Meta(ge=0)] = 1.0 / 60.0
    bin_s: Annotated[float, Meta(gt=0)] = BIN_S
    period_s: Annotated[float, Meta(gt=0)] = 10.0
    executor_warmup_s: Annotated[float, Meta(ge=0)] = WARM_UP_S

    # A plan to shrink must have stood for a moment: where a change stops the job, one that is taken
    # back at the next swing of the load is dear.
    default_limits: ClassVar[Limits] = Limits(stabilize_down_s=30.0)
    wakes_on_surge: ClassVar[bool] = True

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        target = snapshot.fleet.target
        memory = self._learned(knowledge.recall(PenstockMemory), snapshot, knowledge)
        load = snapshot.arrival_rps
        if load is None:
            return not_measured(target, "arrival_rps", memory=memory)
        if snapshot.delay_s is None and snapshot.backlog_records is None:
            return not_measured(target, "delay_s", "backlog_records", memory=memory)
        if memory.track.work_s is None:
            return self._first_steps(snapshot, memory)
        limits = knowledge.limits
        sight = self._sight(snapshot, knowledge, memory, load)
        most = largest_useful_fleet(sight, limits)
        # More than any fleet carries: all sizes are late, and the cheapest would be the smallest.
        overloaded = sight.coming_rps > sight.capacity.rps(most)
        if (overloaded or sight.behind_s > FAR_BEHIND * self.slo_s) and most > target:
            return catch_up_decision(sight, most, memory)
        choices = sizes(sight, limits)
        costs = _costs(sight, choices, limits)
        best = choices[int(np.argmin(costs))]
        # Nor is any where the job is late already and is not in time again before the horizon.
        if overloaded or sight.waits_s > self.slo_s:
            best = max(best, min(target, limits.max_executors))
        saved_s = float(costs[choices.index(target)] - costs.min()) if target in choices else 0.0
        return explain_plan(sight, best, saved_s, memory)

    def ahead(self, seen: Sequence[Snapshot], surges: Surges) -> Forecast:
        """The load in bins from now on, from what was seen; the lab puts the truth in its place."""
        return load_ahead(seen, surges, BINS, self.bin_s)

    def _first_steps(self, snapshot: Snapshot, memory: PenstockMemory) -> Decision:
        """Before anything is known of its capacity, only a job that is plainly late may grow."""
        target, delay_s = snapshot.fleet.target, snapshot.delay_s or 0.0
        if delay_s > self.slo_s and snapshot.fleet.active >= target:
            text = f"records wait {delay_s:.0f} s and capacity is not known yet: half as many again"
            return Decision.of(
                target + max(1, target // 2),
                Reason("late_unknown", text),
                memory=memory,
            )
        return not_measured(target, "capacity", memory=memory)

    def _sight(
        self,
        snapshot: Snapshot,
        knowledge: Knowledge,
        memory: PenstockMemory,
        load_rps: float,
    ) -> PlanInputs:
        fleet, trigger_s = snapshot.fleet, snapshot.trigger_interval_s
        # A dataflow runs one instance per worker, a batch one task per core.
        most = snapshot.partitions
        if most is not None and trigger_s is not None:
            most = ceil(most / fleet.cores_per_executor)
        capacity = Capacity(memory.track, fleet.cores_per_executor, most)
        asked_s = knowledge.since_rescale_s()
        waits = fleet.active < fleet.target
        startup_s = ASSUMED_STARTUP_S if memory.startup_s is None else memory.startup_s
        pending_s = max(2.0, startup_s - asked_s) if waits and asked_s is not None else 0.0
        assumed_s = FLOW_HOLD_UP_S if trigger_s is None else BATCH_HOLD_UP_S
        seen = knowledge.window(PAST_BINS * self.bin_s) or [snapshot]
        return PlanInputs(
            at_s=snapshot.at_s,
            target=fleet.target,
            active=fleet.active,
            behind_s=behind_s(snapshot, load_rps),
            load_rps=load_rps,
            load=self.ahead(seen, memory.surges),
            surges=memory.surges,
            capacity=capacity,
            error=capacity.error(snapshot.at_s),
            startup_s=startup_s,
            pending_s=pending_s,
            rescale_s=assumed_s if memory.rescale_s is None else memory.rescale_s,
            trigger_s=trigger_s,
            mean_rps=max(memory.mean_rps, 1e-6),
            bin_s=self.bin_s,
            slo_s=self.slo_s,
            late_s=self.late_price * knowledge.limits.max_executors,
            move_s=3600.0 * self.move_price,
        )

    def _learned(
        self, memory: PenstockMemory, snapshot: Snapshot, knowledge: Knowledge
    ) -> PenstockMemory:
        """What this turn adds to what is known."""
        history, rescales = knowledge.history, knowledge.rescales
        previous = history[-2] if len(history) > 1 else None
        gap_s = min(600.0, snapshot.at_s - previous.at_s) if previous is not None else 0.0
        load, seen_s, mean_rps = snapshot.arrival_rps, memory.seen_s, memory.mean_rps
        surges = memory.surges
        if load is not None:
            surges = watch(replace(surges, pace=self.bin_s / BIN_S), snapshot.at_s, load)
        if load is not None and gap_s > 0.0:
            # The mean over the last day counts, since lateness is charged against it.
            seen_s = min(86_400.0, seen_s + gap_s)
            mean_rps += (load - mean_rps) * gap_s / seen_s
        track, startup_s, rescale_s = memory.track, memory.startup_s, memory.rescale_s
        asked_s = rescales[-1].at_s if rescales else None
        # What is shown late of a fleet that has changed since tells nothing of the present one.
        if asked_s is None or not asked_s >= snapshot.at_s:
            track = learn(track, snapshot, previous, self.executor_warmup_s)
        if asked_s is not None:
            if rescales[-1].after > rescales[-1].before:
                startup_s = learn_startup(startup_s, snapshot, previous, asked_s)
            rescale_s = learn_hold_up(rescale_s, track, knowledge.window(100.0), asked_s)
        return PenstockMemory(track, mean_rps, seen_s, startup_s, rescale_s, surges)


def _costs(sight: PlanInputs, choices: list[int], limits: Limits) -> Array:
    """What each size leads to, over all futures, in executor-seconds."""
    prices = Prices(late_s=sight.late_s, move=sight.move_s, mean_rps=sight.mean_rps)
    physics = JobModel(
        np.asarray(choices, dtype=float),
        np.asarray([sight.capacity.rps(size) for size in choices]),
        sight.fixed_s,
        sight.trigger_s,
        sight.rescale_s,
        sight.slo_s,
        sight.capacity.track.noise,
    )
    present = StartState(
        sight.target, sight.active, sight.behind_s, sight.startup_s, sight.pending_s
    )
    lengths_s = steps_s(sight)
    ahead = courses(sight, lengths_s, sight.capacity.rps(limits.max_executors))
    plan = solve(physics, prices, ahead.outlook, lengths_s)
    return np.asarray(ahead.weights @ first_costs(plan, present, ahead.bins_rps, sight.bin_s))
