"""Whole instances and the slots they run on: rounding, margins, and making do with less."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def with_margin(instances: float, factor: float) -> int:
    """Instances times a safety factor, in whole instances.

    >>> with_margin(4, 1.2), with_margin(2.299, 1.0)
    (5, 3)
    """
    return ceil(instances * factor)


def worth_reconfiguring(before: Sequence[int], after: Sequence[int], least_shrink: int = 2) -> bool:
    """Whether any operator grows, or shrinks by enough to be worth a restart.

    DS2's own manager ignores a shrink by one: it is as likely to be noise.

    >>> worth_reconfiguring([1, 8], [1, 7]), worth_reconfiguring([1, 8], [1, 6])
    (False, True)
    """
    return any(
        now > was or was - now >= least_shrink for was, now in zip(before, after, strict=True)
    )
