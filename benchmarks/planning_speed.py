"""How long planning takes: the default policy's decisions, forecasts, and the oracle's day.

``run.py`` takes these in; on its own this file prints them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import pi, sin
from statistics import median

from penstock.core.knowledge import Knowledge
from penstock.core.model import Limits, Step
from penstock.lab.experiments.oracle import foresee
from penstock.lab.experiments.scenario import Scenario
from penstock.policies.checks.made_up_job import SHAPES, START_AT_S, made_up_snapshot
from penstock.policies.penstock.forecasters import choose, forecast, repeating
from penstock.policies.penstock.penstock import Penstock
from penstock.settings.goal import Goal


def goals() -> list[tuple[str, float, float]]:
    """Name, measured value and the most that it may be."""
    return [
        ("penstock: ms for a decision of up to 16 executors", 1e3 * decision_s(16), 10.0),
        ("penstock: ms for a decision of up to 200 executors", 1e3 * decision_s(200), 50.0),
        ("ms for a forecast of 15 min from 90 min", 1e3 * forecast_s(), 1.0),
        ("s for the oracle to plan a day", oracle_day_s(), 10.0),
    ]


def decision_s(max_executors: int) -> float:
    """The median decision over a run of changing snapshots, so that no cache can help it."""
    return max(median(_decisions_s(shape, max_executors)) for shape in SHAPES)


def _decisions_s(shape: str, max_executors: int) -> list[float]:
    policy, taken_s = Penstock(), []
    knowledge = Knowledge(Limits(max_executors=max_executors))
    for turn in range(240):
        at_s = START_AT_S + turn * policy.period_s
        snapshot = made_up_snapshot(shape, turn, at_s, max(2, max_executors // 2))  # type: ignore[arg-type]
        knowledge.learn(snapshot, at_s)
        begin = time.perf_counter()
        decision = policy.decide(snapshot, knowledge)
        taken_s.append(time.perf_counter() - begin)
        knowledge.remember(Step(at_s, snapshot, decision))
    return taken_s[-120:]


def forecast_s() -> float:
    """A forecast with all that it fits, as when a bin has just been completed."""
    values = [100.0 + 50.0 * sin(2.0 * pi * place / 120.0) + place % 7 for place in range(180)]

    def afresh() -> None:
        choose.cache_clear()
        repeating.cache_clear()
        forecast(values, 31)

    return median(_seconds(afresh) for _ in range(51))


def oracle_day_s() -> float:
    scenario = Scenario("diurnal", "micro-batch", 1, 86_400.0)
    scenario.rates()
    return _seconds(lambda: foresee(scenario, Goal(), Limits()))


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


if __name__ == "__main__":
    for name, value, goal in goals():
        print(f"{'ok  ' if value <= goal else 'MISS'} {value:9.3f}  goal {goal:g}  {name}")
