"""What a plan expects, with worked numbers."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.journal import read_header, read_steps
from penstock.policies.penstock.dynamic_program import (
    JobModel,
    LoadScenarios,
    Prices,
    StartState,
    late_if_held,
    planned_sizes,
    solve,
)
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.outlook import expect
from tests.observe.dashboard.played import RECORDED, recorded_run
from tests.policies.penstock.test_explanation import inputs

SIZES = np.arange(1.0, 9.0)
#: A dataflow in which each executor does 10 k/s.
FLOW = JobModel(SIZES, 10_000.0 * SIZES, 0.0, None, 0.0, 10.0)
BATCHES = JobModel(SIZES, 10_000.0 * SIZES, 0.25, 2.0, 0.3, 10.0)
PRICES = Prices(late_s=80.0, move=60.0, mean_rps=40_000.0)
STEPS_S = [30.0] * 20


@pytest.mark.parametrize("job", [FLOW, BATCHES])
def test_the_plan_grows_before_the_load_rises_and_shrinks_after_it(job: JobModel) -> None:
    # 15 k/s need 2 executors, 55 k/s from step 5 to 14 need 6. New ones work a step later; a lag
    # within the SLO costs nothing, so that 5 may do at first.
    loads = [15_000.0] * 5 + [55_000.0] * 10 + [15_000.0] * 5
    plan = solve(job, PRICES, LoadScenarios(np.array([loads])), STEPS_S)
    found = planned_sizes(plan, 2, 2.0, STEPS_S)
    assert found[:3] == [2, 2, 2]
    assert found[4] >= 5
    assert max(found[5:14]) >= 6
    assert found[16] == 2


def test_a_load_that_stays_keeps_its_fleet() -> None:
    plan = solve(FLOW, PRICES, LoadScenarios(np.full((1, 20), 25_000.0)), STEPS_S)
    assert planned_sizes(plan, 3, 0.0, STEPS_S) == [3] * 20


def test_a_fleet_of_half_the_capacity_is_late_as_soon_as_its_lag_is_the_slo() -> None:
    # One executor does half of 20 k/s: its lag grows by half a second per second and is 10 s after
    # 20 s, when new executors would work. So 100 of 120 s are late; two executors are never late.
    plan = solve(FLOW, PRICES, LoadScenarios(np.full((1, 20), 20_000.0)), STEPS_S)
    start = StartState(2, 2, lag_s=0.0, startup_s=20.0, pending_s=0.0)
    bins, loads = np.full((1, 31), 20_000.0), np.full((1, 2), 20_000.0)
    late, arrived = late_if_held(plan, start, bins, loads, [50.0, 50.0], 30.0)
    assert late[0, 0] / arrived[0, 0] == pytest.approx(100.0 / 120.0, abs=0.01)
    assert late[0, 1:].tolist() == [0.0] * 7


def test_the_fan_is_at_every_third_bin_and_never_below_zero() -> None:
    seen = inputs(2_000.0, mean_rps=[2_000.0] * 7)
    seen = type(seen)(**{name: getattr(seen, name) for name in seen.__slots__} | {
        "load": Forecast([2_000.0] * 7, [1_000.0, 0.0, 0.0, 2_000.0, 0.0, 0.0, 0.0], "test")
    })  # fmt: skip
    found = expect(seen, 2)
    assert found.ahead_s == (15.0, 105.0, 195.0)
    assert found.load_rps == (2_000.0,) * 3
    assert found.low_rps == (720.0, 0.0, 2_000.0)  # 1.28 deviations
    assert found.high_rps == (3_280.0, 4_560.0, 2_000.0)
    assert (found.executors, found.sizes) == ((), ())


def test_an_outlook_adds_less_than_600_bytes_to_a_line_of_the_journal() -> None:
    import msgspec

    _, steps = recorded_run()
    outlooks = [step.decision.outlook for step in steps if step.decision.outlook is not None]
    assert len(outlooks) > 40
    assert max(len(msgspec.json.encode(each)) for each in outlooks) < 600
    for each in outlooks:
        if each.sizes:
            assert all(size in range(1, 9) for size in (*each.executors, *each.sizes))
            assert all(0.0 <= share <= 1.0 for share in each.late_fractions)
            assert len(each.executors) == len(each.ahead_s) == 11
    assert read_header(RECORDED).limits["max_executors"] == 8
    assert len(list(read_steps(RECORDED))) == len(steps)
