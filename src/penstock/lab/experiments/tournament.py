"""Policies x workloads x engines x seeds, run in processes, and how they rank."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.errors import ConfigError
from penstock.core.model import Limits
from penstock.lab.experiments.oracle import oracle_score
from penstock.lab.experiments.scenario import Scenario, simulate
from penstock.lab.experiments.score import Score, score
from penstock.lab.experiments.statistics import interval_95, mean
from penstock.policies import POLICIES
from penstock.settings.goal import Goal
from penstock.settings.notation import keys_of, parse
from penstock.settings.policy_spec import PolicySpec, read_policy_spec
from penstock.simulation.faults import Fault

#: The name under which the lower bound takes part. It knows the future, so it is no policy.
ORACLE = "oracle"


class Cell(Struct, frozen=True):
    """One run of a tournament, in a form that any process can run."""

    policy: str
    scenario: Scenario
    goal: Goal
    bounds: dict[str, Any]


class Row(Struct, frozen=True):
    """The score of one cell. `regret` is None while no oracle has run on the same cell."""

    policy: str
    workload: str
    engine: str
    seed: int
    executor_hours: float
    mean_executors: float
    p50_s: float
    p95_s: float
    p99_s: float
    late_fraction: float
    rescales: int
    moved_executors: int
    cost: float
    regret: float | None = None


#: What a row takes from the score of its run, and a standing as a mean over its rows.
SCORED = [name for name in Row.__struct_fields__ if name in Score.__struct_fields__]


class Standing(Struct, frozen=True):
    """A policy on one load and engine: means over the seeds, with a 95 % interval of the cost."""

    policy: str
    workload: str
    engine: str
    seeds: int
    executor_hours: float
    mean_executors: float
    p50_s: float
    p95_s: float
    p99_s: float
    late_fraction: float
    rescales: float
    moved_executors: float
    cost: float
    cost_interval: float
    regret: float | None


def varied(policies: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Each policy with every combination of the values of those parameters that it has.

    >>> varied(["ds2", "static:4"], {"overprovisioning": ["0.2", "0.4"]})
    ['ds2:overprovisioning=0.2', 'ds2:overprovisioning=0.4', 'static:4']
    """
    found: list[str] = []
    used: set[str] = set()
    for policy in policies:
        name = parse(policy).name
        keys = keys_of(POLICIES[name]).keys() | keys_of(Limits).keys() if name in POLICIES else ()
        own = [key for key in values if key in keys]
        used.update(own)
        for combination in product(*(values[key] for key in own)):
            text = ",".join(f"{key}={value}" for key, value in zip(own, combination, strict=True))
            found.append(f"{policy}{',' if ':' in policy else ':'}{text}" if text else policy)
    for key in values:
        if key not in used:
            raise ConfigError(f"none of the policies has a parameter '{key}' to vary")
    return found


def cells(
    policies: Sequence[str],
    workloads: Sequence[str],
    engines: Sequence[str],
    seeds: Sequence[int],
    *,
    goal: Goal,
    bounds: dict[str, Any],
    duration_s: float | None = None,
    start_executors: int | None = None,
    faults: tuple[Fault, ...] = (),
) -> list[Cell]:
    """The grid, those of one load together so that each process works it out once."""
    scenarios = [
        Scenario(workload, engine, seed, duration_s, start_executors, faults)
        for workload, engine, seed in product(workloads, engines, seeds)
    ]
    return [Cell(policy, scenario, goal, bounds) for scenario in scenarios for policy in policies]


def play(cell: Cell, spec: PolicySpec | None = None) -> Row:
    """Run one cell; its policy is read from its text, or is that of `spec`."""
    if cell.policy == ORACLE:
        result = oracle_score(cell.scenario, cell.goal, Limits(**cell.bounds))
    else:
        entry = spec or read_policy_spec(cell.policy, cell.bounds, cell.goal)
        outcome = simulate(cell.scenario, entry.policy, entry.limits)
        result = score(outcome, cell.goal, entry.limits.max_executors)
    return Row(
        policy=cell.policy,
        workload=cell.scenario.workload,
        engine=cell.scenario.engine,
        seed=cell.scenario.seed,
        **{name: getattr(result, name) for name in SCORED},
    )


def judged_by_oracle(
    grid: Sequence[Cell], play_cells: Callable[[Sequence[Cell]], list[Row]]
) -> list[Row]:
    """The rows with their regret. Oracles run once per scenario, and first: they take longest."""
    judges = [
        Cell(ORACLE, scenario, grid[0].goal, grid[0].bounds)
        for scenario in dict.fromkeys(cell.scenario for cell in grid)
    ]
    others = [cell for cell in grid if cell.policy != ORACLE]
    rows = play_cells([*judges, *others])
    judged = dict(zip((cell.scenario for cell in judges), rows, strict=False))
    played = iter(rows[len(judges) :])
    found = []
    for cell in grid:
        judge = judged[cell.scenario]
        row = judge if cell.policy == ORACLE else next(played)
        regret = row.cost / judge.cost - 1.0 if judge.cost > 0.0 else None
        found.append(replace(row, regret=regret))
    return found


def standings(rows: Iterable[Row]) -> list[Standing]:
    """Means over the seeds, cheapest first within each load and engine."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.engine, row.policy), []).append(row)
    order = list(dict.fromkeys((workload, engine) for workload, engine, _ in groups))
    table = [_standing(key, group) for key, group in groups.items()]
    return sorted(table, key=lambda s: (order.index((s.workload, s.engine)), s.cost))


def _standing(key: tuple[str, str, str], group: list[Row]) -> Standing:
    workload, engine, policy = key
    regrets = [row.regret for row in group if row.regret is not None]
    means = {name: mean([float(getattr(row, name)) for row in group]) for name in SCORED}
    return Standing(
        policy=policy,
        workload=workload,
        engine=engine,
        seeds=len(group),
        **means,
        cost_interval=interval_95([row.cost for row in group]),
        regret=mean(regrets) if len(regrets) == len(group) else None,
    )


def wins(table: Sequence[Standing]) -> list[tuple[str, int]]:
    """How many loads each policy wins, most first."""
    best: dict[tuple[str, str], str] = {}
    for standing in table:
        best.setdefault((standing.workload, standing.engine), standing.policy)
    return Counter(best.values()).most_common()
