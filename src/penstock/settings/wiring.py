"""The one place where a controller is put together: live, simulated and replayed jobs alike."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.controller import Controller
from penstock.core.guards import chain
from penstock.core.knowledge import Knowledge
from penstock.core.model import Step
from penstock.core.protocols import Actuator, Journal, Sensor
from penstock.settings.policy_spec import PolicySpec


def wire(
    spec: PolicySpec,
    sensor: Sensor,
    actuator: Actuator,
    *,
    journal: Journal | None = None,
    past: Iterable[Step] = (),
) -> Controller:
    """The controller of a job. The guards and the policy get the same limits.

    With the `past` steps of a journal, it continues from what those steps say.
    """
    knowledge = Knowledge.from_steps(past, spec.limits)
    guards = chain(spec.limits)
    return Controller(sensor, spec.policy, guards, actuator, journal, knowledge)
