"""What recorded Flink jobs show beyond the simple case: losses, cold workers, curved gauges."""

from __future__ import annotations

import pytest

from penstock.core.model import OperatorSample, Snapshot
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.fleet import Startup

#: 10,000 records/s per worker, the map is the fullest operator; nothing is left to chance.
STEADY = {
    "operators": (
        Operator("source", 40e-6),
        Operator("map", 60e-6, upstream=("source",)),
    ),
    "contention": 0.0,
    "speed_spread": 0.0,
    "capacity_noise": 0.0,
    "measurement_noise": 0.0,
    "restart_spread": 0.0,
    "state_bytes": 0.0,
    "checkpoint_interval_s": 0.0,
    "startup": Startup(0.0, 0.0),
    "wait_for_workers_s": 0.0,
    "busy_at_saturation": 0.8,
    "idle_cpu_fraction": 0.1,
    "full_cpu_fraction": 1.0,
}


def job(**changes: object) -> ContinuousJob:
    return ContinuousJob(**{**STEADY, **changes})  # type: ignore[arg-type]


def seen(job: ContinuousJob, rate_rps: float, workers: int) -> Snapshot:
    """What the gauges show in the tenth second of an even load."""
    return job.start([rate_rps] * 20, executors=workers, seed=1).read(10.0)


def operator(snapshot: Snapshot, name: str) -> OperatorSample:
    return next(one for one in snapshot.operators if one.name == name)


def test_a_gauge_that_does_not_see_losses_shows_the_work_alone() -> None:
    # Two workers at 1 / (1 + 1) of their speed do 10,000/s; at 5,000/s half of that is used,
    # but each does only a quarter of what it could do alone.
    lossy = job(contention=1.0, calm_loss_in_busy=0.0, calm_loss_in_cpu=0.0)
    snapshot = seen(lossy, 5_000.0, workers=2)
    assert operator(snapshot, "map").busy_fraction == pytest.approx(0.8 * 0.25)
    assert snapshot.executors[0].cpu_fraction == pytest.approx(0.1 + 0.9 * 0.25)
    all_seen = seen(job(contention=1.0), 5_000.0, workers=2)
    assert operator(all_seen, "map").busy_fraction == pytest.approx(0.8 * 0.5)
    assert all_seen.executors[0].cpu_fraction == pytest.approx(0.1 + 0.9 * 0.5)


def test_losses_can_show_only_once_records_wait() -> None:
    lossy = job(contention=1.0, calm_loss_in_busy=0.0, pressed_loss_in_busy=1.0)
    assert operator(seen(lossy, 50_000.0, workers=2), "map").busy_fraction == pytest.approx(0.8)
    hidden = job(contention=1.0, calm_loss_in_busy=0.0, pressed_loss_in_busy=0.0)
    assert operator(seen(hidden, 50_000.0, workers=2), "map").busy_fraction == pytest.approx(0.4)


def test_a_curved_busy_gauge_shows_little_at_half_load_and_the_same_when_full() -> None:
    curved = job(busy_exponent=2.0)
    assert operator(seen(curved, 5_000.0, 1), "map").busy_fraction == pytest.approx(0.8 * 0.25)
    assert seen(curved, 5_000.0, 1).executors[0].busy_fraction == pytest.approx(0.8 * 0.25)
    assert operator(seen(curved, 50_000.0, 1), "map").busy_fraction == pytest.approx(0.8)


def test_a_curved_cpu_gauge_rises_early() -> None:
    # At 0.36 of the load its square root, 0.6, of the way from 0.1 to 1.
    cpu = seen(job(cpu_exponent=0.5), 3_600.0, 1).executors[0].cpu_fraction
    assert cpu == pytest.approx(0.1 + 0.9 * 0.6)


def test_sources_can_be_held_back_a_little_although_the_job_keeps_up() -> None:
    # At half load: 0.4 x 0.5^2 of the time that the source is not busy (0.5 x 0.8 x 40/60).
    source = operator(seen(job(calm_backpressure_fraction=0.4), 5_000.0, 1), "source")
    busy = 0.5 * 0.8 * 40.0 / 60.0
    assert source.busy_fraction == pytest.approx(busy)
    assert source.backpressured_fraction == pytest.approx(0.1 * (1.0 - busy))
    assert source.idle_fraction == pytest.approx(0.9 * (1.0 - busy))
    # Nothing holds the fullest operator itself back.
    fullest = operator(seen(job(calm_backpressure_fraction=0.4), 5_000.0, 1), "map")
    assert fullest.backpressured_fraction == 0.0


def delay_after(change: int, *, until_s: float, **changes: object) -> float:
    run = job(restart_s=5.0, **changes).start([8_000.0] * 100, executors=2, seed=1)
    run.read(10.0)
    run.apply(2 + change, 10.0)
    delay_s = run.read(until_s).delay_s
    assert delay_s is not None
    return delay_s


def test_new_workers_cost_more_downtime_than_workers_that_leave() -> None:
    assert delay_after(+1, until_s=17.0, join_s=4.0) == pytest.approx(7.0)
    # Back after 5 s at 10,000/s: by second 17, 2 s of work on what came in the 5 s before.
    assert delay_after(-1, until_s=17.0, join_s=4.0) == pytest.approx(7.0 - 2.0 * 10.0 / 8.0)


def test_a_job_with_new_workers_is_cold_and_warms_up_in_steps() -> None:
    # Two workers at 20,000/s are back at once, at half of that; in four steps of 5 s they do
    # 1/2, 5/8, 3/4 and 7/8 of it. 18,000/s arrive.
    run = job(restart_s=0.0, cold_fraction=0.5, warmup_s=20.0).start(
        [10_000.0] * 10 + [18_000.0] * 90, executors=1, seed=1
    )
    run.read(10.0)
    run.apply(2, 10.0)
    backlog = 0.0
    for at_s, fraction in ((15.0, 0.5), (20.0, 0.625), (25.0, 0.75), (30.0, 0.875), (35.0, 1.0)):
        backlog += 5.0 * (18_000.0 - 20_000.0 * fraction)
        assert run.read(at_s).backlog_records == pytest.approx(backlog)


def test_workers_that_stay_stay_warm() -> None:
    run = job(restart_s=0.0, cold_fraction=0.5, warmup_s=20.0).start(
        [18_000.0] * 100, executors=3, seed=1
    )
    run.read(10.0)
    run.apply(2, 10.0)
    assert run.read(20.0).backlog_records == pytest.approx(0.0, abs=1.0)


def test_a_job_is_warm_when_a_run_begins() -> None:
    run = job(cold_fraction=0.1, warmup_s=1000.0).start([8_000.0] * 20, executors=1, seed=1)
    assert run.read(10.0).backlog_records == 0.0


def test_a_job_that_falls_behind_loses_capacity_until_it_has_caught_up() -> None:
    # 4 workers do 40,000/s; far behind 4 / (1 + 0.4 x 3) = 1.82 workers' worth, 18,182/s.
    # 60,000/s for 30 s leave 10 s of the load waiting after 30 s: from then on it is late.
    rates = [60_000.0] * 45 + [10_000.0] * 155
    run = job(late_contention=0.4, late_after_s=10.0).start(rates, executors=4, seed=1)
    run.read(35.0)
    late = run.read(45.0)
    assert late.throughput_rps == pytest.approx(40_000.0 / 2.2)
    backlog = late.backlog_records
    assert backlog is not None
    # It stays so while it works the backlog off, 8,182/s of it, and is over when nothing waits.
    later = run.read(100.0)
    assert later.throughput_rps == pytest.approx(40_000.0 / 2.2)
    assert later.backlog_records == pytest.approx(backlog - 55.0 * (40_000.0 / 2.2 - 10_000.0))
    assert run.read(190.0).backlog_records == 0.0


def test_a_late_job_works_as_hard_as_one_that_is_in_time_and_does_less() -> None:
    # Recorded on query 11 of Koper (2022): late jobs of 9 to 16 workers use 0.7 to 0.8 of their
    # cpu, while they do less than 5 that are in time.
    rates = [90_000.0] * 100
    blind = dict.fromkeys(("calm_loss_in_cpu", "pressed_loss_in_cpu"), 0.3)
    cpus = []
    for late_contention in (0.0, 0.4):
        run = job(late_contention=late_contention, contention=0.1, **blind).start(
            rates, executors=8, seed=1
        )
        run.read(80.0)
        cpus.append([one.cpu_fraction for one in run.read(100.0).executors])
    assert cpus[0] == cpus[1]


def test_a_job_that_has_just_resumed_is_not_yet_slowed_down_by_what_waits() -> None:
    rates = [60_000.0] * 200
    slow = job(late_contention=0.4, late_after_s=10.0, late_for_s=60.0)
    run = slow.start(rates, executors=4, seed=1)
    run.read(50.0)
    assert run.read(55.0).throughput_rps == pytest.approx(40_000.0)
    run.read(65.0)
    assert run.read(70.0).throughput_rps == pytest.approx(40_000.0 / 2.2)


def test_how_often_a_sensor_looks_does_not_change_what_a_late_job_does() -> None:
    rates = [60_000.0] * 45 + [10_000.0] * 155
    slow = job(late_contention=0.4)
    seldom, often = (slow.start(rates, executors=4, seed=1) for _ in range(2))
    for second in range(1, 200):
        often.read(float(second))
    assert seldom.finish().departures.records[-1] == often.finish().departures.records[-1]


def test_what_waits_at_some_workers_is_caught_up_with_by_a_part_of_all() -> None:
    # One worker does 10,000/s: 10 s of 20,000/s leave 100,000. While 5,000/s arrive it could work
    # off 5,000/s of them, and does a fifth of that.
    run = job(catch_up_fraction=0.2).start([20_000.0] * 10 + [5_000.0] * 200, executors=1, seed=1)
    assert run.read(10.0).backlog_records == pytest.approx(100_000.0)
    assert run.read(20.0).backlog_records == pytest.approx(90_000.0)
    assert run.read(109.5).backlog_records == pytest.approx(500.0)
    assert run.read(120.0).backlog_records == 0.0
    # Where more arrives than it can do, all that it can is done.
    full = job(catch_up_fraction=0.2).start([20_000.0] * 20, executors=1, seed=1)
    assert full.read(20.0).throughput_rps == pytest.approx(10_000.0)
