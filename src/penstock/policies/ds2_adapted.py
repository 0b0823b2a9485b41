"""DS2 that grows only when records are late, and shrinks only when none are."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.policies.algorithms.dataflow import Sharing, measure, sized
from penstock.policies.algorithms.measurements import excess_delay_s, hold


@dataclass(frozen=True, slots=True)
class Ds2Adapted:
    """DS2, but growing only when records are late and shrinking only when none are.

    The rule: ``n' = ceil((1 + overprovisioning) x needed)`` by the walk of `ds2`;
    ``n' > n`` counts only if ``lag > up_lag_s``, ``n' < n`` only if ``lag < down_lag_s``.
    """

    overprovisioning: Annotated[float, Meta(ge=0)] = 0.33
    up_lag_s: Annotated[float, Meta(ge=0)] = 5.0
    down_lag_s: Annotated[float, Meta(ge=0)] = 1.0
    whole_instances: bool = False
    sharing: Sharing = "auto"
    window_s: Annotated[float, Meta(ge=0)] = 60.0
    period_s: Annotated[float, Meta(gt=0)] = 20.0

    default_limits: ClassVar[Limits] = Limits(cooldown_s=240.0)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet.target
        lag_s = excess_delay_s(snapshot)
        if lag_s is None:
            return not_measured(fleet, "delay_s")
        flow = measure(snapshot, knowledge.window(self.window_s), self.sharing)
        if isinstance(flow, Decision):
            return flow
        wanted = sized(
            flow,
            fleet,
            overprovisioning=self.overprovisioning,
            whole_instances=self.whole_instances,
        )
        target, reason = wanted.target_executors, wanted.reasons[0]
        evidence = {**reason.evidence, "wanted_executors": float(target), "lag_s": lag_s}
        if (refusal := self._refusal(target, fleet, lag_s)) is not None:
            return hold(fleet, "lag_forbids", f"{target} wanted, but {refusal}", evidence)
        reason = Reason(reason.code, f"{lag_s:.1f} s late, {reason.text}", evidence)
        return Decision.of(target, reason, expected_rps=wanted.expected_rps)

    def _refusal(self, target: int, fleet: int, lag_s: float) -> str | None:
        if target > fleet and lag_s <= self.up_lag_s:
            return f"a lag of {lag_s:.1f} s is not above {self.up_lag_s:g} s"
        if target < fleet and lag_s >= self.down_lag_s:
            return f"a lag of {lag_s:.1f} s is not below {self.down_lag_s:g} s"
        return None
