"""The loop: monitor, analyse, plan, execute. Read this file first.

One turn reads the job, asks the policy which size it should have, lets the guards override that,
asks the actuator for it, and writes all of it to the journal as one `Step`. Live, simulated and
recorded jobs differ in the `protocols` that `settings.policy_spec.wire` puts together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.errors import ActuatorError, ModelError, PenstockError, SensorError
from penstock.core.guards import Guards
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Reason, Receipt, Step
from penstock.core.protocols import Actuator, Clock, Journal, Policy, Sensor


@dataclass(eq=False, slots=True)
class Controller:
    """One policy, its guards, and the job whose size they decide."""

    sensor: Sensor
    policy: Policy
    guards: Guards
    actuator: Actuator
    journal: Journal | None
    knowledge: Knowledge

    def run(self, clock: Clock, every_s: float | None = None) -> Iterator[Step]:
        """Yield a step every `every_s`, or as the policy asks for; reconcile in between."""
        period_s = self.policy.period_s if every_s is None else every_s
        # The actuator may be replaced between two turns.
        for now_s in clock.ticks(period_s, lambda at_s: self.actuator.reconcile(at_s)):
            yield self.turn(now_s)

    def turn(self, now_s: float) -> Step:
        """Read, decide, act, record. If the job cannot be read or changed, hold and say why."""
        knowledge = self.knowledge
        try:
            snapshot = self.sensor.read(now_s)
        except (SensorError, ModelError) as error:  # ModelError: Spark reports nonsense
            step = Step(now_s, None, self._hold_blind(error))
        else:
            knowledge.learn(snapshot, now_s)
            self.actuator.observe(snapshot)
            decision = self.policy.decide(snapshot, knowledge)
            decision = self.guards.check(decision, snapshot, knowledge)
            receipt = None
            if decision.target_executors != snapshot.fleet.target:
                receipt = self._apply(decision.target_executors, now_s)
            step = Step(now_s, snapshot, decision, receipt)
        knowledge.remember(step)
        if self.journal is not None:
            self.journal.write(step)
        return step

    def _apply(self, executors: int, now_s: float) -> Receipt:
        try:
            return self.actuator.apply(executors, now_s)
        except ActuatorError as error:
            return Receipt(accepted=False, text=str(error))

    def _hold_blind(self, error: PenstockError) -> Decision:
        """Keep the last target, and the policy's memory, while nothing can be read."""
        last = self.knowledge.last_step
        executors = 0 if last is None else last.decision.target_executors
        memory = None if last is None else last.decision.memory
        return Decision.of(executors, Reason("sensor_blind", f"holding: {error}"), memory=memory)
