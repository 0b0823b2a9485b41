"""One run of a study: a policy at the helm of a job on paper, with every step at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from penstock.core.clock import SimulatedClock
from penstock.core.model import Limits, Step
from penstock.core.protocols import Policy
from penstock.lab.experiments.score import Delays
from penstock.settings.policy_spec import PolicySpec
from penstock.settings.wiring import wire
from penstock.simulation.engines.engine import Engine, Level, Outcome, SimulatedJob


def play(
    job: SimulatedJob,
    rates_rps: Sequence[float],
    policy: Policy,
    limits: Limits,
    *,
    executors: int,
    seed: int,
    watch: Callable[[Step], None] = lambda _: None,
) -> Outcome:
    """Run `job` under `policy` to the end of the rates."""
    engine = job.start(rates_rps, executors=executors, seed=seed)
    return steer(engine, policy, limits, float(len(rates_rps)), watch)


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


def mean_wait_s(delays: Delays) -> float:
    """The mean delay over records; on each straight piece it is that of its middle.

    >>> import numpy as np
    >>> mean_wait_s(Delays(np.array([0.0, 2.0]), np.array([2.0, 6.0]), np.array([30.0, 10.0])))
    1.75
    """
    records = float(delays.records.sum())
    if records == 0.0:
        return 0.0
    return float(((delays.low_s + delays.high_s) * delays.records).sum()) / 2.0 / records


def mean_level(levels: Sequence[Level], until_s: float, since_s: float = 0.0) -> float:
    """The mean over time of a number that changes in steps.

    >>> mean_level([Level(0.0, 2), Level(60.0, 5)], until_s=90.0)
    3.0
    """
    ends_s = [*(later.at_s for later in levels[1:]), until_s]
    total = sum(
        level.executors * max(0.0, min(end_s, until_s) - max(level.at_s, since_s))
        for level, end_s in zip(levels, ends_s, strict=True)
    )
    return total / (until_s - since_s)


def rescales(targets: Sequence[Level]) -> int:
    """How often the target changed."""
    return sum(a.executors != b.executors for a, b in pairwise(targets))
