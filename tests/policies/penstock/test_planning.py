"""The dynamic program that the policy and the oracle share."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model import Fleet, Snapshot
from penstock.policies.penstock.dynamic_program import (
    NORMAL_POINTS,
    NORMAL_WEIGHTS,
    CostToGo,
    JobModel,
    LoadScenarios,
    Prices,
    StartState,
    advance,
    first_costs,
    lag_levels,
    late_share,
    measured_lag_s,
    solve,
    undo_costs,
)
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.planning import BINS, compare
from tests.policies.penstock.test_explanation import inputs

SIZES = np.arange(1.0, 9.0)
PRICES = Prices(late_s=80.0, move=60.0, mean_rps=40_000.0)
STEPS_S = (30.0,) * 20


def flow(rescale_s: float = 0.0) -> JobModel:
    return JobModel(SIZES, 10_000.0 * SIZES, 0.0, None, rescale_s, 10.0)


def batches(noise: float = 0.0) -> JobModel:
    return JobModel(SIZES, 10_000.0 * SIZES, 0.25, 2.0, 0.3, 10.0, noise)


def best(plan: CostToGo, start: StartState, load_rps: float) -> int:
    costs = first_costs(plan, start, np.array([[load_rps]]), 30.0)[0]
    return int(plan.job.sizes[int(np.argmin(costs))])


def planned(job: JobModel, loads_rps: list[float]) -> CostToGo:
    return solve(job, PRICES, LoadScenarios(np.array([loads_rps])), STEPS_S)


def mixing(weights: np.ndarray, keeps: float) -> np.ndarray:
    """Changes of scenario, the same before each step: it keeps its own, or draws by the weights."""
    one = keeps * np.eye(len(weights)) + (1.0 - keeps) * weights
    return np.repeat(one[None, :, :], len(STEPS_S), axis=0)


def settled(target: int, lag_s: float = 2.0) -> StartState:
    return StartState(target, target, lag_s, startup_s=20.0, pending_s=0.0)


def test_a_dataflow_that_can_do_half_falls_behind_by_a_second_per_second() -> None:
    # Half of what comes leaves, so that the oldest record that waits is 10 s older after 20 s.
    after = advance(flow(), np.array(3.0), np.array(20e3), np.array(10e3), np.array(20.0))
    assert after == pytest.approx(3.0 + (1.0 - 0.5) * 20.0)


def test_each_size_has_its_own_fixed_cost() -> None:
    """Half of the capacity in use: batches come to ``fixed / (1 - 0.5)``, at least to the trigger.

    One executor starts all tasks one after the other, which takes 2 s of a batch; four take 0.5 s.
    """
    job = replace(batches(), size_fixed_s=np.where(SIZES < 4, 2.0, 0.5))
    half = 0.5 * job.capacity_rps
    fixed = np.asarray(job.size_fixed_s)
    after = advance(job, np.full(len(SIZES), 2.0), half, job.capacity_rps, np.array(600.0), fixed)
    assert after == pytest.approx(np.where(SIZES < 4, 4.0, 2.0), rel=0.01)


def test_a_dataflow_never_gets_ahead_of_its_input() -> None:
    assert advance(flow(), np.array(1.0), np.array(1e3), np.array(1e5), np.array(30.0)) == 0.0


def test_batches_settle_where_they_take_as_long_as_what_they_carry() -> None:
    # x = 0.25 + 0.9 x has its fixed point at 2.5 s, from either side.
    for begin in (2.0, 6.0):
        after = advance(batches(), np.array(begin), np.array(9e3), np.array(1e4), np.array(900.0))
        assert after == pytest.approx(2.5, abs=0.01)


def batch_by_batch(begin_s: float, use: float, step_s: float) -> float:
    """What `advance` sums up, one batch after the other, the last one in part."""
    lag_s, left_s = begin_s, step_s
    while True:
        taken_s = max(2.0, 0.25 + use * lag_s)
        if taken_s > left_s:
            return lag_s + (taken_s - lag_s) * left_s / taken_s
        lag_s, left_s = taken_s, left_s - taken_s


@pytest.mark.parametrize("use", [0.3, 0.7, 0.9, 0.97, 1.05, 1.2, 1.8, 4.0])
@pytest.mark.parametrize("begin_s", [2.0, 5.0, 14.0, 40.0])
@pytest.mark.parametrize("step_s", [20.0, 30.0, 60.0])
def test_a_step_comes_near_to_its_batches_one_by_one(
    use: float, begin_s: float, step_s: float
) -> None:
    steps = (np.array(begin_s), np.array(use * 1e4), np.array(1e4), np.array(step_s))
    exact = batch_by_batch(begin_s, use, step_s)
    assert advance(batches(), *steps) == pytest.approx(exact, rel=0.35, abs=0.5)


def test_records_of_a_batch_wait_between_one_batch_and_two() -> None:
    # Batches of 5 s reach the SLO of 10 s with their oldest record, those of 10 s with all.
    share = late_share(batches(), np.array([4.0, 5.0, 7.5, 10.0, 20.0]))
    assert share.tolist() == pytest.approx([0.0, 0.0, 2.0 - 10.0 / 7.5, 1.0, 1.0], abs=1e-4)


def test_batches_that_swing_are_late_before_their_mean_is() -> None:
    calm, swinging = (late_share(batches(noise), np.array([4.5]))[0] for noise in (0.0, 0.07))
    assert calm == 0.0
    assert 0.01 < swinging < 0.3


def test_the_points_have_the_moments_of_a_normal() -> None:
    moments = [float(NORMAL_WEIGHTS @ NORMAL_POINTS**power) for power in (0, 1, 2, 4)]
    assert moments == pytest.approx([1.0, 0.0, 1.0, 3.0], abs=0.01)


def test_levels_are_fine_where_lateness_begins() -> None:
    grid = lag_levels(batches())
    assert grid[0] == 2.0
    assert grid[-1] == 120.0
    assert np.diff(grid[grid < 6.0]).max() < 1.3


@pytest.mark.parametrize("job", [flow(), batches()], ids=["dataflow", "batches"])
def test_a_steady_load_keeps_the_smallest_fleet_that_carries_it(job: JobModel) -> None:
    plan = planned(job, [36e3] * 20)
    assert best(plan, settled(4), 36e3) == 4
    assert best(plan, settled(8), 36e3) == 4
    assert best(plan, settled(2), 36e3) >= 4


@pytest.mark.parametrize("job", [flow(), batches()], ids=["dataflow", "batches"])
def test_a_rise_is_met_before_it_comes(job: JobModel) -> None:
    soon = planned(job, [66e3] * 20)
    late = planned(job, [36e3] * 12 + [66e3] * 8)
    assert best(soon, settled(4), 36e3) >= 6
    assert best(late, settled(4), 36e3) == 4


def test_a_dip_that_saves_less_than_two_moves_is_sat_out() -> None:
    short = planned(flow(), [18e3] * 1 + [38e3] * 19)
    long = planned(flow(), [18e3] * 15 + [38e3] * 5)
    assert best(short, settled(4), 18e3) == 4
    assert best(long, settled(4), 18e3) == 2


def test_where_a_rescale_stops_the_job_small_savings_are_not_worth_it() -> None:
    cheap, costly = (planned(flow(rescale_s), [36e3] * 20) for rescale_s in (0.0, 25.0))
    assert best(cheap, settled(5, 0.0), 36e3) == 4
    assert best(costly, settled(5, 0.0), 36e3) == 5


def test_a_move_that_pays_is_not_put_off_because_it_makes_records_late() -> None:
    # 11 s of hold-up are over the SLO whether it is taken now or later.
    plan = planned(flow(11.0), [28e3] * 20)
    assert best(plan, settled(8, 0.0), 28e3) < 8


def test_a_shrink_has_to_save_what_the_batch_that_waits_for_executors_will_lose() -> None:
    """Four executors for a load that three carry, in a plan of 10 min: one fewer saves 600.

    If growing holds a batch up for 6 s, one of 8 s follows, of whose records 2 - 10/8 are late:
    8 x 0.75 x 80 = 480. With 9 s it is 11 x 1 x 80 = 880, and the fleet stays. Both only where the
    load may become more than three carry.
    """
    lost = {6.0: 480.0, 9.0: 880.0}
    for held_up_s, undo in lost.items():
        job = replace(batches(), rescale_s=held_up_s, shrink_s=0.0)
        assert best(planned(job, [20e3] * 20), settled(4), 20e3) == 3
        prices = replace(PRICES, undo=undo)
        plan = solve(job, prices, LoadScenarios(np.full((1, 20), 20e3)), STEPS_S)
        assert best(plan, settled(4), 20e3) == (3 if held_up_s == 6.0 else 4)
        rises = LoadScenarios(np.array([[20e3] * 20, [20e3] * 12 + [1e6] * 8]))
        sure, likely = (
            undo_costs(job, PRICES, rises, np.array(weights)) for weights in ([0, 1], [0.75, 0.25])
        )
        assert sure == pytest.approx([undo] * len(job.sizes), rel=1e-4)
        assert likely[2:] == pytest.approx([undo / 4.0] * len(job.sizes[2:]), rel=1e-4)
    weights = np.array([0.0, 1.0])
    assert not undo_costs(replace(batches(), rescale_s=2.0), PRICES, rises, weights).any()
    assert not undo_costs(flow(rescale_s=30.0), PRICES, rises, weights).any()


@pytest.mark.parametrize(
    ("grow_s", "deviation_rps", "cheapest"), [(1.0, 0.0, 2), (9.0, 0.0, 2), (9.0, 700.0, 3)]
)
def test_where_growing_holds_batches_up_the_policy_keeps_what_the_load_may_need(
    grow_s: float, deviation_rps: float, cheapest: int
) -> None:
    """1,200/s on three executors that do 1,000/s each; bins of 3 s, so that a plan has 95 s."""
    seen = dataclasses.replace(
        inputs(1_200.0, target=3, lag_s=2.0), trigger_s=2.0, rescale_s=grow_s, bin_s=3.0,
        load=Forecast([1_200.0] * BINS, [deviation_rps] * BINS, "test"),
    )  # fmt: skip
    sizes = [2, 3, 4]
    assert sizes[int(np.argmin(compare(seen, sizes).cost_s))] == cheapest


def test_who_is_late_grows_beyond_what_the_load_needs() -> None:
    plan = planned(flow(), [36e3] * 20)
    assert best(plan, settled(4, 40.0), 36e3) > 4


def test_executors_that_are_on_their_way_are_not_asked_for_again() -> None:
    plan = planned(batches(), [36e3] * 20)
    waiting = StartState(target=4, active=3, lag_s=3.0, startup_s=20.0, pending_s=5.0)
    assert best(plan, waiting, 36e3) == 4


def test_a_load_that_may_change_its_scenario_is_given_more_room() -> None:
    rates = np.array([[36e3] * 20, [44e3] * 20])
    weights = np.array([0.6, 0.4])
    unsure = solve(batches(), PRICES, LoadScenarios(rates, mixing(weights, 0.9)), STEPS_S)
    costs = weights @ first_costs(unsure, settled(4), rates[:, :1], 30.0)
    assert SIZES[int(np.argmin(costs))] == 5
    assert best(planned(batches(), [36e3] * 20), settled(4), 36e3) == 4


def test_scenarios_that_mix_at_once_are_worth_their_mean() -> None:
    rates = np.array([[30e3] * 20, [50e3] * 20])
    weights = np.array([0.5, 0.5])
    plan = solve(flow(), PRICES, LoadScenarios(rates, mixing(weights, 0.0)), STEPS_S)
    # Before a step nobody knows which scenario comes, so that both are worth the same.
    first = plan.values[0]
    assert first.shape == (2, 8, len(plan.lags_s))
    assert first[0] == pytest.approx(first[1])


@given(
    load=st.floats(1e3, 79e3),
    target=st.integers(1, 8),
    lag_s=st.floats(0.0, 100.0),
    is_flow=st.booleans(),
)
def test_every_state_has_a_finite_cost_that_grows_with_the_backlog(
    load: float, target: int, lag_s: float, is_flow: bool
) -> None:
    plan = planned(flow() if is_flow else batches(0.06), [load] * 20)
    costs = first_costs(plan, settled(target, lag_s), np.array([[load]]), 30.0)
    worse = first_costs(plan, settled(target, lag_s + 5.0), np.array([[load]]), 30.0)
    assert np.isfinite(costs).all()
    assert np.all(worse >= costs - 1e-6)


@pytest.mark.parametrize("load", [0.0, 1e-9, 1e12])
def test_loads_out_of_all_proportion_do_not_break_a_plan(load: float) -> None:
    plan = planned(batches(0.06), [load] * 20)
    costs = first_costs(plan, settled(4), np.array([[load]]), 30.0)
    assert np.isfinite(costs).all()


def test_a_job_without_a_trigger_interval_runs_batches_as_short_as_their_fixed_cost() -> None:
    job = JobModel(SIZES, 10_000.0 * SIZES, 0.25, 0.0, 0.3, 10.0, noise=0.06)
    assert lag_levels(job)[0] == 0.25
    # x = 0.25 + 0.5 x has its fixed point at 0.5 s.
    after = advance(job, np.array(0.0), np.array(5e3), np.array(1e4), np.array(60.0))
    assert after == pytest.approx(0.5, abs=0.01)
    assert late_share(job, np.array([0.0, 2.0])).tolist() == pytest.approx([0.0, 0.0])
    plan = planned(job, [36e3] * 20)
    assert best(plan, settled(4, 0.0), 36e3) == 4


def test_nothing_at_all_known_of_a_batch_still_gives_finite_costs() -> None:
    job = JobModel(SIZES, 10_000.0 * SIZES, 0.0, 0.0, 0.0, 10.0)
    costs = first_costs(planned(job, [36e3] * 20), settled(4, 0.0), np.array([[36e3]]), 30.0)
    assert np.isfinite(costs).all()


def test_without_a_delay_the_lag_follows_from_the_backlog() -> None:
    waiting = Snapshot(60.0, Fleet(2, 2, 2), arrival_rps=10_000.0, backlog_records=30_000.0)
    assert measured_lag_s(waiting) == 3.0
    assert measured_lag_s(Snapshot(60.0, Fleet(2, 2, 2), delay_s=7.0)) == 7.0


def test_growing_is_priced_with_its_own_hold_up_and_shrinking_with_its_own() -> None:
    """Records wait 7 s of the 10 s allowed. A batch that waits 8 s for new executors is late."""

    def costs(grow_s: float, shrink_s: float) -> list[float]:
        sizes = np.array([1.0, 2.0, 3.0])
        job = JobModel(sizes, 1e3 * sizes, 0.3, 2.0, grow_s, 10.0, shrink_s=shrink_s)
        now = StartState(target=2, active=2, lag_s=3.5, startup_s=30.0, pending_s=0.0)
        load = np.array([[600.0]])
        plan = solve(job, Prices(160.0, 60.0, 600.0), LoadScenarios(load), [120.0])
        return list(map(float, first_costs(plan, now, load, 30.0)[0]))

    cheap, dear, both = costs(0.3, 0.0), costs(8.0, 0.0), costs(8.0, 8.0)
    # Three for 30 s, then one is enough: three moves.
    assert cheap[2] == pytest.approx(3 * 30 + 3 * 60 + 120, abs=1.0)
    assert dear[2] > cheap[2] + 300.0
    assert dear[:2] == pytest.approx(cheap[:2])
    assert both[0] > dear[0] + 300.0
