"""Recovery: predicted, found in a series, watched as it happens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Fleet, Snapshot
from penstock.policies.algorithms.recovery import (
    Downtime,
    Normal,
    Watch,
    catch_up_s,
    predicted_recovery_s,
    repeated_s,
)


def recovery_s(
    forecast: np.ndarray[tuple[int], np.dtype[np.float64]],
    capacity_rps: float,
    *,
    lag: float = 0.0,
    down_s: float = 30.0,
) -> int | None:
    return predicted_recovery_s(
        forecast,
        capacity_rps,
        arrival_rps=1000.0,
        lag_records=lag,
        downtime_s=down_s,
        checkpoint_interval_s=10.0,
    )


def test_downtime_is_counted_once() -> None:
    level = np.full(900, 1000.0)
    assert recovery_s(level, 2000.0) == 30 + 41
    assert recovery_s(level, 2000.0, down_s=15.0) == 15 + 26
    assert recovery_s(level, 2000.0, lag=50_000.0) == 30 + 91


def test_without_room_there_is_no_recovery() -> None:
    assert recovery_s(np.full(900, 1000.0), 1000.0) is None
    assert recovery_s(np.full(900, 1000.0), 1040.0) is None  # 40,000 records at 40/s: 1000 s


def test_load_above_capacity_adds_to_the_backlog() -> None:
    # 40 s at 1000 wait. 100 s above capacity add 100 x 500; then 90,000 go at 1000/s.
    forecast = np.concatenate([np.full(30, 1000.0), np.full(100, 2500.0), np.full(770, 1000.0)])
    assert recovery_s(forecast, 2000.0) == 130 + 91


@given(st.floats(1100.0, 9000.0), st.floats(0.0, 1e5))
def test_more_capacity_never_recovers_later(capacity_rps: float, lag: float) -> None:
    level = np.full(900, 1000.0)
    slower, faster = recovery_s(level, capacity_rps, lag=lag), recovery_s(level, 9500.0, lag=lag)
    assert faster is not None
    assert slower is None or faster <= slower


def phoebe_s(capacity_rps: float) -> float:
    return catch_up_s(
        np.full(601, 50e3),
        capacity_rps,
        arrival_rps=50e3,
        downtime_s=110.0,
        last_checkpoint_s=10.0,
    )


def test_phoebes_sum_is_the_geometric_series() -> None:
    # 120 s of work and a share of 1/4: 120 x (1/4 + 1/16 + 1/64 + 1/256).
    assert phoebe_s(200e3) == pytest.approx(110.0 + 39.84375)


def test_phoebes_sum_ends_before_the_forecast_does() -> None:
    share = 50 / 70
    assert phoebe_s(70e3) == pytest.approx(110.0 + 120.0 * share / (1.0 - share), abs=2.5)


def test_work_beyond_the_forecast_is_not_counted() -> None:
    assert phoebe_s(60e3) == pytest.approx(110.0 + 610.0 * 50 / 60)
    assert phoebe_s(10e3) == pytest.approx(110.0 + 610.0 * 5)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_what_is_usual_is_the_mean_and_the_standard_deviation(values: list[float]) -> None:
    usual = Normal()
    for value in values:
        usual = usual.seen(value)
    assert usual.mean == pytest.approx(np.mean(values), abs=1e-3)
    assert usual.deviation == pytest.approx(np.std(values), abs=1e-2)


def test_nothing_is_usual_before_anything_was_seen() -> None:
    assert Normal().deviation == 0.0
    assert Normal().is_unusual(1.0)
    assert not Normal().is_unusual(0.0)


def test_downtime_follows_what_was_measured_by_a_second() -> None:
    downtime = Downtime()
    assert downtime.of(grows=True) == 30.0
    assert downtime.of(grows=False) == 15.0
    assert downtime.corrected(True, measured_s=90.0, predicted_s=71.0) == Downtime(31.0, 15.0)
    assert downtime.corrected(False, measured_s=10.0, predicted_s=41.0) == Downtime(30.0, 14.0)
    assert downtime.corrected(False, measured_s=50.0, predicted_s=41.0) == Downtime(30.0, 16.0)
    assert Downtime(0.0, 0.0).corrected(True, 0.0, 5.0) == Downtime(0.0, 0.0)


def test_a_recovery_is_over_after_half_a_minute_of_calm() -> None:
    watch = Watch(100.0, True, 71.0)
    for at_s, unusual in ((115.0, False), (130.0, True), (145.0, True), (160.0, False)):
        watch = watch.seen(at_s - 15.0, at_s, unusual)
    assert watch.measured_s(160.0, give_up_s=180.0) is None
    assert watch.measured_s(175.0, give_up_s=180.0) is None
    assert watch.measured_s(190.0, give_up_s=180.0) == 30.0


def test_a_rescale_that_nobody_noticed_took_no_time() -> None:
    watch = Watch(100.0, False, 71.0)
    assert watch.measured_s(279.0, give_up_s=180.0) is None
    assert watch.measured_s(280.0, give_up_s=180.0) == 0.0


def test_a_job_without_checkpoints_repeats_nothing() -> None:
    fleet = Fleet(1, 1, 1)
    assert repeated_s(Snapshot(0.0, fleet, checkpoint_interval_s=0.0), 10.0) == 0.0
    both = Snapshot(0.0, fleet, trigger_interval_s=2.0, checkpoint_interval_s=5.0)
    assert repeated_s(both, 10.0) == 5.0
    assert repeated_s(Snapshot(0.0, fleet), 10.0) == 10.0
