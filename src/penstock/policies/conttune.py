"""ContTune: learn what each size can process; grow in one big step, shrink by what was learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct, structs
from numpy.typing import NDArray

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, executors, rate, resized
from penstock.policies.algorithms.dataflow import OperatorDemands, measure, with_margin
from penstock.policies.algorithms.measurements import held_back_fraction, hold, of_this_size

#: Sizes that are remembered; beyond that the one that is farthest from the present is forgotten.
MOST_SIZES = 64
LATEST = 5  #: How many of the latest observations of a size are averaged (Top-K).
#: Sizes this far apart have much in common; the scale is chosen that explains the data best.
LENGTH_SCALES = (1.0, 2.0, 4.0, 8.0, 16.0)
NOISE = 1e-4  #: The variance of an observation against that of the capacity: 1 % of the deviation.


class Ability(Struct, frozen=True, gc=False, array_like=True):
    """What a fleet of this size could process, the latest observation last."""

    executors: int
    observed_rps: tuple[float, ...]

    @property
    def mean_rps(self) -> float:
        return sum(self.observed_rps) / len(self.observed_rps)


class ContTuneMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """One entry per size that was observed, and when the last observation was made."""

    sizes: tuple[Ability, ...] = ()
    observed_at_s: float | None = None

    def learn(self, size: int, ability_rps: float, now_s: float) -> ContTuneMemory:
        known = {one.executors: one for one in self.sizes}
        before = known.pop(size, Ability(size, ())).observed_rps
        if len(known) >= MOST_SIZES:
            del known[max(known, key=lambda other: abs(other - size))]
        now = Ability(size, (*before, ability_rps)[-LATEST:])
        return ContTuneMemory((*known.values(), now), now_s)


def capacity_means(sizes: Sequence[Ability], at: Sequence[int]) -> NDArray[np.float64]:
    """The means of a Gaussian process through the observations, at these sizes.

    Its covariance is ``exp(-d^2 / 2 l^2)``, with the length scale ``l`` of the highest marginal
    likelihood, and its prior mean is 0: far from all that was observed it expects nothing.

    >>> known = [Ability(4, (40e3,)), Ability(8, (76e3,))]
    >>> [f"{rps / 1e3:.1f} k/s" for rps in capacity_means(known, [4, 6, 8])]
    ['40.0 k/s', '59.7 k/s', '76.0 k/s']
    """
    x = np.array([one.executors for one in sizes], dtype=float)
    y = np.array([one.mean_rps for one in sizes])
    best, found = -inf, np.zeros(len(at))
    for length in LENGTH_SCALES:
        covariance = _covariance(x, x, length) + NOISE * np.eye(len(x))
        weights = np.linalg.solve(covariance, y)
        # The signal variance that maximizes the likelihood of these data is known in closed form.
        variance = max(float(y @ weights) / len(x), np.finfo(float).tiny)
        likelihood = -len(x) * np.log(variance) - np.linalg.slogdet(covariance)[1]
        if likelihood > best:
            best = float(likelihood)
            found = _covariance(np.array(at, dtype=float), x, length) @ weights
    return found


def _covariance(
    left: NDArray[np.float64], right: NDArray[np.float64], length: float
) -> NDArray[np.float64]:
    return np.asarray(np.exp(-0.5 * ((left[:, None] - right) / length) ** 2))


@dataclass(frozen=True, slots=True)
class ContTune:
    """Too small: the largest size known, or twice that. Too large: the least that will do.

    The rule: *under-provisioned*, held back for more than `most_held_back` of the time while more
    than `high_usage` of the fleet is needed: go to the largest size that was observed, and from
    there to twice that size (Big). *Over-provisioned*, not held back while less than `low_usage`
    is needed: a Gaussian process over ``size -> capacity`` gives the smallest ``n`` with
    ``capacity(n) >= arrival x (1 + overprovisioning)``; if no observed size is within
    `known_distance` of ``n``, DS2's linear estimate is taken instead (Small). Changes by a factor
    of less than ``1 + least_change`` are not made.
    """

    known_distance: Annotated[int, Meta(ge=0)] = 3
    overprovisioning: Annotated[float, Meta(ge=0)] = 0.33
    most_held_back: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    high_usage: Annotated[float, Meta(ge=0)] = 0.75
    low_usage: Annotated[float, Meta(ge=0)] = 0.65
    least_change: Annotated[float, Meta(ge=0)] = 0.1
    window_s: Annotated[float, Meta(gt=0)] = 60.0
    period_s: Annotated[float, Meta(gt=0)] = 20.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory, fleet = knowledge.recall(ContTuneMemory), snapshot.fleet
        window = of_this_size(knowledge.window(self.window_s) or (snapshot,), fleet)
        flow = measure(snapshot, window)
        if isinstance(flow, Decision):
            return structs.replace(flow, memory=memory)
        pressures = [held for one in window if (held := held_back_fraction(one)) is not None]
        if not pressures:
            return not_measured(fleet.target, "backpressured_fraction", memory=memory)
        held_back, usage = sum(pressures) / len(pressures), flow.executors / max(1, fleet.active)
        evidence = {"held_back_fraction": held_back, "usage": usage}
        evidence["mean_arrival_rps"] = flow.arrival_rps
        since_s = snapshot.at_s - window[0].at_s
        if fleet.active != fleet.target or since_s < self.window_s - self.period_s:
            why = f"the size has not been the same for {self.window_s:g} s"
            return hold(fleet.target, "settling", why, evidence, memory)
        memory = self._observed(memory, flow, fleet.active, snapshot.at_s)
        state = f"held back for {held_back:.0%} of the time, {usage:.0%} of the fleet needed"
        if held_back > self.most_held_back and usage > self.high_usage:
            return _big(state, fleet.target, evidence, memory)
        if held_back <= self.most_held_back and usage < self.low_usage:
            return self._small(flow, fleet.target, evidence, memory)
        return hold(fleet.target, "right_size", state, evidence, memory)

    def _observed(
        self, memory: ContTuneMemory, flow: OperatorDemands, size: int, now_s: float
    ) -> ContTuneMemory:
        """One observation per window, of a fleet that has something to do."""
        last_s = memory.observed_at_s
        is_due = last_s is None or not 0.0 <= now_s - last_s < self.window_s
        if not is_due or flow.executors <= 0.0:
            return memory
        return memory.learn(size, flow.arrival_rps * size / flow.executors, now_s)

    def _small(
        self, flow: OperatorDemands, fleet: int, evidence: dict[str, float], memory: ContTuneMemory
    ) -> Decision:
        """The smallest size that will do: as learned where that is known, else as DS2 says."""
        wanted = max(1, with_margin(flow.executors, 1.0 + self.overprovisioning))
        how, expected_rps = "as DS2 estimates it", None
        asked_rps = flow.arrival_rps * (1.0 + self.overprovisioning)
        if memory.sizes:
            candidates = range(1, max(one.executors for one in memory.sizes) + 1)
            means = capacity_means(memory.sizes, candidates)
            fits = [n for n, rps in zip(candidates, means, strict=True) if rps >= asked_rps]
            known = [one.executors for one in memory.sizes]
            if fits and min(abs(fits[0] - size) for size in known) <= self.known_distance:
                wanted, expected_rps = fits[0], float(means[fits[0] - 1])
                how = f"learned from {counted(len(known), 'size')}"
        text = (
            f"{rate(flow.arrival_rps)} and {self.overprovisioning:.0%} on top fit "
            f"{executors(wanted)}, {how}"
        )
        if wanted * (1.0 + self.least_change) > fleet:
            return hold(fleet, "right_size", text, evidence, memory)
        reason = Reason("scale_down", f"{text}: {resized(fleet, wanted)}", evidence)
        return Decision.of(wanted, reason, expected_rps=expected_rps, memory=memory)


def _big(state: str, fleet: int, evidence: dict[str, float], memory: ContTuneMemory) -> Decision:
    """The largest size that was observed; from there, twice that."""
    largest = max((one.executors for one in memory.sizes), default=0)
    wanted = largest if fleet < largest else 2 * max(1, fleet)
    what = "the largest size known" if fleet < largest else "twice the largest size known"
    text = f"{state}: {what}, {resized(fleet, wanted)}"
    return Decision.of(wanted, Reason("scale_up", text, evidence), memory=memory)
