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
leads to (`value_at`) are least.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Prices(Struct, frozen=True):
    """What things cost, in executor-seconds.

    `late_s` is the cost of one second of arrivals at the mean load that come through late, `move`
    that of starting or removing one executor.
    """

    late_s: float
    move: float
    mean_rps: float


class Physics(Struct, frozen=True):
    """What a job does with its executors, in each of several futures.

    Parameters
    ----------
    sizes
        The sizes of the fleet to choose from, rising.
    capacity_rps
        What each size can do when it never pauses; a row per future.
    fixed_s
        What a batch costs besides its records; 0 for a dataflow.
    trigger_s
        A batch never takes less than this; ``None`` for a dataflow.
    rescale_s
        How much further behind a change of the fleet leaves the job.
    slo_s
        Records that wait longer are late.
    """

    sizes: Array
    capacity_rps: Array
    fixed_s: float
    trigger_s: float | None
    rescale_s: float
    slo_s: float


class Plan(Struct, frozen=True):
    """The least cost from every state on: `values[step][future, size, behind]`."""

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


def levels(slo_s: float, count: int = 22) -> Array:
    """How far behind, in seconds: fine below the SLO, coarse above it."""
    return np.asarray(4.0 * slo_s * (np.arange(count) / (count - 1)) ** 2)


def advance(
    physics: Physics, behind_s: Array, load_rps: Array, capacity_rps: Array, step_s: Array
) -> tuple[Array, Array]:
    """How far behind after a step, and for how many seconds of it records come through late.

    The arrays are broadcast against each other.
    """
    use = load_rps / np.maximum(capacity_rps, 1e-9)
    if physics.trigger_s is None:
        after = np.maximum(0.0, behind_s + (1.0 - 1.0 / np.maximum(use, 1e-9)) * step_s)
        return after, _seconds_above(behind_s, after, physics.slo_s) * step_s
    floor = physics.trigger_s
    begin = np.maximum(behind_s, floor)
    # x follows x -> max(floor, fixed + use x): a geometric approach to its fixed point, or a
    # geometric flight from it where the load exceeds the capacity.
    use = np.where(np.abs(use - 1.0) < 1e-3, 1.001, use)
    target = physics.fixed_s / (1.0 - use)
    away, growth = begin - target, np.log(use)
    longest = 8.0 * physics.slo_s

    def after_batches(batches: Array) -> Array:
        grown = target + away * np.exp(np.minimum(batches * growth, 20.0))
        return np.minimum(np.maximum(grown, floor), longest)

    first = after_batches(step_s / begin)
    after = after_batches(2.0 * step_s / (begin + first))
    late = (_late_share(begin, physics.slo_s) + _late_share(after, physics.slo_s)) / 2.0
    return after, late * step_s


def _late_share(batch_s: Array, slo_s: float) -> Array:
    """Of batches that last `batch_s`, the share of records that waited longer than the SLO.

    Waiting times are spread evenly between one batch and two.
    """
    return np.minimum(np.maximum(2.0 - slo_s / batch_s, 0.0), 1.0)


def _seconds_above(before: Array, after: Array, level: float) -> Array:
    """For which part a straight line from `before` to `after` lies above a level."""
    high, low = np.maximum(before, after), np.minimum(before, after)
    span = np.maximum(high - low, 1e-9)
    return np.asarray(np.minimum(np.maximum((high - level) / span, 0.0), 1.0))


def solve(physics: Physics, prices: Prices, load_rps: Array, steps_s: Sequence[float]) -> Plan:
    """Work backwards from the horizon; beyond it, who is behind the SLO pays for catching up.

    `load_rps` has a row per future and a column per step.
    """
    grid, sizes = levels(physics.slo_s), physics.sizes
    lengths = np.asarray(steps_s, dtype=float)
    loads = np.maximum(load_rps, 1e-6)
    late_price = prices.late_s / max(prices.mean_rps, 1e-6) * loads

    # All steps and futures at once: how far behind each size ends, the fleet moved or not.
    capacity = physics.capacity_rps[None, :, :, None]
    rate, price = loads.T[:, :, None, None], late_price.T[:, :, None, None]
    length = lengths[:, None, None, None]
    still, still_late = advance(physics, grid, rate, capacity, length)
    moved, moved_late = advance(physics, grid + physics.rescale_s, rate, capacity, length)
    stay_cost = price * still_late + sizes[None, None, :, None] * length
    move_cost = price * moved_late
    stay_place, stay_part = _places(grid, still)
    move_place, move_part = _places(grid, moved)

    futures, count, points = len(loads), len(sizes), len(grid)
    own = (np.arange(futures * count) * points).reshape(futures, count, 1)
    every = own[:, :, None, :]
    diagonal = np.arange(count)
    gap = prices.move * np.abs(sizes[:, None] - sizes[None, :])
    # [to, from]: who grows works this step at its old size, who shrinks at its new one.
    up_only = np.where(diagonal[:, None] > diagonal[None, :], gap, np.inf)[None, :, :, None]
    down_only = np.where(diagonal[:, None] < diagonal[None, :], gap, np.inf)[None, :, :, None]

    behind = np.maximum(0.0, grid - physics.slo_s)
    value = np.broadcast_to(late_price[:, -1, None, None] * behind, (futures, count, points))
    values = [np.asarray(value)]
    for step in range(len(lengths) - 1, -1, -1):
        flat = value.ravel()
        place = own + stay_place[step]
        low = flat.take(place)
        best = low + (flat.take(place + 1) - low) * stay_part[step] + stay_cost[step]
        if count > 1:
            paid = (sizes * lengths[step])[None, :, None]
            place = every + move_place[step][:, None, :, :]
            low = flat.take(place)
            onward = low + (flat.take(place + 1) - low) * move_part[step][:, None, :, :]
            late = move_cost[step]
            up = (onward + (up_only + paid[..., None])).min(axis=1) + late
            shrunk = onward[:, diagonal, diagonal] + late + paid
            down = (shrunk[:, :, None, :] + down_only).min(axis=1)
            best = np.minimum(best, np.minimum(up, down))
        value = best
        values.append(value)
    values.reverse()
    return Plan(physics, prices, grid, values)


def first_costs(plan: Plan, present: Present, load_rps: Array, step: int = 0) -> Array:
    """What each size costs until newly asked executors work, and what it leads to from `step` on.

    A row per future. Until those come that were asked for earlier, the job runs with what is there.
    """
    physics, prices, sizes = plan.physics, plan.prices, plan.physics.sizes
    until_s = min(present.pending_s, present.startup_s)
    moves = np.where(sizes != present.target, physics.rescale_s, 0.0)
    behind: Array = np.broadcast_to(present.behind_s + moves, physics.capacity_rps.shape)
    rate = np.maximum(load_rps, 1e-6)[:, None]
    late = np.zeros_like(behind)
    for span_s, there in (
        (until_s, present.active),
        (present.startup_s - until_s, max(present.active, present.target)),
    ):
        if span_s > 0.0:
            # The capacity of the largest size that is not larger than what is there.
            known = np.searchsorted(sizes, np.minimum(sizes, there), side="right") - 1
            capacity = physics.capacity_rps[:, np.maximum(known, 0)]
            # Fewer may be there than any size that is weighed: then in proportion.
            capacity = capacity * np.minimum(1.0, there / sizes[np.maximum(known, 0)])
            behind, seconds = advance(physics, behind, rate, capacity, np.asarray(span_s))
            late = late + seconds
    place, part = _places(plan.grid, behind)
    value, rows = plan.values[step], np.arange(len(sizes))
    futures = np.arange(len(behind))[:, None]
    low, high = value[futures, rows, place], value[futures, rows, place + 1]
    late_price = prices.late_s / max(prices.mean_rps, 1e-6) * rate
    return np.asarray(
        sizes * present.startup_s
        + prices.move * np.abs(sizes - present.target)
        + late_price * late
        + low
        + (high - low) * part
    )


def _places(grid: Array, behind_s: Array) -> tuple[NDArray[np.intp], Array]:
    """Between which points of the grid, and how far from the lower one.

    The grid is a parabola, so the place is a square root away.
    """
    last = len(grid) - 1
    place = np.sqrt(np.minimum(behind_s / grid[-1], 1.0)) * last
    low = np.minimum(place.astype(np.intp), last - 1)
    part = (behind_s - grid[low]) / (grid[low + 1] - grid[low])
    return low, np.minimum(part, 1.0)
