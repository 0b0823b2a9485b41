"""What planning takes of a core: decisions, forecasts, the oracle's day, a restart after a week.

``run.py`` takes these in; on its own this file prints them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from math import pi, sin
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from penstock.core.journal import JournalHeader, encode_step, read_tail
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Step
from penstock.lab.experiments.oracle import foresee
from penstock.lab.experiments.scenario import Scenario
from penstock.policies.checks.made_up_job import SHAPES, START_AT_S, made_up_snapshot
from penstock.policies.penstock.days import Days
from penstock.policies.penstock.forecasters import Forecast, choose, forecast, repeating
from penstock.policies.penstock.penstock import Penstock, PenstockMemory
from penstock.settings.goal import Goal
from penstock.settings.toml import JournalSettings


def goals() -> list[tuple[str, float, float]]:
    """Name, measured value and the most that it may be."""
    return [
        ("penstock: ms for a decision of up to 16 executors", 1e3 * decision_s(16), 10.0),
        ("penstock: ms for a decision of up to 1,000 executors", 1e3 * decision_s(1000), 50.0),
        ("bytes of a journal line with ten executors", float(len(line())), 4096.0),
        ("s to recall a week of turns from its journal", recall_s(), 2.0),
        ("ms for a forecast of 15 min from 90 min", 1e3 * forecast_s(), 1.0),
        ("s for the oracle to plan a day", oracle_day_s(), 10.0),
    ]


def decision_s(max_executors: int) -> float:
    """The median decision over a run of changing snapshots, so that no cache can help it.

    The policy remembers three weeks of the load.
    """
    return max(median(_decisions_s(shape, max_executors)) for shape in SHAPES)


def _decisions_s(shape: str, max_executors: int) -> list[float]:
    policy, taken_s = Penstock(), []
    knowledge = Knowledge(Limits(max_executors=max_executors))
    first = made_up_snapshot(shape, 0, START_AT_S, 2)  # type: ignore[arg-type]
    memory = PenstockMemory(days=three_weeks())
    knowledge.remember(Step(START_AT_S, first, Decision.of(2, Reason("", ""), memory=memory)))
    for turn in range(240):
        at_s = START_AT_S + turn * policy.period_s
        snapshot = made_up_snapshot(shape, turn, at_s, max(2, max_executors // 2))  # type: ignore[arg-type]
        knowledge.learn(snapshot, at_s)
        begin = time.process_time()
        decision = policy.decide(snapshot, knowledge)
        taken_s.append(time.process_time() - begin)
        knowledge.remember(Step(at_s, snapshot, decision))
    return taken_s[-120:]


@cache
def three_weeks() -> Days:
    """What is known of a load that repeats itself each day, and was predicted by that."""
    days, bin_s = Days(), Penstock().bin_s
    for quarter in range(21 * 96):
        at_s = START_AT_S + 900.0 * quarter
        load_rps = 1000.0 + 500.0 * sin(2.0 * pi * quarter / 96.0)
        days = days.observed(at_s, load_rps, Forecast([1000.0] * 31, [50.0] * 31, "flat"), bin_s)
    assert days.is_better
    return days


@cache
def line() -> bytes:
    """A turn of the default policy with ten executors, as its journal has it."""
    policy, knowledge = Penstock(), Knowledge()
    memory = PenstockMemory(days=three_weeks())
    step = Step(0.0, None, Decision.of(1, Reason("", ""), memory=memory))
    knowledge.remember(step)
    for turn in range(60):
        at_s = START_AT_S + turn * policy.period_s
        snapshot = made_up_snapshot("micro_batch", turn, at_s, 10)
        knowledge.learn(snapshot, at_s)
        step = Step(at_s, snapshot, policy.decide(snapshot, knowledge))
        knowledge.remember(step)
    return encode_step(step)


def recall_s() -> float:
    """A week of turns every ten seconds, in the files that a journal is rotated into."""
    week, size = 7 * 8640, JournalSettings().max_bytes
    with TemporaryDirectory() as folder:
        path = Path(folder) / "live.jsonl"
        header = msgspec.json.encode(JournalHeader.of()) + b"\n"
        each = size // (len(line()) + 1)
        for number in range(-(-week // each)):
            file = path if number == 0 else path.with_name(f"{path.name}.{number}")
            file.write_bytes(header + (line() + b"\n") * min(each, week - number * each))
        return _seconds(lambda: Knowledge.from_steps(read_tail(path)).recall(PenstockMemory))


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
    begin = time.process_time()
    action()
    return time.process_time() - begin


if __name__ == "__main__":
    for name, value, goal in goals():
        print(f"{'ok  ' if value <= goal else 'MISS'} {value:9.3f}  goal {goal:g}  {name}")
