"""Speed, as ratios measured side by side in one run: ``make bench`` writes results.json.

A machine that is busy or slow shifts both sides of a ratio. Where a goal is in milliseconds it is
the median of many decisions. Each line of results.json has name, value, goal and ok.
"""

from __future__ import annotations

import compileall
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from benchmarks import advise_speed, planning_speed, study_speed
from msgspec import Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Limits, Snapshot, Step
from penstock.core.protocols import Policy
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.scenario import Scenario, simulate
from penstock.lab.experiments.tournament import cells, play
from penstock.policies import POLICIES
from penstock.policies.checks.made_up_job import SHAPES, START_AT_S, Shape, made_up_snapshot
from penstock.policies.kubernetes.hpa import Hpa
from penstock.settings.goal import Goal

RESULTS = Path(__file__).parent / "results.json"
DAY_S = 86_400


class Measured(Struct, frozen=True):
    """One claim: `value` must not pass `goal` (or must reach it, where larger is better)."""

    name: str
    value: float
    goal: float
    ok: bool


def at_most(name: str, value: float, goal: float) -> Measured:
    return Measured(name, round(value, 3), goal, value <= goal)


def at_least(name: str, value: float, goal: float) -> Measured:
    return Measured(name, round(value, 3), goal, value >= goal)


def seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def cpu_seconds(action: Callable[[], object]) -> float:
    """What the action takes of a core, whatever else runs at the same time."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def bare_loop(loads: list[float]) -> float:
    """What any simulation in Python pays at least: one step for each second of the day."""
    total = 0.0
    for step in range(DAY_S):
        total += loads[step]
    return total


def simulated_days() -> list[Measured]:
    """A day with the HPA every 15 s against a bare loop of 86,400 steps, taken in turns.

    The continuous engine goes in steps of a second; the other one in batches, of which each is
    kept and shown, so it has a goal of its own.
    """
    return [
        at_most(f"a {engine} day with hpa / a bare loop of 86,400 steps", day_ratio(engine), goal)
        for engine, goal in (("continuous", 40), ("micro-batch", 130))
    ]


def day_ratio(engine: str) -> float:
    scenario = Scenario("sine", engine, seed=1, duration_s=DAY_S)
    loads = list(scenario.rates())
    days, bares = [], []
    for _ in range(9):
        days.append(cpu_seconds(lambda: simulate(scenario, Hpa(), Limits())))
        bares += [cpu_seconds(lambda: bare_loop(loads)) for _ in range(5)]
    return min(days) / min(bares)


#: Policies that look ahead may take longer than the others: goals in ms, small and large.
LOOK_AHEAD_MS = {"penstock": (10.0, 50.0), "daedalus": (5.0, 20.0), "phoebe": (5.0, 20.0)}


def decisions() -> list[Measured]:
    """The median decision of each policy, small and large."""
    results = []
    for size, (executors, operators, usual_ms) in enumerate(((16, 6, 1.0), (1000, 50, 20.0))):
        for name, kind in POLICIES.items():
            goal_ms = LOOK_AHEAD_MS[name][size] if name in LOOK_AHEAD_MS else usual_ms
            label = f"{name}: ms for a decision with {executors} executors, {operators} operators"
            results.append(at_most(label, 1e3 * decision_s(kind(), executors, operators), goal_ms))
    return results


def decision_s(policy: Policy, executors: int, operators: int) -> float:
    """The median decision after 120 turns, on the shape that takes longer."""
    return max(_decision_s(policy, shape, executors, operators) for shape in SHAPES)


def _decision_s(policy: Policy, shape: Shape, executors: int, operators: int) -> float:
    knowledge = Knowledge()
    for turn in range(120):
        snapshot = wide(shape, turn, START_AT_S + turn * policy.period_s, executors, operators)
        knowledge.learn(snapshot, snapshot.at_s)
        knowledge.remember(Step(snapshot.at_s, snapshot, policy.decide(snapshot, knowledge)))
    return median(cpu_seconds(lambda: policy.decide(snapshot, knowledge)) for _ in range(51))


def wide(shape: Shape, turn: int, at_s: float, executors: int, operators: int) -> Snapshot:
    """The made-up job of the contract checks with a longer chain of operators."""
    snapshot = made_up_snapshot(shape, turn, at_s, executors)
    chain = list(snapshot.operators)
    while len(chain) < operators:
        last = chain[-1]
        chain.append(msgspec.structs.replace(last, name=f"map{len(chain)}", upstream=(last.name,)))
    return msgspec.structs.replace(snapshot, operators=tuple(chain))


#: What a user starts, and how many times a bare Python start it may take.
STARTS = {
    "import penstock": (["-c", "import penstock"], 3.0),
    "penstock --help": (["-m", "penstock", "--help"], 6.0),
}


def starts() -> list[Measured]:
    """Programs that were just started against a Python that does nothing, taken in turns."""
    taken: dict[str, list[float]] = {name: [] for name in ("", *STARTS)}
    for _ in range(15):
        for name, values in taken.items():
            values.append(start_s(STARTS[name][0] if name else ["-c", "pass"]))
    bare = min(taken[""])
    return [
        at_most(f"{name} / a bare Python start", min(taken[name]) / bare, goal)
        for name, (_, goal) in STARTS.items()
    ]


def start_s(arguments: list[str]) -> float:
    """What a Python with these arguments takes of a core, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def hook() -> Measured:
    """What every start of Python takes longer with Penstock installed, which brings its hook."""
    with TemporaryDirectory() as folder:
        shutil.copy(RESULTS.parent.parent / "src" / "penstock_hook.py", folder)
        compileall.compile_dir(folder, quiet=1)
        code = (
            f"import os, sys, time; sys.path.insert(0, {folder!r}); begin = time.perf_counter()\n"
            "import penstock_hook; print(time.perf_counter() - begin)"
        )
        argv = [sys.executable, "-S", "-c", code]  # an installed hook would be loaded already
        taken = [float(subprocess.check_output(argv, text=True)) for _ in range(25)]
    return at_most("ms that the hook adds to a start of Python", 1000 * median(taken), 1.0)


def two_processes() -> Measured:
    """How much faster a comparison is on two processes than on one."""
    grid = cells(
        ["hpa", "ds2", "dhalion_adapted", "static"], ["sine", "diurnal"], ["continuous"],
        list(range(1, 7)), goal=Goal(), bounds={}, duration_s=DAY_S,
    )  # fmt: skip
    run_in_processes(play, grid[:2], 1)
    on_one = partial(run_in_processes, play, grid, 1)
    on_two = partial(run_in_processes, play, grid, 2)
    pairs = [(seconds(on_one), seconds(on_two)) for _ in range(2)]
    speed_up = min(one for one, _ in pairs) / min(two for _, two in pairs)
    return at_least("compare on two processes is faster than on one by", speed_up, 1.7)


def keep(results: list[Measured]) -> None:
    """Write results into the file, in place of those of the same names."""
    try:
        kept = msgspec.json.decode(RESULTS.read_bytes(), type=list[Measured])
    except FileNotFoundError:
        kept = []
    by_name = {result.name: result for result in [*kept, *results]}
    text = msgspec.json.encode(list(by_name.values()))
    RESULTS.write_bytes(msgspec.json.format(text, indent=2) + b"\n")


def show(results: list[Measured], then: str = f"written to {RESULTS.name}") -> int:
    """Print the results; 1 if a goal was missed."""
    for result in results:
        mark = "ok  " if result.ok else "MISS"
        print(f"{mark} {result.value:>9.3f}  goal {result.goal:g}  {result.name}")
    missed = sum(not result.ok for result in results)
    print(f"{len(results) - missed} of {len(results)} goals met; {then}")
    return 1 if missed else 0


def main() -> int:
    planned = [at_most(*goal) for goal in planning_speed.goals()]
    results = [*starts(), hook(), *simulated_days(), *decisions(), *planned, two_processes()]
    results += [at_least(*goal) for goal in advise_speed.speeds()]
    if "--studies" in sys.argv[1:]:  # minutes instead of seconds
        results += [at_most(*goal) for goal in study_speed.goals()]
    keep(results)
    return show(results)


if __name__ == "__main__":
    sys.exit(main())
