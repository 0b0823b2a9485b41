"""Kubernetes' horizontal pod autoscaler, on executors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Limits, Reason, Snapshot, not_measured
from penstock.policies.kubernetes import metrics, pacing

MILLI = 1000  #: A fraction of 1 in the thousandths that Kubernetes counts in.


@dataclass(frozen=True, slots=True)
class Hpa:
    """The real algorithm of Kubernetes' autoscaler: usage over target, per metric.

    The rule: ``n' = max over metrics of ceil(ready x percent / target)`` where ``percent`` is
    ``100 x sum(usage) / sum(requests)`` cut to a whole number; no change while ``percent/target``
    lies within the tolerance of 1. Then: not below any of the last `stabilize_down_s`, and
    not above ``max(2n, 4)``, or what `behavior` says.

    Executors that start or are not measured are filled in against the direction of scaling: idle
    when growing, busy when shrinking.
    """

    cpu_target_fraction: Annotated[float, Meta(ge=0.01, le=10)] = 0.7
    memory_target_fraction: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    tolerance_up_fraction: Annotated[float, Meta(ge=0)] = 0.1
    tolerance_down_fraction: Annotated[float, Meta(ge=0)] = 0.1
    cpu_initialization_s: Annotated[float, Meta(ge=0)] = 300.0
    initial_readiness_delay_s: Annotated[float, Meta(ge=0)] = 30.0
    metric_window_s: Annotated[float, Meta(ge=0)] = 15.0
    stabilize_down_s: Annotated[float, Meta(ge=0)] = 300.0
    behavior: pacing.Behavior | None = None
    period_s: Annotated[float, Meta(gt=0)] = 15.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        current = snapshot.fleet.target
        now_s = snapshot.at_s
        past = knowledge.recall(pacing.Recommendations)
        if current == 0:
            text = "a fleet of 0 executors is switched off and stays so"
            return Decision.of(0, Reason("scaling_disabled", text), memory=past)

        percent = self._quick_percent(snapshot)
        if percent is not None and self.memory_target_fraction is None:
            target = round(self.cpu_target_fraction * 100)
            ratio, tolerance = percent / target, self._tolerance()
            near = tolerance.covers(ratio)
            wanted = current if near else ceil(ratio * len(snapshot.executors))
            reason = _reason("cpu", percent, target, wanted, current, tolerance)
        else:
            answer = self._all_metrics(snapshot, knowledge)
            if isinstance(answer, str):
                return not_measured(current, answer, memory=pacing.seeded(past, current, now_s))
            wanted, reason = answer
        window_s, rescales = self.stabilize_down_s, knowledge.rescales
        return pacing.settle(
            wanted, current, now_s, past, reason, window_s, self.behavior, rescales
        )

    def _quick_percent(self, snapshot: Snapshot) -> int | None:
        """Percent of the cpu in use if every executor counts, which is nearly always."""
        executors = snapshot.executors
        if not executors:
            return None
        settled_at_s = snapshot.at_s - min(self.metric_window_s, self.cpu_initialization_s)
        used_milli = 0
        for executor in executors:
            cpu = executor.cpu_fraction
            if cpu is None or not executor.ready or executor.started_at_s > settled_at_s:
                return None
            used_milli += int(cpu * MILLI + 0.5)
        return used_milli * 100 // (MILLI * len(executors))

    def _all_metrics(self, snapshot: Snapshot, knowledge: Knowledge) -> tuple[int, Reason] | str:
        """The most that any metric asks for and why, or what could not be measured."""
        current = snapshot.fleet.target
        pods = [self._pod(executor, knowledge.history) for executor in snapshot.executors]
        tolerance = self._tolerance()
        readiness = metrics.Readiness(self.cpu_initialization_s, self.initial_readiness_delay_s)
        best: tuple[int, Reason] | None = None
        blind = ""
        targets = {"cpu": self.cpu_target_fraction, "memory": self.memory_target_fraction}
        for name, target_fraction in targets.items():
            if target_fraction is None:
                continue
            target = round(target_fraction * 100)
            try:
                proposal = metrics.utilization_replicas(
                    current,
                    target,
                    pods,
                    self._samples(name, snapshot),
                    resource=name,
                    now_s=snapshot.at_s,
                    tolerance=tolerance,
                    readiness=readiness,
                )
            except metrics.MetricError:
                blind = blind or f"{name}_fraction of any ready executor"
                continue
            wanted = proposal.replicas
            if best is None or wanted > best[0]:
                percent = proposal.utilization_pct or 0
                best = wanted, _reason(name, percent, target, wanted, current, tolerance)
        # Half blind, growing is safe and shrinking is not.
        if best is None or (blind and best[0] < current):
            return blind
        return best

    def _samples(self, name: str, snapshot: Snapshot) -> dict[str, metrics.PodSample]:
        return {
            executor.id: metrics.PodSample(
                int(used * MILLI + 0.5), snapshot.at_s, self.metric_window_s
            )
            for executor in snapshot.executors
            if (used := getattr(executor, f"{name}_fraction")) is not None
        }

    def _pod(self, executor: ExecutorSample, history: Sequence[Snapshot]) -> metrics.Pod:
        """An executor as a pod; one that became ready and is no more, is leaving."""
        started_at_s = executor.started_at_s
        changed_at_s = started_at_s if executor.ready else _last_ready_at_s(executor, history)
        leaving = changed_at_s > started_at_s + self.initial_readiness_delay_s
        return metrics.Pod(
            executor.id,
            ready=executor.ready,
            deleting=leaving,
            started_at_s=started_at_s,
            ready_changed_at_s=started_at_s,
            request_milli=MILLI,
        )

    def _tolerance(self) -> metrics.Tolerance:
        return pacing.tolerance_of(
            self.behavior, self.tolerance_down_fraction, self.tolerance_up_fraction
        )


def _last_ready_at_s(executor: ExecutorSample, history: Sequence[Snapshot]) -> float:
    """When an executor was last seen ready; its start if never."""
    for snapshot in reversed(history):
        if snapshot.at_s < executor.started_at_s:
            break
        for seen in snapshot.executors:
            if seen.id == executor.id and seen.ready:
                return snapshot.at_s
    return executor.started_at_s


@lru_cache(maxsize=1024)
def _reason(
    name: str, percent: int, target: int, wanted: int, current: int, tolerance: metrics.Tolerance
) -> Reason:
    seen = f"{name} at {percent} % for a target of {target} %"
    numbers = {f"{name}_percent": percent, "target_percent": target, "wanted": wanted}
    return pacing.metric_reason(seen, percent / target, wanted, current, tolerance, dict(numbers))
