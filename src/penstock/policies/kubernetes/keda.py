"""The Kafka scaler of KEDA: from offsets to the number that is handed to the autoscaler.

That number is an external metric with an average-value target of `lag_threshold`, so what comes
out is ``ceil(number / lag_threshold)`` replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Literal

from msgspec import Struct

#: What Kafka answers when a group has committed nothing yet.
NO_OFFSET = -1


class PartitionLag(Struct, frozen=True, gc=False):
    """Records behind in one partition: what counts for scaling, and what for activation."""

    scaling: int
    activation: int


def partition_lag(
    committed: int,
    end_offset: int | None,
    *,
    offset_reset: Literal["latest", "earliest"] = "latest",
    zero_on_invalid_offset: bool = False,
    previous_committed: int | None = None,
) -> PartitionLag:
    """How far a partition is behind.

    With `previous_committed` (the last poll's offset) a partition that did not move counts as
    stuck: its lag keeps the job active, but does not scale it. Without an end offset the broker
    did not answer for the partition, and it counts as 0.

    >>> partition_lag(100, 150)
    PartitionLag(scaling=50, activation=50)
    >>> partition_lag(100, 150, previous_committed=100)
    PartitionLag(scaling=0, activation=50)
    >>> partition_lag(NO_OFFSET, 150).scaling, partition_lag(NO_OFFSET, 150,
    ...     offset_reset="earliest").scaling
    (1, 150)
    """
    if committed == NO_OFFSET:
        if zero_on_invalid_offset:
            return PartitionLag(0, 0)
        if offset_reset == "latest":
            return PartitionLag(1, 1)
    if end_offset is None:
        return PartitionLag(0, 0)
    if committed == NO_OFFSET:
        return PartitionLag(end_offset, end_offset)
    lag = end_offset - committed
    return PartitionLag(0 if committed == previous_committed else lag, lag)


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


def metric_of_lags(rule: LagRule, lags: Sequence[int]) -> int:
    """`metric_value` from the lag of each partition.

    >>> metric_of_lags(LagRule(limit_to_partitions_with_lag=True), [1000, 0, 0, 0, 0])
    10
    """
    return metric_value(rule, sum(lags), len(lags), sum(1 for lag in lags if lag > 0))
