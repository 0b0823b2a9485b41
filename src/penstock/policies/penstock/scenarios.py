"""What the load may do: scenarios about the forecast, and one more for a surge or for its end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from penstock.policies.penstock.dynamic_program import LoadScenarios
from penstock.policies.penstock.job_model import NORMAL_POINTS, NORMAL_WEIGHTS, Array
from penstock.policies.penstock.plan_inputs import PlanInputs

#: The forecast first, then a little below and above it, then far below and above.
ORDER = [2, 1, 3, 0, 4]
DEVIATIONS = NORMAL_POINTS[ORDER]
WEIGHTS = NORMAL_WEIGHTS[ORDER]
#: The one of these scenarios that a surge is added to.
HIGHER = 2
#: How likely the load is to be in the same scenario a bin later.
KEEPS = 0.9
#: The steps of a plan after the first, in bins: a quarter of an hour, coarser towards its end.
STEPS = (1,) * 6 + (2,) * 6 + (4,) * 3
#: How many bins a forecast has to reach.
BINS = 1 + sum(STEPS)
#: A surge that is higher than all before may rise to this many times its load when it is noticed.
UNKNOWN_RISE = 3.0
RISES_ON = 0.5
#: A surge is planned for up to this part of what the largest fleet carries.
CARRIED = 0.9


class WeightedScenarios(Struct, frozen=True):
    """The scenarios in bins from now on, how likely each is now, and the same in a plan's steps."""

    bins_rps: Array
    weights: Array
    planned: LoadScenarios


class SurgeScenario(Struct, frozen=True):
    """One more scenario: how likely it is now, and to come and to go in each step."""

    bins_rps: Array
    weight: float
    comes: Array
    goes: Array


def steps_s(inputs: PlanInputs) -> list[float]:
    """The steps of the plan: no shorter than executors take to start."""
    shortest_s = max(inputs.bin_s, inputs.startup_s)
    return [shortest_s * step for step in STEPS]


def load_scenarios(
    inputs: PlanInputs, lengths_s: Sequence[float], most_rps: float
) -> WeightedScenarios:
    """What may come from now on; `most_rps` is what the largest fleet carries."""
    mean, deviation = np.asarray(inputs.load.mean), np.asarray(inputs.load.deviation)
    # Less capacity than was learned is like more load.
    deviation = np.sqrt(deviation**2 + (inputs.error * mean) ** 2)
    bins = np.maximum(0.0, mean + DEVIATIONS[:, None] * deviation)
    weights = WEIGHTS
    keeps = KEEPS ** (np.asarray([0.0, *lengths_s[:-1]]) / inputs.bin_s)[:, None, None]
    changes = keeps * np.eye(len(WEIGHTS)) + (1.0 - keeps) * WEIGHTS
    edges_s = np.cumsum([0.0, inputs.startup_s, *lengths_s])
    surge = _surge(inputs, bins, edges_s, CARRIED * most_rps)
    if surge is not None:
        bins = np.concatenate([bins, surge.bins_rps[None, :]])
        weights = np.append(WEIGHTS * (1.0 - surge.weight), surge.weight)
        changes = _with_surge(changes, surge)
    planned = LoadScenarios(_in_steps(bins, inputs.startup_s, lengths_s, inputs.bin_s), changes)
    return WeightedScenarios(bins, weights, planned)


def _surge(
    inputs: PlanInputs, bins: Array, edges_s: Array, most_rps: float
) -> SurgeScenario | None:
    """That a surge rises on, that it ends, or that one begins; ``None`` where none is expected."""
    surges, at_s, pace = inputs.surges, inputs.at_s, inputs.pace
    if surges.shapeless:
        return None
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
