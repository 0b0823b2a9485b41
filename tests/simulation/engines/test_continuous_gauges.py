"""What the gauges of the Flink-like engine show."""

from __future__ import annotations

import pytest

from penstock.simulation.engines.continuous import ContinuousJob
from tests.simulation.engines.plain_flow import PLAIN, backlog, run


def test_busy_idle_and_backpressured_time_add_up_to_one() -> None:
    engine = run([1500.0] * 60 + [5000.0] * 120)
    for at_s in range(15, 180, 15):
        for operator in engine.read(float(at_s)).operators:
            parts = (
                operator.busy_fraction,
                operator.idle_fraction,
                operator.backpressured_fraction,
            )
            assert sum(part for part in parts if part is not None) == pytest.approx(1.0)


def test_only_what_feeds_the_full_operator_is_held_back() -> None:
    engine = run([5000.0] * 60)
    source, middle, window = engine.read(60.0).operators
    assert (source.backpressured_fraction, source.busy_fraction) == pytest.approx((0.6, 0.4))
    assert (middle.backpressured_fraction, middle.busy_fraction) == pytest.approx((0.4, 0.6))
    assert (window.backpressured_fraction, window.busy_fraction) == pytest.approx((0.0, 1.0))
    assert source.backlog_records == pytest.approx(60 * 3000.0)
    assert (window.input_rps, window.output_rps) == pytest.approx((2000.0, 200.0))


def test_the_true_rate_of_the_fullest_operator_is_the_capacity_at_any_load() -> None:
    engine = run([600.0] * 60 + [1800.0] * 60)
    for at_s in (60.0, 120.0):
        window = engine.read(at_s).operators[2]
        assert window.input_rps is not None
        assert window.busy_fraction is not None
        # Whatever the scale of the gauges, the two belong together.
        assert window.input_rps / window.busy_fraction == pytest.approx(2000.0)
        assert window.service_time_s == pytest.approx(1e-3)
        assert window.tasks == 2


def test_cpu_rises_from_idle_to_full_with_the_load() -> None:
    engine = run([0.0] * 60 + [1000.0] * 60 + [5000.0] * 60)
    engine.read(0.0)
    cpu = [engine.read(at_s).executors[0].cpu_fraction for at_s in (60.0, 120.0, 180.0)]
    assert cpu == pytest.approx([0.08, (0.08 + 0.98) / 2, 0.98])


def test_a_full_fleet_is_at_its_cpu_limit() -> None:
    for seed in range(5):
        engine = run([90_000.0] * 60, executors=8, job=ContinuousJob(), seed=seed)
        cpu = [one.cpu_fraction or 0.0 for one in engine.read(60.0).executors]
        assert 0.98 < min(cpu) <= max(cpu) <= 1.0


def test_a_restart_shows_as_a_burst_of_cpu() -> None:
    engine = run([200.0] * 60)
    engine.read(20.0)
    engine.apply(1, 20.0)
    assert engine.read(24.0).executors[0].cpu_fraction == pytest.approx(0.5)


def test_a_busy_gauge_may_saturate_early() -> None:
    job = ContinuousJob(busy_at_saturation=0.8, measurement_noise=0.0)
    engine = run([50_000.0] * 60, executors=2, job=job)
    snapshot = engine.read(60.0)
    assert snapshot.operators[2].busy_fraction == pytest.approx(0.8, abs=0.02)
    assert max(one.busy_fraction or 0.0 for one in snapshot.executors) <= 0.8


def test_the_first_read_has_nothing_measured_yet() -> None:
    snapshot = run([500.0] * 60).read(0.0)
    assert (snapshot.arrival_rps, snapshot.throughput_rps) == (None, None)
    assert snapshot.executors[0].cpu_fraction is None
    assert snapshot.operators[0].busy_fraction is None
    assert snapshot.backlog_records == 0.0


def test_reading_twice_at_the_same_time_shows_the_same() -> None:
    engine = run([1500.0] * 60)
    assert engine.read(0.0) == engine.read(0.0)
    first = engine.read(15.0)
    assert engine.read(15.0) == first
    engine.apply(3, 15.0)
    assert engine.read(15.0).arrival_rps == first.arrival_rps
    assert engine.read(15.0).fleet.target == 3


def test_reading_beyond_the_end_shows_the_end() -> None:
    engine = run([5000.0] * 30)
    assert backlog(engine, 40.0) == pytest.approx(30 * 3000.0)
    assert engine.read(40.0).at_s == 40.0
    assert engine.finish().departures.at_s[-1] == 30.0


def test_workers_beyond_the_partitions_have_nothing_to_do() -> None:
    job = ContinuousJob(operators=PLAIN.operators, partitions=2, measurement_noise=0.0)
    engine = run([5000.0] * 60, executors=4, job=job)
    snapshot = engine.read(60.0)
    assert [one.throughput_rps == 0.0 for one in snapshot.executors] == [False, False, True, True]
    assert job.capacity_rps(4) == job.capacity_rps(2)
