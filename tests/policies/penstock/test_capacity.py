"""What a job can carry, learned from what it shows."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from penstock.core.model import (
    Batch,
    BatchStage,
    ExecutorSample,
    Fleet,
    Limits,
    OperatorSample,
    Snapshot,
)
from penstock.lab.experiments.scenario import Scenario, run
from penstock.policies.penstock.account import StageCost
from penstock.policies.penstock.capacity import Capacity, learn, wave_seconds
from penstock.policies.penstock.estimate import CapacityEstimate
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.simulation.engines.microbatch import MicroBatchJob


def batch_snapshot(
    at_s: float,
    executors: int,
    s_per_record: float,
    *,
    records: int = 20_000,
    overhead_s: float = 0.0,
) -> Snapshot:
    work_s = overhead_s + records * s_per_record
    phases = {"queryPlanning": 0.1, "addBatch": work_s, "commitOffsets": 0.15}
    batch = Batch(int(at_s), at_s - 5.0, work_s + 0.25, records, phases)
    return Snapshot(
        at_s,
        Fleet(executors, executors, executors, 2),
        trigger_interval_s=2.0,
        batches=(batch,),
        arrival_rps=10_000.0,
    )


def flow_snapshot(at_s: float, executors: int, rps: float, busy: float) -> Snapshot:
    window = OperatorSample("window", busy_fraction=busy, input_rps=rps, output_rps=rps)
    fleet = Fleet(executors, executors, executors)
    return Snapshot(at_s, fleet, throughput_rps=rps, backlog_records=0.0, operators=(window,))


def learned(snapshots: list[Snapshot], track: CapacityEstimate | None = None) -> CapacityEstimate:
    known, previous = CapacityEstimate() if track is None else track, None
    for snapshot in snapshots:
        known, previous = learn(known, snapshot, previous), snapshot
    return known


def test_nothing_is_known_before_the_first_batch() -> None:
    assert Capacity(CapacityEstimate(), 2).rps(4) == 0.0
    assert (
        learn(CapacityEstimate(), Snapshot(10.0, Fleet(4, 4, 4), trigger_interval_s=2.0), None)
        == CapacityEstimate()
    )


def test_the_driver_is_kept_apart_from_the_records() -> None:
    # 50 us per record on 4 executors of 2 cores; planning and commit take 0.25 s.
    track = learned([batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 20)])
    capacity = Capacity(track, 2)
    assert capacity.rps(4) == pytest.approx(20_000.0)
    assert capacity.fixed_s(4) == pytest.approx(0.25, abs=0.01)


def test_other_sizes_follow_with_a_mild_loss() -> None:
    track = learned([batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 20)])
    # Twice the executors, 4 % more contention for each of them: 2 x 1.03 / 1.07.
    assert Capacity(track, 2).rps(8) == pytest.approx(20_000.0 * 2.0 * 1.03 / 1.07, rel=0.01)


def test_a_straggler_moves_the_estimate_by_little() -> None:
    calm = [batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 30)]
    known = learned(calm)
    after = learn(known, batch_snapshot(300.0, 4, 100e-6), calm[-1])
    assert Capacity(after, 2).rps(4) > 0.95 * Capacity(known, 2).rps(4)


def test_a_job_that_has_become_slower_is_believed_after_a_few_batches() -> None:
    before = [batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 30)]
    after = [batch_snapshot(300.0 + 10.0 * turn, 4, 75e-6) for turn in range(8)]
    known = learned(after, learned(before))
    assert Capacity(known, 2).rps(4) == pytest.approx(1.0 / 75e-6, rel=0.1)


def test_two_batches_that_are_far_off_are_news_where_one_is_a_straggler() -> None:
    calm = [batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 30)]
    known = learned(calm)
    once = learn(known, batch_snapshot(300.0, 4, 75e-6), calm[-1])
    twice = learn(once, batch_snapshot(310.0, 4, 75e-6), calm[-1])
    assert Capacity(once, 2).rps(4) > 0.95 * Capacity(known, 2).rps(4)
    assert Capacity(twice, 2).rps(4) < 0.85 * Capacity(known, 2).rps(4)


def test_news_that_the_next_batch_denies_were_stragglers() -> None:
    calm = [batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 30)]
    changed = learned([batch_snapshot(300.0 + at, 4, 75e-6) for at in (0.0, 10.0)], learned(calm))
    assert Capacity(changed, 2).rps(4) == pytest.approx(1.0 / 75e-6, rel=0.01)
    denied = learn(changed, batch_snapshot(320.0, 4, 50e-6), calm[-1])
    assert Capacity(denied, 2).rps(4) == pytest.approx(20_000.0, rel=0.02)
    more = [batch_snapshot(320.0 + 10.0 * turn, 4, 75e-6) for turn in range(5)]
    assert learned(more, changed).before is None


def test_stragglers_that_are_minutes_apart_are_no_news() -> None:
    known = learned([batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 30)])
    apart = [batch_snapshot(at_s, 4, 75e-6) for at_s in (300.0, 360.0)]
    assert Capacity(learned(apart, known), 2).rps(4) > 0.9 * Capacity(known, 2).rps(4)


def test_a_job_that_slows_down_does_not_seem_to_have_dearer_batches() -> None:
    # The load falls by itself meanwhile: small batches are the expensive ones now, by coincidence.
    before = [
        batch_snapshot(10.0 * turn, 4, 50e-6, records=40_000 - 100 * turn) for turn in range(1, 90)
    ]
    after = [
        batch_snapshot(10.0 * turn, 4, 71e-6, records=40_000 - 100 * turn)
        for turn in range(90, 180)
    ]
    capacity = Capacity(learned([*before, *after]), 2)
    assert capacity.rps(4) == pytest.approx(1.0 / 71e-6, rel=0.05)


def test_a_cold_fleet_that_does_more_than_was_thought_is_believed() -> None:
    known = learned([batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 20)])
    before = batch_snapshot(190.0, 4, 50e-6)
    cold = replace(batch_snapshot(200.0, 4, 25e-6), executors=(ExecutorSample("9", 195.0),))
    shrinking = replace(cold, fleet=Fleet(2, 4, 4, 2))
    assert Capacity(learn(known, cold, before), 2).rps(4) > Capacity(known, 2).rps(4)
    assert learn(known, shrinking, before).work_s == known.work_s


def test_small_batches_show_what_a_batch_costs_by_itself() -> None:
    rng = Random(3)
    sizes = [rng.randint(2_000, 60_000) for _ in range(80)]
    snapshots = [
        batch_snapshot(10.0 * turn, 4, 50e-6, records=records, overhead_s=0.3)
        for turn, records in enumerate(sizes, start=1)
    ]
    capacity = Capacity(learned(snapshots), 2)
    assert capacity.rps(4) == pytest.approx(20_000.0, rel=0.06)
    assert capacity.fixed_s(4) == pytest.approx(0.55, rel=0.15)


def test_what_a_changing_or_cold_fleet_does_is_left_out() -> None:
    known = learned([batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 20)])
    waiting = batch_snapshot(200.0, 4, 90e-6)
    short = replace(waiting, fleet=Fleet(5, 4, 4, 2))
    assert learn(known, short, None).work_s == known.work_s
    cold = replace(waiting, executors=(ExecutorSample("9", 190.0),))
    assert learn(known, cold, None).work_s == known.work_s
    assert Capacity(learn(known, cold, None, warmup_s=5.0), 2).rps(4) < Capacity(known, 2).rps(4)


def test_more_executors_than_partitions_carry_no_more() -> None:
    track = learned([flow_snapshot(10.0 * turn, 4, 30_000.0, 0.8) for turn in range(1, 20)])
    assert Capacity(track, 1, most=6).rps(12) == Capacity(track, 1, most=6).rps(6)
    assert Capacity(track, 1).rps(12) > Capacity(track, 1).rps(6)


def test_few_tasks_run_in_whole_waves() -> None:
    # 4 tasks on 3 slots take two waves, as on 2; on 4 slots one.
    stage = StageCost(4, last_size=1.0, last_took_s=1.0)
    three, two = (wave_seconds([stage], n, 1) / (1.0 + 0.01 * (n - 1)) for n in (3, 2))
    four = wave_seconds([stage], 4, 1) / 1.03
    assert three == pytest.approx(two, rel=0.15)
    assert four < 0.65 * three


def test_a_dataflow_that_is_half_busy_can_do_nearly_twice_as_much() -> None:
    track = learned([flow_snapshot(10.0 * turn, 4, 20_000.0, 0.475) for turn in range(1, 30)])
    assert Capacity(track, 1).rps(4) == pytest.approx(40_000.0, rel=0.01)


def test_a_dataflow_at_its_limit_tells_its_capacity_whatever_its_gauges_show() -> None:
    # The gauges say half busy, but 20 k records wait and 40 k/s is all that comes through.
    calm = [flow_snapshot(10.0 * turn, 4, 30_000.0, 0.3) for turn in range(1, 30)]
    late = [
        replace(
            flow_snapshot(300.0 + 10.0 * turn, 4, 40_000.0, 0.5),
            arrival_rps=42_000.0,
            backlog_records=50_000.0 + 20_000.0 * turn,
        )
        for turn in range(20)
    ]
    assert Capacity(learned(calm), 1).rps(4) > 90_000.0
    assert Capacity(learned([*calm, *late]), 1).rps(4) == pytest.approx(40_000.0, rel=0.03)


def test_the_busiest_of_three_workers_tells_the_share_of_a_hot_key() -> None:
    workers = [ExecutorSample(str(i), 0.0, busy_fraction=b) for i, b in enumerate((0.9, 0.3, 0.3))]
    snapshot = Snapshot(
        60.0, Fleet(3, 3, 3), throughput_rps=1_000.0, arrival_rps=1_000.0, backlog_records=0.0,
        executors=tuple(workers),
    )  # fmt: skip
    known = learn(CapacityEstimate(), snapshot, None)
    # The first has 0.4 and a third of the rest, 0.6 of all; of the time of a record 0.4 / 0.6.
    assert known.serial_s * Capacity(known, 1).rps(3) == pytest.approx(0.4 / 0.6)


def test_gauges_that_swing_do_not_make_a_hot_key() -> None:
    busy = (0.95, 0.85, 0.75, 0.7, 0.6, 0.55, 0.5, 0.45)
    workers = tuple(ExecutorSample(str(i), 0.0, busy_fraction=b) for i, b in enumerate(busy))
    swinging = replace(flow_snapshot(60.0, 8, 50_000.0, 0.67), executors=workers)
    assert learned([swinging]).serial_s == 0.0
    hot = tuple(
        ExecutorSample(str(i), 0.0, busy_fraction=0.95 if i == 0 else 0.5) for i in range(8)
    )
    assert learned([replace(swinging, executors=hot)]).serial_s > 0.0


def test_the_worker_with_the_hot_key_tells_how_full_the_job_is() -> None:
    # One of eight is 76 % busy and the others 40 %: with 95 % it does 50 k/s x 0.95 / 0.76.
    busy = tuple(
        ExecutorSample(str(i), 0.0, busy_fraction=0.76 if i == 0 else 0.4) for i in range(8)
    )
    skewed = [
        replace(flow_snapshot(10.0 * turn, 8, 50_000.0, 0.445), executors=busy)
        for turn in range(1, 20)
    ]
    assert Capacity(learned(skewed), 1).rps(8) == pytest.approx(62_500.0, rel=0.01)


def test_uncertainty_shrinks_with_evidence_and_grows_with_age() -> None:
    few = learned([batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 3)])
    many = learned([batch_snapshot(10.0 * turn, 4, 50e-6) for turn in range(1, 40)])
    assert Capacity(many, 2).error(400.0) < 0.5 * Capacity(few, 2).error(20.0)
    assert Capacity(many, 2).error(4_000.0) > Capacity(many, 2).error(400.0)


@pytest.mark.parametrize("executors", [6, 9, 12])
def test_the_simulated_job_is_known_within_three_percent(executors: int) -> None:
    load = 0.85 * MicroBatchJob().capacity_rps(executors)
    scenario = Scenario(f"constant:{load:.0f}", "micro-batch", 1, 1800.0, executors)
    steps = run(scenario, Static(executors, period_s=10.0), Limits(), Goal()).steps
    track = learned([step.snapshot for step in steps if step.snapshot is not None])
    job = MicroBatchJob(speed_spread=0.0)
    true_rps = 2.0 * job.capacity_rps(executors) / (2.0 - 0.267)
    assert Capacity(track, 2).rps(executors) == pytest.approx(true_rps, rel=0.05)


def two_stages(at_s: float, lost: bool = False) -> Snapshot:
    """A batch of 4 s on four slots: 0.2 s in the driver, stages of 1.8 s and of 2 s."""
    stages = (BatchStage(8, 7.2, 0.2, 2.0), BatchStage(8, 8.0, 2.0, 4.0))
    batch = Batch(int(at_s), at_s - 4.0, 4.0, 8_000, stages=stages[lost:])
    fleet = Fleet(2, 2, 2, 2)
    return Snapshot(at_s, fleet, trigger_interval_s=2.0, batches=(batch,), arrival_rps=2_000.0)


def test_a_fleet_that_grows_from_the_start_is_measured_by_its_stages() -> None:
    """15.2 core-seconds for 8,000 records of a cold fleet: better than to know nothing."""
    bare = replace(two_stages(1000.0), batches=(Batch(0, 990.0, 4.0, 8_000),))
    growing = replace(
        two_stages(1010.0), fleet=Fleet(4, 3, 3, 2), executors=(ExecutorSample("2", 1004.0),)
    )
    known = learned([bare, growing])
    assert known.has_stages
    assert known.work_s == pytest.approx(15.2 / 8_000, rel=0.1)
    assert known.cold > 0.5
    # Once something is known, such batches count only if they are much cheaper.
    dearer = replace(growing.batches[0], stages=(BatchStage(8, 14.4, 0.2, 3.8),) * 2)
    assert learn(known, replace(growing, batches=(dearer,)), growing).work_s == known.work_s


def test_a_batch_that_lost_a_stage_in_the_status_store_is_left_out() -> None:
    whole = learned([two_stages(1000.0 + 10.0 * turn) for turn in range(20)])
    capacity = Capacity(whole, 2)
    assert capacity.fixed_s(2) == pytest.approx(0.2, abs=0.01)
    assert capacity.rps(2) == pytest.approx(8_000 / 3.8, rel=0.02)
    # Its 1.8 s would be the driver's, and half of the work would be gone.
    assert learned([two_stages(1200.0, lost=True)], whole) == whole
    # A job that has changed is learned after a while.
    changed = learned([two_stages(1200.0 + 10.0 * turn, lost=True) for turn in range(30)], whole)
    assert Capacity(changed, 2).fixed_s(2) == pytest.approx(2.0, abs=0.2)
