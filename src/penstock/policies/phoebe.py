"""Phoebe: profile the job first, then run at the lowest latency from which it could recover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import due, executors, rate
from penstock.policies.algorithms import arima
from penstock.policies.algorithms.arima import Series
from penstock.policies.algorithms.measurements import hold
from penstock.policies.algorithms.profile import CapacityPoint, LatencyPoint, Profile
from penstock.policies.algorithms.recovery import catch_up_s, repeated_s

#: Width of the bins of a forecast, the past that it sees, and how far ahead it goes, in seconds.
BIN_S, PAST_S, HORIZON_S = 60.0, 3600.0, 600
MEAN_S = 120.0  #: Present rates are means over this window.


class PhoebeMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """When it last planned."""

    planned_at_s: float | None = None


class SizeCandidate(NamedTuple):
    """A size, and what is expected of it."""

    executors: int
    recovery_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class Phoebe:
    """Profiling, a forecast, and among the sizes that would recover in time the fastest one.

    The rule: of all sizes with ``recovery_i < recovery target`` the one with the lowest
    ``latency(i, max forecast)``; of sizes within 5 % of it the smallest. If there is none: the
    larger of the fastest to recover and the one with the lowest latency, again within 5 %.
    Giving back one or two executors is not worth a rescale. ``recovery_i`` adds up the downtime,
    the time to process at ``capacity_i`` what came since the checkpoint and during the downtime,
    the time for what came during that time, and so on.
    """

    capacity: tuple[tuple[int, float], ...] = ()
    latency: tuple[tuple[int, float, float], ...] = ()
    recovery_target_s: Annotated[float, Meta(gt=0)] = 180.0
    downtime_s: Annotated[float, Meta(ge=0)] = 110.0
    checkpoint_interval_s: Annotated[float, Meta(ge=0)] = 10.0
    indifference: Annotated[float, Meta(ge=0)] = 0.05
    ignored_shrink: Annotated[int, Meta(ge=0)] = 2
    loop_s: Annotated[float, Meta(gt=0)] = 600.0
    period_s: Annotated[float, Meta(gt=0)] = 60.0
    profile: str = ""

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    @property
    def is_profiled(self) -> bool:
        return bool(self.capacity) and bool(self.latency)

    def with_profile(
        self,
        capacity: tuple[CapacityPoint, ...],
        latency: tuple[LatencyPoint, ...],
        downtime_s: float,
    ) -> Phoebe:
        """The same policy with what profiling runs found."""
        return replace(self, profile="", capacity=capacity, latency=latency, downtime_s=downtime_s)

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = knowledge.recall(PhoebeMemory)
        fleet, now_s = snapshot.fleet.target, knowledge.now_s
        if not self.is_profiled or snapshot.arrival_rps is None:
            unknown = "arrival_rps" if self.is_profiled else "profile"
            return not_measured(fleet, unknown, memory=memory)
        last_s = memory.planned_at_s
        wait_s = 0.0 if last_s is None or now_s < last_s else self.loop_s - (now_s - last_s)
        if wait_s > 0.5 * self.period_s:
            why = f"the next plan is due {due(wait_s)}"
            return hold(fleet, "between_plans", why, memory=memory)
        arrival_rps = knowledge.mean(lambda s: s.arrival_rps, MEAN_S) or snapshot.arrival_rps
        forecast = _forecast(knowledge.window(PAST_S), arrival_rps)
        best = self.choice(self._candidates(snapshot, arrival_rps, forecast))
        return self._decision(fleet, best, forecast, PhoebeMemory(now_s))

    def choice(self, candidates: Sequence[SizeCandidate]) -> SizeCandidate:
        """The lowest latency in time; else the larger of fastest recovery and lowest latency."""
        target_s = self.recovery_target_s
        in_time = [c for c in candidates if c.recovery_s < target_s and isfinite(c.latency_s)]
        if in_time:
            return self._lowest(in_time, lambda one: one.latency_s)
        return max(
            self._lowest(candidates, lambda one: one.recovery_s),
            self._lowest(candidates, lambda one: one.latency_s),
        )

    def _lowest(
        self, candidates: Sequence[SizeCandidate], value: Callable[[SizeCandidate], float]
    ) -> SizeCandidate:
        """The smallest size that is about as good as the best; without any good one the largest."""
        most = min(map(value, candidates)) * (1.0 + self.indifference)
        return candidates[-1] if most == inf else next(c for c in candidates if value(c) <= most)

    def _candidates(
        self, snapshot: Snapshot, arrival_rps: float, forecast_rps: Series
    ) -> list[SizeCandidate]:
        profile = Profile.of(self.capacity, self.latency)
        peak_rps = float(forecast_rps.max())
        checkpoint_s = repeated_s(snapshot, self.checkpoint_interval_s)
        candidates = []
        for size in range(1, profile.largest + 1):
            capacity_rps = profile.capacity_rps(size)
            recovery_s = inf
            # Phoebe's sum ends with the forecast; who does not keep up never catches up.
            if capacity_rps > peak_rps:
                recovery_s = catch_up_s(
                    forecast_rps,
                    capacity_rps,
                    arrival_rps=arrival_rps,
                    downtime_s=self.downtime_s,
                    last_checkpoint_s=checkpoint_s,
                )
            latency_s = profile.latency_s(size, peak_rps)
            candidates.append(SizeCandidate(size, recovery_s, latency_s))
        return candidates

    def _decision(
        self, fleet: int, best: SizeCandidate, forecast_rps: Series, memory: PhoebeMemory
    ) -> Decision:
        peak_rps = float(forecast_rps.max())
        evidence = {"forecast_peak_rps": peak_rps, "best_executors": float(best.executors)}
        text = f"{executors(best.executors)}: "
        if isfinite(best.latency_s):
            evidence["expected_latency_s"] = best.latency_s
            text += f"latency {best.latency_s:.2f} s at {rate(peak_rps)}, "
        else:
            text += f"overloaded at {rate(peak_rps)}, "
        if isfinite(best.recovery_s):
            evidence["recovery_s"] = best.recovery_s
            text += f"recovery within {best.recovery_s:.0f} s of {self.recovery_target_s:.0f} s"
        else:
            text += "no recovery within the forecast"
        shrink = fleet - best.executors
        if shrink == 0:
            return Decision.of(fleet, Reason("right_size", text, evidence), memory=memory)
        if 0 < shrink <= self.ignored_shrink:
            why = f"fewer are not worth a rescale; {text}"
            return hold(fleet, "small_shrink", why, evidence, memory)
        reason = Reason("scale_down" if shrink > 0 else "scale_up", text, evidence)
        expected_rps = Profile.of(self.capacity, self.latency).capacity_rps(best.executors)
        return Decision.of(best.executors, reason, expected_rps=expected_rps, memory=memory)


def _forecast(past: Sequence[Snapshot], arrival_rps: float) -> Series:
    """The load now and at each of the next 600 s."""
    rates = arima.mean_rates(past, BIN_S)
    bins = int(HORIZON_S / BIN_S)
    ahead = arima.forecast_rps(rates, bins)
    if ahead is None:
        ahead = arima.line_rps(rates, bins) if len(rates) > 2 else np.array([arrival_rps])
    return np.concatenate([[arrival_rps], arima.per_second(arrival_rps, ahead, BIN_S, HORIZON_S)])
