"""What Spark's own rules look at: how many tasks there are, and whether any of them runs."""

from __future__ import annotations

from penstock.core.model import Snapshot


def widest_stage(snapshot: Snapshot) -> int | None:
    """The tasks of the widest stage: the stages of a micro-batch take turns.

    >>> from penstock.core.model import Fleet, OperatorSample
    >>> stages = (OperatorSample("read", tasks=8), OperatorSample("count", tasks=200))
    >>> widest_stage(Snapshot(0.0, Fleet(1, 1, 1), operators=stages, partitions=8))
    200
    """
    counts = [o.tasks for o in snapshot.operators if o.tasks is not None]
    return max(counts) if counts else snapshot.partitions


def is_at_work(snapshot: Snapshot) -> bool | None:
    """Whether tasks run or wait; ``None`` if neither busy time nor backlog was measured."""
    busy = [e.busy_fraction for e in snapshot.executors if e.busy_fraction is not None]
    if busy:
        return any(fraction > 0.0 for fraction in busy)
    return None if snapshot.backlog_records is None else snapshot.backlog_records > 0.0
