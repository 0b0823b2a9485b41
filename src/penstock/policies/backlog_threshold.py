"""The simplest rule on queues: long, one more; short, one fewer."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.errors import ConfigError
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, resized
from penstock.policies.algorithms.measurements import excess_backlog_records, hold


def stepped(
    instances: int, backlog_records: float, *, low_records: float, high_records: float
) -> int:
    """One more above the upper threshold, one fewer up to the lower one, but never none.

    >>> [stepped(3, queue, low_records=50, high_records=150) for queue in (50, 51, 150, 151)]
    [2, 3, 3, 4]
    """
    if backlog_records > high_records:
        return instances + 1
    if backlog_records <= low_records:
        return max(1, instances - 1)
    return instances


@dataclass(frozen=True, slots=True)
class BacklogThreshold:
    """One executor more when a queue is long, one fewer when all are short.

    The rule: per operator, ``backlog > high_records: k + 1``; ``backlog <= low_records: k - 1``;
    else ``k``. The executors run an instance of every operator each, so the fleet is the largest
    of these: it grows if any queue is long and shrinks only if all are short.
    """

    low_records: Annotated[float, Meta(ge=0)] = 50.0
    high_records: Annotated[float, Meta(ge=0)] = 150.0
    period_s: Annotated[float, Meta(gt=0)] = 30.0

    default_limits: ClassVar[Limits] = Limits(max_executors=15)
    wakes_on_surge: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.low_records >= self.high_records:
            raise ConfigError(
                f"low_records ({self.low_records:g}) must be below "
                f"high_records ({self.high_records:g})"
            )

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet.target
        queues = {o.name: q for o in snapshot.operators if (q := o.backlog_records) is not None}
        if not queues:
            waiting = excess_backlog_records(snapshot)
            if waiting is None:
                return not_measured(fleet, "backlog_records")
            beyond = ", beyond two triggers" if snapshot.trigger_interval_s else ""
            queues = {f"the job{beyond}": waiting}
        longest, queue = max(queues.items(), key=lambda pair: pair[1])
        # The rule never falls as the queue grows, so the longest queue asks for the most.
        target = stepped(fleet, queue, low_records=self.low_records, high_records=self.high_records)
        evidence = {"queue_records": queue}
        waits = f"{counted(round(queue), 'record', 'wait')} before {longest}"
        if target == fleet:
            return hold(fleet, "right_size", waits, evidence)
        code, threshold = "scale_up", f"more than {self.high_records:g}"
        if target < fleet:
            code, threshold = "scale_down", f"no more than {self.low_records:g}"
        text = f"{waits}, {threshold}: {resized(fleet, target)}"
        return Decision.of(target, Reason(code, text, evidence))
