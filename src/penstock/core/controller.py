"""The loop: monitor, analyse, plan, execute. Read this file first.

One turn reads the job, lets the policy say what size it should have, lets the guards bend that,
asks for it, and writes the turn down. The same loop runs a live job, a simulated one and a
recording; only what stands behind the seams of `protocols` differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.errors import ActuatorError, SensorError
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Reason, Receipt, Step
from penstock.core.protocols import Actuator, Clock, Guard, Journal, Policy, Sensor


class Controller:
    """One policy, its guards, and the job that it keeps at size."""

    def __init__(
        self,
        sensor: Sensor,
        policy: Policy,
        guards: Sequence[Guard],
        actuator: Actuator,
        journal: Journal | None = None,
        knowledge: Knowledge | None = None,
    ) -> None:
        self.sensor = sensor
        self.policy = policy
        self.guards = guards
        self.actuator = actuator
        self.journal = journal
        self.knowledge = Knowledge() if knowledge is None else knowledge

    def run(self, clock: Clock, every_s: float | None = None) -> Iterator[Step]:
        """Take a turn at each tick, and hand out the steps as they are taken."""
        for now_s in clock.ticks(self.policy.period_s if every_s is None else every_s):
            yield self.turn(now_s)

    def turn(self, now_s: float) -> Step:
        """See, decide, act, write down. A fault of the world means: hold, and say so."""
        knowledge = self.knowledge
        try:
            snapshot = self.sensor.read(now_s)
        except SensorError as error:
            step = Step(now_s, None, self._blind(error))
        else:
            knowledge.learn(snapshot, now_s)
            decision = self.policy.decide(snapshot, knowledge)
            for guard in self.guards:
                decision = guard.check(decision, snapshot, knowledge)
            receipt = None
            if decision.target_executors != snapshot.fleet.target:
                receipt = self._act(decision.target_executors, now_s)
            step = Step(now_s, snapshot, decision, receipt)
        knowledge.remember(step)
        if self.journal is not None:
            self.journal.write(step)
        return step

    def _act(self, executors: int, now_s: float) -> Receipt:
        try:
            return self.actuator.apply(executors, now_s)
        except ActuatorError as error:
            return Receipt(accepted=False, text=str(error))

    def _blind(self, error: SensorError) -> Decision:
        last = self.knowledge.last_step
        executors = 0 if last is None else last.decision.target_executors
        memory = None if last is None else last.decision.memory
        return Decision.of(executors, Reason("sensor_blind", f"holding: {error}"), memory=memory)
