"""Our own rule: plan the next quarter of an hour, do the first step, plan again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from penstock.knowledge import Knowledge
from penstock.learning.capacity import Capacity, Track, learn
from penstock.learning.forecasters import Forecast, forecast
from penstock.learning.rescaling import learn_hold_up, learn_startup
from penstock.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.planning import Outlook, Physics, Present, Prices, first_costs, solve

Array = NDArray[np.float64]

#: Further behind than so many SLOs, catching up is all that counts.
FAR_BEHIND = 3.0
#: How much past the forecast looks at, in bins: an hour and a half of half minutes.
PAST_BINS = 180
#: The steps of the plan after the first, in bins: a quarter of an hour, coarser towards its end.
STEPS = (1,) * 6 + (2,) * 6 + (4,) * 3
#: The courses of the load, in standard deviations from the forecast, and how likely each is.
COURSES = np.array([0.0, -1.356, 1.356, -2.857, 2.857])
WEIGHTS = np.array([0.53333, 0.22208, 0.22208, 0.01126, 0.01126])
#: How likely the load is to be on the same course a bin later.
KEEPS = 0.9
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
class Sight:
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
    bin_s: float
    late_s: float = 0.0
    move_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Penstock:
    """Model-predictive control: the cheapest plan for the next 15 minutes, begun and made anew.

    The rule: with a forecast of the load and the learned capacity C(n) of each size, find by
    dynamic programming over executors and backlog the plan with the least

        executor-seconds + late_price x late records + move_price x moves

    and take its first step. The SLO is a budget: a queue that stays inside it costs nothing, so
    the fleet runs near full use and lets the queue take up the noise. What is uncertain stays so:
    the load follows one of five courses about the forecast and may change from one to another, and
    a plan knows that it will see which and can still react.

    Parameters
    ----------
    slo_s
        Records that wait longer are late.
    late_price
        Every record late all the time costs as much as so many full fleets.
    move_price
        Starting or removing one executor, in executor-hours.
    bin_s
        The load is forecast in bins of so many seconds, 30 of them ahead.
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
    Wins on smooth loads and on those that repeat themselves, where it runs the fleet nearly full
    without being late. Loses to a fleet that is too large all the time (`hpa` at 0.7) on bursts at
    random: no forecast sees them, and executors need longer to come than they last.
    """

    slo_s: Annotated[float, Meta(gt=0)] = 10.0
    late_price: Annotated[float, Meta(ge=0)] = 10.0
    move_price: Annotated[float, Meta(ge=0)] = 1.0 / 60.0
    bin_s: Annotated[float, Meta(gt=0)] = 30.0
    period_s: Annotated[float, Meta(gt=0)] = 10.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = True

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
        limits = knowledge.limits
        sight = replace(
            _outlook(snapshot, knowledge, memory, load, self.bin_s),
            late_s=self.late_price * limits.max_executors,
            move_s=3600.0 * self.move_price,
        )
        if sight.behind_s > FAR_BEHIND * self.slo_s and (most := _helpful(sight, limits)) > target:
            return _catching_up(sight, most, memory)
        sizes = _sizes(sight, limits, self.slo_s)
        costs = self._costs(sight, sizes, limits)
        best = sizes[int(np.argmin(costs))]
        # Where no size is in time again before the horizon, the cheapest would be the smallest.
        if _waits_s(sight) > self.slo_s:
            best = max(best, min(target, limits.max_executors))
        return _told(sight, sizes, costs, best, memory)

    def _first_steps(self, snapshot: Snapshot, memory: PenstockMemory) -> Decision:
        """Before anything is known of its capacity, only a job that is plainly late may grow."""
        target, delay_s = snapshot.fleet.target, snapshot.delay_s or 0.0
        if delay_s > self.slo_s and snapshot.fleet.active >= target:
            text = f"records wait {delay_s:.0f} s and capacity is not known yet: half as many again"
            return Decision.of(
                target + max(1, target // 2), Reason("late_unknown", text), memory=memory
            )
        return not_measured(target, "capacity", memory=memory)

    def _costs(self, sight: Sight, sizes: Sequence[int], limits: Limits) -> Array:
        """What each size leads to, over all futures, in executor-seconds."""
        prices = Prices(late_s=sight.late_s, move=sight.move_s, mean_rps=sight.mean_rps)
        physics = Physics(
            np.asarray(sizes, dtype=float),
            np.asarray([sight.capacity.rps(size) for size in sizes]),
            sight.capacity.fixed_s(max(1, sight.active)),
            sight.trigger_s,
            sight.rescale_s,
            self.slo_s,
            sight.capacity.track.noise,
        )
        mean, deviation = np.asarray(sight.load.mean), np.asarray(sight.load.deviation)
        # Less capacity than was learned is like more load.
        deviation = np.sqrt(deviation**2 + (sight.error * mean) ** 2)
        loads = np.maximum(0.0, mean + COURSES[:, None] * deviation)
        present = Present(
            sight.target,
            sight.active,
            sight.behind_s,
            sight.startup_s,
            sight.pending_s,
        )
        steps_s = _steps_s(sight.startup_s, self.bin_s)
        courses = _stepped(loads, sight.startup_s, steps_s, self.bin_s)
        keeps = KEEPS ** (np.asarray(steps_s) / self.bin_s)
        plan = solve(physics, prices, Outlook(courses, WEIGHTS, keeps), steps_s)
        return np.asarray(WEIGHTS @ first_costs(plan, present, loads, self.bin_s))


def _learned(memory: PenstockMemory, snapshot: Snapshot, knowledge: Knowledge) -> PenstockMemory:
    """What this turn adds to what is known."""
    history, rescales = knowledge.history, knowledge.rescales
    previous = history[-2] if len(history) > 1 else None
    gap_s = min(600.0, snapshot.at_s - previous.at_s) if previous is not None else 0.0
    load, seen_s, mean_rps = snapshot.arrival_rps, memory.seen_s, memory.mean_rps
    if load is not None and gap_s > 0.0:
        # The mean over the last day counts, since lateness is charged against it.
        seen_s = min(86_400.0, seen_s + gap_s)
        mean_rps += (load - mean_rps) * gap_s / seen_s
    track, startup_s, rescale_s = memory.track, memory.startup_s, memory.rescale_s
    asked_s = rescales[-1].at_s if rescales else None
    # What is shown late of a fleet that has changed since tells nothing of the present one.
    if asked_s is None or not asked_s >= snapshot.at_s:
        track = learn(track, snapshot, previous)
    if asked_s is not None:
        if rescales[-1].after > rescales[-1].before:
            startup_s = learn_startup(startup_s, snapshot, previous, asked_s)
        rescale_s = learn_hold_up(rescale_s, track, knowledge.window(100.0), asked_s)
    return PenstockMemory(track, mean_rps, seen_s, startup_s, rescale_s)


def _outlook(
    snapshot: Snapshot, knowledge: Knowledge, memory: PenstockMemory, load: float, bin_s: float
) -> Sight:
    fleet = snapshot.fleet
    trigger_s, cores = snapshot.trigger_interval_s, fleet.cores_per_executor
    # A dataflow runs one instance per worker, a batch one task per core.
    most = snapshot.partitions
    if most is not None and trigger_s is not None:
        most = ceil(most / cores)
    capacity = Capacity(memory.track, cores, most)
    asked_s = knowledge.since_rescale_s()
    waits = fleet.active < fleet.target
    pending_s = max(2.0, memory.startup_s - asked_s) if waits and asked_s is not None else 0.0
    steps = 1 + sum(STEPS)
    assumed_s = 0.3 if trigger_s is not None else 6.0
    return Sight(
        target=fleet.target,
        active=fleet.active,
        behind_s=_behind_s(snapshot, load),
        load_rps=load,
        load=_load_ahead(snapshot, knowledge, steps, bin_s),
        capacity=capacity,
        error=capacity.error(snapshot.at_s),
        startup_s=memory.startup_s,
        pending_s=pending_s,
        rescale_s=assumed_s if memory.rescale_s is None else memory.rescale_s,
        trigger_s=trigger_s,
        mean_rps=max(memory.mean_rps, 1e-6),
        bin_s=bin_s,
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
    durations = [batch.duration_s for batch in snapshot.batches[-1:]]
    batch_s = max([snapshot.trigger_interval_s, *durations])
    return max(batch_s, delay_s - batch_s)


def _waits_s(sight: Sight) -> float:
    """How long the records wait that wait longest: in a micro-batch job for two batches."""
    return sight.behind_s * (1.0 if sight.trigger_s is None else 2.0)


def _helpful(sight: Sight, limits: Limits) -> int:
    """As many executors as make a difference."""
    most = limits.max_executors
    return _smallest(sight.capacity, 0.97 * sight.capacity.rps(most), 1, most)


def _catching_up(sight: Sight, executors: int, memory: PenstockMemory) -> Decision:
    """So far behind that no plan matters: all that help, until it has caught up."""
    carries = sight.capacity.rps(executors)
    text = (
        f"{sight.behind_s:.0f} s behind at {_k(sight.load_rps)}: {executors} executors, as many as "
        f"help, carry {_k(carries)}"
    )
    evidence = {"behind_s": sight.behind_s, "load_rps": sight.load_rps}
    reason = Reason("far_behind", text, evidence)
    return Decision.of(executors, reason, expected_rps=carries, memory=memory)


def _load_ahead(snapshot: Snapshot, knowledge: Knowledge, steps: int, bin_s: float) -> Forecast:
    """The forecast in bins from now on."""
    bins = _bins(knowledge, bin_s) or (snapshot.arrival_rps or 0.0,)
    history = knowledge.history
    period_s = max(0.0, snapshot.at_s - history[-2].at_s) if len(history) > 1 else 0.0
    elapsed = min(1.0, (snapshot.at_s % bin_s + period_s) / bin_s)
    return forecast(bins, steps).from_now(bins[-1], elapsed)


def _bins(knowledge: Knowledge, bin_s: float) -> tuple[float, ...]:
    """Mean loads of the past, oldest first, in bins on a fixed grid; the last may still fill."""
    bins: list[float] = []
    place, total, count = -1, 0.0, 0
    for snapshot in knowledge.window(PAST_BINS * bin_s):
        if snapshot.arrival_rps is None:
            continue
        now = int(snapshot.at_s / bin_s)
        if now != place and count:
            mean = total / count
            # Bins in which nothing was measured keep the load of the one before.
            bins.extend([mean] * min(max(1, now - place), 20))
            total, count = 0.0, 0
        place = now
        total += snapshot.arrival_rps
        count += 1
    if count:
        mean, latest = total / count, knowledge.history[-1].arrival_rps
        # A bin that a jump runs through shows neither what was nor what is.
        jumped = latest is not None and abs(latest - mean) > 0.25 * max(latest, mean)
        bins.append(latest if latest is not None and jumped else mean)
    return tuple(bins)


def _steps_s(startup_s: float, bin_s: float) -> list[float]:
    """The steps of the plan: no shorter than executors take to come."""
    longest_s = max(bin_s, startup_s)
    return [longest_s * step for step in STEPS]


def _stepped(bins_rps: Array, begin_s: float, steps_s: Sequence[float], bin_s: float) -> Array:
    """The load of each step of the plan, which begins when the first step is over."""
    count = bins_rps.shape[1]
    edges = begin_s + np.concatenate([[0.0], np.cumsum(steps_s)])
    # Means over bins are differences of their running sum, read between its points.
    total = np.concatenate([np.zeros((len(bins_rps), 1)), np.cumsum(bins_rps, axis=1)], axis=1)
    at = np.minimum(edges / bin_s, count)
    low = np.minimum(at.astype(int), count - 1)
    upto = total[:, low] + (total[:, low + 1] - total[:, low]) * (at - low)
    width = np.maximum(np.diff(at), 1e-9)
    return np.asarray(np.where(np.diff(at) > 1e-6, np.diff(upto, axis=1) / width, bins_rps[:, -1:]))


def _sizes(sight: Sight, limits: Limits, slo_s: float) -> list[int]:
    """The sizes worth weighing: around what the load needs, what there is, and to catch up."""
    capacity = sight.capacity
    low = min(sight.load.quantile(-1.3)) * 0.85
    high = max(sight.load.quantile(1.3)) * 1.2
    if sight.behind_s > 0.5 * slo_s:
        high *= 1.0 + sight.behind_s / 60.0
    least, most = max(limits.min_executors, 1), limits.max_executors
    first = _smallest(capacity, low, least, most)
    last = _smallest(capacity, high, first, most)
    first, last = min(first, sight.target), max(last, sight.target)
    first, last = max(least, min(first, most)), min(most, max(last, least))
    sizes = list(range(first, last + 1))
    if len(sizes) > MOST_SIZES:
        chosen = {round(x) for x in np.linspace(first, last, MOST_SIZES - 3)}
        near = {sight.target - 1, sight.target, sight.target + 1}
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
    sight: Sight, sizes: Sequence[int], costs: Array, best: int, memory: PenstockMemory
) -> Decision:
    """The decision, in one sentence with its numbers."""
    target = sight.target
    peak = max(sight.load.mean)
    saved_s = float(costs[sizes.index(target)] - costs.min()) if target in sizes else 0.0
    evidence = {
        "load_rps": sight.load_rps,
        "peak_rps": peak,
        "capacity_rps": sight.capacity.rps(best),
        "behind_s": sight.behind_s,
        "saved_executor_s": saved_s,
    }
    code, verb = _verdict(sight, best, saved_s)
    text = f"{_course(sight, peak)}; {verb}"
    return Decision.of(
        best,
        Reason(code, text, evidence),
        expected_rps=evidence["capacity_rps"],
        memory=memory,
    )


def _course(sight: Sight, peak_rps: float) -> str:
    """Where the load goes, in words."""
    mean, now = sight.load.mean, sight.load_rps
    if peak_rps > 1.05 * now:
        ahead_min = mean.index(peak_rps) * sight.bin_s / 60.0
        return f"load rises from {_k(now)} to {_k(peak_rps)} in {ahead_min:.0f} min"
    if min(mean) < 0.95 * now:
        ahead_min = mean.index(min(mean)) * sight.bin_s / 60.0
        return f"load falls from {_k(now)} to {_k(min(mean))} in {ahead_min:.0f} min"
    return f"load stays at {_k(now)}"


def _verdict(sight: Sight, best: int, saved_s: float) -> tuple[str, str]:
    """What is done about it, and what for."""
    target, capacity = sight.target, sight.capacity
    carries = f"{target} executors carry {_k(capacity.rps(target))}"
    bound = _bound(sight)
    if best <= target and bound is not None:
        return "more_will_not_help", f"{carries}, {sight.behind_s:.0f} s behind: {bound}"
    if best == target:
        return "plan_holds", f"{carries}, {sight.behind_s:.1f} s behind: no move pays"
    moved = abs(best - target)
    many = "one" if moved == 1 else str(moved)
    if best < target:
        left = f"{best} would carry {_k(capacity.rps(best))}"
        return "plan_shrinks", f"{carries}, {left}: {many} fewer saves {saved_s:.0f} executor-s"
    cost_s = moved * (sight.startup_s + sight.move_s)
    late_s = (saved_s + cost_s) / max(sight.late_s, 1e-9)
    return "plan_grows", (
        f"{carries}, {sight.behind_s:.1f} s behind; {many} more now costs "
        f"{cost_s / 3600.0:.2f} executor-hours and avoids {late_s:.1f} s of lateness"
    )


def _bound(sight: Sight) -> str | None:
    """Why no fleet would do better, where the load is more than any carries."""
    capacity, target = sight.capacity, sight.target
    here, twice = capacity.rps(target), capacity.rps(2 * target)
    if sight.load_rps < 0.97 * here or twice > 1.05 * here:
        return None
    if capacity.most is not None and target >= capacity.most:
        return f"{capacity.most} executors have all partitions, more would have none"
    if capacity.track.serial_s * here > 0.5:
        return "one task or key holds the others up, and more executors do not speed it up"
    return "what a record costs does not shrink with more executors"


def _k(rps: float) -> str:
    return f"{rps / 1e3:.1f} k/s"
