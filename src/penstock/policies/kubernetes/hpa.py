"""Kubernetes' horizontal pod autoscaler, on executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Limits, Reason, Snapshot, not_measured
from penstock.policies.kubernetes.metrics import (
    MetricError,
    Pod,
    PodSample,
    Readiness,
    Tolerance,
    utilization_replicas,
)
from penstock.policies.kubernetes.pacing import (
    Behavior,
    Recommendations,
    metric_reason,
    seeded,
    settle,
    tolerance_of,
)

#: A fraction of 1 in the thousandths that Kubernetes counts in.
MILLI = 1000


@dataclass(frozen=True, slots=True)
class Hpa:
    """The real algorithm of Kubernetes' autoscaler: usage over target, per metric.

    The rule: ``n' = max over metrics of ceil(ready x percent / target)`` where ``percent`` is
    ``100 x sum(usage) / sum(requests)`` cut to a whole number; no change while ``percent/target``
    lies within the tolerance of 1. Then: not below any of the last `stabilize_down_s`, and
    not above ``max(2n, 4)``, or what `behavior` says.

    Executors that start or are not measured are filled in against the direction of scaling: idle
    when growing, busy when shrinking.

    Parameters
    ----------
    cpu_target_fraction
        Part of the requested cpu that should be in use.
    memory_target_fraction
        The same of memory; left out, memory does not count.
    tolerance_up_fraction, tolerance_down_fraction
        How far off its target usage may lie before anything is done.
    cpu_initialization_s
        This long after its start an executor that is not ready counts as starting, and the cpu of
        a ready one counts only when it was sampled after the start.
    initial_readiness_delay_s
        An executor that was last ready this soon after its start was never ready.
    metric_window_s
        How long a sample of cpu is taken for.
    stabilize_down_s
        Shrink only to the highest recommendation of this many past seconds.
    behavior
        Kubernetes' ``spec.behavior``: windows, policies and tolerances per direction. Left out,
        one turn at most doubles the fleet.
    period_s
        Seconds between decisions.

    Examples
    --------
    Three executors at 90 % of their cpu, target 70 %: the percentage is 90, and
    ``ceil(3 x 90/70) = 4``.

    >>> from penstock import ExecutorSample, Fleet, Knowledge, Snapshot
    >>> busy = tuple(ExecutorSample(str(i), 0.0, cpu_fraction=0.9) for i in range(3))
    >>> decision = Hpa().decide(Snapshot(600.0, Fleet(3, 3, 3), executors=busy), Knowledge())
    >>> decision.target_executors, decision.reasons[0].text
    (4, 'cpu at 90 % for a target of 70 %: 4 executors instead of 3')

    References
    ----------
    kubernetes/kubernetes v1.38.0-alpha.0, pkg/controller/podautoscaler. The cpu scaler of Koper
    (2022, targets 0.5, 0.7, 0.9), Daedalus (Pfister et al. 2024, 0.6, 0.8, 0.85) and Varga et al.
    (2021).

    Where we differ
    ---------------
    An executor has no readiness condition with a time: one that is not ready but was seen ready
    later than `initial_readiness_delay_s` after its start is taken to be leaving, which Kubernetes
    marks as being deleted. On Spark the request of an executor is its cores, and its cpu is that
    of the JVM and of Python workers since the last turn: a trigger that is longer than `period_s`
    shows turns without work, and a job that waits for others shows little cpu. Bounds are guards.
    Rescales that count against a rate are those that the actuator accepted, also where a guard
    changed them.

    Wins and loses
    --------------
    Wins where nobody wants to model anything: a slow sine with cpu as the bottleneck. Loses on a
    burst that fills the queue: cpu saturates at 1, so a fleet that needs five times its size is
    asked to grow by 1/0.7 at a time. A low target does not move at all where it asks for more than
    the largest fleet all day: at 0.5 twice what the load needs.
    """

    cpu_target_fraction: Annotated[float, Meta(ge=0.01, le=10)] = 0.7
    memory_target_fraction: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    tolerance_up_fraction: Annotated[float, Meta(ge=0)] = 0.1
    tolerance_down_fraction: Annotated[float, Meta(ge=0)] = 0.1
    cpu_initialization_s: Annotated[float, Meta(ge=0)] = 300.0
    initial_readiness_delay_s: Annotated[float, Meta(ge=0)] = 30.0
    metric_window_s: Annotated[float, Meta(ge=0)] = 15.0
    stabilize_down_s: Annotated[float, Meta(ge=0)] = 300.0
    behavior: Behavior | None = None
    period_s: Annotated[float, Meta(gt=0)] = 15.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        current = snapshot.fleet.target
        now_s = snapshot.at_s
        past = knowledge.recall(Recommendations)
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
                return not_measured(current, answer, memory=seeded(past, current, now_s))
            wanted, reason = answer
        return settle(
            wanted,
            current,
            now_s,
            past,
            reason,
            down_window_s=self.stabilize_down_s,
            behavior=self.behavior,
            changes=knowledge.rescales,
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
        readiness = Readiness(self.cpu_initialization_s, self.initial_readiness_delay_s)
        best: tuple[int, Reason] | None = None
        blind = ""
        targets = {"cpu": self.cpu_target_fraction, "memory": self.memory_target_fraction}
        for name, target_fraction in targets.items():
            if target_fraction is None:
                continue
            target = round(target_fraction * 100)
            try:
                proposal = utilization_replicas(
                    current,
                    target,
                    pods,
                    self._samples(name, snapshot),
                    resource=name,
                    now_s=snapshot.at_s,
                    tolerance=tolerance,
                    readiness=readiness,
                )
            except MetricError:
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

    def _samples(self, name: str, snapshot: Snapshot) -> dict[str, PodSample]:
        return {
            executor.id: PodSample(int(used * MILLI + 0.5), snapshot.at_s, self.metric_window_s)
            for executor in snapshot.executors
            if (used := getattr(executor, f"{name}_fraction")) is not None
        }

    def _pod(self, executor: ExecutorSample, history: Sequence[Snapshot]) -> Pod:
        """An executor as a pod; one that became ready and is no more, is leaving."""
        started_at_s = executor.started_at_s
        changed_at_s = started_at_s if executor.ready else _last_ready_at_s(executor, history)
        leaving = changed_at_s > started_at_s + self.initial_readiness_delay_s
        return Pod(
            executor.id,
            ready=executor.ready,
            deleting=leaving,
            started_at_s=started_at_s,
            ready_changed_at_s=started_at_s,
            request_milli=MILLI,
        )

    def _tolerance(self) -> Tolerance:
        return tolerance_of(self.behavior, self.tolerance_down_fraction, self.tolerance_up_fraction)


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
    name: str, percent: int, target: int, wanted: int, current: int, tolerance: Tolerance
) -> Reason:
    seen = f"{name} at {percent} % for a target of {target} %"
    numbers = {f"{name}_percent": percent, "target_percent": target, "wanted": wanted}
    return metric_reason(seen, percent / target, wanted, current, tolerance, dict(numbers))
