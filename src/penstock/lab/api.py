"""Experiments in Python: ``penstock.simulate`` and ``penstock.compare``.

They take the same texts as the command line, or objects, and give the same numbers.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core.errors import ConfigError
from penstock.core.journal import write_all
from penstock.core.model import Limits
from penstock.core.protocols import Policy
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.scenario import Run, Scenario, engine_named, run
from penstock.lab.experiments.tournament import ORACLE, Cell, Row, cells, judged_by_oracle, play
from penstock.policies import POLICIES
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header
from penstock.settings.policy_spec import DEFAULT_BOUNDS, PolicySpec, spec_of
from penstock.settings.toml import with_limits
from penstock.simulation.faults import Fault, read_fault
from penstock.simulation.workloads.expressions import parse_workload


def simulate(
    policy: str | Policy,
    workload: str,
    *,
    engine: str = "micro-batch",
    seed: int = 1,
    duration_s: float | None = None,
    start_executors: int | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    goal: Goal | None = None,
    faults: Iterable[str | Fault] = (),
    journal: str | Path | None = None,
) -> Run:
    """Run one policy on one workload; the result has `score`, `steps` and `outcome`.

    Parameters
    ----------
    policy: A text such as ``"ds2:overprovisioning=0.3,cooldown=2min"``, or a policy object.
    workload: The load, in the notation of docs/workloads.md.
    engine: ``"micro-batch"`` (like Spark) or ``"continuous"`` (like Flink).
    seed: The same seed gives the same run.
    duration_s: How long; ``None`` takes the length of a trace, or six hours.
    start_executors: The fleet at the start; ``None`` takes one that carries the first minute.
    limits: Limits in place of the policy's own, such as ``{"max_executors": 8}``; a `Limits`
        replaces all of them. They win over the policy text.
    goal: The SLO and the prices; by default those of the command line.
    faults: What goes wrong, such as ``"executor_lost:at=1h"``.
    journal: Write every turn to this file; an older file is replaced.

    Examples
    --------
    >>> run = simulate("static:4", "constant:20k", duration_s=1200.0)
    >>> run.score.mean_executors, run.score.late_fraction
    (4.0, 0.0)
    """
    goal = goal or Goal()
    spec = _spec(policy, limits, goal)
    scenario = Scenario(workload, engine, seed, duration_s, start_executors, _faults(faults))
    result = run(scenario, spec.policy, spec.limits, goal)
    if journal is not None:
        ran = dataclasses.replace(spec, policy=result.policy)
        header = journal_header(ran, goal, workload=workload, engine=engine, seed=str(seed))
        write_all(Path(journal), result.steps, header)
    return result


def compare(
    policies: Sequence[str | Policy],
    workloads: Sequence[str],
    *,
    engines: Sequence[str] = ("micro-batch",),
    seeds: Iterable[int] = (1,),
    duration_s: float | None = None,
    start_executors: int | None = None,
    limits: Mapping[str, Any] | None = None,
    goal: Goal | None = None,
    faults: Iterable[str | Fault] = (),
    regret: bool = True,
    processes: int | None = None,
) -> list[Row]:
    """Run every policy on every workload, engine and seed; one row of scores per run.

    Parameters
    ----------
    policies, workloads, engines, faults: As for `simulate`. The text ``"oracle"`` stands for the
        lower bound itself.
    seeds: Each run is repeated with each of them.
    duration_s, start_executors, goal: As for `simulate`, the same for all.
    limits: Limits for all policies, such as ``{"max_executors": 8}``.
    regret: Whether to run the oracle as well, against which `Row.regret` counts.
    processes: How many runs at once; ``None`` is one per core.

    Examples
    --------
    >>> rows = compare(["static:4", "static:6"], ["constant:20k"], duration_s=1200.0, regret=False)
    >>> [(row.policy, row.mean_executors) for row in rows]
    [('static:4', 4.0), ('static:6', 6.0)]
    """
    goal = goal or Goal()
    labelled: dict[str, PolicySpec | None] = {}
    for policy in policies:
        spec = None if policy == ORACLE else _spec(policy, limits, goal)
        labelled[spec.label if spec else ORACLE] = spec
    for text in workloads:  # mistakes are found before the first run
        parse_workload(text)
    for engine in engines:
        engine_named(engine)
    grid = cells(
        [*labelled],
        workloads,
        engines,
        list(seeds),
        goal=goal,
        bounds={key: (limits or {}).get(key, most) for key, most in DEFAULT_BOUNDS.items()},
        duration_s=duration_s,
        start_executors=start_executors,
        faults=_faults(faults),
    )
    if not grid:
        raise ConfigError("compare needs at least one policy, workload, engine and seed")

    def play_cells(some: Sequence[Cell]) -> list[Row]:
        return run_in_processes(partial(_play, labelled), some, processes)

    return judged_by_oracle(grid, play_cells) if regret else play_cells(grid)


def _play(specs: Mapping[str, PolicySpec | None], cell: Cell) -> Row:
    return play(cell, specs.get(cell.policy))


def _spec(
    policy: str | Policy, limits: Limits | Mapping[str, Any] | None, goal: Goal
) -> PolicySpec:
    spec = with_limits(spec_of(policy, DEFAULT_BOUNDS, goal), limits)
    # A class that is not in the table may be there with several parameters.
    is_known = isinstance(policy, str) or type(policy) in POLICIES.values()
    return spec if is_known else dataclasses.replace(spec, label=repr(policy))


def _faults(faults: Iterable[str | Fault]) -> tuple[Fault, ...]:
    return tuple(read_fault(each) if isinstance(each, str) else each for each in faults)
