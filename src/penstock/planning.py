"""The plan that the model-predictive policy and the oracle share: dynamic programming.

A job is described by how many executors it has and how far behind it is. "Behind" is counted in
seconds of arrivals that wait, so that it means the same at any load:

- A dataflow (Flink-like) with capacity C under load L falls behind by ``1 - C/L`` per second, and a
  record that leaves has waited for as long as the job is behind.
- A micro-batch job runs one batch over all that waits. Over x seconds of arrivals a batch takes
  ``fixed + L x / C`` seconds; that is how much has come meanwhile, so it is the next x. Its
  records have waited between one and two batches.

Time goes in steps about as long as an executor takes to start: those asked for in one step work in
the next, those sent away are gone at once. A step costs the executors that are paid for, the
records that will be late, and the moves. Working backwards from the horizon gives the least cost
from every state on (`solve`); the best move now is the one whose own cost and the cost of what it
leads to (`first_costs`) are least.

What is uncertain is a state too: the load follows one of a few courses, and between two steps it
may change from one to any other. A plan that is made this way knows that it will see what comes
and can still react, so it neither insures against everything now nor counts on knowing it all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: The farthest behind that a plan tells apart, in multiples of the SLO.
FARTHEST = 12.0
#: Where a swing is looked at, in deviations, and how likely it is: Gauss and Hermite's five points.
SWINGS = np.array([-2.857, -1.356, 0.0, 1.356, 2.857])
SWING_WEIGHTS = np.array([0.01126, 0.22208, 0.53333, 0.22208, 0.01126])


class Prices(Struct, frozen=True):
    """What things cost, in executor-seconds.

    `late_s` is the cost of one second of arrivals at the mean load that come through late, `move`
    that of starting or removing one executor.
    """

    late_s: float
    move: float
    mean_rps: float


class Physics(Struct, frozen=True):
    """What a job does with its executors.

    Parameters
    ----------
    sizes
        The sizes of the fleet to choose from, rising.
    capacity_rps
        What each size can do when it never pauses; or a row of that for each step, if it changes.
    fixed_s
        What a batch costs besides its records; 0 for a dataflow.
    trigger_s
        A batch never takes less than this; ``None`` for a dataflow.
    rescale_s
        How much further behind a change of the fleet leaves the job.
    slo_s
        Records that wait longer are late.
    noise
        The relative deviation of one batch's work about its mean.
    """

    sizes: Array
    capacity_rps: Array
    fixed_s: float
    trigger_s: float | None
    rescale_s: float
    slo_s: float
    noise: float = 0.0


class Outlook(Struct, frozen=True):
    """The courses that the load may take, and how it changes between them.

    Parameters
    ----------
    load_rps
        A row per course and a column per step.
    weights
        How likely each course is.
    keeps
        How likely the load is to keep its course from one step to the next; else it draws anew.
    """

    load_rps: Array
    weights: Array
    keeps: Array

    @classmethod
    def certain(cls, load_rps: Array) -> Outlook:
        """One course, as the oracle knows it."""
        return cls(load_rps[None, :], np.ones(1), np.ones(len(load_rps)))


class Plan(Struct, frozen=True):
    """The least cost from every state on: `values[step][course, size, behind]`."""

    physics: Physics
    prices: Prices
    grid: Array
    values: list[Array]


class Present(Struct, frozen=True):
    """Where a plan starts from.

    `pending_s` is how long it takes until those come that were asked for earlier, `startup_s`
    how long for those that are asked for now.
    """

    target: int
    active: int
    behind_s: float
    startup_s: float
    pending_s: float


def levels(physics: Physics, count: int = 28) -> Array:
    """How far behind, in seconds: fine below the SLO, coarse far above it."""
    low = physics.trigger_s or 0.0
    return np.asarray(low + (FARTHEST * physics.slo_s - low) * np.linspace(0.0, 1.0, count) ** 3)


def advance(
    physics: Physics, behind_s: Array, load_rps: Array, capacity_rps: Array, step_s: Array
) -> Array:
    """How far behind after a step. The arrays are broadcast against each other."""
    use = load_rps / np.maximum(capacity_rps, 1e-9)
    if physics.trigger_s is None:
        return np.maximum(0.0, behind_s + (1.0 - 1.0 / np.maximum(use, 1e-9)) * step_s)
    floor = physics.trigger_s
    begin = np.maximum(behind_s, floor)
    # x follows x -> max(floor, fixed + use x): a geometric approach to its fixed point, or a
    # geometric flight from it where the load exceeds the capacity.
    use = np.where(np.abs(use - 1.0) < 1e-3, 1.001, use)
    target = physics.fixed_s / (1.0 - use)
    away, growth = begin - target, np.log(np.maximum(use, 1e-9))
    # However its batches grow, a job falls behind by no more than what comes beyond its capacity.
    worst = begin + step_s * (np.maximum(0.0, 1.0 - 1.0 / use) + physics.fixed_s / begin)
    worst = np.minimum(worst, FARTHEST * physics.slo_s)

    def after_batches(batches: Array) -> Array:
        grown = target + away * np.exp(np.minimum(batches * growth, 20.0))
        return np.minimum(np.maximum(grown, floor), worst)

    # How many batches there are depends on how long they become: between two kinds of mean. Who
    # catches up is through the long ones sooner than they took to come in.
    quick = np.minimum(use, 1.0)
    first = np.maximum(quick * begin, floor)
    last = np.maximum(quick * after_batches(step_s / first), floor)
    length = 0.25 * (first + last) + 0.5 * np.sqrt(first * last)
    return after_batches(step_s / length)


def late_share(physics: Physics, behind_s: Array) -> Array:
    """The share of records that come through late, of a job that is so far behind.

    In a micro-batch job waiting times are spread evenly between one batch and two. Its batches
    swing about their mean, the more so the closer it runs to its capacity, because what one leaves
    behind the next has to do: ``x -> fixed + use x (1 + noise)`` deviates by
    ``noise x / sqrt(1 - use^2)``.
    """
    if physics.trigger_s is None:
        return np.asarray(behind_s > physics.slo_s, dtype=float)
    mean = np.maximum(behind_s, physics.trigger_s)
    use = np.clip(1.0 - physics.fixed_s / mean, 0.0, 0.97)
    deviation = physics.noise / np.sqrt(1.0 - use**2)
    batch = np.maximum(mean * (1.0 + SWINGS[:, None] * deviation), physics.trigger_s)
    share = np.clip(2.0 - physics.slo_s / batch, 0.0, 1.0)
    return np.asarray(SWING_WEIGHTS @ share)


def _part_above(before: Array, after: Array, level: float) -> Array:
    """For which part a straight line from `before` to `after` lies above a level."""
    high, low = np.maximum(before, after), np.minimum(before, after)
    span = np.maximum(high - low, 1e-9)
    return np.asarray(np.minimum(np.maximum((high - level) / span, 0.0), 1.0))


def solve(physics: Physics, prices: Prices, outlook: Outlook, steps_s: Sequence[float]) -> Plan:
    """Work backwards from the horizon; beyond it, who is behind the SLO pays for catching up."""
    grid, sizes = levels(physics), physics.sizes
    lengths = np.asarray(steps_s, dtype=float)
    loads = np.maximum(outlook.load_rps, 1e-6)
    late_price = prices.late_s / max(prices.mean_rps, 1e-6) * loads

    # All steps and courses at once: how far behind each size ends, the fleet moved or not.
    capacity = np.atleast_2d(physics.capacity_rps)[:, None, :, None]
    rate, price = loads.T[:, :, None, None], late_price.T[:, :, None]
    length = lengths[:, None, None, None]
    ends = advance(physics, grid, rate, capacity, length)
    delayed = advance(physics, grid + physics.rescale_s, rate, capacity, length)
    stay_place, stay_part = _places(grid, ends)
    move_place, move_part = _places(grid, delayed)
    # A step's lateness is that of its two ends; that of its far end is read along with the value.
    step_price = 0.5 * price * lengths[:, None, None]
    half = step_price * late_share(physics, grid)
    stay_late = half[:, :, None, :]
    move_late = (step_price * late_share(physics, grid + physics.rescale_s))[:, :, None, :]
    if physics.trigger_s is None:
        # Delay is a straight line in time here, so that the part of it above the SLO is exact.
        stay_late = price[..., None] * length * _part_above(grid, ends, physics.slo_s)
        move_late = price[..., None] * length * _part_above(grid, delayed, physics.slo_s)
        half = np.zeros_like(half)

    courses, count, points = len(loads), len(sizes), len(grid)
    own = (np.arange(courses * count) * points).reshape(courses, count, 1)
    every = own[:, :, None, :]
    diagonal = np.arange(count)
    gap = prices.move * np.abs(sizes[:, None] - sizes[None, :])
    # [to, from]: who grows works this step at its old size, who shrinks at its new one.
    up_only = np.where(diagonal[:, None] > diagonal[None, :], gap, np.inf)[None, :, :, None]
    down_only = np.where(diagonal[:, None] < diagonal[None, :], gap, np.inf)[None, :, :, None]

    behind = np.maximum(0.0, grid - physics.slo_s * (0.5 if physics.trigger_s else 1.0))
    value = np.broadcast_to(late_price[:, -1, None, None] * behind, (courses, count, points))
    values = [np.asarray(value)]
    for step in range(len(lengths) - 1, -1, -1):
        keeps = outlook.keeps[step]
        if keeps < 1.0:
            value = keeps * value + (1.0 - keeps) * np.tensordot(outlook.weights, value, 1)
        flat = (value + half[step][:, None, :]).ravel()
        paid = (sizes * lengths[step])[None, :, None]
        place = own + stay_place[step]
        low = flat.take(place)
        best = low + (flat.take(place + 1) - low) * stay_part[step] + stay_late[step] + paid
        if count > 1:
            place = every + move_place[step][:, None, :, :]
            low = flat.take(place)
            onward = low + (flat.take(place + 1) - low) * move_part[step][:, None, :, :]
            late = move_late[step]
            up = (onward + (up_only + paid[..., None])).min(axis=1) + late
            shrunk = onward[:, diagonal, diagonal] + late + paid
            down = (shrunk[:, :, None, :] + down_only).min(axis=1)
            best = np.minimum(best, np.minimum(up, down))
        value = best
        values.append(value)
    values.reverse()
    return Plan(physics, prices, grid, values)


def first_costs(
    plan: Plan, present: Present, load_rps: Array, piece_s: float, step: int = 0
) -> Array:
    """What each size costs until newly asked executors work, and what it leads to from `step` on.

    `load_rps` has a row per course and a column for each piece of `piece_s` from now on; so does
    the result for each size. Until those come that were asked for earlier, the job runs with what
    is there.
    """
    physics, prices, sizes = plan.physics, plan.prices, plan.physics.sizes
    moves = np.where(sizes != present.target, physics.rescale_s, 0.0)
    behind: Array = np.broadcast_to(present.behind_s + moves, (len(load_rps), len(sizes)))
    late_cost = np.zeros_like(behind)
    late_price = prices.late_s / max(prices.mean_rps, 1e-6)
    last, now_s = load_rps.shape[1] - 1, 0.0
    for end_s in _edges(present, piece_s):
        there = present.active
        if now_s >= present.pending_s:
            there = max(there, present.target)
        rate = np.maximum(load_rps[:, min(int(now_s / piece_s + 1e-6), last), None], 1e-6)
        capacity = _capacity_of(physics, np.minimum(sizes, there), step)
        after = advance(physics, behind, rate, capacity, np.asarray(end_s - now_s))
        share = _late_between(physics, behind, after)
        late_cost = late_cost + late_price * rate * (end_s - now_s) * share
        behind, now_s = after, end_s
    place, part = _places(plan.grid, behind)
    value, rows = plan.values[step], np.arange(len(sizes))
    courses = np.arange(len(behind))[:, None]
    low, high = value[courses, rows, place], value[courses, rows, place + 1]
    return np.asarray(
        sizes * present.startup_s
        + prices.move * np.abs(sizes - present.target)
        + late_cost
        + low
        + (high - low) * part
    )


def _edges(present: Present, piece_s: float) -> list[float]:
    """The instants of the first step at which the load or the fleet changes, and its end."""
    inner = {piece_s * piece for piece in range(1, int(present.startup_s / piece_s) + 1)}
    inner.add(present.pending_s)
    return [*sorted(edge for edge in inner if 0.0 < edge < present.startup_s), present.startup_s]


def _capacity_of(physics: Physics, there: Array, step: int) -> Array:
    """The capacity of sizes that may lie between, or below, those that are weighed."""
    sizes, known = physics.sizes, physics.capacity_rps
    if known.ndim > 1:
        known = known[min(step, len(known) - 1)]
    return np.where(there < sizes[0], known[0] * there / sizes[0], np.interp(there, sizes, known))


def _late_between(physics: Physics, before: Array, after: Array) -> Array:
    if physics.trigger_s is None:
        return _part_above(before, after, physics.slo_s)
    flat = np.stack([before, after]).reshape(2, -1)
    shares = [late_share(physics, one) for one in flat]
    return np.asarray((shares[0] + shares[1]) / 2.0).reshape(before.shape)


def _places(grid: Array, behind_s: Array) -> tuple[NDArray[np.intp], Array]:
    """Between which points of the grid, and how far from the lower one.

    The grid is a cubic, so the place is a cube root away.
    """
    last = len(grid) - 1
    along = (behind_s - grid[0]) / (grid[-1] - grid[0])
    place = np.cbrt(np.minimum(np.maximum(along, 0.0), 1.0)) * last
    low = np.minimum(place.astype(np.intp), last - 1)
    part = (behind_s - grid[low]) / (grid[low + 1] - grid[low])
    return low, np.minimum(np.maximum(part, 0.0), 1.0)
