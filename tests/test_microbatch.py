"""Spark on paper: worked batches, conservation, delays, rescales and faults."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import sin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.model import Batch
from penstock.simulation.engine import Curve, Job, Outcome
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
    with_silence,
)
from penstock.simulation.fleet import Startup
from penstock.simulation.microbatch import MicroBatchJob
from penstock.simulation.stages import Stage

# Nothing left to chance, and numbers for mental arithmetic. With n executors of 2 cores:
#   n     waves  base                            per record       fits 2 s
#   1     4      0.1 + 0.1 + 2 x 4 x 10 ms       2 x 4/8 x 1 ms   1.72 s / 1    ms =  860/s
#   2, 3  2      0.2 + 0.04 = 0.24 s             0.5 ms           1.76 s / 0.5  ms = 1760/s
#   4     1      0.2 + 0.02 = 0.22 s             0.25 ms          1.78 s / 0.25 ms = 3560/s
PLAIN = MicroBatchJob(
    planning_s=0.1,
    commit_s=0.1,
    stages=(
        Stage("map", tasks=8, core_s_per_record=1e-3, task_overhead_s=0.01),
        Stage("count", tasks=8, core_s_per_record=1e-3, stateful=True, task_overhead_s=0.01),
    ),
    contention=0.0,
    speed_spread=0.0,
    noise_fraction=0.0,
    straggler_probability=0.0,
    startup=Startup(10.0, 10.0),
    cold_s=0.0,
    state_bytes=0.0,
)


def at(curve: Curve, records: float) -> float:
    """When a curve first reaches so many records."""
    place = bisect_left(curve.records, records - 1e-9)
    if curve.records[place] <= records:
        return curve.at_s[place]
    low, high = curve.records[place - 1], curve.records[place]
    since_s, until_s = curve.at_s[place - 1], curve.at_s[place]
    return since_s + (records - low) / (high - low) * (until_s - since_s)


def delay_s(outcome: Outcome, record: float) -> float:
    return at(outcome.departures, record) - at(outcome.arrivals, record)


def durations(batches: Sequence[Batch]) -> list[float]:
    return [batch.duration_s for batch in batches]


def longest_s(job: MicroBatchJob, rate: float, executors: int, *faults: Fault) -> float:
    """The longest of the last ten batches in five minutes of constant load."""
    run = job.start([rate] * 300, executors=executors, seed=1, faults=faults)
    return max(durations(run.read(300.0).batches)[-10:])


def test_the_job_fits_the_seam() -> None:
    job: Job = MicroBatchJob()
    assert job.engine_name == "micro-batch"
    assert 9_500 < job.capacity_rps(1) < 10_500
    assert 150_000 < job.capacity_rps(16) < 170_000


def test_a_batch_takes_what_has_arrived_and_commits_it_at_once() -> None:
    run = PLAIN.start([1000.0] * 10, executors=2, seed=1)
    batches = run.read(7.0).batches
    # At 0 s nothing has arrived: only planning. Then 2000 records: 0.24 + 2000 x 0.5 ms = 1.24 s.
    assert [batch.started_at_s for batch in batches] == [0.0, 2.0, 4.0]
    assert run.read(7.0).batches == ()
    assert [batch.duration_s for batch in batches] == pytest.approx([0.1, 1.24, 1.24])
    assert [batch.input_records for batch in batches] == [0, 2000, 2000]
    assert batches[1].phases == pytest.approx(
        {"queryPlanning": 0.1, "addBatch": 1.04, "commitOffsets": 0.1}
    )
    outcome = run.finish()
    # (0.1, 0) twice for the empty batch, then two vertical pieces at 3.24 and 5.24 s.
    assert outcome.departures.at_s[:7] == pytest.approx([0.0, 0.1, 0.1, 3.24, 3.24, 5.24, 5.24])
    assert outcome.departures.records[:7] == [0.0, 0.0, 0.0, 0.0, 2000.0, 2000.0, 4000.0]
    # The first record of a batch waits 2 s for its trigger, the last one only for the batch.
    assert delay_s(outcome, 1.0) == pytest.approx(3.24 - 0.001)
    assert delay_s(outcome, 2000.0) == pytest.approx(1.24)


def test_a_snapshot_shows_what_spark_and_kafka_would() -> None:
    run = PLAIN.start([1000.0] * 20, executors=2, seed=1)
    run.read(8.0)
    seen = run.read(16.0)
    assert (seen.fleet.target, seen.fleet.registered, seen.fleet.active) == (2, 2, 2)
    assert seen.trigger_interval_s == 2.0
    assert seen.arrival_rps == pytest.approx(1000.0)
    assert seen.throughput_rps == pytest.approx(1000.0)
    # The last commit was of what had arrived by 14 s.
    assert seen.backlog_records == pytest.approx(2000.0)
    assert seen.delay_s == pytest.approx(2.0)
    assert seen.latency_s == pytest.approx(1.24)
    assert seen.partitions == 8
    assert seen.checkpoint_interval_s is None
    # Per batch of 2 s: 8 tasks x 10 ms + 2000 x 1 ms = 2.08 s per stage, on 4 slots.
    source, count = seen.operators
    assert (source.name, source.upstream, source.tasks) == ("map", (), 8)
    assert (count.name, count.upstream, count.tasks) == ("count", ("map",), 8)
    for stage in seen.operators:
        assert stage.input_rps == pytest.approx(1000.0)
        assert stage.output_rps == pytest.approx(1000.0)
        assert stage.busy_fraction == pytest.approx(2.08 / 8.0)
        assert stage.service_time_s == pytest.approx(2.08 / 2000)
        assert stage.backpressured_fraction is None
    for executor in seen.executors:
        assert executor.ready
        assert executor.busy_fraction == pytest.approx(2.08 / 4.0)
        assert executor.cpu_fraction == pytest.approx(0.05 + 0.85 * 2.08 / 4.0)
        assert executor.throughput_rps == pytest.approx(500.0)
        assert executor.state_partitions == 4


def test_a_running_batch_counts_as_busy_by_its_elapsed_share() -> None:
    run = PLAIN.start([1000.0] * 20, executors=2, seed=1)
    run.read(8.0)
    # Half of a batch of 1.24 s: half of its 2 x 2.08 s of task time, on 4 slots for 0.62 s.
    half = run.read(8.62)
    assert half.executors[0].busy_fraction == pytest.approx(2.08 / (4 * 0.62))
    assert half.throughput_rps == 0.0
    # The other half comes in the rest of the interval, and nothing is counted twice.
    rest = run.read(10.0)
    assert rest.executors[0].busy_fraction == pytest.approx(2.08 / (4 * 1.38))


def test_a_reading_of_no_time_has_no_rates() -> None:
    run = PLAIN.start([1000.0] * 10, executors=2, seed=1)
    first = run.read(0.0)
    assert first.arrival_rps is None
    assert first.throughput_rps is None
    assert first.backlog_records == 0.0
    assert [(one.id, one.busy_fraction) for one in first.executors] == [("1", None), ("2", None)]
    assert run.read(4.0).throughput_rps == pytest.approx(500.0)
    assert run.read(4.0).throughput_rps is None


def test_a_late_batch_is_followed_at_once_and_the_grid_is_found_again() -> None:
    # 4000/s for 2 s: the batch at 2 s takes 8000 records: 0.24 + 4 = 4.24 s, until 6.24 s.
    # Then 400/s: it is followed at once by one with 4.24 x 400 = 1696: 1.088 s, until 7.328 s,
    # which is before 8 s: the grid again.
    rates = [4000.0] * 2 + [400.0] * 18
    batches = PLAIN.start(rates, executors=2, seed=1).read(20.0).batches
    assert [batch.started_at_s for batch in batches[:5]] == pytest.approx([0, 2, 6.24, 8, 10])
    assert durations(batches[1:3]) == pytest.approx([4.24, 1.088])
    assert [batch.input_records for batch in batches[1:4]] == [8000, 1696, 704]


def test_capacity_is_a_staircase_of_waves() -> None:
    assert [PLAIN.capacity_rps(n) for n in range(6)] == pytest.approx(
        [0.0, 860.0, 1760.0, 1760.0, 3560.0, 3560.0]
    )
    fine = [MicroBatchJob().capacity_rps(n) for n in range(17)]
    assert fine == sorted(fine)
    assert fine[16] < 16 * fine[1]  # contention and half-empty waves


def test_a_job_whose_fixed_cost_fills_the_trigger_has_no_capacity() -> None:
    assert msgspec.structs.replace(PLAIN, planning_s=2.0).capacity_rps(4) == 0.0
    capped = msgspec.structs.replace(PLAIN, max_offsets_per_trigger=1000)
    assert capped.capacity_rps(4) == 500.0


@pytest.mark.parametrize("executors", [1, 2, 5, 12, 16])
def test_capacity_is_what_the_engine_sustains(executors: int) -> None:
    job = msgspec.structs.replace(MicroBatchJob(), speed_spread=0.0)
    capacity = job.capacity_rps(executors)
    run = job.start([0.97 * capacity] * 3600, executors=executors, seed=3)
    backlogs = [run.read(60.0 * minute).backlog_records or 0.0 for minute in range(1, 61)]
    # Noise makes single batches late; the backlog stays at a few triggers' worth all the same.
    assert max(backlogs) < 5 * 2.0 * capacity
    assert sum(backlogs[40:]) < 1.5 * sum(backlogs[:20])
    even = msgspec.structs.replace(job, noise_fraction=0.0, straggler_probability=0.0)
    assert longest_s(even, 0.97 * capacity, executors) < 2.0
    assert longest_s(even, 1.1 * capacity, executors) > 2.0


def test_a_step_in_load_is_met_by_new_executors_after_their_start_up() -> None:
    run = PLAIN.start([500.0] * 60 + [3000.0] * 240, executors=1, seed=1)
    run.read(60.0)
    assert run.apply(4, 60.0).accepted
    before = run.read(69.5)
    assert (before.fleet.target, before.fleet.registered, before.fleet.active) == (4, 1, 1)
    assert [one.ready for one in before.executors] == [True, False, False, False]
    assert before.executors[-1].busy_fraction is None
    after = run.read(75.0)
    assert after.fleet.active == 4
    settled = run.read(300.0)
    # 6000 records in one wave per stage: 0.22 + 6000 x 0.25 ms = 1.72 s.
    assert durations(settled.batches)[-5:] == pytest.approx([1.72] * 5)
    outcome = run.finish()
    assert [(level.at_s, level.executors) for level in outcome.paid] == [(0.0, 1), (60.0, 4)]
    assert [(level.at_s, level.executors) for level in outcome.targets] == [(0.0, 1), (60.0, 4)]


def test_new_executors_are_cold_at_first() -> None:
    job = msgspec.structs.replace(PLAIN, cold_s=20.0, cold_fraction=0.5)
    run = job.start([800.0] * 120, executors=2, seed=1)
    run.apply(4, 10.0)  # ready at 20 s, warm at 40 s
    batches = {batch.started_at_s: batch.duration_s for batch in run.read(60.0).batches}
    # Two executors: 0.24 + 1600 x 0.5 ms. With two more at half speed the 8 tasks still take
    # two waves: 4 + 4 in the time of the first two and 2 + 2 beside them, then all in one.
    assert batches[18.0] == pytest.approx(1.04)
    assert batches[20.0] == pytest.approx(1.04)
    assert batches[38.0] == pytest.approx(1.04)
    assert batches[40.0] == pytest.approx(0.22 + 1600 * 0.25e-3)


def test_state_that_moves_costs_one_batch() -> None:
    # 84 MB/s: all 200 MB take 2.381 s. Two of four leave: each of the others gains a quarter.
    job = msgspec.structs.replace(PLAIN, state_bytes=200e6)
    run = job.start([400.0] * 60, executors=4, seed=1)
    run.read(9.0)
    run.apply(2, 9.0)
    batches = run.read(20.0).batches
    usual = 0.24 + 800 * 0.5e-3
    assert durations(batches)[:3] == pytest.approx([usual + 0.25 * 200 / 84, usual, usual])


def test_pinned_state_leaves_new_executors_without_stateful_work() -> None:
    job = msgspec.structs.replace(PLAIN, rebalance_state=False)
    run = job.start([1000.0] * 120, executors=2, seed=1)
    run.apply(4, 10.0)
    run.read(40.0)
    seen = run.read(80.0)
    assert [one.state_partitions for one in seen.executors] == [4, 4, 0, 0]
    busy = [one.busy_fraction or 0.0 for one in seen.executors]
    # Of each stage's 2.08 s: a quarter of the first for each, half of the second for the old.
    assert busy == pytest.approx([(0.52 + 1.04) / 4] * 2 + [0.52 / 4] * 2)
    # The first stage runs in one wave, the second still in two.
    assert seen.latency_s == pytest.approx(0.2 + 0.01 + 0.02 + 2000 * (0.125e-3 + 0.25e-3))
    # After a loss of state one batch waits for it.
    run.apply(1, 80.0)
    assert max(durations(run.read(100.0).batches)) > 8.5


def test_those_that_leave_finish_the_batch_and_are_paid_until_they_are_gone() -> None:
    run = PLAIN.start([1000.0] * 60, executors=4, seed=1)
    # The batch at 10 s takes 2000 records: 0.22 + 0.5 s, until 10.72 s; gone 3 s later.
    run.read(10.5)
    run.apply(2, 10.5)
    seen = run.read(12.0)
    assert (seen.fleet.target, seen.fleet.registered, seen.fleet.active) == (2, 4, 2)
    assert [one.ready for one in seen.executors] == [True, True, False, False]
    assert durations(seen.batches) == pytest.approx([0.72])
    after = run.read(14.0)
    assert (after.fleet.registered, after.fleet.active) == (2, 2)
    assert durations(after.batches) == pytest.approx([1.24])
    paid = run.finish().paid
    assert [(level.at_s, level.executors) for level in paid] == [
        (0.0, 4),
        (pytest.approx(13.72), 2),
    ]


def test_asking_twice_changes_nothing() -> None:
    def outcome(times: int) -> Outcome:
        run = MicroBatchJob().start([50_000.0] * 120, executors=4, seed=5)
        for _ in range(times):
            assert run.apply(8, 30.0).accepted
        run.read(31.0)
        for _ in range(times):
            assert run.apply(8, 31.0).accepted
        return run.finish()

    assert outcome(1) == outcome(3)
    assert outcome(1).targets[-1].executors == 8


def test_without_executors_nothing_is_processed_and_the_batch_waits() -> None:
    run = PLAIN.start([100.0] * 120, executors=2, seed=1)
    run.read(10.0)
    run.apply(0, 10.0)
    seen = run.read(60.0)
    assert (seen.fleet.target, seen.fleet.registered) == (0, 0)
    assert seen.executors == ()
    assert [stage.busy_fraction for stage in seen.operators] == [0.0, 0.0]
    assert run.read(61.0).throughput_rps == 0.0
    run.apply(2, 61.0)
    # The batch of 10 s was planned with 200 records and ends 0.34 s after the executors came.
    first, second, *_ = run.read(80.0).batches
    assert first.started_at_s == 10.0
    assert first.started_at_s + first.duration_s == pytest.approx(71.34)
    assert first.input_records == 200
    assert second.input_records == 6134
    none = PLAIN.start([100.0] * 20, executors=0, seed=1)
    assert none.read(20.0).backlog_records == 2000.0


def test_an_admission_cap_spreads_the_backlog_of_an_outage_over_many_batches() -> None:
    outage = SourceOutage(at_s=19.0, duration_s=20.0)
    capped = msgspec.structs.replace(PLAIN, max_offsets_per_trigger=3000)
    rates = [1000.0] * 120
    run = capped.start(rates, executors=2, seed=1, faults=[outage])
    run.read(18.0)
    during = run.read(30.0)
    assert (during.arrival_rps, during.backlog_records, during.delay_s) == (None, None, None)
    assert [batch.input_records for batch in during.batches] == [2000, 0, 0, 0, 0, 0]
    # By 40 s the 22,000 records since 18 s wait. Each batch takes 3000 in 1.74 s, 1000 more than
    # have come: 22 batches later 2000 are left, as ever.
    after = run.read(120.0)
    assert after.arrival_rps == pytest.approx(1000.0)
    taken = [batch.input_records for batch in after.batches]
    assert taken[4:] == [0] + [3000] * 20 + [2000] * (len(taken) - 25)
    # Without a cap the first batch takes all: 0.24 + 22,000 x 0.5 ms = 11.24 s.
    free = PLAIN.start(rates, executors=2, seed=1, faults=[outage]).read(120.0)
    assert max(durations(free.batches)) == pytest.approx(11.24)


def test_an_executor_that_dies_takes_its_part_of_the_batch_with_it() -> None:
    # The batch of 10 s takes 1.24 s on two executors. At 10.62 s half is done; one executor
    # dies, a quarter is left, and three quarters are run by the other: 0.75 x (0.28 + 2 s).
    fault = ExecutorLost(at_s=10.62)
    run = PLAIN.start([1000.0] * 60, executors=2, seed=1, faults=[fault])
    run.read(10.5)
    seen = run.read(11.0)
    assert (seen.fleet.target, seen.fleet.active) == (2, 1)
    batch = run.read(20.0).batches[0]
    assert batch.started_at_s == 10.0
    assert batch.duration_s == pytest.approx(0.62 + 0.75 * 2.28)
    # Another is started in its place and is there 10 s later.
    assert run.read(21.0).fleet.active == 2
    assert [executor.id for executor in run.read(22.0).executors if executor.id == "3"] == ["3"]


def test_a_job_that_loses_all_executors_in_a_batch_starts_it_again() -> None:
    fault = ExecutorLost(at_s=10.62, count=2)
    run = PLAIN.start([1000.0] * 60, executors=2, seed=1, faults=[fault])
    run.read(10.5)
    batch = run.read(30.0).batches[0]
    assert batch.started_at_s == 10.0
    assert batch.started_at_s + batch.duration_s == pytest.approx(20.62 + 1.24)


def test_a_slow_executor_holds_up_the_state_that_it_has() -> None:
    healthy = longest_s(PLAIN, 800.0, 2)
    slow = longest_s(PLAIN, 800.0, 2, SlowExecutor(at_s=100.0, speed_fraction=0.5))
    over = longest_s(PLAIN, 800.0, 2, SlowExecutor(at_s=100.0, duration_s=50.0))
    # The first stage is shared out anew: 6 tasks go to the fast one, in 3 waves instead of 2.
    # The second is not: 4 tasks at half speed are 4 waves.
    assert healthy == over == pytest.approx(0.24 + 1600 * 0.5e-3)
    assert slow == pytest.approx(0.2 + 7 * (0.01 + 1600 / 8 * 1e-3))


def test_capacity_that_drops_makes_records_dearer() -> None:
    drop = CapacityDrop(at_s=100.0, fraction=0.2)
    # 1600 records cost 0.8 s / (1 - 0.2).
    assert longest_s(PLAIN, 800.0, 2, drop) == pytest.approx(0.24 + 1.0)
    over = CapacityDrop(at_s=100.0, duration_s=50.0)
    assert longest_s(PLAIN, 800.0, 2, over) == pytest.approx(1.04)


def test_skew_cannot_be_outgrown() -> None:
    skew = SkewSetsIn(at_s=100.0, hot_fraction=0.5)
    few, many = longest_s(PLAIN, 800.0, 4, skew), longest_s(PLAIN, 800.0, 40, skew)
    # The hot task gets 0.5 + 0.5/8 of 1600 records at 1 ms each, whatever the fleet.
    assert few == many == pytest.approx(0.22 + 1600 * (0.125e-3 + 0.5625e-3))
    born = msgspec.structs.replace(PLAIN, hot_fraction=0.5)
    assert longest_s(born, 800.0, 4) == few
    assert born.capacity_rps(4) == born.capacity_rps(40) == pytest.approx(1.78 / 0.6875e-3 / 2)


def test_failed_and_slow_starts_delay_the_new_executors() -> None:
    def active_at(now_s: float, *faults: Fault) -> int:
        run = PLAIN.start([500.0] * 120, executors=1, seed=1, faults=faults)
        run.apply(3, 20.0)
        return run.read(now_s).fleet.active

    failed = FailedStart(at_s=0.0, duration_s=25.0)
    slow = SlowStart(at_s=0.0, factor=3.0)
    assert active_at(31.0) == 3
    assert (active_at(31.0, failed), active_at(41.0, failed)) == (1, 3)
    assert (active_at(49.0, slow), active_at(51.0, slow)) == (1, 3)


def test_a_silent_source_brings_empty_batches_and_then_one_large_one() -> None:
    silence = SourceSilence(at_s=20.0, duration_s=20.0)
    run = PLAIN.start([1000.0] * 120, executors=4, seed=1, faults=[silence])
    run.read(23.0)
    quiet = run.read(40.0)
    assert quiet.arrival_rps == 0.0
    assert (quiet.backlog_records, quiet.delay_s) == (0.0, 0.0)
    assert {batch.input_records for batch in quiet.batches} == {0}
    assert max(batch.input_records for batch in run.read(60.0).batches) == 22_000


def test_delays_are_those_of_each_single_record() -> None:
    rates = [float(40 + round(30 * sin(second))) for second in range(60)]
    job = msgspec.structs.replace(PLAIN, stages=(Stage("map", 4, 0.03, task_overhead_s=0.02),))
    outcome = job.start(rates, executors=1, seed=1).finish()
    # Record by record, by hand: 2 waves of 4 tasks, so 0.24 s and 15 ms per record. A batch that
    # starts between two arrivals pays for the part of a record that has come.
    arrived_s = [
        second + (place + 1) / rate
        for second, rate in enumerate(rates)
        for place in range(int(rate))
    ]
    departed_s: list[float] = []
    now_s = upto = 0.0
    while now_s < 60.0:
        before = upto
        upto = sum(rate * min(1.0, max(0.0, now_s - second)) for second, rate in enumerate(rates))
        end_s = now_s + (0.2 + 2 * 0.02 + (upto - before) * 0.015 if upto > before else 0.1)
        departed_s += [end_s] * (int(upto + 1e-6) - len(departed_s))
        now_s = max((now_s // 2.0 + 1.0) * 2.0, end_s)
    by_hand = [
        departure - arrival
        for arrival, departure in zip(arrived_s, departed_s, strict=False)
        if departure <= 60.0
    ]
    engine = [delay_s(outcome, record + 1.0) for record in range(len(by_hand))]
    assert engine == pytest.approx(by_hand, abs=1e-6)
    assert len(by_hand) > 2000
    assert max(by_hand) > 4.0  # some batches were late


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    def run(seed: int) -> Outcome:
        engine = MicroBatchJob().start([50_000.0] * 300, executors=5, seed=seed)
        engine.apply(7, 60.0)
        return engine.finish()

    assert run(1) == run(1)
    assert run(1).departures != run(2).departures


def test_how_often_it_is_read_does_not_change_the_run() -> None:
    def run(every_s: float) -> Outcome:
        faults: list[Fault] = [ExecutorLost(at_s=100.3), CapacityDrop(at_s=150.0)]
        engine = MicroBatchJob().start([60_000.0] * 300, executors=7, seed=3, faults=faults)
        for turn in range(1, int(300 / every_s) + 1):
            engine.read(turn * every_s)
        return engine.finish()

    assert run(0.5) == run(15.0) == run(300.0)


def test_task_time_adds_up_however_often_it_is_read() -> None:
    def task_time_s(every_s: float) -> dict[str, float]:
        faults: list[Fault] = [ExecutorLost(at_s=100.7), SlowExecutor(at_s=130.0, duration_s=40.0)]
        run = MicroBatchJob().start([30_000.0] * 240, executors=6, seed=3, faults=faults)
        spent_s: dict[str, float] = {}
        for turn in range(1, int(240 / every_s) + 1):
            for one in run.read(turn * every_s).executors:
                task_s = (one.busy_fraction or 0.0) * 2 * every_s
                spent_s[one.id] = spent_s.get(one.id, 0.0) + task_s
            if turn * every_s in (30.0, 180.0):
                run.apply(8 if turn * every_s == 30.0 else 5, turn * every_s)
        return {name: spent for name, spent in spent_s.items() if spent > 0.0}

    often, seldom = task_time_s(1.0), task_time_s(15.0)
    assert len(seldom) == 9  # six, two more, and one in place of the dead
    # Who dies between two readings takes the last seconds with it.
    lost = {name for name in seldom if often[name] != pytest.approx(seldom[name])}
    assert len(lost) == 1
    # 30,000 records/s at 150 us, 6 % dearer, and 392 tasks of 1 ms per batch: about 5 s a second.
    assert sum(often.values()) == pytest.approx(240 * (30_000 * 160e-6 + 0.2), rel=0.05)


def test_faults_that_leave_nothing_stop_the_job_but_not_the_run() -> None:
    for fault in (CapacityDrop(at_s=20.0, fraction=1.0), SlowExecutor(20.0, speed_fraction=0.0)):
        run = PLAIN.start([1000.0] * 60, executors=2, seed=1, faults=[fault])
        assert run.read(60.0).backlog_records == pytest.approx(42_000.0)
        assert run.finish().departures.records[-1] == pytest.approx(18_000.0)


def test_after_its_end_a_run_stands_still() -> None:
    run = PLAIN.start([1000.0] * 11, executors=2, seed=1)
    assert run.read(11.0).backlog_records == 3000.0
    later = run.read(20.0)
    assert (later.arrival_rps, later.throughput_rps) == (0.0, 0.0)
    assert later.backlog_records == 3000.0
    assert later.delay_s == pytest.approx(12.0)


def test_an_empty_load_does_nothing() -> None:
    assert PLAIN.start([], executors=2, seed=1).finish().departures == Curve([0.0, 0.0], [0.0, 0.0])
    idle = PLAIN.start([0.0] * 60, executors=16, seed=1).read(60.0)
    assert (idle.arrival_rps, idle.throughput_rps, idle.delay_s) == (0.0, 0.0, 0.0)
    assert {one.busy_fraction for one in idle.executors} == {0.0}
    assert {stage.service_time_s for stage in idle.operators} == {None}


def test_the_first_rate_after_an_outage_is_the_mean_over_it() -> None:
    outage = SourceOutage(at_s=10.0, duration_s=30.0)
    run = PLAIN.start([100.0] * 20 + [500.0] * 40, executors=2, seed=1, faults=[outage])
    run.read(5.0)
    assert run.read(20.0).arrival_rps is None
    # From 5 to 45 s: 15 s at 100/s and 25 s at 500/s.
    assert run.read(45.0).arrival_rps == pytest.approx((1500 + 12_500) / 40)


def test_a_fractional_trigger_keeps_its_grid() -> None:
    job = msgspec.structs.replace(PLAIN, trigger_interval_s=0.3)
    batches = job.start([10.0] * 600, executors=4, seed=1).read(600.0).batches
    assert len(batches) == 2000
    assert batches[-1].started_at_s == pytest.approx(1999 * 0.3)


def test_a_job_without_stages_or_trigger_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one stage"):
        MicroBatchJob(stages=())
    with pytest.raises(ConfigError, match="must be positive, not 0"):
        MicroBatchJob(trigger_interval_s=0.0)


FAULTS = st.one_of(
    st.builds(ExecutorLost, at_s=st.floats(0, 150), count=st.integers(1, 3)),
    st.builds(SlowExecutor, st.floats(0, 150), st.floats(1, 80), st.floats(0, 1)),
    st.builds(FailedStart, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
    st.builds(SlowStart, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
    st.builds(CapacityDrop, st.floats(0, 150), st.floats(1, 80), st.floats(0, 1)),
    st.builds(SkewSetsIn, st.floats(0, 150), st.floats(1, 80), st.floats(0, 1)),
    st.builds(SourceOutage, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
    st.builds(SourceSilence, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
)


@given(
    rates=st.lists(st.floats(0, 60_000), min_size=1, max_size=12),
    targets=st.lists(st.integers(0, 6), max_size=12),
    every_s=st.sampled_from([0.5, 7.0, 15.0]),
    faults=st.lists(FAULTS, max_size=3),
    rebalance=st.booleans(),
    cap=st.sampled_from([None, 50_000.0]),
)
def test_records_are_conserved_whatever_happens(
    rates: list[float],
    targets: list[int],
    every_s: float,
    faults: list[Fault],
    rebalance: bool,
    cap: float | None,
) -> None:
    job = MicroBatchJob(rebalance_state=rebalance, max_offsets_per_trigger=cap)
    load = [rate for rate in rates for _ in range(15)]
    run = job.start(load, executors=2, seed=1, faults=faults)
    arrived = processed = 0.0
    taken = turns = 0
    while (now_s := (turns + 1) * every_s) <= len(load):
        seen = run.read(now_s)
        processed += (seen.throughput_rps or 0.0) * every_s
        taken += sum(batch.input_records for batch in seen.batches)
        assert taken == pytest.approx(processed, abs=1.001)
        if seen.backlog_records is not None:
            arrived = at_time(run_arrivals(load, faults), now_s)
            assert arrived == pytest.approx(processed + seen.backlog_records, abs=0.01)
        assert all(0.0 <= (one.busy_fraction or 0.0) <= 1.0 for one in seen.executors)
        assert seen.fleet.active <= seen.fleet.registered
        if turns < len(targets):
            run.apply(targets[turns], now_s)
        turns += 1
    outcome = run.finish()
    assert outcome.departures.records == sorted(outcome.departures.records)
    assert outcome.departures.at_s == sorted(outcome.departures.at_s)
    for at_s, records in zip(outcome.departures.at_s, outcome.departures.records, strict=True):
        assert records <= at_time(outcome.arrivals, at_s) + 1e-3
    assert all(level.executors >= 0 for level in outcome.paid)


def run_arrivals(rates: Sequence[float], faults: Sequence[Fault]) -> Curve:
    seconds = [float(second) for second in range(len(rates) + 1)]
    return Curve(seconds, list(accumulate(with_silence(rates, faults), initial=0.0)))


def at_time(curve: Curve, now_s: float) -> float:
    """How many records a curve with a point per second has at an instant."""
    second = min(int(now_s), len(curve.records) - 2)
    low, high = curve.records[second], curve.records[second + 1]
    return low + (high - low) * (now_s - second)
