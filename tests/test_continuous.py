"""The Flink-like engine: records are conserved, delays exact, and rescales cost what they cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.simulation.continuous import ContinuousJob
from penstock.simulation.dataflow import Dataflow, Operator
from penstock.simulation.engine import Curve, Engine, Job, Level, Outcome
from penstock.simulation.faults import (
    CapacityDrop,
    ExecutorLost,
    FailedStart,
    Fault,
    SkewSetsIn,
    SlowExecutor,
    SlowStart,
    SourceOutage,
    SourceSilence,
)
from penstock.simulation.fleet import Startup

#: No noise and no spread: 1,000 records/s per worker, 4 s of downtime, 10 s to start.
PLAIN = ContinuousJob(
    operators=(
        Operator("source", 0.2e-3),
        Operator("map", 0.3e-3, upstream=("source",)),
        Operator("window", 0.5e-3, upstream=("map",), selectivity=0.1, keyed=True),
    ),
    contention=0.0,
    speed_spread=0.0,
    capacity_noise=0.0,
    measurement_noise=0.0,
    startup=Startup(10.0, 10.0),
    restart_s=3.0,
    restart_spread=0.0,
    state_bytes=100e6,
    restore_bytes_per_s=100e6,
    detect_loss_s=5.0,
    checkpoint_interval_s=10.0,
    busy_at_saturation=1.0,
    full_cpu_fraction=0.98,
)


def run(
    rates: Sequence[float],
    *,
    executors: int = 2,
    job: ContinuousJob = PLAIN,
    faults: Sequence[Fault] = (),
    seed: int = 1,
) -> Engine:
    return job.start(rates, executors=executors, seed=seed, faults=faults)


def value_at(curve: Curve, at_s: float) -> float:
    """The value of a polyline; at a vertical piece, its upper end."""
    after = bisect_left(curve.at_s, at_s)
    while after + 1 < len(curve.at_s) and curve.at_s[after + 1] == at_s:
        after += 1
    if curve.at_s[after] == at_s:
        return curve.records[after]
    part = (at_s - curve.at_s[after - 1]) / (curve.at_s[after] - curve.at_s[after - 1])
    return curve.records[after - 1] + part * (curve.records[after] - curve.records[after - 1])


def backlog(engine: Engine, at_s: float) -> float:
    waiting = engine.read(at_s).backlog_records
    assert waiting is not None
    return waiting


# Worked examples.


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


# Gauges.


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


# What capacity means.


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


# Asking.


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


# Faults.


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


def test_skew_sets_in() -> None:
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


# Exact, conserved, the same again.


def test_a_job_can_be_written_down_and_read_back() -> None:
    job: Job = msgspec.convert({"restart_s": 9, "startup": {"longest_s": 60}}, ContinuousJob)
    assert job == ContinuousJob(restart_s=9.0, startup=Startup(10.0, 60.0))
    assert job.engine_name == "continuous"
    with pytest.raises(msgspec.ValidationError, match="partitions"):
        msgspec.convert({"partitions": 0}, ContinuousJob)


def test_a_run_without_seconds_is_over_at_once() -> None:
    engine = run([])
    assert engine.read(0.0).backlog_records == 0.0
    assert engine.finish().departures == Curve([0.0], [0.0])


def test_delays_are_those_of_a_simulation_record_by_record() -> None:
    """One server, whole records: the k-th leaves when it and all before it are served."""
    rates = [3.0, 9.0, 0.0, 12.0, 1.0, 1.0, 0.0, 7.0, 2.0, 0.0, 0.0, 0.0]
    job = ContinuousJob(
        operators=(Operator("only", 0.2),),
        contention=0.0,
        speed_spread=0.0,
        capacity_noise=0.0,
    )
    engine = job.start(rates, executors=1, seed=1)
    for tick in range(1, 30):
        engine.read(tick * 0.4)  # reads must leave no trace
    outcome = engine.finish()
    # Slice each record into 2,000 grains so that the queue of grains is as good as fluid.
    grain, free_at_s, worst = 1 / 2000, 0.0, 0.0
    for second, rate in enumerate(rates):
        grains = round(rate / grain)
        for i in range(grains):
            free_at_s = max(free_at_s, second + i / grains) + 0.2 * grain
            number = (round(sum(rates[:second]) / grain) + i + 1) * grain
            at_s = _when(outcome.departures, number - grain / 2)
            worst = max(worst, abs(at_s - free_at_s))
    assert worst < 0.001


def _when(curve: Curve, number: float) -> float:
    after = bisect_left(curve.records, number)
    before = after - 1
    part = (number - curve.records[before]) / (curve.records[after] - curve.records[before])
    return curve.at_s[before] + part * (curve.at_s[after] - curve.at_s[before])


FAULTS = st.lists(
    st.one_of(
        st.builds(ExecutorLost, at_s=st.floats(0.0, 200.0), count=st.integers(1, 3)),
        st.builds(SlowExecutor, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(CapacityDrop, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(SkewSetsIn, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(SourceOutage, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(SourceSilence, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(FailedStart, at_s=st.floats(0, 200), probability=st.floats(0, 1)),
        st.builds(SlowStart, at_s=st.floats(0, 200), factor=st.floats(1, 5)),
    ),
    max_size=4,
)
MOVES = st.lists(st.tuples(st.floats(0.0, 40.0), st.integers(-1, 8)), max_size=12)
RATES = st.lists(st.floats(0.0, 6000.0), min_size=3, max_size=12).map(
    lambda levels: [level for level in levels for _ in range(ceil(200 / len(levels)))]
)
NOISY = ContinuousJob(
    operators=PLAIN.operators, speed_spread=0.2, capacity_noise=0.2, startup=Startup(0.0, 20.0)
)


@given(RATES, MOVES, FAULTS, st.integers(0, 3))
def test_records_are_conserved_whatever_happens(
    rates: list[float], moves: list[tuple[float, int]], faults: list[Fault], seed: int
) -> None:
    engine = run(rates, job=NOISY, faults=faults, seed=seed)
    seen: list[tuple[float, float]] = []
    now_s = 0.0
    for wait_s, target in moves:
        now_s += wait_s
        snapshot = engine.read(now_s)
        if snapshot.backlog_records is not None and now_s <= len(rates):
            seen.append((now_s, snapshot.backlog_records))
        engine.apply(target, now_s)
    outcome = engine.finish()
    arrivals, departures = outcome.arrivals, outcome.departures
    assert departures.at_s == sorted(departures.at_s)
    assert departures.records == sorted(departures.records)
    assert departures.at_s[-1] == arrivals.at_s[-1] == len(rates)
    scale = 1e-9 * max(1.0, arrivals.records[-1])
    for at_s, gone in zip(departures.at_s, departures.records, strict=True):
        assert gone <= value_at(arrivals, at_s) + scale
    for at_s, waiting in seen:
        arrived = value_at(arrivals, at_s)
        assert arrived == pytest.approx(value_at(departures, at_s) + waiting, abs=scale)


@given(RATES, MOVES, FAULTS)
def test_the_same_seed_gives_the_same_run(
    rates: list[float], moves: list[tuple[float, int]], faults: list[Fault]
) -> None:
    def outcome() -> Outcome:
        engine, now_s = run(rates, job=NOISY, faults=faults, seed=7), 0.0
        for wait_s, target in moves:
            now_s += wait_s
            engine.read(now_s)
            engine.apply(target, now_s)
        return engine.finish()

    assert outcome() == outcome()


def test_another_seed_gives_another_run() -> None:
    first = run([3000.0] * 60, job=NOISY, seed=1).finish()
    assert first.departures != run([3000.0] * 60, job=NOISY, seed=2).finish().departures


@given(RATES, st.lists(st.floats(0.0, 200.0), max_size=30))
def test_reading_changes_nothing(rates: list[float], reads: list[float]) -> None:
    watched, alone = run(rates, job=NOISY), run(rates, job=NOISY)
    for at_s in sorted(reads):
        watched.read(at_s)
    seen, unseen = watched.finish(), alone.finish()
    scale = 1e-9 * max(1.0, seen.arrivals.records[-1])
    for at_s in range(len(rates) + 1):
        expected = pytest.approx(value_at(unseen.departures, float(at_s)), abs=scale)
        assert value_at(seen.departures, float(at_s)) == expected


def test_half_second_reads_see_a_backlog_grow_inside_a_second() -> None:
    engine = run([0.0] * 5 + [4000.0] * 5)
    assert [backlog(engine, 5.0 + tick / 2) for tick in range(4)] == pytest.approx(
        [0.0, 1000.0, 2000.0, 3000.0]
    )
