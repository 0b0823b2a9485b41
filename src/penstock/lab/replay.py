"""A journal as clock, sensor and actuator at once: what a policy would have decided on it.

A replay is open loop: the recorded job does not react to other decisions. It explains decisions and
finds regressions; claims on performance come from the simulator. The policy that wrote the journal
decides the same again at every turn, because the header of the journal holds all that it was made
from (`settings.header`).
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from penstock.core.errors import ConfigError, SensorError
from penstock.core.model import Receipt, Snapshot, Step
from penstock.core.protocols import InstantActuator, Meanwhile
from penstock.settings.policy_spec import PolicySpec, wire


class RecordedJob(InstantActuator):
    """Recorded steps as the world: ticks when they were taken, reads what was seen then."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self._step: Step | None = None

    def ticks(self, every_s: float, meanwhile: Meanwhile | None = None) -> Iterator[float]:
        for step in self.steps:
            self._step = step
            yield step.at_s

    def read(self, now_s: float) -> Snapshot:
        if self._step is None or self._step.at_s != now_s or self._step.snapshot is None:
            raise SensorError("nothing was recorded at that instant")
        return self._step.snapshot

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """The recorded answer, so that cooldowns begin as recorded; else the change is accepted."""
        if self._step is not None and self._step.receipt is not None:
            return self._step.receipt
        return Receipt(accepted=True, text=f"{target_executors} executors, in a replay")


class Difference(Struct, frozen=True):
    """A turn at which the replayed policy decides otherwise than what was recorded."""

    at_s: float
    recorded: Step
    replayed: Step


def replay(steps: Iterable[Step], spec: PolicySpec, past: Iterable[Step] = ()) -> list[Step]:
    """What `spec` decides at each recorded turn; `past` is what its controller knew before."""
    recorded = list(steps)
    if not recorded:
        raise ConfigError("the journal holds no step to replay")
    job = RecordedJob(recorded)
    return list(wire(spec, job, job, past=past).run(job))


def differences(recorded: Sequence[Step], replayed: Sequence[Step]) -> list[Difference]:
    """The turns at which the two disagree on the size of the fleet."""
    return [
        Difference(old.at_s, old, new)
        for old, new in zip(recorded, replayed, strict=True)
        if old.decision.target_executors != new.decision.target_executors
    ]
