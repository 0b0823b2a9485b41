"""Our own rule: plan the next quarter of an hour, do the first step, plan again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from penstock.knowledge import Knowledge
from penstock.learning.capacity import Capacity, Track, learn
from penstock.learning.forecasters import Forecast, forecast
from penstock.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.planning import Physics, Plan, Prices, advance, solve, value_at

Array = NDArray[np.float64]

#: The load is binned to this before it is forecast.
BIN_S = 30.0
#: How much past the forecast looks at.
PAST_S = 5400.0
#: The steps of the plan after the first: a quarter of an hour, coarser towards its end.
STEPS_S = (30.0,) * 6 + (60.0,) * 12
#: What may come, in standard deviations of load and of capacity, and how likely it is.
FUTURES = ((0.0, 0.0, 0.5), (1.3, -0.7, 0.25), (-1.3, 0.7, 0.25))
#: The most sizes of the fleet that are weighed against each other.
MOST_SIZES = 14


class PenstockMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """What the rule has learned of its job."""

    track: Track = Track()
    mean_rps: float = 0.0
    seen_s: float = 0.0
    startup_s: float = 30.0
    rescale_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """All that a plan is made from, at one instant."""

    target: int
    active: int
    behind_s: float
    load_rps: float
    load: Forecast
    capacity: Capacity
    error: float
    startup_s: float
    pending_s: float
    rescale_s: float
    trigger_s: float | None
    mean_rps: float


@dataclass(frozen=True, slots=True)
class Penstock:
    """Model-predictive control: the cheapest plan for the next 15 minutes, begun and made anew.

    The rule: with a forecast of the load and the learned capacity C(n) of each size, find by
    dynamic programming over executors and backlog the plan with the least

        executor-seconds + late_price x late records + move_price x moves

    and take its first step. The SLO is a budget: a queue that stays inside it costs nothing, so
    the fleet runs near full use and lets the queue take up the noise. What is uncertain stays so:
    the plan is made for three futures (as expected; more load and less capacity; the
    reverse), and the step is taken that is best over all three.

    Parameters
    ----------
    slo_s
        Records that wait longer are late.
    late_price
        Every record late all the time costs as much as so many full fleets.
    move_price
        Starting or removing one executor, in executor-hours.
    period_s
        Seconds between decisions.

    Examples
    --------
    A dataflow with 2 executors that are 95 % busy at 19 k/s, at a load that has stood still:

    >>> from penstock.model import Fleet, OperatorSample, Step
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
    Receding-horizon control over a queue; the forecasters and the capacity model are described in
    `penstock.learning`, the dynamic programme in `penstock.planning`.

    Where we differ
    ---------------
    It is ours. From Daedalus and Phoebe it takes that capacity is learned and load is forecast; in
    their place of a recovery time it puts the delay of records itself.

    Wins and loses
    --------------
    Wins on smooth and on seasonal loads, where it runs the fleet nearly full without being late.
    Loses to a fleet that is too large on a flash crowd: no forecast sees it, and the executors
    that it takes need half a minute to start.
    """

    slo_s: Annotated[float, Meta(gt=0)] = 10.0
    late_price: Annotated[float, Meta(ge=0)] = 10.0
    move_price: Annotated[float, Meta(ge=0)] = 1.0 / 60.0
    period_s: Annotated[float, Meta(gt=0)] = 10.0

    default_limits: ClassVar[Limits] = Limits()

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        target = snapshot.fleet.target
        memory = _learned(knowledge.recall(PenstockMemory), snapshot, knowledge)
        load = snapshot.arrival_rps
        if load is None:
            return not_measured(target, "arrival_rps", memory=memory)
        if snapshot.delay_s is None and snapshot.backlog_records is None:
            return not_measured(target, "delay_s", "backlog_records", memory=memory)
        if memory.track.work_s is None:
            return self._first_steps(snapshot, memory)
        outlook = _outlook(snapshot, knowledge, memory, load)
        limits = knowledge.limits
        sizes = _sizes(outlook, limits, self.slo_s)
        costs = self._costs(outlook, sizes, limits)
        best = sizes[int(np.argmin(costs))]
        return _told(outlook, sizes, costs, best, memory)

    def _first_steps(self, snapshot: Snapshot, memory: PenstockMemory) -> Decision:
        """Before anything is known of its capacity, only a job that is plainly late may grow."""
        target, delay_s = snapshot.fleet.target, snapshot.delay_s or 0.0
        if delay_s > self.slo_s and snapshot.fleet.active >= target:
            text = f"records wait {delay_s:.0f} s and capacity is not known yet: half as many again"
            return Decision.of(
                target + max(1, target // 2), Reason("late_unknown", text), memory=memory
            )
        return not_measured(target, "capacity", memory=memory)

    def _costs(self, outlook: Outlook, sizes: Sequence[int], limits: Limits) -> Array:
        """What each size leads to, over all futures, in executor-seconds."""
        prices = Prices(
            late_s=self.late_price * limits.max_executors, move=3600.0 * self.move_price
        )
        total = np.zeros(len(sizes))
        for load_z, capacity_z, weight in FUTURES:
            scale = max(0.2, 1.0 + capacity_z * outlook.error)
            physics = Physics(
                list(sizes),
                [scale * outlook.capacity.rps(size) for size in sizes],
                outlook.capacity.fixed_s(),
                outlook.trigger_s,
                outlook.rescale_s,
                self.slo_s,
            )
            loads = outlook.load.quantile(load_z)
            plan = solve(
                physics, prices, _stepped(loads, outlook.startup_s), STEPS_S, outlook.mean_rps
            )
            total += weight * self._first(outlook, plan, loads[0], scale)
        return total

    def _first(self, outlook: Outlook, plan: Plan, load_rps: float, scale: float) -> Array:
        """The cost of each size until newly asked executors work, and of what it leads to.

        Until those that were asked for earlier come, the job runs with what is there.
        """
        physics, prices = plan.physics, plan.prices
        sizes = np.asarray(physics.sizes)
        moves = sizes != outlook.target
        until_s = min(outlook.pending_s, outlook.startup_s)
        late_price = prices.late_s / max(outlook.mean_rps, 1e-6) * load_rps
        behind: Array = outlook.behind_s + np.where(moves, physics.rescale_s, 0.0)
        late = np.zeros(len(sizes))
        for span_s, working in (
            (until_s, np.minimum(sizes, outlook.active)),
            (outlook.startup_s - until_s, np.minimum(sizes, outlook.target)),
        ):
            if span_s > 0.0:
                capacity = np.asarray([outlook.capacity.rps(int(n)) * scale for n in working])
                behind, seconds = advance(
                    physics, behind, np.asarray(load_rps), capacity, np.asarray(span_s)
                )
                late = late + seconds
        return np.asarray(
            sizes * outlook.startup_s
            + prices.move * np.abs(sizes - outlook.target)
            + late_price * late
            + value_at(plan, 0, behind)
        )


def _learned(memory: PenstockMemory, snapshot: Snapshot, knowledge: Knowledge) -> PenstockMemory:
    """What this turn adds to what is known."""
    history = knowledge.history
    previous = history[-2] if len(history) > 1 else None
    gap_s = min(600.0, snapshot.at_s - previous.at_s) if previous is not None else 0.0
    load, seen_s, mean_rps = snapshot.arrival_rps, memory.seen_s, memory.mean_rps
    if load is not None and gap_s > 0.0:
        # The mean over the last day counts, since lateness is charged against it.
        seen_s = min(86_400.0, seen_s + gap_s)
        mean_rps += (load - mean_rps) * gap_s / seen_s
    return PenstockMemory(
        learn(memory.track, snapshot, previous),
        mean_rps,
        seen_s,
        _startup_s(memory.startup_s, snapshot, knowledge),
        _rescale_s(memory.rescale_s, snapshot, knowledge),
    )


def _startup_s(known_s: float, snapshot: Snapshot, knowledge: Knowledge) -> float:
    """How long executors take to come, from those that came since the last request."""
    if not knowledge.rescales or knowledge.rescales[-1].after <= knowledge.rescales[-1].before:
        return known_s
    asked_s = knowledge.rescales[-1].at_s
    came = [
        one.started_at_s - asked_s
        for one in snapshot.executors
        if one.ready and one.started_at_s > asked_s
    ]
    if not came or knowledge.history[-2].fleet.active == snapshot.fleet.active:
        return known_s
    # The slowest counts: a plan that waits for the mean is late half of the time.
    return float(min(600.0, max(5.0, known_s + 0.3 * (max(came) - known_s))))


def _rescale_s(known_s: float | None, snapshot: Snapshot, knowledge: Knowledge) -> float | None:
    """How far behind a rescale leaves the job, from the worst delay in the minute after it."""
    if not knowledge.rescales or snapshot.delay_s is None:
        return known_s
    since_s = snapshot.at_s - knowledge.rescales[-1].at_s
    if not 60.0 <= since_s < 70.0:
        return known_s
    before = [s.delay_s or 0.0 for s in knowledge.window(since_s + 30.0) if s.at_s < since_s]
    after = [s.delay_s or 0.0 for s in knowledge.window(since_s)]
    worst = max(0.0, max(after) - max(before, default=0.0))
    usual = 2.0 * (snapshot.trigger_interval_s or 0.0)
    lost_s = min(120.0, max(0.0, worst - usual))
    return lost_s if known_s is None else known_s + 0.3 * (lost_s - known_s)


def _outlook(
    snapshot: Snapshot, knowledge: Knowledge, memory: PenstockMemory, load: float
) -> Outlook:
    fleet = snapshot.fleet
    capacity = Capacity(memory.track, fleet.cores_per_executor)
    trigger_s = snapshot.trigger_interval_s
    asked_s = knowledge.since_rescale_s()
    waits = fleet.active < fleet.target
    pending_s = max(2.0, memory.startup_s - asked_s) if waits and asked_s is not None else 0.0
    steps = 1 + int(sum(STEPS_S) / BIN_S)
    assumed_s = 0.5 if trigger_s is not None else 6.0
    return Outlook(
        target=fleet.target,
        active=fleet.active,
        behind_s=_behind_s(snapshot, load),
        load_rps=load,
        load=forecast(_bins(knowledge), steps),
        capacity=capacity,
        error=capacity.error(snapshot.at_s),
        startup_s=memory.startup_s,
        pending_s=pending_s,
        rescale_s=assumed_s if memory.rescale_s is None else memory.rescale_s,
        trigger_s=trigger_s,
        mean_rps=max(memory.mean_rps, 1e-6),
    )


def _behind_s(snapshot: Snapshot, load: float) -> float:
    """How many seconds of arrivals wait.

    In a micro-batch job a batch's worth always does; what counts is how long a batch lasts.
    """
    delay_s = snapshot.delay_s
    if delay_s is None:
        delay_s = (snapshot.backlog_records or 0.0) / max(load, 1e-6)
    if snapshot.trigger_interval_s is None:
        return delay_s
    durations = [batch.duration_s for batch in snapshot.batches[-3:]]
    batch_s = max([snapshot.trigger_interval_s, *durations])
    return max(batch_s, delay_s - batch_s)


def _bins(knowledge: Knowledge) -> list[float]:
    """Mean loads of the past, in bins that end now, oldest first."""
    now_s = knowledge.now_s
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for snapshot in reversed(knowledge.history):
        age_s = now_s - snapshot.at_s
        if age_s > PAST_S:
            break
        if snapshot.arrival_rps is not None and age_s >= 0.0:
            place = int(age_s / BIN_S)
            sums[place] = sums.get(place, 0.0) + snapshot.arrival_rps
            counts[place] = counts.get(place, 0) + 1
    if not sums:
        return []
    values: list[float] = []
    last = sums[max(sums)] / counts[max(sums)]
    for place in range(max(sums), -1, -1):
        if place in sums:
            last = sums[place] / counts[place]
        values.append(last)
    return values


def _stepped(bins_rps: Sequence[float], begin_s: float) -> list[float]:
    """The load of each step of the plan, which begins when the first step is over."""
    loads: list[float] = []
    at_s = begin_s
    for step_s in STEPS_S:
        first = min(int(at_s / BIN_S), len(bins_rps) - 1)
        last = min(max(first + 1, round((at_s + step_s) / BIN_S)), len(bins_rps))
        loads.append(sum(bins_rps[first:last]) / max(1, last - first))
        at_s += step_s
    return loads


def _sizes(outlook: Outlook, limits: Limits, slo_s: float) -> list[int]:
    """The sizes worth weighing: around what the load needs, what there is, and to catch up."""
    capacity = outlook.capacity
    low = min(outlook.load.quantile(-1.3)) * 0.85
    high = max(outlook.load.quantile(1.3)) * 1.2
    if outlook.behind_s > 0.5 * slo_s:
        high *= 1.0 + outlook.behind_s / 60.0
    least, most = max(limits.min_executors, 1), limits.max_executors
    first = _smallest(capacity, low, least, most)
    last = _smallest(capacity, high, first, most)
    first, last = min(first, outlook.target), max(last, outlook.target)
    first, last = max(least, min(first, most)), min(most, max(last, least))
    sizes = list(range(first, last + 1))
    if len(sizes) > MOST_SIZES:
        chosen = {round(x) for x in np.linspace(first, last, MOST_SIZES - 3)}
        near = {outlook.target - 1, outlook.target, outlook.target + 1}
        sizes = sorted(chosen | {n for n in near if first <= n <= last})
    return sizes


def _smallest(capacity: Capacity, load_rps: float, first: int, last: int) -> int:
    """The smallest size that carries a load, by halving."""
    while first < last:
        middle = (first + last) // 2
        if capacity.rps(middle) >= load_rps:
            last = middle
        else:
            first = middle + 1
    return first


def _told(
    outlook: Outlook, sizes: Sequence[int], costs: Array, best: int, memory: PenstockMemory
) -> Decision:
    """The decision, in one sentence with its numbers."""
    target = outlook.target
    carries = outlook.capacity.rps(best)
    peak = max(outlook.load.mean)
    peak_min = outlook.load.mean.index(peak) * BIN_S / 60.0
    saved = float(costs[sizes.index(target)] - costs.min()) if target in sizes else 0.0
    now = f"load {outlook.load_rps / 1e3:.1f} k/s"
    ahead = (
        f", to reach {peak / 1e3:.1f} k/s in {peak_min:.0f} min"
        if peak > 1.05 * outlook.load_rps
        else ""
    )
    if best == target:
        code, verb = "plan_holds", f"{best} executors carry {carries / 1e3:.1f} k/s: none to move"
    else:
        code = "plan_grows" if best > target else "plan_shrinks"
        verb = (
            f"{best} executors carry {carries / 1e3:.1f} k/s and cost {saved / 3600.0:.2f} "
            f"executor-hours less than {target} over the plan"
        )
    text = f"{now}{ahead}, {outlook.behind_s:.1f} s behind; {verb}"
    evidence = {
        "load_rps": outlook.load_rps,
        "peak_rps": peak,
        "capacity_rps": carries,
        "behind_s": outlook.behind_s,
        "saved_executor_s": saved,
    }
    return Decision.of(best, Reason(code, text, evidence), expected_rps=carries, memory=memory)
