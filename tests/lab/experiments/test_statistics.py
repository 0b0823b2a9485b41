"""Welch's test, Student's t and the incomplete beta function against known values."""

from __future__ import annotations

from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.lab.experiments.statistics import (
    Ecdf,
    deviation,
    incomplete_beta,
    mean,
    student_two_sided,
    variance,
    wape,
    welch,
)

shapes = st.floats(0.05, 300.0)
values = st.floats(-1e4, 1e4)
samples = st.lists(values, min_size=2, max_size=30)


@pytest.mark.parametrize(
    ("degrees", "t", "p"),
    [
        # The two-sided points of Student's table.
        (1, 12.7062047364, 0.05),
        (2, 4.30265272970, 0.05),
        (5, 4.03214298356, 0.01),
        (10, 2.22813885196, 0.05),
        (10, 3.16927266685, 0.01),
        (30, 2.04227245630, 0.05),
        (30, 3.64595864, 0.001),
        (120, 1.97993040505, 0.05),
    ],
)
def test_students_table_comes_out(degrees: float, t: float, p: float) -> None:
    assert student_two_sided(t, degrees) == pytest.approx(p, rel=1e-6)
    assert student_two_sided(-t, degrees) == student_two_sided(t, degrees)


@given(st.floats(0.0, 1e3))
def test_with_two_degrees_of_freedom_the_closed_form_comes_out(t: float) -> None:
    # P(|T| > t) = 1 - t / sqrt(2 + t^2), which loses digits where t is large: hence the form.
    root = sqrt(2.0 + t * t)
    assert student_two_sided(t, 2.0) == pytest.approx(2.0 / (root * (root + t)), rel=1e-9)


def test_with_many_degrees_of_freedom_t_is_normal() -> None:
    assert student_two_sided(1.959963985, 1e7) == pytest.approx(0.05, rel=1e-5)


def test_a_t_of_zero_says_nothing_and_an_infinite_one_everything() -> None:
    assert student_two_sided(0.0, 7.0) == 1.0
    assert student_two_sided(-inf, 7.0) == 0.0


@given(st.floats(0.0, 1.0), shapes, shapes)
def test_the_incomplete_beta_function_is_symmetric_and_stays_between_0_and_1(
    x: float, a: float, b: float
) -> None:
    value = incomplete_beta(x, a, b)
    assert -1e-12 <= value <= 1.0 + 1e-12
    assert value == pytest.approx(1.0 - incomplete_beta(1.0 - x, b, a, complement=x), abs=1e-9)


@given(st.floats(0.0, 1.0), shapes)
def test_with_one_shape_of_1_the_incomplete_beta_function_is_a_power(x: float, a: float) -> None:
    assert incomplete_beta(x, a, 1.0) == pytest.approx(x**a, rel=1e-9, abs=1e-250)


def test_whole_shapes_give_the_chance_of_at_least_so_many_successes() -> None:
    # I_x(k, n - k + 1) = P(Binomial(n, x) >= k): at least 2 of 3 at 0.3 is 3 x 0.09 x 0.7 + 0.027.
    assert incomplete_beta(0.3, 2.0, 2.0) == pytest.approx(0.216, rel=1e-12)


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs 0 <= x <= 1"):
        incomplete_beta(1.5, 1.0, 1.0)


def test_welch_on_a_worked_example() -> None:
    # Means 3 and 7, variances 2.5 and 10, five each: t = -4 / sqrt(0.5 + 2), degrees =
    # 2.5^2 / (0.25/4 + 4/4).
    test = welch([1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 5.0, 7.0, 9.0, 11.0])
    assert test.t == pytest.approx(-4.0 / sqrt(2.5))
    assert test.degrees == pytest.approx(6.25 / 1.0625)
    assert 0.04 < test.p < 0.05


def test_welch_repeats_the_one_pair_that_the_ekf_study_could_not_tell_apart() -> None:
    # Square, VM time: 9.0 (0.2) against 9.2 (0.5), 20 runs each; the paper prints p = 0.1092.
    flat = [-1.0, 1.0] * 10
    scale = deviation(flat)
    test = welch([9.0 + 0.2 / scale * z for z in flat], [9.2 + 0.5 / scale * z for z in flat])
    assert test.p == pytest.approx(0.1092, abs=0.003)


@given(samples, samples)
def test_welch_treats_both_sides_alike(left: list[float], right: list[float]) -> None:
    there, back = welch(left, right), welch(right, left)
    assert there.t == -back.t
    assert there.p == back.p
    assert 0.0 <= there.p <= 1.0


def test_samples_without_spread_differ_for_certain_or_not_at_all() -> None:
    assert welch([2.0, 2.0], [2.0, 2.0]).p == 1.0
    assert welch([2.0, 2.0], [3.0, 3.0]).p == 0.0
    assert welch([4.0, 4.0], [3.0, 3.0]).t == inf


def test_mean_and_variance_need_enough_values() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        mean([])
    with pytest.raises(ConfigError, match="at least two"):
        variance([1.0])


@given(st.lists(values, min_size=1, max_size=40), st.floats(0.0, 1.0))
def test_a_quantile_is_the_smallest_value_with_enough_below(
    sample: list[float], part: float
) -> None:
    staircase = Ecdf.of(sample)
    quantile = staircase.quantile(part)
    assert quantile in sample
    assert staircase.at(quantile) >= part - 1e-9
    assert all(staircase.at(value) < part + 1e-9 for value in sample if value < quantile)


def test_a_quantile_does_not_stumble_over_rounding() -> None:
    assert Ecdf.of([float(i) for i in range(1, 101)]).quantile(0.29) == 29.0


def test_a_weighted_error_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="not 0"):
        wape([0.0], [1.0])
    with pytest.raises(ConfigError, match="held against"):
        wape([1.0], [1.0, 2.0])
    with pytest.raises(ConfigError, match="at least one"):
        Ecdf.of([])
