"""Whole numbers the way Kubernetes keeps them: in thousandths, cut off and bounded."""

from __future__ import annotations

from math import ceil, isnan

MAX_INT32 = 2**31 - 1
MIN_INT32 = -(2**31)
MAX_INT64 = 2**63 - 1


def quotient(total: int, count: int) -> int:
    """Division that drops the rest, so that it rounds towards zero on both sides.

    >>> quotient(7, 2), quotient(-7, 2)
    (3, -3)
    """
    return total // count if total >= 0 else -(-total // count)


def ceil_int32(value: float) -> int:
    """The next whole number up, or the largest that a replica count can hold.

    >>> ceil_int32(2.1), ceil_int32(1e30) == MAX_INT32
    (3, True)
    """
    return _ceil(value, MAX_INT32)


def ceil_int64(value: float) -> int:
    """The next whole number up, or the largest that a metric can hold."""
    return _ceil(value, MAX_INT64)


def _ceil(value: float, largest: int) -> int:
    if isnan(value):
        return 0
    if value >= largest:
        return largest
    return ceil(max(value, -float(largest)))


def divide(value: float, by: float) -> float:
    """Division of floats that knows infinity, as hardware does: ``1/0`` is inf, ``0/0`` NaN."""
    if by != 0.0:
        return value / by
    return float("nan") if value == 0.0 else float("inf") if value > 0.0 else float("-inf")
