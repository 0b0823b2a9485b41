"""Memory: when its lack forbids scaling, and how a worker's memory is divided anew.

Sizes are bytes. Each pool takes what it needs from what is left of the worker's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal

from msgspec import Struct

from penstock.policies.flink.windows import mean, rounded

#: How the records of one vertex reach the next.
Ship = Literal["hash", "rebalance", "rescale", "forward", "custom", "broadcast", "unknown"]


class WorkerMemory(Struct, frozen=True, kw_only=True, gc=False):
    """What was collected at one time, each of the worker that is worst off."""

    gc_fraction: float | None = None
    heap_fraction: float | None = None
    heap_bytes: float | None = None
    managed_bytes: float | None = None
    metaspace_bytes: float | None = None
    slots_used: float | None = None


class WindowedMetric(Struct, frozen=True, gc=False):
    """The latest value, and the mean of the window."""

    current: float | None
    average: float | None = None


class MemoryWindow(Struct, frozen=True, kw_only=True, gc=False):
    """The memory of all workers over a window."""

    gc_fraction: WindowedMetric
    heap_fraction: WindowedMetric
    heap_bytes: WindowedMetric
    managed_bytes: WindowedMetric
    metaspace_bytes: WindowedMetric
    slots_used: WindowedMetric


def heap_fraction(used_bytes: float, max_bytes: float) -> float:
    """How full the fullest heap is, against the largest one."""
    return used_bytes / max_bytes


def memory_window(samples: Sequence[WorkerMemory]) -> MemoryWindow:
    """Garbage collection and slots as they are now, the rest also as a mean."""
    last = samples[-1]

    def metric(name: str) -> WindowedMetric:
        average = mean(getattr(sample, name) for sample in samples)
        return WindowedMetric(_rounded(getattr(last, name)), _rounded(average))

    return MemoryWindow(
        gc_fraction=WindowedMetric(_rounded(last.gc_fraction)),
        heap_fraction=metric("heap_fraction"),
        heap_bytes=metric("heap_bytes"),
        managed_bytes=metric("managed_bytes"),
        metaspace_bytes=metric("metaspace_bytes"),
        slots_used=WindowedMetric(_rounded(last.slots_used)),
    )


def is_under_pressure(
    gc_fraction: float | None,
    heap_fraction: float | None,
    *,
    gc_threshold: float,
    heap_threshold: float,
) -> bool:
    """Whether the latest garbage collection or the mean use of the heap forbids any scaling.

    >>> is_under_pressure(0.51, 0.79, gc_threshold=0.5, heap_threshold=0.8)
    True
    """
    return (gc_fraction is not None and gc_fraction > gc_threshold) or (
        heap_fraction is not None and heap_fraction > heap_threshold
    )


def pool_bytes(used_bytes: float, overhead_fraction: float, budget_bytes: float) -> int:
    """A pool that holds what is in use and a margin, as far as the budget goes.

    >>> pool_bytes(100.0, 0.2, budget_bytes=1000.0), pool_bytes(100.0, 0.2, budget_bytes=90.0)
    (120, 90)
    """
    return int(min(int(used_bytes * (1.0 + overhead_fraction)), budget_bytes))


def heap_after_bytes(
    heap_bytes: int, workers_before: int, workers_after: int, budget_bytes: float
) -> int:
    """The heap of a worker that keeps the sum of all heaps as it was when workers leave.

    More workers do not make it smaller.

    >>> heap_after_bytes(10, workers_before=20, workers_after=10, budget_bytes=30)
    20
    """
    factor = max(1.0, workers_before / workers_after)
    return heap_bytes + int(min(int(factor * heap_bytes) - heap_bytes, budget_bytes))


def network_segments(
    parallelism: int,
    connected_parallelism: int,
    ship: Ship,
    *,
    buffers_per_channel: int,
    floating_buffers: int,
) -> int:
    """Buffers for one gate of one task: so many per channel, and some for all of them.

    >>> network_segments(10, 15, "rescale", buffers_per_channel=2, floating_buffers=8)
    12
    """
    channels = connected_parallelism
    if ship in ("forward", "rescale"):
        is_direct = ship == "forward" and parallelism == connected_parallelism
        channels = 1 if is_direct else ceil(connected_parallelism / parallelism)
    return channels * buffers_per_channel + floating_buffers


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)
