"""The Flink-like engine: delays are exact, rescales and capacity are what they should be."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigError
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Dataflow, Operator
from penstock.simulation.engines.engine import Level
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.faults import (
    SkewSetsIn,
)
from tests.simulation.engines.plain_flow import PLAIN, backlog, run, value_at


def test_below_capacity_nothing_waits() -> None:
    engine = run([1500.0] * 600)
    for at_s in range(0, 600, 15):
        snapshot = engine.read(float(at_s))
        assert (snapshot.backlog_records, snapshot.delay_s) == (0.0, 0.0)
    outcome = engine.finish()
    assert outcome.departures == outcome.arrivals
    assert outcome.duration_s == 600.0


def test_a_step_builds_a_backlog_at_the_difference_and_drains_it_likewise() -> None:
    engine = run([1000.0] * 60 + [3000.0] * 60 + [500.0] * 60)
    assert backlog(engine, 60.0) == 0.0
    assert backlog(engine, 90.0) == pytest.approx(30 * 1000.0)
    assert backlog(engine, 120.0) == pytest.approx(60 * 1000.0)
    assert backlog(engine, 140.0) == pytest.approx(60_000.0 - 20 * 1500.0)
    assert backlog(engine, 160.0) == pytest.approx(0.0, abs=1e-6)
    outcome = engine.finish()
    assert value_at(outcome.departures, 100.0) == pytest.approx(60_000.0 + 40 * 2000.0)


def test_delay_and_latency_tell_the_age_of_the_oldest_record() -> None:
    engine = run([4000.0] * 100)
    snapshot = engine.read(60.0)
    # 120,000 of 240,000 records have departed; number 120,000 arrived at second 30.
    assert snapshot.delay_s == pytest.approx(30.0)
    assert snapshot.latency_s == pytest.approx(30.0 + 0.05 + 0.001)
    assert snapshot.arrival_rps == pytest.approx(4000.0)
    assert snapshot.throughput_rps == pytest.approx(2000.0)


def test_shrinking_stops_the_job_and_reads_again_since_the_last_checkpoint() -> None:
    engine = run([800.0] * 120)
    engine.read(47.0)
    engine.apply(1, 47.0)
    assert engine.read(51.0).throughput_rps == 0.0
    # Down for 4 s; 7 s of records since the checkpoint at 40 s are read again at 1,000/s.
    assert backlog(engine, 51.0) == pytest.approx(4 * 800.0)
    assert backlog(engine, 56.6) == pytest.approx((4 + 5.6) * 800.0)
    assert engine.read(56.6).throughput_rps == pytest.approx(1000.0)
    outcome = engine.finish()
    assert value_at(outcome.departures, 56.6) == pytest.approx(47 * 800.0)
    assert value_at(outcome.departures, 60.0) == pytest.approx(47 * 800.0 + 3.4 * 1000.0)


def test_a_longer_checkpoint_interval_costs_more_when_the_job_restarts() -> None:
    def worst_backlog(interval_s: float) -> float:
        job = PLAIN_WITH_CHECKPOINTS[interval_s]
        engine = run([800.0] * 120, job=job)
        engine.read(47.0)
        engine.apply(1, 47.0)
        return max(backlog(engine, float(at_s)) for at_s in range(47, 90))

    assert worst_backlog(0.0) < worst_backlog(10.0) < worst_backlog(30.0)


PLAIN_WITH_CHECKPOINTS = {
    interval_s: ContinuousJob(
        operators=PLAIN.operators,
        contention=0.0,
        speed_spread=0.0,
        capacity_noise=0.0,
        checkpoint_interval_s=interval_s,
    )
    for interval_s in (0.0, 10.0, 30.0)
}


def test_growing_keeps_the_old_workers_busy_until_the_new_ones_are_there() -> None:
    engine = run([1500.0] * 120)
    engine.read(20.0)
    engine.apply(4, 20.0)
    snapshot = engine.read(29.0)
    assert (snapshot.fleet.target, snapshot.fleet.registered, snapshot.fleet.active) == (4, 2, 2)
    assert [one.ready for one in snapshot.executors] == [True, True, False, False]
    assert snapshot.throughput_rps == pytest.approx(1500.0)
    snapshot = engine.read(34.0)  # they came at 30 s: the job is down until 34 s
    assert (snapshot.fleet.registered, snapshot.fleet.active) == (4, 4)
    assert snapshot.throughput_rps == pytest.approx(1500.0 / 5)
    assert backlog(engine, 34.0) == pytest.approx(4 * 1500.0)


def test_one_wave_of_workers_means_one_restart() -> None:
    job = ContinuousJob(startup=Startup(10.0, 30.0), wait_for_workers_s=20.0)
    engine = run([20_000.0] * 120, executors=4, job=job)
    engine.apply(9, 10.0)
    down = [at_s for at_s in range(120) if engine.read(float(at_s)).throughput_rps == 0.0]
    assert down
    assert down == list(range(down[0], down[0] + len(down)))  # one piece
    assert engine.read(60.0).fleet.active == 9


def test_those_who_come_too_late_cause_a_second_restart() -> None:
    job = ContinuousJob(startup=Startup(5.0, 60.0), wait_for_workers_s=2.0, speed_spread=0.0)
    engine = run([5_000.0] * 200, executors=1, job=job)
    engine.apply(6, 0.0)
    active = {engine.read(float(at_s)).fleet.active for at_s in range(120)}
    assert {1, 6} < active


def test_downtime_grows_with_state() -> None:
    def downtime_s(state_bytes: float) -> float:
        job = ContinuousJob(
            restart_s=3.0, restart_spread=0.0, state_bytes=state_bytes, restore_bytes_per_s=100e6
        )
        engine = run([9_000.0] * 60, executors=2, job=job)
        engine.apply(1, 10.0)
        reads = [engine.read(10.0 + tick / 4) for tick in range(1, 100)]
        return sum(one.throughput_rps == 0.0 for one in reads) / 4

    assert downtime_s(0.0) == pytest.approx(3.0, abs=0.25)
    assert downtime_s(500e6) == pytest.approx(8.0, abs=0.25)


def test_without_downtime_and_checkpoints_a_rescale_interrupts_nothing() -> None:
    job = ContinuousJob(
        operators=PLAIN.operators,
        capacity_noise=0.0,
        restart_s=0.0,
        state_bytes=0.0,
        checkpoint_interval_s=0.0,
        wait_for_workers_s=0.0,
    )
    engine = run([1500.0] * 200, executors=2, job=job)
    for at_s, target in ((20.0, 4), (60.0, 2), (100.0, 5)):
        engine.read(at_s)
        engine.apply(target, at_s)
    outcome = engine.finish()
    for at_s in range(200):
        assert value_at(outcome.departures, float(at_s)) == pytest.approx(1500.0 * at_s)


@pytest.mark.parametrize("executors", [1, 3, 8, 16])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_capacity_is_what_the_engine_sustains(executors: int, seed: int) -> None:
    job = ContinuousJob()
    capacity_rps = job.capacity_rps(executors)
    below = run([0.975 * capacity_rps] * 900, executors=executors, job=job, seed=seed)
    above = run([1.05 * capacity_rps] * 900, executors=executors, job=job, seed=seed)
    assert backlog(below, 900.0) < capacity_rps  # less than a second of it
    assert backlog(above, 900.0) > 0.02 * 900 * capacity_rps


def test_capacity_is_sub_linear() -> None:
    job = ContinuousJob(contention=0.02, speed_spread=0.0)
    assert job.capacity_rps(16) == pytest.approx(16 * 10_000.0 / 1.3)
    assert job.capacity_rps(0) == 0.0


def test_cores_that_no_single_operator_can_fill_do_not_help() -> None:
    wide = ContinuousJob(operators=PLAIN.operators, cores_per_executor=8, speed_spread=0.0)
    assert wide.capacity_rps(1) == pytest.approx(1 / 0.5e-3)  # the window, one thread
    engine = run([5000.0] * 60, executors=1, job=wide)
    cpu = engine.read(60.0).executors[0].cpu_fraction
    assert cpu == pytest.approx(0.08 + 0.98 * (1e-3 / 8) / 0.5e-3, abs=0.02)


def test_a_hot_key_caps_what_more_workers_bring() -> None:
    skewed = ContinuousJob(hot_fraction=0.25, contention=0.0)
    gains = [skewed.capacity_rps(n) / skewed.capacity_rps(1) for n in (2, 8, 64)]
    assert gains == sorted(gains)
    assert gains[-1] < 8.0


def test_a_key_that_holds_everything_leaves_one_worker_at_work() -> None:
    job = ContinuousJob(operators=(Operator("count", 1e-3, keyed=True),), measurement_noise=0.0)
    engine = run([5000.0] * 60, executors=3, job=job, faults=[SkewSetsIn(0.0, hot_fraction=1.0)])
    snapshot = engine.read(60.0)
    assert snapshot.throughput_rps == pytest.approx(1000.0 / 1.02, rel=0.03)
    busy = sorted(one.busy_fraction or 0.0 for one in snapshot.executors)
    assert busy == pytest.approx([0.0, 0.0, 0.95], abs=0.02)


def test_two_sources_share_the_arrivals() -> None:
    flow = Dataflow(
        [
            Operator("left", 1e-4),
            Operator("right", 1e-4),
            Operator("join", 2e-4, upstream=("left", "right"), keyed=True),
        ]
    )
    assert flow.inputs == [0.5, 0.5, 1.0]
    assert flow.ancestors[2] == {0, 1}


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ([], "at least one operator"),
        ([Operator("a", 1.0), Operator("a", 1.0)], "same name"),
        ([Operator("a", 1.0), Operator("b", 1.0, upstream=("aa",))], "did you mean 'a'"),
        ([Operator("b", 1.0, upstream=("a",)), Operator("a", 1.0)], "listed before"),
    ],
)
def test_a_dataflow_that_cannot_be_is_refused(operators: list[Operator], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContinuousJob(operators=tuple(operators))


def test_asking_for_the_same_changes_nothing() -> None:
    quiet, asked = run([1500.0] * 120), run([1500.0] * 120)
    for at_s in range(0, 120, 15):
        assert asked.apply(2, float(at_s)).accepted
    assert asked.finish().targets == [Level(0.0, 2)]
    assert asked.finish().departures == quiet.finish().departures


def test_a_negative_target_counts_as_zero_and_the_job_stands_still() -> None:
    engine = run([1500.0] * 120)
    engine.apply(-4, 30.0)
    snapshot = engine.read(60.0)
    assert (snapshot.fleet.target, snapshot.fleet.active, snapshot.executors) == (0, 0, ())
    assert snapshot.backlog_records == pytest.approx(30 * 1500.0)
    engine.apply(2, 60.0)
    assert engine.read(75.0).fleet.active == 2
    assert engine.finish().targets == [Level(0.0, 2), Level(30.0, 0), Level(60.0, 2)]


def test_starting_workers_are_paid_for_and_leaving_ones_no_more() -> None:
    engine = run([1500.0] * 120)
    engine.apply(5, 20.0)
    engine.apply(1, 60.0)
    assert engine.finish().paid == [Level(0.0, 2), Level(20.0, 5), Level(60.0, 1)]
