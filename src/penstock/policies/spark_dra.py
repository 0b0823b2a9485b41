"""Spark's own dynamic allocation of executors: what a batch user switches on."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, structs

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, executors, resized
from penstock.policies.algorithms.measurements import is_at_work, widest_stage


class AllocationMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """When to add next and how many, and since when each idle executor has been idle."""

    add_at_s: float | None = None
    adding: int = 1
    idle_since_s: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class SparkDra:
    """An executor for every task that runs or waits, and none for those idle too long.

    The rule: ``needed = ceil((running + pending tasks) x ratio / cores per executor)``. While
    tasks have waited for `backlog_timeout_s`, add 1, 2, 4, 8 ... executors, once per timeout, up
    to ``needed``. Above ``needed``, remove the executors that were idle for `idle_timeout_s`.
    """

    allocation_ratio: Annotated[float, Meta(gt=0, le=1)] = 1.0
    backlog_timeout_s: Annotated[float, Meta(gt=0)] = 1.0
    idle_timeout_s: Annotated[float, Meta(ge=0)] = 60.0
    period_s: Annotated[float, Meta(gt=0)] = 1.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        before, fleet = knowledge.recall(AllocationMemory), snapshot.fleet
        memory = structs.replace(before, idle_since_s=_idle(snapshot, before))
        tasks, at_work = widest_stage(snapshot), is_at_work(snapshot)
        if tasks is None or at_work is None:
            missing = "tasks" if tasks is None else "busy_fraction"
            kept = AllocationMemory(idle_since_s=memory.idle_since_s)
            return not_measured(fleet.target, missing, memory=kept)
        wanted_tasks = tasks if at_work else 0
        needed = ceil(wanted_tasks * self.allocation_ratio / fleet.cores_per_executor)
        if needed > fleet.target:
            return self._grow(snapshot, wanted_tasks, needed, memory)
        return self._shrink(snapshot, wanted_tasks, needed, memory)

    def _grow(
        self, snapshot: Snapshot, tasks: int, needed: int, memory: AllocationMemory
    ) -> Decision:
        """Wait for the timer, then add twice as many as last time."""
        now_s, target = snapshot.at_s, snapshot.fleet.target
        wait_s, due_s = self.backlog_timeout_s, memory.add_at_s
        # A due time further off than one timeout means that the clock was set back.
        if due_s is None or due_s - now_s > wait_s:
            due_s = now_s + wait_s
        text = f"{counted(tasks, 'task', 'need')} {executors(needed)}"
        evidence = {"tasks": float(tasks), "needed": float(needed)}
        # A tick that comes a little early, as those of a wall clock may, is on time.
        if now_s < due_s - 0.01 * wait_s:
            kept = structs.replace(memory, add_at_s=due_s)
            text += f": holding {executors(target)} until tasks have waited for {wait_s:g} s"
            return Decision.of(target, Reason("backlog_waits", text, evidence), memory=kept)
        added = min(memory.adding, needed - target)
        doubled = memory.adding * 2 if added == memory.adding else 1
        kept = AllocationMemory(now_s + wait_s, doubled, memory.idle_since_s)
        text += f": adding {added} to {target}"
        return Decision.of(target + added, Reason("backlog", text, evidence), memory=kept)

    def _shrink(
        self, snapshot: Snapshot, tasks: int, needed: int, memory: AllocationMemory
    ) -> Decision:
        """Let those go that were idle for too long, but never below what is needed."""
        now_s, target = snapshot.at_s, snapshot.fleet.target
        kept = AllocationMemory(idle_since_s=memory.idle_since_s)
        idle_s = [now_s - since_s for since_s in memory.idle_since_s.values()]
        expired = sum(waited_s > self.idle_timeout_s for waited_s in idle_s)
        wanted = min(target, max(needed, snapshot.fleet.active - expired))
        evidence = {"tasks": float(tasks), "needed": float(needed), "expired": float(expired)}
        if wanted < target:
            text = (
                f"{expired} of {executors(target)} idle for more than {self.idle_timeout_s:g} s, "
                f"{needed} needed: {resized(target, wanted)}"
            )
            return Decision.of(wanted, Reason("idle", text, evidence), memory=kept)
        text = f"{counted(tasks, 'task', 'need')} {executors(needed)}: {executors(target, 'stay')}"
        return Decision.of(target, Reason("enough", text, evidence), memory=kept)


def _idle(snapshot: Snapshot, memory: AllocationMemory) -> dict[str, float]:
    """Since when each idle executor of this fleet has been idle; a clock set back starts again."""
    now_s, before = snapshot.at_s, memory.idle_since_s
    return {
        executor.id: min(before.get(executor.id, now_s), now_s)
        for executor in snapshot.executors
        if executor.ready and executor.busy_fraction == 0.0
    }
