"""Two signals, as Databricks documents its enhanced autoscaling: busy slots and queued tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, duration, resized
from penstock.policies.algorithms.measurements import missing, of_this_size


@dataclass(frozen=True, slots=True)
class SlotsAndQueue:
    """As many executors as keep their slots busy for a target share of the time.

    The rule: ``utilization = busy slots / slots`` and ``queue = waiting tasks / slots``, means
    over `window_s`. Above `high_utilization`, while tasks wait, ``n = ceil(n x min(most_growth,
    (utilization + queue) / target_utilization))``. Below `low_utilization`, in a fleet that has
    been as large for that long, ``n = ceil(n x utilization / target_utilization)``.
    """

    high_utilization: Annotated[float, Meta(gt=0, le=1)] = 0.8
    low_utilization: Annotated[float, Meta(ge=0, le=1)] = 0.6
    target_utilization: Annotated[float, Meta(gt=0, le=1)] = 0.7
    least_queue: Annotated[float, Meta(ge=0)] = 0.1
    most_growth: Annotated[float, Meta(gt=1)] = 1.5
    window_s: Annotated[float, Meta(ge=0)] = 60.0
    period_s: Annotated[float, Meta(gt=0)] = 30.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet
        # What a fleet of another size showed says nothing about this one.
        window = of_this_size(knowledge.window(self.window_s) or (snapshot,), fleet)
        utilization = _mean([_utilization(one) for one in window])
        queued = _mean([_queued_tasks(one) for one in window])
        if utilization is None or queued is None:
            names = missing(busy_fraction=utilization, tasks=queued)
            return not_measured(fleet.target, *names)
        queue = queued / max(1, fleet.active * fleet.cores_per_executor)
        waits = queue >= self.least_queue or snapshot.trigger_interval_s is None
        seen = f"slots {utilization:.0%} busy, {counted(round(queued), 'task', 'wait')}"
        if utilization > self.high_utilization and waits:
            growth = min(self.most_growth, (utilization + queue) / self.target_utilization)
            wanted = max(fleet.target, ceil(fleet.active * growth))
            code, why = "slots_busy", f"more than {self.high_utilization:.0%}"
        elif utilization < self.low_utilization:
            needed = ceil(fleet.active * utilization / self.target_utilization)
            wanted = min(fleet.target, max(1, needed))
            code, why = "slots_idle", f"less than {self.low_utilization:.0%}"
            # Executors that have just joined have no work before the next batch.
            if snapshot.at_s - window[0].at_s < self.window_s - self.period_s:
                wanted, code = fleet.target, "settling"
                why += f", but not for {duration(self.window_s)} at this size"
        else:
            wanted, code = fleet.target, "slots_fit"
            why = "enough" if waits else "more executors would not help"
        evidence = {"utilization": utilization, "queued_tasks": queued}
        text = f"{seen}, {why}: {resized(fleet.target, wanted)}"
        return Decision.of(wanted, Reason(code, text, evidence))


def _utilization(snapshot: Snapshot) -> float | None:
    """The share of the time for which the slots of the ready executors were busy."""
    return _mean([one.busy_fraction for one in snapshot.executors if one.ready])


def _queued_tasks(snapshot: Snapshot) -> float | None:
    """How many tasks waited for a slot on average; ``None`` where no stage shows its tasks."""
    slots = snapshot.fleet.active * snapshot.fleet.cores_per_executor
    waits = [
        stage.busy_fraction * max(0, stage.tasks - slots) / 2.0
        for stage in snapshot.operators
        if stage.busy_fraction is not None and stage.tasks is not None
    ]
    return sum(waits) if waits else None


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None
