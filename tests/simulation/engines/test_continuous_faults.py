"""The Flink-like engine when something goes wrong."""

from __future__ import annotations

import pytest

from penstock.simulation.engines.engine import Level, Outcome
from penstock.simulation.faults import (
    CapacityDrop,
    ExecutorLost,
    FailedStart,
    SkewSetsIn,
    SlowExecutor,
    SlowStart,
    SourceOutage,
    SourceSilence,
)
from tests.simulation.engines.plain_flow import backlog, run, value_at


def departed(outcome: Outcome, at_s: float) -> float:
    return value_at(outcome.departures, at_s)


def test_a_lost_worker_stops_the_job_twice() -> None:
    engine = run([500.0] * 120, faults=[ExecutorLost(at_s=30.0)])
    snapshot = engine.read(39.0)  # 5 s unnoticed, 4 s to restart
    assert snapshot.backlog_records == pytest.approx(9 * 500.0)
    assert (snapshot.fleet.registered, snapshot.fleet.active) == (1, 1)
    snapshot = engine.read(60.0)  # the other one came at 40 s: down until 44 s
    assert (snapshot.fleet.registered, snapshot.fleet.active) == (2, 2)
    outcome = engine.finish()
    # A checkpoint was just taken at 30 s; one worker had one second, from 39 s to 40 s.
    assert departed(outcome, 39.0) == pytest.approx(30 * 500.0)
    assert departed(outcome, 44.0) == pytest.approx(30 * 500.0 + 1000.0)
    assert outcome.paid == [Level(0.0, 2)]


def test_who_takes_the_place_of_another_is_shown_in_its_place() -> None:
    # The second worker comes at 30 s, at the very instant at which the first one dies.
    engine = run([500.0] * 120, executors=1, faults=[ExecutorLost(at_s=30.0)], seed=1)
    engine.apply(2, 20.0)
    snapshot = engine.read(35.0)
    assert [(one.id, one.ready) for one in snapshot.executors] == [("2", True), ("3", False)]
    assert snapshot.fleet.active == 1


def test_a_slow_worker_sets_the_pace_of_all() -> None:
    fault = SlowExecutor(at_s=0.0, duration_s=60.0, speed_fraction=0.5)
    engine = run([5000.0] * 120, faults=[fault])
    snapshot = engine.read(59.0)
    assert snapshot.throughput_rps == pytest.approx(1000.0)
    slow, other = (one.cpu_fraction or 0.0 for one in snapshot.executors)
    assert (slow, other) == pytest.approx((0.98, 0.08 + 0.9 / 2))
    engine.read(60.0)
    assert engine.read(120.0).throughput_rps == pytest.approx(2000.0)


def test_slow_starts_keep_the_old_fleet_at_work_for_longer() -> None:
    engine = run([1500.0] * 120, faults=[SlowStart(at_s=0.0, factor=5.0)])
    engine.apply(3, 10.0)
    assert engine.read(59.0).fleet.registered == 2
    assert engine.read(61.0).fleet.registered == 3


def test_a_failed_start_costs_its_time_again() -> None:
    engine = run([1500.0] * 120, faults=[FailedStart(at_s=0.0, duration_s=15.0)])
    engine.apply(3, 10.0)
    assert engine.read(29.0).fleet.registered == 2
    assert engine.read(31.0).fleet.registered == 3
    assert engine.finish().paid == [Level(0.0, 2), Level(10.0, 3)]


def test_capacity_drops_and_comes_back() -> None:
    fault = CapacityDrop(at_s=60.0, duration_s=60.0, fraction=0.3)
    engine = run([5000.0] * 180, faults=[fault])
    rates = [engine.read(at_s).throughput_rps for at_s in (60.0, 120.0, 180.0)]
    assert rates == pytest.approx([2000.0, 1400.0, 2000.0])


def test_skew_sets_in_at_its_instant() -> None:
    engine = run([9000.0] * 120, executors=4, faults=[SkewSetsIn(at_s=60.0, hot_fraction=0.4)])
    before, after = engine.read(60.0), engine.read(120.0)
    assert before.throughput_rps == pytest.approx(4000.0)
    # One worker: a quarter of 0.5 ms, and 0.4 + 0.15 of the window's 0.5 ms.
    assert after.throughput_rps == pytest.approx(1 / (0.125e-3 + 0.275e-3))
    cpu = [one.cpu_fraction or 0.0 for one in after.executors]
    assert max(cpu) > 0.9
    assert sorted(cpu)[-2] < 0.6


def test_during_a_source_outage_nothing_is_read_and_the_backlog_is_unseen() -> None:
    engine = run([1500.0] * 120, faults=[SourceOutage(at_s=30.0, duration_s=30.0)])
    snapshot = engine.read(45.0)
    assert (snapshot.backlog_records, snapshot.delay_s, snapshot.arrival_rps) == (None,) * 3
    assert snapshot.operators[0].backlog_records is None
    assert engine.read(59.0).throughput_rps == 0.0
    assert backlog(engine, 60.0) == pytest.approx(30 * 1500.0)


def test_a_silent_source_delivers_all_at_once_afterwards() -> None:
    engine = run([1000.0] * 120, faults=[SourceSilence(at_s=30.0, duration_s=30.0)])
    assert engine.read(60.0).operators[0].input_rps == pytest.approx(500.0)
    assert backlog(engine, 61.0) == pytest.approx(31_000.0 - 2000.0)
