"""``penstock simulate``: one policy, one load, every decision."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.live import Live
from rich.table import Table

from penstock.cli.commands.options import RunOptions
from penstock.cli.views.chart import panel
from penstock.cli.views.output import console, print_json
from penstock.core.journal import write_all
from penstock.core.model import Step
from penstock.lab.experiments.scenario import Run, Scenario, Watcher, run
from penstock.observe.formatting import instant, move, rate, reasons, seconds
from penstock.policies import DEFAULT_POLICY
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import PolicySpec, read_policy_spec

FRAMES = 60


def simulate(
    *,
    policy: str | None = None,
    workload: str = "sine",
    engine: str = "micro-batch",
    seed: int = 1,
    options: RunOptions | None = None,
    journal: Path | None = None,
    play: float = 4.0,
    json: Annotated[bool, Parameter(help="The score as JSON, nothing else.")] = False,
) -> int:
    """Run one policy on one workload and watch it decide.

    Parameters
    ----------
    policy
        One of `penstock policies`, with its parameters as name:key=value,...
    workload
        The load: a shape, a trace, or a sum, product or sequence of them.
    engine
        micro-batch (like Spark) or continuous (like Flink).
    seed
        The same seed gives the same run.
    journal
        Write every turn to this file, for explain and replay.
    play
        Seconds that the live chart takes; 0 shows only its end.
    """
    options = options or RunOptions()
    settings = options.settings()
    goal = options.goal(settings)
    bounds = options.bounds(settings)
    if settings is not None and policy is None:
        limits = msgspec.structs.replace(settings.limits, **bounds)
        entry = PolicySpec(settings.spec.label, settings.policy, limits)
    else:
        entry = read_policy_spec(policy or DEFAULT_POLICY, bounds, goal)
    scenario = Scenario(
        workload, engine, seed, options.duration_s(), options.start, options.faults()
    )
    if json:
        result = run(scenario, entry.policy, entry.limits, goal)
        print_json(result.score)
    elif sys.stdout.isatty():
        result = _watch_live(scenario, entry, goal, play)
    else:
        result = run(scenario, entry.policy, entry.limits, goal, _print_moves)
    if journal is not None:
        facts = {"policy": entry.label, "workload": workload, "engine": engine, "seed": str(seed)}
        write_all(journal, result.steps, facts)
    if not json:
        console().print(_table(result, entry, goal))
    return 0


def _print_moves(step: Step) -> None:
    """One plain line for each turn that changed something or could not see."""
    if step.receipt is None and step.snapshot is not None:
        return
    seen = step.snapshot
    load = rate(seen.arrival_rps) if seen else "-"
    delay = seconds(seen.delay_s) if seen else "-"
    line = f"{instant(step.at_s)}  {move(step)}  load {load:>10}  delay {delay:>8}  "
    print(line + reasons(step.decision))  # noqa: T201


def _watch_live(scenario: Scenario, entry: PolicySpec, goal: Goal, play: float) -> Run:
    """The run as a chart that grows; simulated time is played back faster than it passes."""
    screen = console()
    steps: list[Step] = []
    turns = len(scenario.rates()) / entry.policy.period_s
    every = max(1, int(turns / FRAMES))
    title = f"{entry.label} · {scenario.engine} · {scenario.workload}"

    with Live(console=screen, auto_refresh=False) as live:

        def draw() -> None:
            width = min(screen.width, 110)
            limits = entry.limits
            live.update(panel(steps, goal.slo_s, limits.max_executors, width, title), refresh=True)

        def watch(step: Step) -> None:
            steps.append(step)
            if play > 0 and len(steps) % every == 0:
                draw()
                time.sleep(play / FRAMES)

        watcher: Watcher = watch
        result = run(scenario, entry.policy, entry.limits, goal, watcher)
        draw()
    return result


def _table(result: Run, entry: PolicySpec, goal: Goal) -> Table:
    """The score of the run, and what a fleet sized for its own peak would have cost."""
    score = result.score
    peak = max(level.executors for level in result.outcome.targets)
    table = Table(box=None, pad_edge=False, show_header=False)
    hours = (result.outcome.duration_s - goal.warmup_s) / 3600.0
    saved = 1.0 - score.executor_hours / (peak * hours)
    facts = {
        "policy": entry.label,
        "executor-hours": f"{score.executor_hours:.1f}  (mean {score.mean_executors:.1f}, "
        f"{saved:.0%} less than {peak} all the time)",
        "delay p50 / p95 / p99": " / ".join(
            seconds(value) for value in (score.p50_s, score.p95_s, score.p99_s)
        ),
        f"late (> {goal.slo_s:g} s)": f"{score.late_fraction:.2%} of records",
        "rescales": f"{score.rescales}  ({score.moved_executors} executors moved)",
        "cost": f"{score.cost:.1f}",
    }
    for name, value in facts.items():
        table.add_row(name, value)
    return table
