"""The filters against answers worked out by hand and by the definitions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policies.thresholds.filters import (
    LEAST_NOISE_FRACTION,
    InputFit,
    KalmanStep,
    half_gaussian,
    kalman_step,
)
from tests.conformance.reference.studies import bootstrap, kalman_run

fractions = st.floats(0.0, 1.0)

MEASURED = [0.5, 0.52, 0.48, 0.7, 0.72, 0.71]
RATES = [100.0, 100.0, 100.0, 140.0, 140.0, 140.0]


def run(*, posterior_update: bool = True) -> list[KalmanStep]:
    """A series for equations 10 to 14 of Borkowski et al., with a and b given."""
    return kalman_run(
        MEASURED,
        RATES,
        a=0.0,
        b=0.005,
        x0=0.5,
        p0=0.01,
        q=0.001,
        r=0.01,
        posterior_update=posterior_update,
    )


def test_a_bootstrap_weighs_later_measurements_more() -> None:
    start = bootstrap([0.4, 0.5, 0.6], noise=0.001)
    # (1 * 0.4 + 2 * 0.5 + 3 * 0.6) / 6, and squares over 6 - 1
    assert start.x0 == pytest.approx(3.2 / 6, abs=1e-9)
    assert start.p0 == pytest.approx(0.033333333 / 5, abs=1e-9)
    assert start.q == pytest.approx(start.p0 - 0.001, abs=1e-12)


def test_one_measurement_starts_a_filter_with_the_noise_of_the_instrument() -> None:
    start = bootstrap([0.7], noise=0.01)
    assert (start.x0, start.p0, start.q) == (0.7, 0.01, 0.01 * LEAST_NOISE_FRACTION)


def test_no_measurement_cannot_start_a_filter() -> None:
    with pytest.raises(ValueError, match="without a measurement"):
        bootstrap([], noise=0.01)


@given(st.lists(fractions, min_size=2, max_size=60))
def test_the_running_bootstrap_equals_its_definition(measurements: list[float]) -> None:
    start = bootstrap(measurements, noise=0.001)
    weights = range(1, len(measurements) + 1)
    total = sum(weights)
    mean = sum(w * z for w, z in zip(weights, measurements, strict=True)) / total
    spread = sum(w * (z - mean) ** 2 for w, z in zip(weights, measurements, strict=True))
    assert start.x0 == pytest.approx(mean, abs=1e-9)
    assert start.p0 == pytest.approx(spread / (total - 1), abs=1e-9)
    assert start.q > 0.0


def test_a_kalman_run_gives_the_worked_numbers() -> None:
    steps = run()
    assert [round(step.prior, 6) for step in steps] == [0.5, 0.510476, 0.498768, 0.764414, 0.751141]
    assert [round(step.gain, 6) for step in steps] == [
        0.52381, 0.384164, 0.32622, 0.298846, 0.285125,
    ]  # fmt: skip
    assert [round(step.x, 6) for step in steps] == [
        0.510476,
        0.498768,
        0.564414,
        0.751141,
        0.739411,
    ]
    assert [round(step.p, 6) for step in steps] == [
        0.005238, 0.003842, 0.003262, 0.002988, 0.002851,
    ]  # fmt: skip


def test_without_the_posterior_update_the_gain_only_grows() -> None:
    steps = run(posterior_update=False)
    assert [round(step.p, 6) for step in steps] == [0.011, 0.012, 0.013, 0.014, 0.015]
    assert round(steps[-1].x, 6) == 0.729062


@given(fractions, st.floats(1e-6, 1.0), fractions, st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_an_estimate_lies_between_its_prediction_and_the_measurement(
    x: float, p: float, z: float, q: float, r: float
) -> None:
    step = kalman_step(x, p, z, q=q, r=r)
    assert min(x, z) - 1e-12 <= step.x <= max(x, z) + 1e-12
    assert 0.0 < step.p <= p + q


@given(fractions)
def test_a_filter_settles_on_a_constant(level: float) -> None:
    x, p = 0.0, 1.0
    for _ in range(200):
        step = kalman_step(x, p, level, q=0.001, r=0.01)
        x, p = step.x, step.p
    assert x == pytest.approx(level, abs=1e-6)


@given(
    st.floats(-0.01, 0.01),
    st.floats(-0.01, 0.01),
    st.lists(st.integers(1, 500), min_size=6, max_size=40, unique=True),
)
def test_a_fit_finds_the_coefficients_that_made_the_data(
    a: float, b: float, rates: list[int]
) -> None:
    fit = InputFit()
    for before, rate in pairwise(rates):
        change = rate - before
        fit = fit.learn(rate, change, moved=a * rate + b * change)
    found_a, found_b = fit.coefficients()
    assert found_a == pytest.approx(a, abs=1e-6)
    assert found_b == pytest.approx(b, abs=1e-6)


def test_a_fit_on_a_steady_rate_claims_nothing() -> None:
    fit = InputFit()
    for moved in (0.01, -0.01, 0.02):
        fit = fit.learn(100.0, 0.0, moved)
    assert fit.coefficients() == (0.0, 0.0)


def test_a_fit_whose_inputs_move_together_blames_the_change() -> None:
    fit = InputFit().learn(10.0, 10.0, 0.5)
    assert fit.coefficients() == (0.0, 0.05)


def test_the_half_gaussian_forgets_what_is_outside_its_window_or_in_the_future() -> None:
    samples = [(0.0, 9.0), (100.0, 1.0), (200.0, 9.0)]
    assert half_gaussian(samples, 101.0, variance_s2=9.0, window_s=60.0) == 1.0
    assert half_gaussian([], 0.0, variance_s2=9.0, window_s=60.0) is None


@given(fractions, st.integers(1, 120))
def test_the_half_gaussian_of_a_constant_is_that_constant(level: float, count: int) -> None:
    samples = [(i * 0.5, level) for i in range(count)]
    filtered = half_gaussian(samples, (count - 1) * 0.5, variance_s2=9.0, window_s=60.0)
    assert filtered == pytest.approx(level)
