"""The plan: dynamic programming over executors and how far behind the job is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.policies.penstock.delay import JobModel, advance, late_share, levels, part_above

Array = NDArray[np.float64]


class Prices(Struct, frozen=True):
    """What things cost, in executor-seconds.

    `late_s` is the cost of one second of arrivals at the mean load that come through late, `move`
    that of starting or removing one executor.
    """

    late_s: float
    move: float
    mean_rps: float


class LoadScenarios(Struct, frozen=True):
    """The courses that the load may take, and how it changes between them.

    Parameters
    ----------
    load_rps
        A row per course and a column per step.
    changes
        For each step, how likely the load is to have come to a course (column) when it begins from
        each that it was on before (row).
    """

    load_rps: Array
    changes: Array | None = None

    @classmethod
    def certain(cls, load_rps: Array) -> LoadScenarios:
        """One course, as the oracle knows it."""
        return cls(load_rps[None, :])


class CostToGo(Struct, frozen=True):
    """The least cost from every state on: `values[step][course, size, behind]`."""

    physics: JobModel
    prices: Prices
    grid: Array
    values: list[Array]


class StartState(Struct, frozen=True):
    """Where a plan starts from.

    `pending_s` is how long it takes until those come that were asked for earlier, `startup_s`
    how long for those that are asked for now.
    """

    target: int
    active: int
    behind_s: float
    startup_s: float
    pending_s: float


def solve(
    physics: JobModel, prices: Prices, outlook: LoadScenarios, steps_s: Sequence[float]
) -> CostToGo:
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
        stay_late = price[..., None] * length * part_above(grid, ends, physics.slo_s)
        move_late = (
            price[..., None] * length * part_above(grid + physics.rescale_s, delayed, physics.slo_s)
        )
        half = np.zeros_like(half)

    courses, count, points = len(loads), len(sizes), len(grid)
    own = (np.arange(courses * count) * points).reshape(courses, count, 1)
    every = own[:, :, None, :]
    diagonal = np.arange(count)
    gap = prices.move * np.abs(sizes[:, None] - sizes[None, :])
    # [to, from]: who grows works this step at its old size, who shrinks at its new one.
    up_only = np.where(diagonal[:, None] > diagonal[None, :], gap, np.inf)[None, :, :, None]
    down_only = np.where(diagonal[:, None] < diagonal[None, :], gap, np.inf)[None, :, :, None]

    behind = np.maximum(0.0, grid - physics.slo_s * (1.0 if physics.trigger_s is None else 0.5))
    value = np.broadcast_to(late_price[:, -1, None, None] * behind, (courses, count, points))
    values = [np.asarray(value)]
    for step in range(len(lengths) - 1, -1, -1):
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
        if outlook.changes is not None:
            value = (outlook.changes[step] @ value.reshape(courses, -1)).reshape(value.shape)
        values.append(value)
    values.reverse()
    return CostToGo(physics, prices, grid, values)


def first_costs(
    plan: CostToGo, present: StartState, load_rps: Array, piece_s: float, step: int = 0
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


def _edges(present: StartState, piece_s: float) -> list[float]:
    """The instants of the first step at which the load or the fleet changes, and its end."""
    inner = {piece_s * piece for piece in range(1, int(present.startup_s / piece_s) + 1)}
    inner.add(present.pending_s)
    return [
        *sorted(edge for edge in inner if 0.0 < edge < present.startup_s),
        present.startup_s,
    ]


def _capacity_of(physics: JobModel, there: Array, step: int) -> Array:
    """The capacity of sizes that may lie between, or below, those that are weighed."""
    sizes, known = physics.sizes, physics.capacity_rps
    if known.ndim > 1:
        known = known[min(step, len(known) - 1)]
    return np.where(there < sizes[0], known[0] * there / sizes[0], np.interp(there, sizes, known))


def _late_between(physics: JobModel, before: Array, after: Array) -> Array:
    if physics.trigger_s is None:
        return part_above(before, after, physics.slo_s)
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
