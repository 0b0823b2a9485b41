"""The lag of one Kafka partition as KEDA counts it; Penstock senses only their sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from penstock.policies.kubernetes.keda_lag import KedaLag

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


def metric_of_lags(rule: KedaLag, lags: Sequence[int]) -> int:
    """`KedaLag.metric_value` from the lag of each partition.

    >>> metric_of_lags(KedaLag(limit_to_partitions_with_lag=True), [1000, 0, 0, 0, 0])
    10
    """
    return rule.metric_value(sum(lags), len(lags), sum(1 for lag in lags if lag > 0))
