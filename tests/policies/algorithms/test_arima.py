"""Forecasts of what will arrive, and how far they are believed."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.model import Fleet, Snapshot
from penstock.policies.algorithms import arima
from penstock.policies.algorithms.arima import (
    Trust,
    forecast_rps,
    line_rps,
    mean_rates,
    per_second,
    wape,
)

FLEET = Fleet(1, 1, 1)


def history(*points: tuple[float, float | None]) -> list[Snapshot]:
    return [Snapshot(at_s, FLEET, arrival_rps=rps) for at_s, rps in points]


def test_rates_are_cut_into_equal_bins() -> None:
    uneven = history((0.0, 0.0), (10.0, 60.0), (40.0, 90.0), (60.0, 30.0))
    # 600 + 20 x 90 in the first half minute, 10 x 90 + 20 x 30 in the second.
    assert mean_rates(uneven, 30.0).tolist() == [80.0, 50.0]


def test_the_rate_after_a_gap_covers_the_gap() -> None:
    assert mean_rates(history((0.0, 0.0), (30.0, None), (60.0, 80.0)), 30.0).tolist() == [
        80.0,
        80.0,
    ]


def test_a_clock_that_was_set_back_begins_a_new_past() -> None:
    jumped = history((3600.0, 999.0), (3660.0, 999.0), (60.0, 0.0), (120.0, 50.0))
    assert mean_rates(jumped, 60.0).tolist() == [50.0]


def test_a_snapshot_that_is_shown_twice_counts_once() -> None:
    assert mean_rates(history((0.0, 0.0), (60.0, 50.0), (60.0, 50.0)), 60.0).tolist() == [50.0]


def test_one_look_is_no_past() -> None:
    assert mean_rates(history((60.0, 50.0)), 60.0).tolist() == []
    assert forecast_rps(np.full(5, 10.0), 3) is None


def test_a_sine_is_continued() -> None:
    at_s = 60.0 * np.arange(75.0)
    load = 32_500.0 + 27_500.0 * np.sin(2.0 * np.pi * at_s / 10_800.0)
    ahead = forecast_rps(load[:60], 15)
    assert ahead is not None
    assert wape(load[60:].tolist(), ahead.tolist()) == pytest.approx(0.0, abs=1e-3)


def test_a_noisy_sine_is_foreseen_better_than_by_standing_still() -> None:
    random = np.random.default_rng(1)
    at_s = 60.0 * np.arange(360.0)
    load = 32_500.0 + 27_500.0 * np.sin(2.0 * np.pi * at_s / 10_800.0)
    load *= 1.0 + 0.007 * random.standard_normal(len(load))  # 5 % per second, over a minute
    ours, still = [], []
    for now in range(60, 340, 5):
        ahead = forecast_rps(load[now - 60 : now], 15)
        assert ahead is not None
        actual = load[now : now + 15].tolist()
        ours.append(wape(actual, ahead.tolist()))
        still.append(wape(actual, [float(load[now - 1])] * 15))
    assert np.mean(np.array(ours, dtype=float)) < 0.6 * np.mean(np.array(still, dtype=float))


@given(st.lists(st.floats(0.0, 1e6), min_size=10, max_size=80))
def test_a_forecast_is_never_negative_nor_far_beyond_the_past(rates: list[float]) -> None:
    past = np.array(rates)
    ahead = forecast_rps(past, 15)
    assert ahead is not None
    assert np.isfinite(ahead).all()
    assert (ahead >= 0.0).all()
    assert (ahead <= 2.0 * past.max()).all()


def test_a_constant_stays_and_nothing_stays_nothing() -> None:
    for level in (0.0, 700.0):
        ahead = forecast_rps(np.full(30, level), 15)
        assert ahead is not None
        assert ahead.tolist() == pytest.approx([level] * 15)


def test_the_line_continues_the_trend_and_stops_at_zero() -> None:
    assert line_rps(np.array([30.0, 20.0, 10.0]), 3).tolist() == [0.0, 0.0, 0.0]
    assert line_rps(np.array([10.0, 20.0]), 3).tolist() == [30.0, 40.0, 40.0]
    assert line_rps(np.array([7.0]), 2).tolist() == [7.0, 7.0]
    assert line_rps(np.empty(0), 2).tolist() == [0.0, 0.0]


def test_seconds_lie_on_lines_between_the_middles_of_bins() -> None:
    seconds = per_second(100.0, np.array([160.0, 220.0]), 60.0, 120)
    assert seconds[0] == pytest.approx(101.0)
    assert seconds[59] == pytest.approx(160.0 + 29.5)
    assert seconds[119] == 220.0


def test_no_arrivals_have_no_relative_error() -> None:
    assert wape([0.0], [5.0]) is None
    assert wape([10.0, 20.0, 30.0], [20.0, 20.0, 20.0]) == pytest.approx(1 / 3)


def test_trust_is_earned_by_a_promise_that_was_kept() -> None:
    assert not Trust().is_earned
    promised = Trust().with_promise([100.0])
    assert promised.judged([100.0], 0.0, 60.0).is_earned
    assert not promised.judged([80.0], 0.0, 60.0).is_earned  # 20 of 80 wrong
    assert promised.judged([81.0], 0.0, 60.0).is_earned
    assert Trust().judged([100.0], 0.0, 60.0) == Trust()


def test_a_promise_is_judged_measurement_by_measurement() -> None:
    # 40 + 40 of 400 wrong; the mean alone would have been right.
    promised = Trust().with_promise([140.0, 60.0, 100.0, 100.0])
    assert promised.judged([100.0] * 4, 0.0, 60.0).wape == pytest.approx(0.2)
    # One measurement is missing: only the means can be compared.
    assert promised.judged([100.0] * 3, 0.0, 60.0).wape == 0.0


def test_fifteen_poor_forecasts_in_a_row_make_it_forget_the_time_before_them() -> None:
    trust = Trust()
    for loop in range(15):
        assert trust.poor_forecasts == loop
        trust = trust.with_promise([125.0]).judged([100.0], 60.0 * loop, 60.0)
    assert trust.poor_forecasts == 0
    assert trust.trained_from_s == 840.0 - 900.0


def test_a_forecast_below_a_quarter_wrong_ends_the_row() -> None:
    poor = Trust(promised_rps=(125.0,)).judged([100.0], 0.0, 60.0)
    assert poor.poor_forecasts == 1
    assert poor.with_promise([124.0]).judged([100.0], 60.0, 60.0).poor_forecasts == 0


@pytest.mark.skipif(find_spec("statsforecast") is not None, reason="the extra is installed")
def test_without_the_extra_auto_arima_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match="extra 'arima'"):
        arima.auto_arima_rps(np.full(20, 1.0), 3)
    assert arima.auto_arima_rps(np.full(3, 1.0), 3) is None
