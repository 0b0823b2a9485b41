"""A journal as clock, sensor and actuator at once: what another policy would have decided.

Replay is open loop, and says so: the recorded job does not react to other decisions. It explains
and it catches regressions; claims on performance come from the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from penstock.core.controller import Controller
from penstock.core.errors import ConfigError, SensorError
from penstock.core.model import Receipt, Snapshot, Step
from penstock.core.protocols import Guard, Policy


class RecordedJob:
    """Recorded steps in the role of the world: ticks when they were taken, shows what was seen."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self._step: Step | None = None

    def ticks(self, every_s: float) -> Iterator[float]:
        for step in self.steps:
            self._step = step
            yield step.at_s

    def read(self, now_s: float) -> Snapshot:
        if self._step is None or self._step.at_s != now_s or self._step.snapshot is None:
            raise SensorError("nothing was recorded at that instant")
        return self._step.snapshot

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """The recorded answer; a change that was never asked for is accepted on paper.

        Answering like the recorded actuator keeps cooldowns of the replayed policy in step.
        """
        if self._step is not None and self._step.receipt is not None:
            return self._step.receipt
        return Receipt(accepted=True, text=f"{target_executors} executors, on paper")


class Difference(Struct, frozen=True):
    """A turn at which the replayed policy decides otherwise than what was recorded."""

    at_s: float
    recorded: Step
    replayed: Step


def replay(steps: Iterable[Step], policy: Policy, guards: Sequence[Guard]) -> list[Step]:
    """What `policy` decides at each recorded turn."""
    recorded = list(steps)
    if not recorded:
        raise ConfigError("the journal holds no step to replay")
    recording = RecordedJob(recorded)
    return list(Controller(recording, policy, guards, recording).run(recording))


def differences(recorded: Sequence[Step], replayed: Sequence[Step]) -> list[Difference]:
    """The turns at which the two disagree on the size of the fleet."""
    return [
        Difference(old.at_s, old, new)
        for old, new in zip(recorded, replayed, strict=True)
        if old.decision.target_executors != new.decision.target_executors
    ]
