"""Dynamic allocation whose clock is the trigger, as proposed for Spark (SPARK-24815)."""

from dataclasses import dataclass
from math import ceil, floor
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, structs

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, duration, executors, resized
from penstock.policies.algorithms.measurements import is_at_work, missing, widest_stage

MOST_ROUNDS = 10  #: Doubling stops here: 2 to the power of 10 is more than any stage has tasks.


class TriggerMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """The batch that is running: since when, and for how many timeouts executors were added."""

    since_s: float | None = None
    rounds: int = 0
    removed_at_s: float | None = None  #: When executors were last removed.


@dataclass(frozen=True, slots=True)
class SparkTriggerDra:
    """Add executors to a batch that fills its trigger, remove a share after one that does not.

    The rule: ``timeout = backlog_fraction x trigger interval``. Each time that the tasks of one
    batch have waited for another timeout, add 1, 2, 4, 8 ... executors, up to ``needed =
    ceil(tasks of the widest stage x ratio / cores per executor)``. If every batch since the last
    decision left its executors idle for at least ``idle_fraction`` of the trigger interval,
    remove ``max(1, floor(deallocation_ratio x n))`` of them, once per trigger interval.
    """

    backlog_fraction: Annotated[float, Meta(gt=0)] = 1.0
    idle_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.4
    deallocation_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.1
    allocation_ratio: Annotated[float, Meta(gt=0, le=1)] = 1.0
    period_s: Annotated[float, Meta(gt=0)] = 5.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory, target = knowledge.recall(TriggerMemory), snapshot.fleet.target
        interval_s, at_work = snapshot.trigger_interval_s or None, is_at_work(snapshot)
        tasks = widest_stage(snapshot)
        if interval_s is None or tasks is None or at_work is None:
            names = missing(trigger_interval_s=interval_s, tasks=tasks, busy_fraction=at_work)
            return not_measured(target, *names, memory=memory)
        # Without a backlog the last batch was the last one for now.
        is_running = at_work and snapshot.backlog_records != 0.0
        since_s = _running_since_s(snapshot, interval_s, memory) if is_running else snapshot.at_s
        ages_s = [batch.duration_s for batch in snapshot.batches]
        ages_s.append(max(0.0, snapshot.at_s - since_s))
        timeout_s = self.backlog_fraction * interval_s
        rounds = [min(MOST_ROUNDS, floor(age_s / timeout_s)) for age_s in ages_s]
        # For the oldest batch executors may have been added while it was running.
        done = [memory.rounds, *(0 for _ in snapshot.batches)]
        added = sum(max(0, 2**due - 2**was) for due, was in zip(rounds, done, strict=True))
        kept = TriggerMemory(since_s, rounds[-1], memory.removed_at_s)
        longest_s = max(ages_s)
        evidence = {"batch_s": longest_s, "trigger_s": interval_s, "tasks": float(tasks)}
        if added:
            seen = (
                f"a batch took {duration(longest_s)}, {counted(max(rounds), 'timeout')} of "
                f"{duration(timeout_s)}"
            )
            return self._grow(snapshot, seen, target + added, evidence, kept)
        seen = f"batches took up to {longest_s / interval_s:.2f} of their trigger"
        is_known = bool(snapshot.batches) or not at_work
        if is_known and longest_s <= (1.0 - self.idle_fraction) * interval_s:
            return self._shrink(snapshot, seen, interval_s, evidence, kept)
        text = f"{seen}: {executors(target, 'stay')}"
        return Decision.of(target, Reason("batches_fit", text, evidence), memory=kept)

    def _grow(
        self,
        snapshot: Snapshot,
        seen: str,
        asked: int,
        evidence: dict[str, float],
        memory: TriggerMemory,
    ) -> Decision:
        """Ask for more, up to one slot for each task."""
        target, tasks = snapshot.fleet.target, int(evidence["tasks"])
        needed = ceil(tasks * self.allocation_ratio / snapshot.fleet.cores_per_executor)
        wanted = max(target, min(asked, needed))
        text = f"{seen}: {resized(target, wanted)}"
        if wanted < asked:
            text += f", enough for {counted(tasks, 'task')}"
        return Decision.of(wanted, Reason("backlog", text, evidence), memory=memory)

    def _shrink(
        self,
        snapshot: Snapshot,
        seen: str,
        interval_s: float,
        evidence: dict[str, float],
        memory: TriggerMemory,
    ) -> Decision:
        """Remove a share of the fleet, once per trigger interval."""
        now_s, target, before_s = snapshot.at_s, snapshot.fleet.target, memory.removed_at_s
        if before_s is not None and 0.0 <= now_s - before_s < interval_s:
            text = f"{seen}, but some were removed in this interval: {executors(target, 'stay')}"
            return Decision.of(target, Reason("removed_lately", text, evidence), memory=memory)
        removed = max(1, floor(self.deallocation_ratio * target))
        wanted = max(0, target - removed)
        text = f"{seen}, at most {1.0 - self.idle_fraction:g}: {resized(target, wanted)}"
        kept = structs.replace(memory, removed_at_s=now_s)
        return Decision.of(wanted, Reason("idle", text, evidence), memory=kept)


def _running_since_s(snapshot: Snapshot, interval_s: float, memory: TriggerMemory) -> float:
    """When the batch began that is running: with the trigger, or after the last one."""
    if not snapshot.batches:
        return snapshot.at_s if memory.since_s is None else memory.since_s
    last = snapshot.batches[-1]
    return last.started_at_s + max(interval_s, last.duration_s)
