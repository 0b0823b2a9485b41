"""Tests, correlations, lines and quantiles of small samples against known values."""

from __future__ import annotations

from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.lab.experiments.statistics import (
    STUDENT_95,
    Ecdf,
    mean,
    regression,
    scipy_stats,
    spearman,
    welch_p,
)

values = st.floats(-1e4, 1e4).filter(lambda value: value == 0.0 or abs(value) > 1e-6)
samples = st.lists(values, min_size=2, max_size=30)
pairs = st.lists(st.tuples(values, values), min_size=2, max_size=20)


def test_the_table_of_students_t_is_that_of_scipy() -> None:
    points = scipy_stats().t.ppf(0.975, range(1, len(STUDENT_95) + 1))
    assert pytest.approx(points, abs=0.006) == list(STUDENT_95)


def test_welch_on_a_worked_example() -> None:
    # Means 3 and 7, variances 2.5 and 10, five each: t = -4 / sqrt(2.5) with 5.88 degrees.
    assert 0.04 < welch_p([1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 5.0, 7.0, 9.0, 11.0]) < 0.05


def test_welch_repeats_the_one_pair_that_the_ekf_study_could_not_tell_apart() -> None:
    # Square, VM time: 9.0 (0.2) against 9.2 (0.5), 20 runs each; the paper prints p = 0.1092.
    flat = [-1.0, 1.0] * 10
    scale = stdev(flat)
    p = welch_p([9.0 + 0.2 / scale * z for z in flat], [9.2 + 0.5 / scale * z for z in flat])
    assert p == pytest.approx(0.1092, abs=0.003)


@given(samples, samples)
def test_welch_treats_both_sides_alike(left: list[float], right: list[float]) -> None:
    p = welch_p(left, right)
    assert 0.0 <= p <= 1.0
    assert p == welch_p(right, left)


def test_samples_without_variance_differ_for_certain_or_not_at_all() -> None:
    assert welch_p([2.0, 2.0], [2.0, 2.0]) == 1.0
    assert welch_p([2.0, 2.0], [3.0, 3.0]) == 0.0


def test_spearman_agrees_with_the_formula_of_squared_rank_differences_where_none_tie() -> None:
    # Ranks (1,2,3,4,5) and (2,1,4,3,5): d = 1,1,1,1,0, so 1 - 6 x 4 / (5 x 24) = 0.8.
    assert spearman([(1.0, 20.0), (2.0, 10.0), (3.0, 40.0), (4.0, 30.0), (5.0, 50.0)]) == 0.8


@given(pairs)
def test_a_rank_correlation_is_symmetric_and_lies_between_minus_one_and_one(
    some: list[tuple[float, float]],
) -> None:
    value = spearman(some)
    assert -1.0 <= value <= 1.0
    assert value == spearman([(right, left) for left, right in some])


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=20, unique=True))
def test_only_the_order_counts_for_a_rank_correlation(some: list[int]) -> None:
    assert spearman([(float(v), float(v) ** 3) for v in some]) == 1.0
    assert spearman([(float(v), -float(v)) for v in some]) == -1.0


def test_a_side_without_any_order_correlates_with_nothing() -> None:
    assert spearman([(1.0, 7.0), (2.0, 7.0)]) == 0.0


def test_an_interval_of_a_slope_covers_it_and_narrows_with_more_points() -> None:
    # y = 2 x with errors of +-0.1 in turn.
    few = regression(range(4), [2.0 * x + (-0.1) ** (x % 2 + 1) for x in range(4)])
    many = regression(range(40), [2.0 * x + (-0.1) ** (x % 2 + 1) for x in range(40)])
    assert few.slope_low < 2.0 < few.slope_high
    assert many.slope_high - many.slope_low < few.slope_high - few.slope_low
    assert many.p < 1e-6


@given(st.lists(values, min_size=1, max_size=40), st.floats(0.0, 1.0))
def test_a_quantile_is_the_smallest_value_with_enough_below(
    sample: list[float], part: float
) -> None:
    distribution = Ecdf.of(sample)
    quantile = distribution.quantile(part)
    assert quantile in sample
    assert distribution.at(quantile) >= part - 1e-9
    assert all(distribution.at(value) < part + 1e-9 for value in sample if value < quantile)


def test_a_quantile_does_not_stumble_over_rounding() -> None:
    assert Ecdf.of([float(i) for i in range(1, 101)]).quantile(0.29) == 29.0


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="a mean needs at least one"):
        mean([])
    with pytest.raises(ConfigError, match="a distribution needs at least one"):
        Ecdf.of([])
    with pytest.raises(ConfigError, match="at least two pairs, not 1"):
        spearman([(1.0, 2.0)])
    for xs in ([1.0, 1.0, 1.0], [1.0, 2.0]):
        with pytest.raises(ConfigError, match="at least three points"):
            regression(xs, [1.0, 2.0, 3.0][: len(xs)])
