"""Whole instances and the slots they run on: rounding, margins, and making do with less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from msgspec import Struct


class Allotment(Struct, frozen=True, gc=False):
    """Instances per operator, and the slots that they take together."""

    instances: dict[str, int]
    slots: int


def with_margin(instances: float, factor: float) -> int:
    """So many instances times a safety factor, in whole instances.

    >>> with_margin(4, 1.2), with_margin(2.299, 1.0)
    (5, 3)
    """
    return ceil(instances * factor)


def deal(total: int, among: int) -> list[int]:
    """Deal a number out evenly, as partitions are to readers: shares differ by one at most.

    >>> deal(20, 4), deal(7, 3)
    ([5, 5, 5, 5], [3, 2, 2])
    """
    share, rest = divmod(total, among)
    return [share + (hand < rest) for hand in range(among)]


def worth_reconfiguring(before: Sequence[int], after: Sequence[int], least_shrink: int = 2) -> bool:
    """Whether any operator grows, or shrinks by enough to be worth a restart.

    DS2's own manager ignores a shrink by one: it is as likely to be noise.

    >>> worth_reconfiguring([1, 8], [1, 7]), worth_reconfiguring([1, 8], [1, 6])
    (False, True)
    """
    return any(
        now > was or was - now >= least_shrink for was, now in zip(before, after, strict=True)
    )


def fit(wanted: Mapping[str, int], available: int) -> Allotment:
    """Shrink all operators in proportion, each keeps at least one, until they fit.

    What is above one instance each is scaled by ``(available - m) / (sum - m)`` for ``m``
    operators and rounded; a rounding that misses is put right by one instance of the largest. It
    can therefore leave a slot unused when several roundings go the same way.

    >>> fit({"source": 10, "filter": 25, "map": 20, "sink": 20}, available=50)
    Allotment(instances={'source': 7, 'filter': 17, 'map': 13, 'sink': 13}, slots=50)
    """
    total, operators = sum(wanted.values()), len(wanted)
    if total <= available or total == operators:
        return Allotment(dict(wanted), total)
    share = max(0, available - operators) / (total - operators)
    instances = {name: 1 + round(share * (count - 1)) for name, count in wanted.items()}
    largest = max(wanted, key=lambda name: wanted[name])
    slots = sum(instances.values())
    if slots > available and instances[largest] > 1:
        instances[largest] -= 1
    elif slots < available:
        instances[largest] += 1
    return Allotment(instances, sum(instances.values()))
