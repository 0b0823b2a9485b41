"""What Spark did for DStreams: batch time against batch interval, once a minute."""

from dataclasses import dataclass
from math import floor
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, due, executors, resized
from penstock.policies.algorithms.measurements import hold

#: A tick that comes this close to the period is on time: a wall clock is never exact.
ON_TIME = 0.99


class BatchTimes(Struct, frozen=True, tag=True, omit_defaults=True):
    """The batches since the last decision."""

    since_s: float | None = None
    batches: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DstreamsRatio:
    """Add executors when batches take most of their interval, remove one when they take little.

    The rule: ``ratio = mean batch time / trigger interval`` over the last `period_s`; if ``ratio
    >= up_ratio`` add ``max(1, round(ratio))``, if ``ratio <= down_ratio`` remove one.
    """

    up_ratio: Annotated[float, Meta(gt=0)] = 0.9
    down_ratio: Annotated[float, Meta(ge=0)] = 0.3
    period_s: Annotated[float, Meta(gt=0)] = 60.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = knowledge.recall(BatchTimes)
        target, now_s = snapshot.fleet.target, snapshot.at_s
        count = memory.batches + len(snapshot.batches)
        seconds = memory.seconds + sum(batch.duration_s for batch in snapshot.batches)
        if memory.since_s is not None and 0.0 <= now_s - memory.since_s < ON_TIME * self.period_s:
            kept = BatchTimes(memory.since_s, count, seconds)
            left_s = self.period_s - (now_s - memory.since_s)
            why = f"the next decision is due {due(left_s)}"
            return hold(target, "between_looks", why, memory=kept)
        kept = BatchTimes(since_s=now_s)
        if not snapshot.trigger_interval_s:
            return not_measured(target, "trigger_interval_s", memory=kept)
        if count == 0:
            return not_measured(target, "batches", memory=kept)
        ratio = seconds / count / snapshot.trigger_interval_s
        return self._sized(snapshot, ratio, count, kept)

    def _sized(self, snapshot: Snapshot, ratio: float, count: int, kept: BatchTimes) -> Decision:
        target, registered = snapshot.fleet.target, snapshot.fleet.registered
        low, high = self.down_ratio, self.up_ratio
        batches = counted(count, "batch", plural="batches")
        text = f"{batches} took {ratio:.2f} of the trigger interval, "
        if ratio >= high:
            # Halves round up, as Java's do.
            wanted, code = registered + max(1, floor(ratio + 0.5)), "batches_slow"
            text += f"at least {high:g}: {resized(registered, wanted)}"
        elif ratio <= low:
            wanted, code = max(0, registered - 1), "batches_fast"
            text += f"at most {low:g}: {resized(registered, wanted)}"
        else:
            wanted, code = target, "batches_fit"
            text += f"between {low:g} and {high:g}: holding {executors(target)}"
        reason = Reason(code, text, {"ratio": ratio, "batches": float(count)})
        return Decision.of(wanted, reason, memory=kept)
