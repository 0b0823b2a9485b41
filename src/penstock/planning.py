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


class Physics(Struct, frozen=True):
    """What each size of the fleet can do.

    Parameters
    ----------
    sizes
        The sizes to choose from, rising.
    capacity_rps
        Of each size, when it never pauses.
    fixed_s
        What a batch costs besides its records; 0 for a dataflow.
    trigger_s
        A batch never takes less than this; ``None`` for a dataflow.
    rescale_s
        How much further behind a change of the fleet leaves the job.
    slo_s
        Records that wait longer are late.
    """

    sizes: list[int]
    capacity_rps: list[float]
    fixed_s: float
    trigger_s: float | None
    rescale_s: float
    slo_s: float


def levels(slo_s: float, count: int = 28) -> Array:
    """How far behind, in seconds: fine below the SLO, coarse above it."""
    return np.asarray(4.0 * slo_s * (np.arange(count) / (count - 1)) ** 2)


def advance(
    physics: Physics, behind_s: Array, load_rps: Array, capacity_rps: Array, step_s: Array
) -> tuple[Array, Array]:
    """How far behind after a step, and for how many seconds of it records come through late.

    All arguments are broadcast against each other.
    """
    use = load_rps / np.maximum(capacity_rps, 1e-9)
    if physics.trigger_s is None:
        after = np.maximum(0.0, behind_s + (1.0 - 1.0 / np.maximum(use, 1e-9)) * step_s)
        return after, _seconds_above(behind_s, after, physics.slo_s, step_s)
    floor = physics.trigger_s
    begin = np.maximum(behind_s, floor)
    # x follows x -> max(floor, fixed + use x): a geometric approach to its fixed point, or a
    # geometric flight from it where the load exceeds the capacity.
    use = np.where(np.abs(use - 1.0) < 1e-3, 1.001, use)
    target = physics.fixed_s / (1.0 - use)
    longest = 8.0 * physics.slo_s

    def after_batches(batches: Array) -> Array:
        grown = target + (begin - target) * np.exp(np.minimum(batches * np.log(use), 20.0))
        return np.clip(grown, floor, longest)

    first = after_batches(step_s / begin)
    after = after_batches(2.0 * step_s / (begin + first))
    late = (_late_share(begin, physics.slo_s) + _late_share(after, physics.slo_s)) / 2.0
    return after, late * step_s


def _late_share(batch_s: Array, slo_s: float) -> Array:
    """Of batches that last `batch_s`, the share of records that waited longer than the SLO.

    Waiting times are spread evenly between one batch and two.
    """
    return np.clip((2.0 * batch_s - slo_s) / np.maximum(batch_s, 1e-9), 0.0, 1.0)


def _seconds_above(before: Array, after: Array, level: float, step_s: Array) -> Array:
    """For how long a straight line from `before` to `after` lies above a level."""
    high, low = np.maximum(before, after), np.minimum(before, after)
    span = np.maximum(high - low, 1e-9)
    return np.asarray(np.clip((high - level) / span, 0.0, 1.0) * step_s)


class Plan(Struct, frozen=True):
    """The least cost from every state on: `values[step][size, behind]`, and on what grid."""

    physics: Physics
    prices: Prices
    steps_s: list[float]
    grid: Array
    values: list[Array]


def solve(
    physics: Physics,
    prices: Prices,
    load_rps: Sequence[float],
    steps_s: Sequence[float],
    mean_rps: float,
) -> Plan:
    """Work backwards from the horizon; beyond it, who is behind the SLO pays for catching up."""
    grid = levels(physics.slo_s)
    sizes = np.asarray(physics.sizes, dtype=float)
    lengths = np.asarray(steps_s, dtype=float)
    loads = np.maximum(np.asarray(load_rps, dtype=float), 1e-6)
    late_price = prices.late_s / max(mean_rps, 1e-6)

    # All steps at once: how far behind each size ends, whether the fleet is moved or not.
    capacity = np.asarray(physics.capacity_rps)[None, :, None]
    rate, length = loads[:, None, None], lengths[:, None, None]
    begin = grid[None, None, :]
    still, still_late = advance(physics, begin, rate, capacity, length)
    moved, moved_late = advance(physics, begin + physics.rescale_s, rate, capacity, length)
    stay_place, stay_part = _places(grid, still)
    move_place, move_part = _places(grid, moved)
    stay_cost = late_price * rate * still_late + sizes[None, :, None] * length
    move_cost = late_price * rate * moved_late

    count = len(sizes)
    moves = prices.move * np.abs(sizes[:, None] - sizes[None, :])
    rows = np.arange(count)[:, None] * len(grid)
    diagonal = np.arange(count)
    # [to, from]: who grows works this step at its old size, who shrinks at its new one.
    not_up = np.where(diagonal[:, None] > diagonal[None, :], moves, np.inf)
    not_down = np.where(diagonal[:, None] < diagonal[None, :], moves, np.inf)

    value = np.broadcast_to(
        late_price * loads[-1] * np.maximum(0.0, grid - physics.slo_s), (count, len(grid))
    )
    values = [np.asarray(value)]
    for step in range(len(loads) - 1, -1, -1):
        flat = value.ravel()
        place = rows + stay_place[step]
        low = flat.take(place)
        best = low + (flat.take(place + 1) - low) * stay_part[step] + stay_cost[step]
        if count > 1:
            place = move_place[step]
            low = value.take(place, axis=1)
            onward = low + (value.take(place + 1, axis=1) - low) * move_part[step]
            paid = sizes * lengths[step]
            up = (onward + (not_up + paid[:, None])[:, :, None]).min(axis=0) + move_cost[step]
            shrunk = onward[diagonal, diagonal] + move_cost[step] + paid[:, None]
            down = (shrunk[:, None, :] + not_down[:, :, None]).min(axis=0)
            best = np.minimum(best, np.minimum(up, down))
        value = best
        values.append(value)
    values.reverse()
    return Plan(physics, prices, list(steps_s), grid, values)


def _places(grid: Array, behind_s: Array) -> tuple[NDArray[np.intp], Array]:
    """Between which points of the grid, and how far from the lower one."""
    place = np.searchsorted(grid, behind_s.ravel(), side="right").reshape(behind_s.shape) - 1
    place = np.clip(place, 0, len(grid) - 2)
    part = (behind_s - grid[place]) / (grid[place + 1] - grid[place])
    return place, np.clip(part, 0.0, 1.0)


def value_at(plan: Plan, step: int, behind_s: Array) -> Array:
    """The least cost from a step on, for each size at its own `behind_s`."""
    place, part = _places(plan.grid, behind_s)
    rows = np.arange(len(behind_s))
    value = plan.values[step]
    low, high = value[rows, place], value[rows, place + 1]
    return np.asarray(low + (high - low) * part)
