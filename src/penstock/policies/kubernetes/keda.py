"""The Kafka scaler of KEDA: from offsets to the number that is handed to the autoscaler.

That number is an external metric with an average-value target of `lag_threshold`, so what comes
out is ``ceil(number / lag_threshold)`` replicas.
"""

from __future__ import annotations

from math import isqrt

from msgspec import Struct


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


class LagRule(Struct, frozen=True, gc=False):
    """The options of the scaler that bend the lag; the names are KEDA's."""

    lag_threshold: int = 10
    allow_idle_consumers: bool = False
    limit_to_partitions_with_lag: bool = False
    ensure_even_distribution: bool = False


def metric_value(rule: LagRule, total_lag: int, partitions: int, partitions_with_lag: int) -> int:
    """The lag as the autoscaler gets to see it, cut so that no consumer is left without work.

    The cut compares whole multiples of the threshold, so a rest of less than one passes: with 5
    partitions and a threshold of 10, a lag of 59 stays 59 and asks for 6 consumers.

    >>> metric_value(LagRule(), 500, 5, 5), metric_value(LagRule(), 59, 5, 5)
    (50, 59)
    >>> metric_value(LagRule(ensure_even_distribution=True), 84, 12, 12)
    120
    """
    limited, even = rule.limit_to_partitions_with_lag, rule.ensure_even_distribution
    if rule.allow_idle_consumers and not limited and not even:
        return total_lag
    if even:
        total_lag = next_factor(total_lag, partitions, rule.lag_threshold) * rule.lag_threshold
    most = partitions_with_lag if limited else partitions
    return most * rule.lag_threshold if total_lag // rule.lag_threshold > most else total_lag
