"""All vertices of a job together: they move together or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil

from msgspec import Struct

from penstock.policies.flink.evaluation import Vertex, VertexLoad
from penstock.policies.flink.history import Pending, Scaling
from penstock.policies.flink.memory import is_under_pressure
from penstock.policies.flink.options import Options
from penstock.policies.flink.vertex import VertexChange, decide_vertex


class JobPlan(Struct, frozen=True, gc=False):
    """What becomes of each vertex that was looked at, and which of them are to be scaled.

    `scaled` is empty as long as no vertex that would change is outside its band.
    """

    changes: dict[str, VertexChange]
    scaled: dict[str, int]
    under_memory_pressure: bool = False

    @property
    def pending(self) -> dict[str, Pending]:
        """The scale downs that wait; a rescale ends them all."""
        return {
            name: change.pending
            for name, change in self.changes.items()
            if change.pending is not None
        }


def decide_job(
    vertices: Mapping[str, Vertex],
    loads: Mapping[str, VertexLoad],
    options: Options,
    *,
    restart_s: float,
    now_s: float,
    past: Mapping[str, Sequence[Scaling]] | None = None,
    pending: Mapping[str, Pending] | None = None,
    excluded: Collection[str] = (),
    gc_fraction: float | None = None,
    heap_fraction: float | None = None,
    gc_threshold: float = 1.0,
) -> JobPlan:
    """If one vertex leaves its band, each goes to its own target; else none does."""
    if is_under_pressure(
        gc_fraction,
        heap_fraction,
        gc_threshold=gc_threshold,
        heap_threshold=options.heap_threshold,
    ):
        return JobPlan({}, {}, under_memory_pressure=True)
    changes = {
        name: decide_vertex(
            vertex,
            loads[name],
            options,
            restart_s=restart_s,
            now_s=now_s,
            past=() if past is None else past.get(name, ()),
            pending=None if pending is None else pending.get(name),
        )
        for name, vertex in vertices.items()
        if name not in excluded
    }
    scaled = {
        name: change.parallelism
        for name, change in changes.items()
        if change.parallelism != vertices[name].parallelism
    }
    if not any(changes[name].outside for name in scaled):
        scaled = {}
    return JobPlan(changes, scaled)


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
