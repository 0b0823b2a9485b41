"""What each size of the fleet leads to: the inputs of a plan, the sizes to compare, the scenarios.

The load may do what was forecast, or less or more; a surge, or its end, is one scenario more.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Batch, Limits, Snapshot
from penstock.policies.penstock.capacity import Capacity
from penstock.policies.penstock.dynamic_program import (
    NORMAL_POINTS,
    NORMAL_WEIGHTS,
    Array,
    CostToGo,
    JobModel,
    LoadScenarios,
    Prices,
    StartState,
    first_costs,
    solve,
    undo_costs,
)
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.surges import BIN_S, Surges

MOST_SIZES = 14  #: The most sizes of the fleet that are compared.
#: The forecast first, then a little below and above it, then far below and above.
ORDER = [2, 1, 3, 0, 4]
DEVIATIONS, WEIGHTS = NORMAL_POINTS[ORDER], NORMAL_WEIGHTS[ORDER]
HIGHER = 2  #: The one of these scenarios that a surge is added to.
KEEPS = 0.9  #: How likely the load is to be in the same scenario a bin later.
#: The steps of a plan after the first, in bins: 15 minutes, coarser towards its end.
STEPS = (1,) * 6 + (2,) * 6 + (4,) * 3
BINS = 1 + sum(STEPS)  #: How many bins a forecast has to reach.
#: One that is higher than all before may rise to this many times its load when noticed.
UNKNOWN_RISE = 3.0
RISES_ON = 0.5  #: How likely a surge that rises is to rise on.
CARRIED = 0.9  #: A surge is planned for up to this part of what the largest fleet can do.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """The job as it is and (`earlier`) was a minute ago, what is known, may come, and costs."""

    at_s: float
    start: StartState
    prices: Prices
    load_rps: float
    earlier: Snapshot | None
    load: Forecast
    surges: Surges
    capacity: Capacity
    rescale_s: float  #: What growing adds to the lag.
    shrink_s: float  #: The same of shrinking.
    trigger_s: float | None
    bin_s: float
    slo_s: float
    limits: Limits
    state_bytes: float | None = None
    batch: Batch | None = None

    @property
    def pace(self) -> float:
        """How long the spans of `surges` are: 1 for bins of half a minute."""
        return self.bin_s / BIN_S

    @property
    def surge_rises(self) -> bool:
        return self.surges.is_rising(self.pace)

    @property
    def waits_s(self) -> float:
        """The longest that a record waits: in a micro-batch job for two batches."""
        return self.start.lag_s * (1.0 if self.trigger_s is None else 2.0)

    @property
    def coming_rps(self) -> float:
        """The load that is there and will still be there when executors asked for now work."""
        later = min(len(self.load.mean) - 1, int(self.start.startup_s / self.bin_s))
        return min(self.load_rps, self.load.mean[later])

    @property
    def fixed_s(self) -> float:
        """What a batch costs at the present size before its first record."""
        return self.capacity.fixed_s(max(1, self.start.active))


def sizes(inputs: PlanInputs) -> list[int]:
    """The sizes to compare: around what the load needs, what there is, and to catch up."""
    capacity, surges, limits = inputs.capacity, inputs.surges, inputs.limits
    low = min(inputs.load.quantile(-1.3)) * 0.85
    high = max(inputs.load.quantile(1.3)) * 1.2
    least, most, target = max(limits.min_executors, 1), limits.max_executors, inputs.start.target
    if surges.recur:
        high = max(high, 1.1 * (surges.calm_rps + surges.rise_rps()))
    if inputs.surge_rises:
        high = max(high, capacity.rps(most))
    if inputs.start.lag_s > 0.5 * inputs.slo_s:
        high *= 1.0 + inputs.start.lag_s / 60.0
    first = smallest(capacity, low, least, most)
    last = smallest(capacity, high, first, most)
    first, last = min(first, target), max(last, target)
    first, last = max(least, min(first, most)), min(most, max(last, least))
    found = list(range(first, last + 1))
    if len(found) > MOST_SIZES:
        chosen = {round(x) for x in np.linspace(first, last, MOST_SIZES - 3)}
        near = {size for size in range(target - 1, target + 2) if first <= size <= last}
        found = sorted(chosen | near)
    return found


def largest_useful_fleet(inputs: PlanInputs) -> int:
    """The smallest fleet that carries nearly as much as the largest."""
    most = inputs.limits.max_executors
    return smallest(inputs.capacity, 0.99 * inputs.capacity.rps(most), 1, most)


def smallest(capacity: Capacity, load_rps: float, first: int, last: int) -> int:
    """The smallest size that carries a load; the last if none does."""
    return first + bisect_left(range(first, last), load_rps, key=capacity.rps)


class SurgeScenario(Struct, frozen=True):
    """One more scenario: how likely it is now, and to come and to go in each step."""

    bins_rps: Array
    weight: float
    comes: Array
    goes: Array


class SolvedPlan(Struct, frozen=True):
    """What each size leads to, in executor-seconds over all scenarios, and what that came from."""

    sizes: list[int]
    cost_s: Array
    plan: CostToGo
    bins_rps: Array
    weights: Array
    loads_rps: Array
    lengths_s: list[float]


def compare(inputs: PlanInputs, choices: list[int]) -> SolvedPlan:
    """What each of these sizes leads to."""
    carried_rps = np.asarray([inputs.capacity.rps(size) for size in choices])
    # Shrinking has to be right: what is taken back costs both moves.
    smaller = np.asarray(choices) < inputs.start.target
    carried_rps = carried_rps * (1.0 - smaller * inputs.capacity.other_error)
    timing_s = inputs.fixed_s, inputs.trigger_s, inputs.rescale_s, inputs.slo_s
    noise = inputs.capacity.track.noise
    each_s = None
    if inputs.trigger_s is not None:
        each_s = np.asarray([inputs.capacity.fixed_s(size) for size in choices])
    fleets = np.asarray(choices, dtype=float)
    job = JobModel(fleets, carried_rps, *timing_s, noise, each_s, inputs.shrink_s)
    # No step is shorter than executors take to start.
    lengths_s = [max(inputs.bin_s, inputs.start.startup_s) * step for step in STEPS]
    bins_rps, weights, scenarios = _scenarios(inputs, lengths_s)
    undo = undo_costs(job, inputs.prices, scenarios, weights)
    prices = replace(inputs.prices, undo=undo)
    plan = solve(job, prices, scenarios, lengths_s)
    cost_s = np.asarray(weights @ first_costs(plan, inputs.start, bins_rps, inputs.bin_s))
    return SolvedPlan(choices, cost_s, plan, bins_rps, weights, scenarios.load_rps, lengths_s)


def _scenarios(inputs: PlanInputs, lengths_s: list[float]) -> tuple[Array, Array, LoadScenarios]:
    """The scenarios in bins from now on, how likely each is now, and the same in a plan's steps."""
    mean, deviation = np.asarray(inputs.load.mean), np.asarray(inputs.load.deviation)
    # Less capacity than was learned is like more load.
    deviation = np.sqrt(deviation**2 + (inputs.capacity.error(inputs.at_s) * mean) ** 2)
    bins = np.maximum(0.0, mean + DEVIATIONS[:, None] * deviation)
    weights = WEIGHTS
    keeps = KEEPS ** (np.asarray([0.0, *lengths_s[:-1]]) / inputs.bin_s)[:, None, None]
    changes = keeps * np.eye(len(WEIGHTS)) + (1.0 - keeps) * WEIGHTS
    edges_s = np.cumsum([0.0, inputs.start.startup_s, *lengths_s])
    surge = _surge(inputs, bins, edges_s)
    if surge is not None:
        bins = np.concatenate([bins, surge.bins_rps[None, :]])
        weights = np.append(WEIGHTS * (1.0 - surge.weight), surge.weight)
        changes = _with_surge(changes, surge)
    loads_rps = _in_steps(bins, inputs.start.startup_s, lengths_s, inputs.bin_s)
    return bins, weights, LoadScenarios(loads_rps, changes)


def _surge(inputs: PlanInputs, bins: Array, edges_s: Array) -> SurgeScenario | None:
    """That a surge rises on, that it ends, or that one begins; ``None`` where none is expected."""
    surges, at_s, pace = inputs.surges, inputs.at_s, inputs.pace
    if surges.shapeless:
        return None
    most_rps = CARRIED * inputs.capacity.rps(inputs.limits.max_executors)
    if inputs.surge_rises:
        never = np.zeros(len(edges_s) - 1)
        top_rps = surges.calm_rps + surges.rise_rps()
        if surges.last_rps > top_rps:
            top_rps = UNKNOWN_RISE * surges.last_rps
        # A load that no fleet carries does not change the decision.
        return SurgeScenario(np.maximum(bins[0], min(top_rps, most_rps)), RISES_ON, never, never)
    if not surges.recur:
        return None
    begins, ends = surges.begins(at_s, edges_s, pace), surges.ends(at_s, edges_s, pace)
    if surges.began_s is not None:
        return SurgeScenario(np.full_like(bins[0], surges.calm_rps), 0.0, ends, begins)
    high = bins[HIGHER] + surges.rise_rps()
    return SurgeScenario(np.minimum(high, np.maximum(bins[HIGHER], most_rps)), 0.0, begins, ends)


def _with_surge(changes: Array, surge: SurgeScenario) -> Array:
    """The changes between scenarios with one more scenario.

    Its first two chances are those of the time until the plan begins and of its first step: they
    are combined, since a surge in either is seen at once and answered a start-up time later.
    """
    comes, goes = surge.comes[1:].copy(), surge.goes[1:]
    comes[0] = 1.0 - (1.0 - surge.comes[0]) * (1.0 - comes[0])
    steps, count = changes.shape[:2]
    wider = np.zeros((steps, count + 1, count + 1))
    wider[:, :count, :count] = changes * (1.0 - comes)[:, None, None]
    wider[:, :count, count] = comes[:, None]
    wider[:, count, :count] = goes[:, None] * WEIGHTS
    wider[:, count, count] = 1.0 - goes
    return wider


def _in_steps(bins_rps: Array, begin_s: float, lengths_s: Sequence[float], bin_s: float) -> Array:
    """The mean load of each step of the plan, which begins when new executors have started."""
    count = bins_rps.shape[1]
    edges = begin_s + np.cumsum([0.0, *lengths_s])
    # Means over bins are differences of their running sum, interpolated between its points.
    total = np.concatenate([np.zeros((len(bins_rps), 1)), np.cumsum(bins_rps, axis=1)], axis=1)
    at = np.minimum(edges / bin_s, count)
    low = np.minimum(at.astype(int), count - 1)
    upto = total[:, low] + (total[:, low + 1] - total[:, low]) * (at - low)
    width = np.maximum(np.diff(at), 1e-9)
    return np.asarray(np.where(np.diff(at) > 1e-6, np.diff(upto, axis=1) / width, bins_rps[:, -1:]))
