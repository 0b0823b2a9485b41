"""Which executors leave when the fleet shrinks."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class RemovalCandidate(Struct, frozen=True, gc=False):
    """An executor that could leave: when it started, and how much state it holds."""

    id: str
    started_at_s: float
    state_partitions: int | None = None


def choose(candidates: Iterable[RemovalCandidate], count: int) -> tuple[str, ...]:
    """The executors whose leaving costs least: those with the least state, of these the newest.

    Others have to load the state of an executor that leaves, and a new executor is still cold.
    Unless the state of all is known, the newest leave: they had the least time to take state.

    >>> rows = [("1", 0.0, 6), ("2", 0.0, 4), ("3", 60.0, 4)]
    >>> fleet = [RemovalCandidate(*row) for row in rows]
    >>> choose(fleet, 2)
    ('3', '2')
    >>> choose([*fleet, RemovalCandidate("4", 90.0)], 2)
    ('4', '3')
    """
    fleet = list(candidates)
    counted = all(each.state_partitions is not None for each in fleet)

    def cost(each: RemovalCandidate) -> tuple[int, float, str]:
        state = each.state_partitions if counted and each.state_partitions is not None else 0
        return state, -each.started_at_s, each.id

    return tuple(each.id for each in sorted(fleet, key=cost)[: max(0, count)])
