"""``penstock simulate``: one policy, one load, every decision."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Annotated

from rich.live import Live
from rich.table import Table

from penstock.cli.execution import announce, check_runs, progress_lines
from penstock.cli.options import PolicyText, RunOptions, about, amount, bounds_of, whole
from penstock.cli.output import check_new, console, facts_table, print_json
from penstock.cli.views.chart import panel
from penstock.core.journal import write_all
from penstock.core.model import Step
from penstock.core.phrases import duration, executors
from penstock.lab.experiments.scenario import Run, Scenario, run
from penstock.lab.experiments.tournament import Cell
from penstock.observe.formatting import Losses, decision_line, seconds
from penstock.settings.header import journal_header
from penstock.settings.toml import Settings

FRAMES = 60


def simulate(
    *,
    policy: PolicyText = None,
    workload: Annotated[str, about("simulate.workload")] = "sine",
    engine: Annotated[str, about("simulate.engine")] = "micro-batch",
    seed: Annotated[int, whole(), about("seed")] = 1,
    options: RunOptions | None = None,
    journal: Annotated[Path | None, about("simulate.journal")] = None,
    force: Annotated[bool, about("force")] = False,
    play: Annotated[float, amount(), about("simulate.play")] = 4.0,
    json: Annotated[bool, about("simulate.json")] = False,
) -> int:
    """Run one policy on one workload and watch it decide."""
    options = options or RunOptions()
    settings = options.settings(policy)
    scenario = Scenario(workload, engine, seed, options.duration, options.start, options.faults())
    cell = Cell(settings.spec.label, scenario, settings.goal, bounds_of(settings))
    check_runs([cell])
    if journal is not None:
        check_new(journal, force=force, advice="name another file, or add --force")
    announce([cell], processes=1)
    result = _run(scenario, settings, play, json=json)
    if journal is not None:
        ran = dataclasses.replace(settings.spec, policy=result.policy)
        facts = {"workload": workload, "engine": engine, "seed": str(seed)}
        write_all(journal, result.steps, journal_header(ran, settings.goal, **facts))
    if json:
        print_json(result.score)
    else:
        console().print(_table(result, settings))
    return 0


def _run(scenario: Scenario, settings: Settings, play: float, *, json: bool) -> Run:
    if sys.stdout.isatty() and not json:
        return _run_with_chart(scenario, settings, play)
    at_s, losses, spec = 0.0, Losses(), settings.spec

    def watch(step: Step) -> None:
        nonlocal at_s
        at_s, lost = step.at_s, losses.update(step)
        if not json and (step.receipt is not None or step.snapshot is None or lost):
            print(decision_line(step, lost))  # noqa: T201

    length = duration(scenario.length_s())
    with progress_lines(lambda: f"simulated {duration(at_s)} of {length}"):
        return run(scenario, spec.policy, spec.limits, settings.goal, watch)


def _run_with_chart(scenario: Scenario, settings: Settings, play: float) -> Run:
    """The run as a chart that grows; simulated time is played back faster than it passes."""
    screen, spec = console(), settings.spec
    steps: list[Step] = []
    every = max(1, int(scenario.length_s() / spec.policy.period_s / FRAMES))
    title = f"{spec.label} · {scenario.engine} · {scenario.workload}"

    with Live(console=screen, auto_refresh=False) as live:

        def draw() -> None:
            width, most = min(screen.width, 110), spec.limits.max_executors
            live.update(panel(steps, settings.goal.slo_s, most, width, title), refresh=True)

        def watch(step: Step) -> None:
            steps.append(step)
            if play > 0 and len(steps) % every == 0:
                draw()
                time.sleep(play / FRAMES)

        result = run(scenario, spec.policy, spec.limits, settings.goal, watch)
        draw()
    return result


def _table(result: Run, settings: Settings) -> Table:
    """The score of the run, and what a fleet sized for its own peak would have cost."""
    score, goal = result.score, settings.goal
    peak = max(level.executors for level in result.outcome.targets)
    hours = (result.outcome.duration_s - goal.warmup_s) / 3600.0
    saved = 1.0 - score.executor_hours / (peak * hours)
    delays = (score.p50_s, score.p95_s, score.p99_s)
    scored = f"after the warm-up of {duration(goal.warmup_s)}" if goal.warmup_s else "in all"
    paid = {"money": goal.money(score.executor_hours)} if goal.is_priced else {}
    facts = {
        "policy": settings.spec.label,
        "executor-hours": f"{score.executor_hours:.1f}  (mean {score.mean_executors:.1f}, "
        f"{saved:.0%} less than {peak} all the time)",
        **paid,
        "delay p50 / p95 / p99": " / ".join(seconds(value) for value in delays),
        f"late (> {goal.slo_s:g} s)": f"{score.late_fraction:.2%} of records",
        "rescales": f"{score.rescales} {scored}  ({executors(score.moved_executors)} moved)",
        "cost": f"{score.cost:.1f}",
    }
    return facts_table(facts)
