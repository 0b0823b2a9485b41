"""Scores are exact: worked by hand, and against a record-by-record count."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.lab.experiments.score import Delays, score
from penstock.settings.goal import Goal
from penstock.simulation.engines.engine import Curve, Level, Outcome


def outcome(
    arrivals: Curve,
    departures: Curve,
    duration_s: float,
    paid: list[Level] | None = None,
    targets: list[Level] | None = None,
) -> Outcome:
    levels = [Level(0.0, 4)]
    return Outcome(duration_s, arrivals, departures, paid or levels, targets or levels)


def test_cost_is_the_sum_of_executors_lateness_and_moves() -> None:
    # 100 records in 100 s. The first 50 leave at once, the rest together at the end (100 s): they
    # waited 50 s down to 0 s, so 40 of 100 waited longer than 10 s.
    arrivals = Curve([0.0, 100.0], [0.0, 100.0])
    departures = Curve([0.0, 50.0, 100.0, 100.0], [0.0, 50.0, 50.0, 100.0])
    paid = [Level(0.0, 4), Level(50.0, 8)]
    targets = [Level(0.0, 4), Level(50.0, 8), Level(60.0, 7)]
    result = score(
        outcome(arrivals, departures, 100.0, paid, targets),
        Goal(slo_s=10.0, warmup_s=0.0),
        max_executors=16,
    )
    assert result.late_fraction == pytest.approx(0.4)
    assert result.executor_hours == pytest.approx((4 * 50 + 8 * 50) / 3600)
    assert result.mean_executors == pytest.approx(6.0)
    assert (result.rescales, result.moved_executors) == (2, 5)
    # 600/3600 executor-hours + 0.4 x 10 x 16 x 100/3600 + 5/60
    assert result.cost == pytest.approx(600 / 3600 + 0.4 * 10 * 16 * 100 / 3600 + 5 / 60)
    assert result.p50_s == pytest.approx(0.0, abs=1e-5)
    assert result.p95_s == pytest.approx(45.0, abs=1e-5)
    assert result.max_s == pytest.approx(50.0)


def test_the_warm_up_is_run_but_not_scored() -> None:
    arrivals = Curve([0.0, 1000.0], [0.0, 1000.0])
    # Everything of the first 500 s leaves at 500 s (late); after that nothing waits.
    departures = Curve([0.0, 500.0, 500.0, 1000.0], [0.0, 0.0, 500.0, 1000.0])
    targets = [Level(0.0, 4), Level(100.0, 9), Level(700.0, 8)]
    result = score(outcome(arrivals, departures, 1000.0, targets=targets), Goal(), 16)
    assert result.late_fraction == 0.0
    assert result.executor_hours == pytest.approx(4 * 400 / 3600)
    assert (result.rescales, result.moved_executors) == (1, 1)


def test_records_that_still_wait_count_with_their_age() -> None:
    arrivals = Curve([0.0, 10.0], [0.0, 10.0])
    departures = Curve([0.0, 10.0], [0.0, 0.0])
    delays = Delays.of(outcome(arrivals, departures, 30.0))
    # Arrived at 0..10 s and still there at 30 s: ages 20..30 s.
    assert delays.longest() == pytest.approx(30.0)
    assert delays.fraction_above(25.0) == pytest.approx(0.5)


def test_a_silent_run_has_no_delay() -> None:
    silent = Curve([0.0, 100.0], [0.0, 0.0])
    result = score(outcome(silent, silent, 100.0), Goal(warmup_s=0.0), 16)
    assert (result.late_fraction, result.p99_s, result.max_s) == (0.0, 0.0, 0.0)


def test_a_run_shorter_than_its_warm_up_is_refused() -> None:
    silent = Curve([0.0, 100.0], [0.0, 0.0])
    with pytest.raises(ConfigError, match="100 s is not longer than the warm-up of 600 s"):
        score(outcome(silent, silent, 100.0), Goal(), 16)


def test_negative_prices_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"price must be finite and not negative, not -1\.0"):
        Goal(price=-1.0)


@given(
    rates=st.lists(st.integers(0, 20), min_size=2, max_size=30),
    served=st.lists(st.integers(0, 25), min_size=2, max_size=30),
    threshold=st.sampled_from([0.25, 1.3, 4.7]),
)
def test_delays_agree_with_counting_small_slices_of_records(
    rates: list[int], served: list[int], threshold: float
) -> None:
    seconds = min(len(rates), len(served))
    arrived, gone = [0.0], [0.0]
    for rate, capacity in zip(rates[:seconds], served[:seconds], strict=True):
        arrived.append(arrived[-1] + rate)
        gone.append(min(gone[-1] + capacity, arrived[-1]))
    # Within a second departures may run ahead of arrivals on paper: shift them by one second.
    at_s = [float(second) for second in range(seconds + 1)]
    departures = Curve([0.0, *(at + 1.0 for at in at_s)], [0.0, *gone])
    delays = Delays.of(outcome(Curve(at_s, arrived), departures, seconds + 1.0))
    slices = 400
    total = arrived[-1]
    late = sum(
        _passes(departures, x, seconds + 1.0) - _passes(Curve(at_s, arrived), x, 0.0) > threshold
        for x in ((k + 0.5) * total / slices for k in range(slices))
    )
    expected = late / slices if total else 0.0
    assert delays.fraction_above(threshold) == pytest.approx(expected, abs=0.02)


def _passes(curve: Curve, record: float, otherwise: float) -> float:
    """When a curve passes a record, by walking along it."""
    points = list(zip(curve.at_s, curve.records, strict=True))
    for (at, low), (until, high) in itertools.pairwise(points):
        if low <= record < high:
            return at + (until - at) * (record - low) / (high - low)
    return otherwise
