"""What Flink's autoscaler does beyond the parallelism of vertices: memory pools and quotas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, isfinite, isinf
from typing import Literal

from msgspec import Struct

from penstock.policies.flink.capacity import MS_PER_S, mean, rate, rounded

Aggregator = Literal["max", "min", "avg"]

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
        return WindowedMetric(rounded(getattr(last, name)), rounded(average))

    return MemoryWindow(
        gc_fraction=WindowedMetric(rounded(last.gc_fraction)),
        heap_fraction=metric("heap_fraction"),
        heap_bytes=metric("heap_bytes"),
        managed_bytes=metric("managed_bytes"),
        metaspace_bytes=metric("metaspace_bytes"),
        slots_used=WindowedMetric(rounded(last.slots_used)),
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


def slots_after(current: Mapping[str, int], scaled: Mapping[str, int], slots_used: int) -> int:
    """Slots that a job takes after a rescale.

    If it used as many as its widest vertex has tasks, vertices share slots, and go on doing so;
    else each task is taken to have a slot of its own.

    >>> slots_after({"source": 2, "sink": 3}, {"source": 7}, slots_used=3)
    7
    >>> slots_after({"source": 2, "sink": 3}, {"source": 7}, slots_used=5)
    10
    """
    after = {**current, **scaled}.values()
    if max(current.values(), default=0) == slots_used:
        return max(after, default=0)
    return sum(after)


def workers(slots: int, slots_per_worker: int) -> int:
    """Workers that offer so many slots."""
    return ceil(slots / slots_per_worker)


class WorkerResources(Struct, frozen=True, gc=False):
    """What one worker offers and takes."""

    slots: int
    cpu: float
    memory_bytes: float


def exceeds_quota(
    current: Mapping[str, int],
    scaled: Mapping[str, int],
    slot_sharing_groups: Sequence[Collection[str]],
    worker: WorkerResources,
    *,
    cpu_quota: float | None = None,
    memory_quota_bytes: float | None = None,
) -> bool:
    """Whether a rescale that needs more workers would need more of them than allowed.

    As in the original, only vertices that change are counted, and a worker that would be
    filled in part is not.

    >>> worker = WorkerResources(slots=2, cpu=2.0, memory_bytes=2e9)
    >>> exceeds_quota({"a": 1}, {"a": 4}, [["a"]], worker, cpu_quota=3.0)
    True
    """
    before = after = 0
    for group in slot_sharing_groups:
        changed = [name for name in group if name in scaled]
        before += max((current[name] for name in changed), default=0)
        after += max((scaled[name] for name in changed), default=0)
    workers_before, workers_after = before // worker.slots, after // worker.slots
    if workers_after <= workers_before:
        return False
    return (cpu_quota is not None and worker.cpu * workers_after > cpu_quota) or (
        memory_quota_bytes is not None and worker.memory_bytes * workers_after > memory_quota_bytes
    )


class BusyTime(Struct, frozen=True, gc=False):
    """Busy milliseconds per second over the instances of a vertex."""

    min: float | None = None
    max: float | None = None
    avg: float | None = None


def load_fraction(busy: BusyTime, aggregator: Aggregator) -> float | None:
    """Part of its time that the chosen instance is busy.

    >>> load_fraction(BusyTime(min=100.0, max=200.0, avg=150.0), "max")
    0.2
    """
    value: float | None = getattr(busy, aggregator)
    if value is None or not isfinite(value):
        return None
    return max(0.0, value) / MS_PER_S


def busy_ms_per_s(
    loads: Iterable[float | None],
    busy_ms: Iterable[tuple[float, float | None]],
    aggregator: Aggregator,
    parallelism: int,
) -> float | None:
    """Busy time over the window: mean of the sampled loads, or growth of the counter.

    The counter adds up all instances, so it is divided among them.
    """
    if aggregator != "avg":
        load = mean(loads)
        return None if load is None else load * MS_PER_S
    total = rate(busy_ms)
    return None if total is None else total / parallelism


def input_rps(
    rates_rps: Iterable[float | None],
    records_in: Iterable[tuple[float, float | None]],
    aggregator: Aggregator,
) -> float | None:
    """Input over the window, estimated the same way as the busy time that it is divided by."""
    if aggregator == "avg":
        return rate(records_in)
    sampled = mean(rates_rps)
    return rate(records_in) if sampled is None or isinf(sampled) else sampled


def source_partitions(names: Iterable[tuple[str | int, ...]]) -> int:
    """How many partitions a source reads: of all its topics, and of all clusters.

    >>> source_partitions([("orders", 0), ("orders", 1), ("refunds", 0), ("orders", 1)])
    3
    """
    return len(set(names))
