"""What the load may do: courses about the forecast, and one more for a surge or for its end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.policies.penstock.dynamic_program import LoadScenarios
from penstock.policies.penstock.plan_inputs import PlanInputs

Array = NDArray[np.float64]

#: The courses of the load, in standard deviations from the forecast, and how likely each is.
COURSES = np.array([0.0, -1.356, 1.356, -2.857, 2.857])
WEIGHTS = np.array([0.53333, 0.22208, 0.22208, 0.01126, 0.01126])
#: The course of those above that a surge is reckoned on top of.
HIGHER = 2
#: How likely the load is to be on the same course a bin later.
KEEPS = 0.9
#: The steps of a plan after the first, in bins: a quarter of an hour, coarser towards its end.
STEPS = (1,) * 6 + (2,) * 6 + (4,) * 3
#: How many bins a forecast has to reach.
BINS = 1 + sum(STEPS)
#: A surge that is like none before may rise to so many times what it is when it is noticed.
UNHEARD_OF = 3.0
RISES_ON = 0.5
#: The part of what the largest fleet carries that is worth reckoning with.
CARRIED = 0.9


class Courses(Struct, frozen=True):
    """The courses in bins from now on, how likely each is now, and the same for a plan's steps."""

    bins_rps: Array
    weights: Array
    outlook: LoadScenarios


def steps_s(sight: PlanInputs) -> list[float]:
    """The steps of the plan: no shorter than executors take to come."""
    longest_s = max(sight.bin_s, sight.startup_s)
    return [longest_s * step for step in STEPS]


def courses(sight: PlanInputs, lengths_s: Sequence[float], most_rps: float) -> Courses:
    """What may come from now on; `most_rps` is what the largest fleet carries."""
    mean, deviation = np.asarray(sight.load.mean), np.asarray(sight.load.deviation)
    # Less capacity than was learned is like more load.
    deviation = np.sqrt(deviation**2 + (sight.error * mean) ** 2)
    bins = np.maximum(0.0, mean + COURSES[:, None] * deviation)
    weights = WEIGHTS
    keeps = KEEPS ** (np.asarray([0.0, *lengths_s[:-1]]) / sight.bin_s)[:, None, None]
    changes = keeps * np.eye(len(WEIGHTS)) + (1.0 - keeps) * WEIGHTS
    edges_s = np.cumsum([0.0, sight.startup_s, *lengths_s])
    other = _surge(sight, bins, edges_s, CARRIED * most_rps)
    if other is not None:
        bins = np.concatenate([bins, other.bins_rps[None, :]])
        weights = np.append(WEIGHTS * (1.0 - other.weight), other.weight)
        changes = _with_other(changes, other)
    stepped = _stepped(bins, sight.startup_s, lengths_s, sight.bin_s)
    return Courses(bins, weights, LoadScenarios(stepped, changes))


class _SurgeScenario(Struct, frozen=True):
    """One more course: how likely it is now, and to come and to go in each step."""

    bins_rps: Array
    weight: float
    comes: Array
    goes: Array


def _surge(
    sight: PlanInputs, bins: Array, edges_s: Array, most_rps: float
) -> _SurgeScenario | None:
    surges, at_s = sight.surges, sight.at_s
    none = np.zeros(len(edges_s) - 1)
    if surges.shapeless:
        return None
    if surges.rising:
        top_rps = surges.calm_rps + surges.rise_rps()
        if surges.last_rps > top_rps:
            top_rps = UNHEARD_OF * surges.last_rps
        # What no fleet carries decides nothing.
        return _SurgeScenario(np.maximum(bins[0], min(top_rps, most_rps)), RISES_ON, none, none)
    if not surges.recur:
        return None
    begins, ends = surges.begins(at_s, edges_s), surges.ends(at_s, edges_s)
    if surges.began_s is not None:
        return _SurgeScenario(np.full_like(bins[0], surges.calm_rps), 0.0, ends, begins)
    high = bins[HIGHER] + surges.rise_rps()
    return _SurgeScenario(np.minimum(high, np.maximum(bins[HIGHER], most_rps)), 0.0, begins, ends)


def _with_other(changes: Array, other: _SurgeScenario) -> Array:
    """The changes between courses with one more course.

    The first two chances are those of the time until the plan begins and of its first step. What
    comes in either is met alike: it is seen at once, and answered a start-up time later.
    """
    comes, goes = other.comes[1:].copy(), other.goes[1:]
    comes[0] = 1.0 - (1.0 - other.comes[0]) * (1.0 - comes[0])
    steps, count = changes.shape[:2]
    wider = np.zeros((steps, count + 1, count + 1))
    wider[:, :count, :count] = changes * (1.0 - comes)[:, None, None]
    wider[:, :count, count] = comes[:, None]
    wider[:, count, :count] = goes[:, None] * WEIGHTS
    wider[:, count, count] = 1.0 - goes
    return wider


def _stepped(bins_rps: Array, begin_s: float, lengths_s: Sequence[float], bin_s: float) -> Array:
    """The load of each step of the plan, which begins when the first step is over."""
    count = bins_rps.shape[1]
    edges = begin_s + np.cumsum([0.0, *lengths_s])
    # Means over bins are differences of their running sum, read between its points.
    total = np.concatenate([np.zeros((len(bins_rps), 1)), np.cumsum(bins_rps, axis=1)], axis=1)
    at = np.minimum(edges / bin_s, count)
    low = np.minimum(at.astype(int), count - 1)
    upto = total[:, low] + (total[:, low + 1] - total[:, low]) * (at - low)
    width = np.maximum(np.diff(at), 1e-9)
    return np.asarray(np.where(np.diff(at) > 1e-6, np.diff(upto, axis=1) / width, bins_rps[:, -1:]))
