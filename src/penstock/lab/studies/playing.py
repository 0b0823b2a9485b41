"""One run of a study: a policy in control of a simulated job, with every step passed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.core.clock import SimulatedClock
from penstock.core.model import Limits, Step
from penstock.core.protocols import Policy
from penstock.lab.experiments.score import executor_seconds, moves
from penstock.settings.policy_spec import PolicySpec, wire
from penstock.simulation.engines.engine import Engine, Level, Outcome


def steer(
    engine: Engine,
    policy: Policy,
    limits: Limits,
    duration_s: float,
    watch: Callable[[Step], None] = lambda _: None,
) -> Outcome:
    """Let `policy` decide on a job that has been started, to its end."""
    controller = wire(PolicySpec.of(policy, limits), engine, engine)
    for step in controller.run(SimulatedClock(end_s=duration_s, start_s=policy.period_s)):
        watch(step)
    return engine.finish()


def mean_level(levels: Sequence[Level], until_s: float) -> float:
    """The mean over time of a number that changes in steps.

    >>> mean_level([Level(0.0, 2), Level(60.0, 5)], until_s=90.0)
    3.0
    """
    return executor_seconds(levels, 0.0, until_s) / until_s


def rescales(targets: Sequence[Level]) -> int:
    """How often the target changed."""
    return moves(targets, 0.0)[0]
