"""Capacity from straight lines: exact sums, skew, and what is done while little is known."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policies.daedalus.regression import (
    RunningRegression,
    ScaleOuts,
    fleet_capacity_rps,
    full_cpu_fractions,
)
from tests.conformance.reference.studies import executor_capacities_rps

points = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1e5)), min_size=3, max_size=40
).filter(lambda pairs: float(np.ptp([x for x, _ in pairs])) > 0.05)


@given(points)
def test_sample_by_sample_gives_the_least_squares_line(pairs: list[tuple[float, float]]) -> None:
    xs, ys = zip(*pairs, strict=True)
    slope, intercept = np.polyfit(xs, ys, 1)
    line = RunningRegression.through(xs, ys)
    assert line.at(1.0) == pytest.approx(slope + intercept, rel=1e-6, abs=1e-3)
    assert line.intercept == pytest.approx(intercept, rel=1e-6, abs=1e-3)


def test_a_borrowed_slope_is_not_blurred_by_executors_that_differ() -> None:
    # All rise by 1,000 per cpu; the second always shows 0.1 more cpu.
    first = RunningRegression.through([0.4, 0.6], [400.0, 600.0])
    second = RunningRegression.through([0.5, 0.7], [400.0, 600.0])
    for line, full_rps in ((first, 1000.0), (second, 900.0)):
        assert line.sloping_as([first, second, RunningRegression()]).at(1.0) == pytest.approx(
            full_rps
        )


def test_the_line_does_not_lose_digits_far_from_zero() -> None:
    cpu = [0.7 + 1e-4 * i for i in range(100)]
    line = RunningRegression.through(cpu, [1e9 + 1e4 * x for x in cpu])
    assert line.slope == pytest.approx(1e4, rel=1e-3)


def test_the_error_is_that_of_the_textbook() -> None:
    cpu, rps = np.array([0.1, 0.3, 0.4, 0.7]), np.array([120.0, 280.0, 430.0, 690.0])
    slope, intercept = np.polyfit(cpu, rps, 1)
    spread = ((rps - intercept - slope * cpu) ** 2).sum() / 2.0
    expected = np.sqrt(spread * (1.0 / 4.0 + (1.0 - cpu.mean()) ** 2 / cpu.var() / 4.0))
    assert RunningRegression.through(cpu, rps).error_at(1.0) == pytest.approx(float(expected))


def test_a_line_without_spread_is_level_and_not_firm() -> None:
    line = RunningRegression.through([0.5] * 10, [100.0] * 10)
    assert (line.slope, line.at(1.0)) == (0.0, 100.0)
    assert line.error_at(1.0) == inf
    assert not line.is_firm_at(1.0)
    assert not RunningRegression().is_firm_at(1.0)


def test_a_cloud_is_not_a_line() -> None:
    cloud = RunningRegression.through([0.5, 0.6, 0.5, 0.6], [10.0, 10.0, 20.0, 21.0])
    assert not cloud.is_firm_at(1.0)


def test_cpu_that_varies_at_a_steady_load_makes_no_line() -> None:
    # Cpu is off by up to 2 % of 0.55, throughput by 3 of 7,500: a line through that is level, and
    # would say that 7,500/s is all that full cpu gives.
    steady = RunningRegression.through(
        [0.54, 0.56, 0.55, 0.56, 0.54], [7500.0, 7501.0, 7503.0, 7499.0, 7500.0]
    )
    assert steady.slope == pytest.approx(0.0, abs=60.0)
    assert steady.error_at(1.0) < 0.03 * steady.at(1.0)
    assert not steady.is_firm_at(1.0)
    assert fleet_capacity_rps([steady]) == 13_637  # 7,500.6 / 0.55


def test_a_line_is_firm_near_its_points_and_not_far_away() -> None:
    line = RunningRegression.through([0.50, 0.52, 0.54, 0.56], [500.0, 525.0, 535.0, 560.0])
    assert line.is_firm_at(0.6)
    assert not line.is_firm_at(1.0)


def test_a_falling_line_says_nothing_about_capacity() -> None:
    falling = RunningRegression.through([0.2, 0.3, 0.4, 0.5], [40.0, 30.0, 20.0, 10.0])
    assert falling.error_at(1.0) == pytest.approx(0.0, abs=1e-6)
    assert not falling.is_firm_at(1.0)


def test_executors_that_get_less_work_stay_behind_when_the_busiest_is_full() -> None:
    assert full_cpu_fractions([0.8, 0.6]) == pytest.approx([1.0, 0.75])
    assert full_cpu_fractions([0.8, 0.6], full=0.9) == pytest.approx([0.9, 0.675])
    busiest = RunningRegression.through([0.7, 0.9], [700.0, 900.0])
    behind = RunningRegression.through([0.5, 0.7], [500.0, 700.0])
    assert executor_capacities_rps([busiest, behind]) == [1000, 750]
    assert full_cpu_fractions([]) == []
    assert full_cpu_fractions([0.0, 0.0]) == [1.0, 1.0]


def test_skew_by_a_difference_is_that_of_the_published_code() -> None:
    assert full_cpu_fractions([0.8, 0.6], skew="additive") == pytest.approx([1.0, 0.8])
    assert full_cpu_fractions([0.8, 0.6], 0.9, "additive") == pytest.approx([0.9, 0.7])


def test_half_as_busy_is_half_the_capacity() -> None:
    # 10,000/s at full cpu each; one gets half of the keys of the other, so it is half as busy at
    # any load: 10,000 + 5,000. Behind by the same difference, it would count as 0.875 full.
    lines = [
        RunningRegression.through([0.2, 0.24, 0.26, 0.3], [2000.0, 2400.0, 2600.0, 3000.0]),
        RunningRegression.through([0.1, 0.12, 0.13, 0.15], [1000.0, 1200.0, 1300.0, 1500.0]),
    ]
    assert fleet_capacity_rps(lines) == 15_000
    assert fleet_capacity_rps(lines, skew="additive") == 18_750


def test_an_unknown_executor_borrows_the_slope_of_the_fleet() -> None:
    known = RunningRegression.through([0.2, 0.4, 0.6, 0.8], [100.0, 300.0, 500.0, 700.0])
    fresh = RunningRegression.through([0.5], [400.0])
    # Both are on the line 1000 cpu - 100 and equally busy, so both carry 900.
    assert fleet_capacity_rps([known, fresh]) == 1800


def test_proportion_counts_only_where_it_is_fair() -> None:
    fresh = RunningRegression.through([0.4], [300.0])
    assert fleet_capacity_rps([fresh]) == 750
    assert fleet_capacity_rps([fresh], least_cpu=0.4) == 750
    assert fleet_capacity_rps([fresh], least_cpu=0.7) is None
    assert fleet_capacity_rps([RunningRegression.through([0.0], [0.0])]) == 0


def test_a_line_through_close_points_promises_no_miracle() -> None:
    steep = RunningRegression.through([0.5, 0.5005, 0.501, 0.5015], [400.0, 500.0, 600.0, 700.0])
    assert steep.at(1.0) > 90_000.0
    assert fleet_capacity_rps([steep]) == 2196  # twice 550 / 0.50075


def test_seen_sizes_count_as_seen_and_others_in_proportion() -> None:
    table = ScaleOuts().seen(4, 40_000)
    assert [table.capacity_rps(n) for n in (0, 2, 4, 8)] == [0, 20_000, 40_000, 80_000]
    table = table.seen(2, 25_000)
    assert [table.capacity_rps(n) for n in (1, 2, 4, 8)] == [12_500, 25_000, 40_000, 100_000]
    assert table.seen(2, 15_000).capacity_rps(2) == 20_000
    assert table.up_to(4) == [0, 12_500, 25_000, 37_500, 40_000]


def test_an_empty_table_knows_nothing() -> None:
    assert ScaleOuts().capacity_rps(3) == 0
    assert ScaleOuts().up_to(2) == [0, 0, 0]


def test_the_table_forgets_the_farthest_size_when_it_is_full() -> None:
    table = ScaleOuts()
    for executors in (1, 5, 6, 7):
        table = table.seen(executors, 1000 * executors, most=3)
    assert [row.executors for row in table.observed] == [5, 6, 7]
