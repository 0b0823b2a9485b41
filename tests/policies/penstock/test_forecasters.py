"""Forecasters against series whose future is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.policies.penstock.forecasters import (
    autoregression,
    drift,
    find_period,
    forecast,
    naive,
    seasonal,
    since_shift,
)

Array = NDArray[np.float64]


def wave(count: int, period: float = 40.0) -> Array:
    return np.asarray(100.0 + 50.0 * np.sin(2.0 * np.pi * np.arange(count) / period))


def test_naive_repeats_the_mean_of_the_last_two() -> None:
    assert naive(np.array([[1.0, 4.0, 6.0]]), 3).tolist() == [[5.0, 5.0, 5.0]]


def test_drift_follows_a_line_and_flattens() -> None:
    line = 10.0 * np.arange(12.0)[None, :]
    ahead = drift(line, 3, damping=0.9)[0]
    # The last value is 110; steps of 9, 8.1 and 7.29 follow.
    assert ahead.tolist() == pytest.approx([119.0, 127.1, 134.39])


def test_seasonal_repeats_the_last_period_shifted_to_where_it_is_now() -> None:
    past = np.array([[1.0, 2.0, 3.0, 4.0, 11.0, 12.0, 13.0, 14.0]])
    ahead = seasonal(past, 5, period=4)[0]
    assert ahead.tolist() == pytest.approx([21.0, 22.0, 23.0, 24.0, 21.0])


@pytest.mark.parametrize("period", [10, 26, 34.67])
def test_a_period_is_found_in_a_square_wave_with_noise(period: float) -> None:
    rng = np.random.default_rng(5)
    at = np.arange(150)
    square = np.where(at % period < period / 2.0, 20.0, 100.0) + rng.standard_normal(150)
    found = find_period(square)
    assert found is not None
    # Any multiple of a period is one as well.
    assert found / period == pytest.approx(round(found / period), abs=0.03)


def test_noise_has_no_period() -> None:
    assert find_period(np.random.default_rng(2).standard_normal(150)) is None


def test_steps_that_come_back_are_foreseen_though_they_are_shifts() -> None:
    rng = np.random.default_rng(4)
    steps = (np.tile([20.0] * 12 + [100.0] * 12, 4) + rng.standard_normal(96)).tolist()
    made = forecast(steps, 15)
    assert made.model == "seasonal"
    # An edge may come a bin early, so that is where it is expected.
    assert made.mean == pytest.approx([20.0] * 11 + [100.0] * 4, abs=5.0)


def test_autoregression_continues_a_wave() -> None:
    predict = autoregression(wave(160), order=12)
    ahead = predict(wave(160)[None, :], 40)[0]
    assert np.abs(ahead - wave(200)[160:]).max() < 2.0


def test_autoregression_does_not_leave_what_was_ever_seen_by_far() -> None:
    climbing = 2.0 ** np.arange(12.0)
    ahead = autoregression(climbing, order=3)(climbing[None, :], 50)[0]
    assert ahead.max() <= 1.5 * climbing.max() + 1e-6


def test_a_wave_that_was_seen_less_than_twice_is_continued_by_autoregression() -> None:
    seen, truth = wave(70), wave(90)[70:]
    made = forecast(seen.tolist(), 20)
    assert made.model == "autoregression"
    unchanged = naive(seen[None, :], 20)[0]
    assert np.abs(np.array(made.mean) - truth).mean() < 0.1 * np.abs(unchanged - truth).mean()


def test_the_deviation_tells_how_far_off_it_will_be() -> None:
    rng = np.random.default_rng(7)
    noisy = wave(170) + 4.0 * rng.standard_normal(170)
    made = forecast(noisy[:150].tolist(), 20)
    assert 3.0 < made.deviation[0] < 8.0
    off = np.abs(np.array(made.mean) - noisy[150:]) / np.array(made.deviation)
    assert np.mean(off < 2.0) >= 0.8


def test_deviation_never_shrinks_with_the_distance() -> None:
    rng = np.random.default_rng(3)
    walk = 100.0 + np.cumsum(rng.standard_normal(120))
    deviation = forecast(walk.tolist(), 30).deviation
    assert len(deviation) == 30
    assert deviation == sorted(deviation)


def test_a_shift_makes_the_past_worthless() -> None:
    made = forecast([10.0, 11.0] * 20 + [90.0, 91.0], 3)
    assert made.mean == [90.5] * 3
    assert made.model == "naive"


def test_noise_alone_is_no_shift() -> None:
    rng = np.random.default_rng(1)
    values = 100.0 + 5.0 * rng.standard_normal(100)
    assert len(since_shift(values)) == 100


def test_the_same_values_give_the_same_forecast() -> None:
    values = wave(90).tolist()
    assert forecast(values, 10) == forecast(list(values), 10)


@pytest.mark.parametrize("values", [[], [5.0], [0.0] * 40, [7.0] * 200], ids=str)
def test_short_empty_and_constant_pasts_have_a_forecast(values: list[float]) -> None:
    made = forecast(values, 4)
    assert made.mean == [values[-1] if values else 0.0] * 4


@given(st.lists(st.floats(0.0, 1e7), max_size=60), st.integers(1, 31))
def test_a_forecast_is_finite_and_never_negative(values: list[float], steps: int) -> None:
    made = forecast(values, steps)
    assert len(made.mean) == len(made.deviation) == steps
    assert all(0.0 <= one < np.inf for one in [*made.mean, *made.deviation])
    assert all(low <= high for low, high in zip(made.quantile(-1), made.quantile(1), strict=True))


def one_wave(flat_before: int, rises_and_falls: int, flat_after: int) -> list[float]:
    """400/s, once up to 3.4 k/s and down again, then 400/s."""
    along = np.arange(rises_and_falls) / rises_and_falls
    turn = 1500.0 * (1.0 - np.cos(2.0 * np.pi * along))
    return [400.0 + more for more in (*[0.0] * flat_before, *turn.tolist(), *[0.0] * flat_after)]


@pytest.mark.parametrize("length", [20, 30, 60])
@pytest.mark.parametrize("after", [2, 4, 8, 16])
def test_one_wave_does_not_promise_a_second(length: int, after: int) -> None:
    assert max(forecast(one_wave(10, length, after), 20).mean) <= 410.0


def test_nor_is_its_fall_expected_to_turn() -> None:
    falling = one_wave(10, 30, 0)[:-5]
    assert max(forecast(falling, 20).mean) <= falling[-2]


def test_a_second_wave_is_expected_to_go_on() -> None:
    values = [*one_wave(10, 30, 10), *one_wave(0, 30, 0)[:8]]
    ahead = forecast(values, 6).mean
    assert ahead[-1] > values[-1]


def test_a_wave_that_was_seen_to_return_is_forecast_to() -> None:
    """A sine of 40 bins, five bins before its fourth trough: the load rises within 20 bins."""
    values = wave(146).tolist()
    assert values[-1] < values[-2]
    assert max(forecast(values, 20).mean) > 1.5 * values[-1]
