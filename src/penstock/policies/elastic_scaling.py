"""The published listener for Structured Streaming: how full is the trigger (Amadeus)."""

from __future__ import annotations

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

    Parameters
    ----------
    smoothing
        What a batch weighs against the one after it.
    low_usage, high_usage
        The band in which nothing is changed.
    period_s
        Seconds between decisions.

    Examples
    --------
    A batch of 20 s on a trigger of 10 s. The mean started at 1, so it is now
    (0.6 x 1 + 2) / (0.6 + 1) = 1.625, and 4 executors become ceil(6.5) = 7.

    >>> from penstock import Batch, Fleet, Knowledge, Snapshot
    >>> batches = (Batch(1, 0.0, 20.0, 900),)
    >>> snapshot = Snapshot(20.0, Fleet(4, 4, 4), trigger_interval_s=10.0, batches=batches)
    >>> decision = ElasticScaling().decide(snapshot, Knowledge())
    >>> decision.target_executors, decision.reasons[0].text
    (7, 'batches use 1.62 of their trigger, outside of 0.75 to 1: 7 executors instead of 4')

    References
    ----------
    AmadeusITGroup/Elastic-Scaling 2.0.5 on GitHub, the class ElasticScaling.

    Where we differ
    ---------------
    The original reacts to every batch; here all batches since the last turn enter the mean, and
    then one decision is taken. Turns in which no batch with data finished hold.

    Wins and loses
    --------------
    Wins on a load that changes slowly against its trigger: it finds the size in two or three
    batches. Loses on a backlog: it has no term for what already waits, so after a spike the
    batches just fit and the backlog stays; and a fixed cost per batch, which no executor
    shortens, sends it to the upper bound. Without a trigger interval, as on a continuous engine,
    it never moves.
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
