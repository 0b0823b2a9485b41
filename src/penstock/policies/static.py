"""A fixed fleet: what most teams run, and the measure of what scaling saves."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot
from penstock.core.phrases import executors


@dataclass(frozen=True, slots=True)
class Static:
    """Always the same number of executors.

    The rule: ``n = executors``.
    """

    executors: Annotated[int, Meta(ge=1)] = 12
    period_s: Annotated[float, Meta(gt=0)] = 60.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        text = f"a fixed fleet of {executors(self.executors)}"
        return Decision.of(self.executors, Reason("static", text))
