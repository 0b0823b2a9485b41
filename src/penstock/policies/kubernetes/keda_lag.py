"""KEDA's Kafka scaler: executors by the length of the queue."""

from dataclasses import dataclass
from math import isqrt
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Fleet, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted
from penstock.policies.kubernetes import pacing
from penstock.policies.kubernetes.metrics import Tolerance, object_per_pod_replicas


def factors(number: int) -> list[int]:
    """All divisors, in order.

    >>> factors(12), factors(0)
    ([1, 2, 3, 4, 6, 12], [])
    """
    if number < 1:
        return []
    small = [i for i in range(1, isqrt(number) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def next_factor(total_lag: int, partitions: int, lag_threshold: int) -> int:
    """The fewest consumers that can take the lag and share the partitions out evenly.

    >>> next_factor(99, 100, 10)
    10
    """
    for factor in factors(partitions):
        if factor * lag_threshold >= total_lag:
            return factor
    return partitions


@dataclass(frozen=True, slots=True)
class KedaLag:
    """As many executors as leave each with `lag_threshold` waiting records.

    The rule: ``n' = ceil(min(lag, partitions x threshold) / threshold)``, no change while
    ``lag / (threshold x n)`` lies within the tolerance of 1; then the stabilisation and the limit
    of Kubernetes' autoscaler, which KEDA feeds. An inactive job (lag at most
    `activation_lag_threshold` for `cooldown_s`) goes to 0; an active one comes back with 1.
    """

    lag_threshold: Annotated[int, Meta(ge=1)] = 10
    activation_lag_threshold: Annotated[int, Meta(ge=0)] = 0
    limit_to_partitions_with_lag: bool = False
    ensure_even_distribution: bool = False
    allow_idle_consumers: bool = False
    cooldown_s: Annotated[float, Meta(ge=0)] = 300.0
    tolerance_fraction: Annotated[float, Meta(ge=0)] = 0.1
    stabilize_down_s: Annotated[float, Meta(ge=0)] = 300.0
    behavior: pacing.Behavior | None = None
    period_s: Annotated[float, Meta(gt=0)] = 15.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet
        current, now_s = fleet.target, snapshot.at_s
        past = pacing.seeded(knowledge.recall(pacing.Recommendations), current, now_s)
        if snapshot.backlog_records is None:
            return not_measured(current, "backlog_records", memory=past)
        lag = int(snapshot.backlog_records)
        if current == 0:
            return self._asleep(lag, past)
        if lag <= self.activation_lag_threshold and self._rested(now_s, knowledge):
            at_most = counted(self.activation_lag_threshold, "record")
            text = f"a lag of at most {at_most} for {self.cooldown_s:.0f} s: the job goes to sleep"
            return Decision.of(0, Reason("inactive", text, {"lag_records": lag}), memory=past)
        by_partition = snapshot.partition_backlog_records
        partitions = len(by_partition) or snapshot.partitions
        if partitions is None and not self._ignores_partitions:
            return not_measured(current, "partitions", memory=past)
        metric = lag
        if partitions is not None:
            with_lag = sum(one > 0 for one in by_partition) if by_partition else lag
            metric = self.metric_value(lag, partitions, min(partitions, with_lag))
        tolerance = pacing.tolerance_of(
            self.behavior, self.tolerance_fraction, self.tolerance_fraction
        )
        asked = object_per_pod_replicas(
            fleet.registered, self.lag_threshold * 1000, metric * 1000, tolerance=tolerance
        )
        # The autoscaler that KEDA makes never goes below 1: the step to 0 is KEDA's own.
        wanted = max(1, asked.replicas)
        reason = self._reason(lag, metric, wanted, fleet, tolerance)
        window_s, rescales = self.stabilize_down_s, knowledge.rescales
        return pacing.settle(
            wanted, current, now_s, past, reason, window_s, self.behavior, rescales
        )

    @property
    def _ignores_partitions(self) -> bool:
        restricted = self.limit_to_partitions_with_lag or self.ensure_even_distribution
        return self.allow_idle_consumers and not restricted

    def metric_value(self, total_lag: int, partitions: int, partitions_with_lag: int) -> int:
        """The lag as the autoscaler gets to see it, cut so that no consumer is left without work.

        The cut compares whole multiples of the threshold, so a rest of less than one passes: with
        5 partitions and a threshold of 10, a lag of 59 stays 59 and asks for 6 consumers.

        >>> KedaLag().metric_value(500, 5, 5), KedaLag().metric_value(59, 5, 5)
        (50, 59)
        >>> KedaLag(ensure_even_distribution=True).metric_value(84, 12, 12)
        120
        """
        if self._ignores_partitions:
            return total_lag
        threshold = self.lag_threshold
        if self.ensure_even_distribution:
            total_lag = next_factor(total_lag, partitions, threshold) * threshold
        most = partitions_with_lag if self.limit_to_partitions_with_lag else partitions
        return most * threshold if total_lag // threshold > most else total_lag

    def _asleep(self, lag: int, past: pacing.Recommendations) -> Decision:
        evidence: dict[str, float] = {"lag_records": lag}
        if lag > self.activation_lag_threshold:
            text = f"a lag of {counted(lag, 'record')} wakes the job with 1 executor"
            return Decision.of(1, Reason("activated", text, evidence), memory=past)
        text = f"asleep: a lag of {counted(lag, 'record')} does not wake the job"
        return Decision.of(0, Reason("inactive", text, evidence), memory=past)

    def _rested(self, now_s: float, knowledge: Knowledge) -> bool:
        """Whether the job was seen inactive at every turn of the whole cooldown."""
        for snapshot in reversed(knowledge.history):
            backlog = snapshot.backlog_records
            if backlog is None or int(backlog) > self.activation_lag_threshold:
                return False
            if now_s - snapshot.at_s >= self.cooldown_s:
                return True
        return False

    def _reason(
        self, lag: int, metric: int, wanted: int, fleet: Fleet, tolerance: Tolerance
    ) -> Reason:
        threshold = self.lag_threshold
        seen = f"a lag of {counted(lag, 'record')} at {threshold} per executor"
        known = {"lag_records": lag, "metric": metric, "lag_threshold": threshold, "wanted": wanted}
        ratio = metric / (threshold * max(1, fleet.registered))
        return pacing.metric_reason(seen, ratio, wanted, fleet.target, tolerance, dict(known))
