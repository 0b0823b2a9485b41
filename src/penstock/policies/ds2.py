"""DS2: measure how fast every operator could be, and size the job in one step."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Snapshot
from penstock.policies.algorithms.dataflow import Sharing, measure, sized


@dataclass(frozen=True, slots=True)
class Ds2:
    """The parallelism at which every operator keeps up, from true rates and the dataflow graph.

    The rule: ``true rate = input rate / busy fraction`` per instance; from the sources on,
    ``instances_i = target_i / true rate_i`` where the target of a source is what arrives and the
    target of any other operator what its upstream would then emit. Executors =
    ``ceil((1 + overprovisioning) x max_i instances_i)`` where operators share slots, and
    ``ceil((1 + overprovisioning) x sum_i instances_i)`` where stages take turns on the same
    slots (Spark): there the busy fraction is run time over slots x wall time, so ``instances_i``
    counts executors at full time, and times add up.
    """

    overprovisioning: Annotated[float, Meta(ge=0)] = 0.33
    whole_instances: bool = False
    sharing: Sharing = "auto"
    window_s: Annotated[float, Meta(ge=0)] = 60.0
    least_shrink: Annotated[int, Meta(ge=1)] = 1
    period_s: Annotated[float, Meta(gt=0)] = 20.0

    default_limits: ClassVar[Limits] = Limits(cooldown_s=240.0)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        flow = measure(snapshot, knowledge.window(self.window_s), self.sharing)
        if isinstance(flow, Decision):
            return flow
        return sized(
            flow,
            snapshot.fleet.target,
            overprovisioning=self.overprovisioning,
            whole_instances=self.whole_instances,
            least_shrink=self.least_shrink,
        )
