"""The plan: dynamic programming over the size of the fleet and the lag of the job.

`JobModel` and its functions say what a job does with its executors: how its lag grows or shrinks,
and which records are late. `solve` and `first_costs` find the cheapest fleet for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from penstock.core.model import Snapshot

Array = NDArray[np.float64]
Places = NDArray[np.intp]

LARGEST_LAG_SLOS = 12.0  #: The largest lag that a plan distinguishes, in multiples of the SLO.
SHORTEST_BATCH_S = 0.01  #: No batch is shorter, whatever a job reports of its trigger.
#: A normal distribution as five points of Gauss and Hermite, in deviations, and their weights.
NORMAL_POINTS = np.array([-2.857, -1.356, 0.0, 1.356, 2.857])
NORMAL_WEIGHTS = np.array([0.01126, 0.22208, 0.53333, 0.22208, 0.01126])


class JobModel(Struct, frozen=True):
    """What a job does with its executors."""

    sizes: Array  #: Of the fleet to choose from, rising.
    capacity_rps: Array  #: Of each size when it never pauses, or a row of that for each step.
    fixed_s: float  #: What a batch costs besides its records; 0 for a dataflow.
    trigger_s: float | None  #: No batch takes less; 0: one follows the other; ``None``: a dataflow.
    rescale_s: float  #: What a change of the fleet adds to the lag: growing, if they differ.
    slo_s: float  #: Records that wait longer are late.
    noise: float = 0.0  #: The relative deviation of the work of one batch.
    size_fixed_s: Array | None = None  #: `fixed_s` of each size, where it differs.
    shrink_s: float | None = None  #: What shrinking adds to the lag; ``None`` is as `rescale_s`.

    @property
    def shrinking_s(self) -> float:
        return self.rescale_s if self.shrink_s is None else self.shrink_s

    @property
    def floor_s(self) -> float:
        """No batch takes less: a job that names no interval runs one batch after the other."""
        return max(self.trigger_s or 0.0, self.fixed_s, SHORTEST_BATCH_S)


def lag_levels(job: JobModel, count: int = 28) -> Array:
    """The lags that a plan distinguishes, in seconds: fine below the SLO, coarse far above it."""
    low = 0.0 if job.trigger_s is None else job.floor_s
    steps = np.linspace(0.0, 1.0, count) ** 3
    return np.asarray(low + (LARGEST_LAG_SLOS * job.slo_s - low) * steps)


def advance(
    job: JobModel,
    lag_s: Array,
    load_rps: Array,
    capacity_rps: Array,
    step_s: Array,
    fixed_s: Array | None = None,
) -> Array:
    """The lag after a step. The arrays are broadcast against each other.

    `fixed_s` is what a batch costs besides its records, if not the same for all sizes.
    """
    use = load_rps / np.maximum(capacity_rps, 1e-9)
    if job.trigger_s is None:
        return np.maximum(0.0, lag_s + (1.0 - 1.0 / np.maximum(use, 1e-9)) * step_s)
    fixed = np.asarray(job.fixed_s) if fixed_s is None else fixed_s
    floor = np.maximum(job.floor_s if fixed_s is None else job.trigger_s, fixed)
    floor = np.maximum(floor, SHORTEST_BATCH_S)
    begin = np.maximum(lag_s, floor)
    # x follows x -> max(floor, fixed + use x): it approaches its fixed point geometrically, or
    # leaves it geometrically where the load exceeds the capacity.
    use = np.where(np.abs(use - 1.0) < 1e-3, 1.001, use)
    target = fixed / (1.0 - use)
    away, growth = begin - target, np.log(np.maximum(use, 1e-9))
    # However its batches grow, the lag grows by no more than what arrives beyond the capacity.
    worst = begin + step_s * (np.maximum(0.0, 1.0 - 1.0 / use) + fixed / begin)
    worst = np.minimum(worst, LARGEST_LAG_SLOS * job.slo_s)

    def after_batches(batches: Array) -> Array:
        grown = target + away * np.exp(np.minimum(batches * growth, 20.0))
        return np.asarray(np.minimum(np.maximum(grown, floor), worst))

    # The number of batches depends on how long they become: between two kinds of mean. A job that
    # catches up finishes its long batches in less time than their records took to arrive.
    quick = np.minimum(use, 1.0)
    first = np.maximum(quick * begin, floor)
    last = np.maximum(quick * after_batches(step_s / first), floor)
    length = 0.25 * (first + last) + 0.5 * np.sqrt(first * last)
    return after_batches(step_s / length)


def late_share(job: JobModel, lag_s: Array) -> Array:
    """The share of records that come out late at a lag.

    In a micro-batch job records wait between one batch and two, evenly. Its batches vary about
    their mean, the more so the closer it runs to its capacity, because what one leaves the next has
    to do: ``x -> fixed + use x (1 + noise)`` deviates by ``noise x / sqrt(1 - use^2)``.
    """
    if job.trigger_s is None:
        return np.asarray(lag_s > job.slo_s, dtype=float)
    mean = np.maximum(lag_s, job.floor_s)
    use = np.clip(1.0 - job.fixed_s / mean, 0.0, 0.97)
    deviation = job.noise / np.sqrt(1.0 - use**2)
    batch = np.maximum(mean * (1.0 + NORMAL_POINTS[:, None] * deviation), job.floor_s)
    share = np.clip(2.0 - job.slo_s / batch, 0.0, 1.0)
    return np.asarray(NORMAL_WEIGHTS @ share)


def part_above(before: Array, after: Array, level: float) -> Array:
    """For which part a straight line from `before` to `after` lies above a level."""
    high, low = np.maximum(before, after), np.minimum(before, after)
    span = np.maximum(high - low, 1e-9)
    return np.asarray(np.minimum(np.maximum((high - level) / span, 0.0), 1.0))


def measured_lag_s(snapshot: Snapshot) -> float:
    """How many seconds of arrivals wait.

    In a micro-batch job a batch's worth always does; what counts is how long a batch lasts.

    >>> from penstock.core.model import Batch, Fleet
    >>> fleet, last = Fleet(2, 2, 2), Batch(7, 52.0, duration_s=4.0, input_records=9_000)
    >>> measured_lag_s(Snapshot(60.0, fleet, arrival_rps=1e3, backlog_records=5e3))
    5.0
    >>> measured_lag_s(Snapshot(60.0, fleet, trigger_interval_s=2.0, batches=(last,), delay_s=7.0))
    4.0
    """
    delay_s = snapshot.delay_s
    if delay_s is None:
        delay_s = (snapshot.backlog_records or 0.0) / max(snapshot.arrival_rps or 0.0, 1e-6)
    if snapshot.trigger_interval_s is None:
        return delay_s
    durations = [batch.duration_s for batch in snapshot.batches[-1:]]
    batch_s = max([snapshot.trigger_interval_s, *durations])
    return max(batch_s, delay_s - batch_s)


class Prices(Struct, frozen=True):
    """What things cost, in executor-seconds."""

    late_s: float  #: A second of arrivals at the mean load that come out late.
    move: float  #: To start or remove one executor.
    mean_rps: float
    #: What is lost when a fleet that has shrunk to a size has to grow again: for all, or for each.
    undo: Array | float = 0.0

    @property
    def late_record(self) -> float:
        return self.late_s / max(self.mean_rps, 1e-6)


class LoadScenarios(Struct, frozen=True):
    """What the load may do, and how likely it changes from one scenario to another.

    `load_rps` has a row per scenario and a column per step; `changes` holds for each step how
    likely the load has come to a scenario (column) from the one before (row) when the step begins.
    """

    load_rps: Array
    changes: Array | None = None


def undo_costs(job: JobModel, prices: Prices, scenarios: LoadScenarios, weights: Array) -> Array:
    """What a shrink to each size has to save: late records, where the fleet has to grow again.

    Those of the batch that waits for executors, as far as it is likely that the load becomes more
    than the size carries in time before the plan ends.
    """
    if job.trigger_s is None:
        return np.zeros(len(job.sizes))
    fixed_s = job.fixed_s if job.size_fixed_s is None else job.size_fixed_s
    in_time_rps = job.capacity_rps * np.maximum(0.0, 1.0 - 2.0 * fixed_s / job.slo_s)
    likely = np.zeros(len(job.sizes))
    for step, load_rps in enumerate(scenarios.load_rps.T):
        if scenarios.changes is not None:
            weights = weights @ scenarios.changes[step]
        likely = np.maximum(likely, weights @ (load_rps[:, None] > in_time_rps))
    held_up_s = job.floor_s + job.rescale_s
    lost = prices.late_s * held_up_s * float(late_share(job, np.array([held_up_s]))[0])
    return np.asarray(lost * likely)


class StartState(Struct, frozen=True):
    """Where a plan starts from."""

    target: int
    active: int
    lag_s: float
    startup_s: float  #: Until those come that are asked for now.
    pending_s: float  #: Until executors come that were asked for earlier.

    @classmethod
    def seen(cls, snapshot: Snapshot, asked_s: float | None, startup_s: float) -> StartState:
        """What a snapshot shows, `asked_s` after the fleet was last asked to change."""
        fleet, pending_s = snapshot.fleet, 0.0
        if fleet.active < fleet.target and asked_s is not None:
            pending_s = max(2.0, startup_s - asked_s)
        lag_s = measured_lag_s(snapshot)
        return cls(fleet.target, fleet.active, lag_s, startup_s, pending_s)


class _Transition(NamedTuple):
    """Where each state ends after each step, and the lateness that this costs.

    An end lies between two lags of the grid: `place` is the lower one, `part` how far beyond it.
    All are indexed [step, scenario, size, lag].
    """

    place: Places
    part: Array
    late: Array

    def value(self, step: int, flat: Array, first: Places) -> Array:
        """The value at the end of a step, read from `flat` where the rows begin at `first`."""
        extra = (np.newaxis,) * (first.ndim - 3)
        place = first + self.place[step][:, *extra]
        low = flat.take(place)
        return np.asarray(low + (flat.take(place + 1) - low) * self.part[step][:, *extra])


class CostToGo(Struct, frozen=True):
    """The least cost from every state on: `values[step][scenario, size, lag]`.

    `stay`, `grow`, `shrink` and `end_late` are what the steps cost, with and without a change of
    the fleet.
    """

    job: JobModel
    prices: Prices
    lags_s: Array
    values: list[Array]
    stay: _Transition
    grow: _Transition
    shrink: _Transition
    end_late: Array


def solve(
    job: JobModel, prices: Prices, scenarios: LoadScenarios, steps_s: Sequence[float]
) -> CostToGo:
    """Work backwards from the horizon; a lag beyond the SLO that is left there has to be paid for.

    In each step the fleet stays, grows (and works at its old size until the next step) or shrinks
    (and works at its new size at once).
    """
    lags_s, sizes = lag_levels(job), job.sizes
    lengths_s = np.asarray(steps_s, dtype=float)
    loads = np.maximum(scenarios.load_rps, 1e-6)
    late_price = prices.late_record * loads
    held_ups_s = 0.0, job.rescale_s, job.shrinking_s
    after = {
        held_up_s: _transition(job, lags_s, lags_s + held_up_s, loads, late_price, lengths_s)
        for held_up_s in set(held_ups_s)
    }
    stay, grow, shrink = (after[held_up_s] for held_up_s in held_ups_s)
    end_late = _end_lateness(job, lags_s, late_price, lengths_s)
    grow_cost, shrink_cost = _move_costs(sizes, prices)

    shape = len(loads), len(sizes), len(lags_s)
    first = (np.arange(shape[0] * shape[1]) * shape[2]).reshape(shape[0], shape[1], 1)
    # At the horizon, what it costs to catch up with the SLO.
    excess_s = np.maximum(0.0, lags_s - job.slo_s * (1.0 if job.trigger_s is None else 0.5))
    value = np.broadcast_to(late_price[:, -1, None, None] * excess_s, shape)
    values = [value]
    for step in range(len(lengths_s) - 1, -1, -1):
        flat = (value + end_late[step][:, None, :]).ravel()
        paid = (sizes * lengths_s[step])[None, :, None]
        value = stay.value(step, flat, first) + stay.late[step] + paid
        if len(sizes) > 1:
            # [scenario, to, from, lag]
            onward = grow.value(step, flat, first[:, :, None, :])
            grown = (onward + (grow_cost + paid[..., None])).min(axis=1) + grow.late[step]
            shrunk = shrink.value(step, flat, first) + shrink.late[step] + paid
            shrunk = (shrunk[:, :, None, :] + shrink_cost).min(axis=1)
            value = np.minimum(value, np.minimum(grown, shrunk))
        if scenarios.changes is not None:
            value = (scenarios.changes[step] @ value.reshape(shape[0], -1)).reshape(shape)
        values.append(value)
    values.reverse()
    return CostToGo(job, prices, lags_s, values, stay, grow, shrink, end_late)


def _transition(
    job: JobModel, lags_s: Array, begin_s: Array, loads: Array, late_price: Array, lengths_s: Array
) -> _Transition:
    """Every step of every scenario at once, from the lags `begin_s`."""
    capacity = np.atleast_2d(job.capacity_rps)[:, None, :, None]
    price, length = late_price.T[:, :, None, None], lengths_s[:, None, None, None]
    fixed = None if job.size_fixed_s is None else job.size_fixed_s[:, None]
    end_s = advance(job, begin_s, loads.T[:, :, None, None], capacity, length, fixed)
    place, part = _places(lags_s, end_s)
    if job.trigger_s is None:
        # The lag is a straight line in time here, so that the part of it above the SLO is exact.
        return _Transition(place, part, price * length * part_above(begin_s, end_s, job.slo_s))
    # Half of the step at the lag where it begins; `_end_lateness` has the other half.
    return _Transition(place, part, 0.5 * price * length * late_share(job, begin_s))


def _end_lateness(job: JobModel, lags_s: Array, late_price: Array, lengths_s: Array) -> Array:
    """What a micro-batch job pays for half a step at its last lag: [step, scenario, lag]."""
    step_price = 0.5 * late_price.T[:, :, None] * lengths_s[:, None, None]
    half = step_price * late_share(job, lags_s)
    return np.zeros_like(half) if job.trigger_s is None else half


def _move_costs(sizes: Array, prices: Prices) -> tuple[Array, Array]:
    """The cost of growing and of shrinking, [scenario, to, from, lag]; infinite the other way."""
    gap = prices.move * np.abs(sizes[:, None] - sizes[None, :])
    to, before = np.arange(len(sizes))[:, None], np.arange(len(sizes))[None, :]
    grow = np.where(to > before, gap, np.inf)
    undo = np.broadcast_to(prices.undo, sizes.shape)[:, None]
    shrink = np.where(to < before, gap + undo, np.inf)
    return grow[None, :, :, None], shrink[None, :, :, None]


def planned_sizes(plan: CostToGo, size: int, lag_s: float, steps_s: Sequence[float]) -> list[int]:
    """The size in each step, from a size and a lag on, if the load follows the first scenario."""
    sizes, lags_s, found = plan.job.sizes, plan.lags_s, []
    all_sizes, move_cost = np.arange(len(sizes)), plan.prices.move * sizes
    undo = np.broadcast_to(plan.prices.undo, sizes.shape)
    here = int(np.argmin(np.abs(sizes - size)))
    # In the first scenario, [step, size, lag]; lateness may be the same for all sizes.
    stay, grow, shrink = (
        (kind.place[:, 0], kind.part[:, 0], np.broadcast_to(kind.late[:, 0], kind.part[:, 0].shape))
        for kind in (plan.stay, plan.grow, plan.shrink)
    )
    for step, length_s in enumerate(steps_s):
        near = int(np.argmin(np.abs(lags_s - lag_s)))
        row = np.minimum(all_sizes, here)  # one that grows works at its old size until the next
        place, part, late = (each[step, row, near] for each in grow)
        place[:here], part[:here], late[:here] = (each[step, :here, near] for each in shrink)
        place[here], part[here], late[here] = (each[step, here, near] for each in stay)
        value = plan.values[step + 1][0] + plan.end_late[step][0]
        low, high = value[all_sizes, place], value[all_sizes, place + 1]
        cost = sizes * length_s + np.abs(move_cost - move_cost[here]) + late
        cost[:here] += undo[:here]
        here = int(np.argmin(cost + low + (high - low) * part))
        end_s = lags_s[place[here]] + (lags_s[place[here] + 1] - lags_s[place[here]]) * part[here]
        lag_s = max(float(lags_s[0]), lag_s + float(end_s - lags_s[near]))
        found.append(int(sizes[here]))
    return found


def late_if_held(
    plan: CostToGo, start: StartState, bins_rps: Array, loads_rps: Array, spans_s: Sequence[float],
    bin_s: float,
) -> tuple[Array, Array]:  # fmt: skip
    """Records that are late if the fleet has each size from now on, and all that arrive.

    `loads_rps` has a column for each span that follows the start of new executors. The results have
    a row per scenario and a column per size.
    """
    job = plan.job
    counted = replace(plan, prices=Prices(1.0, 0.0, 1.0))  # a late record costs 1
    lag_s, late = _until_started(counted, start, bins_rps, bin_s, 0)
    arrived = np.full_like(late, start.startup_s) * bins_rps[:, :1]
    for rate, span_s in zip(np.maximum(loads_rps, 1e-6).T[:, :, None], spans_s, strict=True):
        fixed, length = job.size_fixed_s, np.asarray(span_s)
        after_s = advance(job, lag_s, rate, job.capacity_rps, length, fixed)
        late = late + rate * span_s * _late_between(job, lag_s, after_s)
        arrived = arrived + rate * span_s
        lag_s = after_s
    return late, arrived


def first_costs(
    plan: CostToGo, start: StartState, load_rps: Array, bin_s: float, step: int = 0
) -> Array:
    """What each size costs until executors that are asked for now work, and from `step` on.

    `load_rps` has a row per scenario and a column for each `bin_s` from now on; the result has a
    row per scenario and a column per size.
    """
    sizes = plan.job.sizes
    lag_s, late_cost = _until_started(plan, start, load_rps, bin_s, step)
    place, part = _places(plan.lags_s, lag_s)
    value, columns = plan.values[step], np.arange(len(sizes))
    rows = np.arange(len(lag_s))[:, None]
    low, high = value[rows, columns, place], value[rows, columns, place + 1]
    prices = plan.prices
    cost = sizes * start.startup_s + prices.move * np.abs(sizes - start.target)
    cost = cost + prices.undo * (sizes < start.target)
    return np.asarray(cost + late_cost + low + (high - low) * part)


def _until_started(
    plan: CostToGo, start: StartState, load_rps: Array, bin_s: float, step: int
) -> tuple[Array, Array]:
    """The lag when executors that are asked for now work, and the cost of lateness until then.

    Until executors come that were asked for earlier, the job runs with those that are there.
    """
    job, sizes = plan.job, plan.job.sizes
    moves = np.where(sizes > start.target, job.rescale_s, 0.0)
    moves = np.where(sizes < start.target, job.shrinking_s, moves)
    lag_s: Array = np.broadcast_to(start.lag_s + moves, (len(load_rps), len(sizes)))
    late_cost = np.zeros_like(lag_s)
    last, now_s = load_rps.shape[1] - 1, 0.0
    for end_s in _edges(start, bin_s):
        came = start.target if now_s >= start.pending_s else 0
        there = max(start.active, came)
        rate = np.maximum(load_rps[:, min(int(now_s / bin_s + 1e-6), last), None], 1e-6)
        working = np.minimum(sizes, there)
        capacity, fixed = _capacity_of(job, working, step), _fixed_of(job, working)
        after_s = advance(job, lag_s, rate, capacity, np.asarray(end_s - now_s), fixed)
        share = _late_between(job, lag_s, after_s)
        late_cost = late_cost + plan.prices.late_record * rate * (end_s - now_s) * share
        lag_s, now_s = after_s, end_s
    return lag_s, late_cost


def _edges(start: StartState, bin_s: float) -> list[float]:
    """The instants of the first step at which the load or the fleet changes, and its end."""
    inner = {bin_s * count for count in range(1, int(start.startup_s / bin_s) + 1)}
    inner.add(start.pending_s)
    return [*sorted(edge for edge in inner if 0.0 < edge < start.startup_s), start.startup_s]


def _capacity_of(job: JobModel, executors: Array, step: int) -> Array:
    """The capacity of fleets between, or below, the sizes that are compared."""
    sizes, known = job.sizes, job.capacity_rps
    if known.ndim > 1:
        known = known[min(step, len(known) - 1)]
    below = known[0] * executors / sizes[0]
    return np.where(executors < sizes[0], below, np.interp(executors, sizes, known))


def _fixed_of(job: JobModel, executors: Array) -> Array | None:
    """What a batch costs besides its records, of fleets between the sizes that are compared."""
    if job.size_fixed_s is None:
        return None
    return np.interp(executors, job.sizes, job.size_fixed_s)


def _late_between(job: JobModel, before: Array, after: Array) -> Array:
    if job.trigger_s is None:
        return part_above(before, after, job.slo_s)
    flat = np.stack([before, after]).reshape(2, -1)
    shares = [late_share(job, one) for one in flat]
    return np.asarray((shares[0] + shares[1]) / 2.0).reshape(before.shape)


def _places(lags_s: Array, lag_s: Array) -> tuple[Places, Array]:
    """Between which two lags of the grid, and how far from the lower one."""
    last = len(lags_s) - 1
    along = (lag_s - lags_s[0]) / (lags_s[-1] - lags_s[0])
    # The grid is a cubic, so the place is a cube root away.
    place = np.cbrt(np.minimum(np.maximum(along, 0.0), 1.0)) * last
    low = np.minimum(place.astype(np.intp), last - 1)
    part = (lag_s - lags_s[low]) / (lags_s[low + 1] - lags_s[low])
    return low, np.minimum(np.maximum(part, 0.0), 1.0)
