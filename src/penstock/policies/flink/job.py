"""All vertices of a job together: they move together or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from penstock.policies.flink.evaluation import Vertex, VertexLoad
from penstock.policies.flink.history import Pending, Scaling
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
    """If one vertex leaves its band, each goes to its own target; else none does.

    Nothing is scaled while garbage collection or the use of the heap is above its threshold.
    """
    if (gc_fraction or 0.0) > gc_threshold or (heap_fraction or 0.0) > options.heap_threshold:
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
