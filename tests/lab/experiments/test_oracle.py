"""The lower bound of every table."""

from __future__ import annotations

import pytest

from penstock.core.model import Limits
from penstock.lab.experiments.oracle import foresee, oracle_score, true_capacity_rps
from penstock.lab.experiments.scenario import ENGINES, Scenario, simulate
from penstock.lab.experiments.score import score
from penstock.lab.experiments.tournament import ORACLE, cells, judged_by_oracle, play
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation.faults import CapacityDrop

GOAL, LIMITS = Goal(), Limits()


@pytest.mark.parametrize("engine", list(ENGINES))
def test_true_capacity_grows_with_the_fleet(engine: str) -> None:
    capacities = [true_capacity_rps(ENGINES[engine], size) for size in range(1, 17)]
    assert capacities == sorted(capacities)
    assert capacities[0] > 9_000.0


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("workload", ["sine:period=40min", "bursts", "random_walk"])
def test_no_policy_comes_out_below_the_oracle(engine: str, workload: str) -> None:
    scenario = Scenario(workload, engine, 3, 2400.0)
    bound = oracle_score(scenario, GOAL, LIMITS).cost
    for name in ("penstock", "hpa", "ds2", "static:8"):
        entry = read_policy_spec(name, {}, GOAL)
        result = score(simulate(scenario, entry.policy, entry.limits), GOAL, 16)
        assert result.cost > 0.99 * bound, name


def test_the_oracle_grows_before_a_step_comes() -> None:
    scenario = Scenario("step:before=20k,after=80k,at=30min", "micro-batch", 1, 3600.0)
    outcome = simulate(scenario, foresee(scenario, GOAL, LIMITS), LIMITS)
    grown = next(level for level in outcome.targets if level.executors >= 7)
    assert 1_800.0 - 60.0 <= grown.at_s <= 1_800.0
    assert score(outcome, GOAL, 16).late_fraction < 0.01


def test_the_oracle_knows_of_a_drop_of_capacity() -> None:
    drop = CapacityDrop(at_s=1_800.0, fraction=0.5)
    scenario = Scenario("constant:45k", "micro-batch", 1, 3600.0, None, (drop,))
    outcome = simulate(scenario, foresee(scenario, GOAL, LIMITS), LIMITS)
    before = [level.executors for level in outcome.targets if level.at_s < 1_700.0][-1]
    after = [level.executors for level in outcome.targets if level.at_s < 2_400.0][-1]
    assert after >= 1.7 * before


def test_where_each_change_stops_the_job_the_oracle_may_leave_it_alone() -> None:
    # 2 k/s and 100 k/s in turn: never to change costs less than to be stopped twice per period.
    scenario = Scenario("square:high=100k", "continuous", 1, 1.5 * 3600.0)
    bound = oracle_score(scenario, GOAL, LIMITS).cost
    fixed = score(simulate(scenario, Static(11), LIMITS), GOAL, 16).cost
    assert bound <= fixed


def test_limits_bind_the_oracle_too() -> None:
    scenario = Scenario("constant:36k", "continuous", 1, 1800.0)
    limits = Limits(min_executors=2, max_executors=4)
    outcome = simulate(scenario, foresee(scenario, GOAL, limits), limits)
    assert outcome.targets[-1].executors == 4


def test_every_row_of_a_comparison_has_its_regret() -> None:
    grid = cells(
        ["hpa", ORACLE, "static:12"], ["constant:50k"], ["continuous"], [1, 2],
        goal=GOAL, bounds={}, duration_s=1800.0,
    )  # fmt: skip
    rows = judged_by_oracle(grid, lambda some: [play(cell) for cell in some])
    assert [row.policy for row in rows] == ["hpa", ORACLE, "static:12"] * 2
    assert [row.regret for row in rows if row.policy == ORACLE] == [0.0, 0.0]
    for row in rows:
        oracle = next(o for o in rows if o.policy == ORACLE and o.seed == row.seed)
        assert row.regret == pytest.approx(row.cost / oracle.cost - 1.0)
