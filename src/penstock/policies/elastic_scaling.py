"""The published listener for Structured Streaming: how full is the trigger (Amadeus)."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import executors, resized


class Usage(Struct, frozen=True, tag=True, omit_defaults=True):
    """A weighted sum of trigger usages, and of the weights; it starts as one full trigger."""

    total: float = 1.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ElasticScaling:
    """As many executors as would fill the trigger interval exactly.

    The rule: ``usage = batch time / trigger interval``, ``mean`` of it with each older batch
    weighing `smoothing` times as much as the next; outside of ``low .. high``,
    ``n = ceil(n x mean)``.
    """

    smoothing: Annotated[float, Meta(ge=0, lt=1)] = 0.6
    low_usage: Annotated[float, Meta(ge=0)] = 0.75
    high_usage: Annotated[float, Meta(gt=0)] = 1.0
    period_s: Annotated[float, Meta(gt=0)] = 10.0

    default_limits: ClassVar[Limits] = Limits(max_executors=10)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = knowledge.recall(Usage)
        fleet, interval_s = snapshot.fleet, snapshot.trigger_interval_s
        if not interval_s:
            return not_measured(fleet.target, "trigger_interval_s", memory=memory)
        durations_s = [b.duration_s for b in snapshot.batches if b.input_records > 0]
        if not durations_s:
            return not_measured(fleet.target, "batches", memory=memory)
        total, weight = memory.total, memory.weight
        for duration_s in durations_s:
            total = total * self.smoothing + duration_s / interval_s
            weight = weight * self.smoothing + 1.0
        mean = total / weight
        reason, wanted = self._sized(snapshot, mean)
        return Decision.of(wanted, reason, memory=Usage(total, weight))

    def _sized(self, snapshot: Snapshot, mean: float) -> tuple[Reason, int]:
        target, active = snapshot.fleet.target, snapshot.fleet.active
        text = f"batches use {mean:.2f} of their trigger"
        band = f"{self.low_usage:g} to {self.high_usage:g}"
        evidence = {"usage": mean}
        if self.low_usage <= mean <= self.high_usage:
            text += f", inside of {band}: {executors(target, 'stay')}"
            return Reason("usage_fits", text, evidence), target
        if active != target:
            text += f", outside of {band}, but {active} of {executors(target)} run: waiting"
            return Reason("scaling_in_progress", text, evidence), target
        wanted = ceil(active * mean)
        text += f", outside of {band}: {resized(active, wanted)}"
        return Reason("usage_off", text, evidence), wanted
