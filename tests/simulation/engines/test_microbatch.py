"""A simulated Spark job: worked batches, rescales and admission."""

from __future__ import annotations

import msgspec
import pytest

from penstock.simulation.engines.engine import Outcome, SimulatedJob
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.faults import (
    SourceOutage,
)
from tests.simulation.engines.plain_batches import PLAIN, delay_s, durations, longest_s


def test_the_job_fits_the_seam() -> None:
    job: SimulatedJob = MicroBatchJob()
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


def test_executors_that_join_take_tasks_of_the_running_batch() -> None:
    run = PLAIN.start([10_000.0] * 2 + [0.0] * 30, executors=1, seed=1)
    run.read(2.0)
    run.apply(4, 2.0)
    # 20,000 records take one executor 0.28 + 20 = 20.28 s. After 10 s, when 10 / 20.28 of that is
    # done, three more are there, and the rest takes as long as on four: 0.507 x (0.22 + 5) s.
    ends_s = 12.0 + (1.0 - 10.0 / 20.28) * 5.22
    batches = run.read(20.0).batches
    assert batches[0].started_at_s == 2.0
    assert batches[0].started_at_s + batches[0].duration_s == pytest.approx(ends_s)


def test_tasks_that_run_already_stay_where_they_are() -> None:
    # Four executors run each of both stages in one wave; with half of the batch behind, all that
    # is left of it runs already: 0.22 + 10,000 x 0.25 ms = 2.72 s.
    late = msgspec.structs.replace(PLAIN, startup=Startup(1.5, 1.5))
    run = late.start([5_000.0] * 2 + [0.0] * 10, executors=4, seed=1)
    run.read(2.0)
    run.apply(8, 2.0)
    assert run.read(8.0).batches[0].duration_s == pytest.approx(2.72)
