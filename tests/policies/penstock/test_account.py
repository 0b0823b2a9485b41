"""What is learned from measured batches: worked numbers of a job of 12 tasks on slots of one core.

Its driver takes 0.35 s of a batch, each task 34 ms, each record 1.1 ms: the account of a recorded
demo. On 4 executors 12 tasks run in 3 rounds, so that a record costs 3/12 x 1.1 ms.
"""

from __future__ import annotations

from math import ceil
from random import Random

import pytest
from msgspec import structs

from penstock.core.model import Batch, BatchStage, ExecutorSample, Fleet, Snapshot
from penstock.policies.penstock.account import StageCost
from penstock.policies.penstock.capacity import Capacity, learn
from penstock.policies.penstock.estimate import CapacityEstimate

TASKS = 12
DRIVER_S, OVERHEAD_S, RECORD_S = 0.35, 0.034, 1.1e-3


class Job:
    """A job that takes one batch after the other, and what is learned of it."""

    def __init__(self, executors: int = 4) -> None:
        self.known, self.at_s = CapacityEstimate(), 1000.0
        self.before: Snapshot | None = None
        self.executors = executors
        self.driver_s, self.record_s, self.hot_s = DRIVER_S, RECORD_S, 0.0
        self.overhead_s, self.noise = OVERHEAD_S, 1.0

    def run(self, records: int, batches: int = 1, executors: int | None = None) -> Job:
        self.executors = executors or self.executors
        for _ in range(batches):
            self.at_s += 4.0
            seen = self.snapshot(records)
            self.known = learn(self.known, seen, self.before)
            self.before = seen
        return self

    def snapshot(self, records: int) -> Snapshot:
        task_s = self.noise * (self.overhead_s + records * self.record_s / TASKS)
        work_s = TASKS * task_s + self.hot_s * records
        took_s = ceil(TASKS / self.executors) * task_s + self.hot_s * records
        stage = BatchStage(TASKS, work_s, 0.2, 0.2 + took_s)
        batch = Batch(0, self.at_s - 3.0, self.driver_s + took_s, records, stages=(stage,))
        fleet = Fleet(self.executors, self.executors, self.executors)
        executors = tuple(ExecutorSample(str(n), 0.0) for n in range(self.executors))
        return Snapshot(
            self.at_s, fleet, trigger_interval_s=2.0, batches=(batch,), executors=executors
        )

    def believed_rps(self, executors: int) -> float:
        return Capacity(self.known, 1).rps(executors)

    def true_rps(self, executors: int) -> float:
        return TASKS / (ceil(TASKS / executors) * self.record_s)


def test_the_parts_of_a_batch_are_told_apart_once_sizes_vary() -> None:
    job = Job()
    for records in (1200, 4800, 2400, 600, 3600):
        job.run(records)
    (stage,) = job.known.stages
    assert stage.overhead_s == pytest.approx(OVERHEAD_S, rel=0.05)
    assert stage.record_s == pytest.approx(RECORD_S, rel=0.02)
    assert job.known.fixed_s == pytest.approx(DRIVER_S)
    for executors in (1, 2, 4, 8):
        assert job.believed_rps(executors) == pytest.approx(job.true_rps(executors), rel=0.12)


def test_batches_of_one_size_count_the_overhead_to_the_records() -> None:
    """0.034 s a task is 0.34 ms a record at 100 of them: the capacity is understated, not more."""
    job = Job().run(1200, batches=20)
    whole_s = OVERHEAD_S + 100 * RECORD_S
    assert job.known.stages[0].overhead_s == 0.0
    assert job.believed_rps(4) == pytest.approx(100 / whole_s * TASKS / 3, rel=0.02)


@pytest.mark.parametrize("factor", [40.0, 1 / 40.0])
def test_records_that_cost_more_or_less_at_once_are_known_within_three_batches(
    factor: float,
) -> None:
    job = Job()
    for records in (1200, 4800, 2400, 600, 3600, 2400):
        job.run(records)
    overhead_s = job.known.stages[0].overhead_s
    job.record_s *= factor
    job.run(2400, batches=3)
    assert job.believed_rps(4) == pytest.approx(job.true_rps(4), rel=0.1)
    # A jump belongs to the data: what a task costs is the platform's.
    assert job.known.stages[0].overhead_s == pytest.approx(overhead_s, rel=0.2)
    job.record_s /= factor
    job.run(2400, batches=3)
    assert job.believed_rps(4) == pytest.approx(job.true_rps(4), rel=0.1)


def test_a_load_that_falls_to_a_tenth_shows_the_overhead_of_tasks() -> None:
    """After batches of one size, one of a tenth lies on a line with them: 34 ms and 1.1 ms."""
    job = Job().run(6000, batches=20).run(600, batches=3)
    assert job.known.stages[0].overhead_s == pytest.approx(OVERHEAD_S, rel=0.05)
    assert job.believed_rps(4) == pytest.approx(job.true_rps(4), rel=0.1)
    job.run(600, batches=50)
    assert job.believed_rps(4) == pytest.approx(job.true_rps(4), rel=0.1)


def test_a_fleet_that_grows_and_shrinks_changes_no_cost() -> None:
    job = Job(1)
    for executors in (1, 1, 8, 8, 1, 1):
        for records in (1200, 3600, 2400):
            job.run(records, executors=executors)
    assert job.known.stages[0].record_s == pytest.approx(RECORD_S, rel=0.05)
    assert job.believed_rps(8) == pytest.approx(job.true_rps(8), rel=0.15)


def test_batches_of_one_record_say_what_a_task_costs_and_no_capacity() -> None:
    job = Job().run(1, batches=10)
    assert job.known.work_s is None
    assert job.known.fixed_s == pytest.approx(DRIVER_S)
    assert job.known.stages[0].last_took_s == pytest.approx(OVERHEAD_S, rel=0.01)


def test_a_slow_driver_or_sink_is_no_work_of_the_executors() -> None:
    job = Job()
    for records in (1200, 4800, 2400, 600, 3600):
        job.run(records)
    job.driver_s = 3.0
    job.run(2400, batches=40)
    assert job.known.fixed_s == pytest.approx(3.0, rel=0.02)
    assert job.believed_rps(4) == pytest.approx(job.true_rps(4), rel=0.05)


def test_a_hot_key_is_serial_and_does_not_shrink_with_the_fleet() -> None:
    """One task takes 1 ms more of each record than the others: no fleet is faster than that.

    Up to 1.3 times the mean is taken for executors that differ, so a part counts as work: 12
    executors are believed to do up to twice as much, which the first batch of theirs corrects.
    """
    job = Job()
    job.hot_s = 1e-3
    for records in (1200, 4800, 2400, 600, 3600):
        job.run(records)
    assert job.known.serial_s == pytest.approx(0.5e-3, rel=0.1)
    assert job.believed_rps(12) < 2.0 / 1e-3
    for records in (1200, 4800, 2400, 600, 3600):
        job.run(records, batches=3, executors=12)
    assert job.believed_rps(12) == pytest.approx(1.0 / 1.1e-3, rel=0.15)


def test_other_stages_than_before_start_from_the_first_batch() -> None:
    one = StageCost(12).with_batch(12, 1200, 12 * 0.034 + 1200 * 1.1e-3)
    other = one.with_batch(24, 1200, 24 * 0.034 + 1200 * 1.1e-3)
    assert (other.tasks, other.count) == (24, 1.0)


def test_small_batches_of_which_most_is_overhead_do_not_swing_what_a_record_costs() -> None:
    # Of a task of 0.38 s only 0.13 s are for its records: noise of a tenth in the task is noise of
    # a third in what is left. A real run on a busy machine was believed to carry 18 k/s, then 5.
    job, rng = Job(executors=6), Random(3)
    job.overhead_s = 0.25
    for number in range(60):
        job.noise = 1.0 + 0.1 * rng.gauss(0.0, 1.0)
        job.run(6000 if number < 15 else 1500)
        if number >= 20:
            assert job.believed_rps(6) == pytest.approx(job.true_rps(6), rel=0.25)


def test_tasks_that_were_once_faster_do_not_hide_what_they_take_now() -> None:
    """On two executors a task took 0.1 s; on six that share cores 0.5 s, and 0.4 ms per record."""
    stage = StageCost(6).with_batch(6, 60, 6 * 0.1)
    for records in (12_000, 13_000, 12_500, 12_000, 13_000, 2_400, 2_000, 2_200):
        stage = stage.with_batch(6, records, 6 * 0.5 + 0.4e-3 * records)
    assert stage.overhead_s == pytest.approx(0.5, rel=0.2)
    assert 1e3 * stage.record_s == pytest.approx(0.4, rel=0.3)


def test_stages_that_run_side_by_side_share_the_slots() -> None:
    """Two sources of a join, 8 tasks of 1 s each: on 6 slots 16 tasks take 3 rounds and not 4."""
    known, before = CapacityEstimate(), None
    for turn in range(6):
        stages = BatchStage(8, 8.0, 0.2, 2.2), BatchStage(8, 8.0, 1.2, 3.3)
        batch = Batch(turn, 1000.0 + 4.0 * turn, 3.5, 8000, stages=stages)
        fleet = Fleet(6, 6, 6)
        seen = Snapshot(1004.0 + 4.0 * turn, fleet, trigger_interval_s=2.0, batches=(batch,))
        known, before = learn(known, seen, before), seen
    capacity = Capacity(known, 1)
    assert [one.beside for one in known.stages] == [False, True]
    assert capacity.rps(6) == pytest.approx(8000 / 3.1, rel=0.05)
    # 4 slots take 4 rounds, 8 take 2, 16 one.
    assert capacity.rps(4) == pytest.approx(8000 / 4.0, rel=0.1)
    assert capacity.rps(8) == pytest.approx(8000 / 2.0, rel=0.15)


def test_what_was_inferred_from_durations_is_dropped_when_stages_are_measured() -> None:
    """The first batch was read without its stages: it looks like 5 slots that were always busy.

    Half as many records at 1.6 ms each, and then 1.1 ms, look like an overhead of 0.5 s a task.
    """
    job = Job(5)
    bare = structs.replace(job.snapshot(3000).batches[0], stages=(), phases={"addBatch": 1.0})
    seen = structs.replace(job.snapshot(3000), batches=(bare,))
    job.known, job.before = learn(job.known, seen, None), seen
    assert job.known.work_s == pytest.approx(1.0 * 5 / 3000, rel=0.1)
    for records in (5000, 5500, 6000):
        job.run(records)
    assert job.known.stages[0].overhead_s < 2.0 * OVERHEAD_S
    assert job.believed_rps(5) == pytest.approx(job.true_rps(5), rel=0.12)
    # And a batch that was read without its stages later on says nothing.
    known = job.known
    assert learn(known, structs.replace(seen, at_s=job.at_s + 4.0), job.before) == known


def test_a_job_of_many_batches_is_not_in_doubt_because_its_fleet_has_changed() -> None:
    """After a change six measurements count; batches of 40 sizes have told overhead from work."""
    stage = StageCost(12, overhead_s=0.1, last_size=100.0, last_took_s=0.2, count=40.0)
    known = CapacityEstimate(
        work_s=1e-3, fixed_s=0.5, samples=6.0, stages=(stage,), has_stages=True
    )
    assert Capacity(known, 1).doubt == pytest.approx(0.3 / 40.0)


def test_executors_that_have_just_started_leave_the_capacity_in_doubt() -> None:
    """Executors that are 21 to 33 s old are cold to 0.50 to 0.33, old ones are not."""

    def doubt_after(age_s: float) -> float:
        job = Job()
        for records in (2400, 2400, 2400, 2400):
            job.at_s += 4.0
            seen = job.snapshot(records)
            cold = tuple(
                structs.replace(one, started_at_s=1000.0 - age_s) for one in seen.executors
            )
            seen = structs.replace(seen, executors=cold)
            job.known, job.before = learn(job.known, seen, job.before), seen
        return Capacity(job.known, 1).doubt

    # 0.3 over the number of measurements, and half of their coldness.
    assert doubt_after(600.0) == pytest.approx(0.3 / 4.0, abs=0.005)
    assert doubt_after(20.0) == pytest.approx(0.3 / 4.0 + 0.5 * 0.41, abs=0.01)


def test_a_load_that_falls_shows_an_overhead_soon_after_a_change() -> None:
    """Tasks with state take 0.5 s each, whatever they read: the records did not become dearer."""
    job = Job()
    job.overhead_s, job.record_s = 0.5, 0.2e-3
    job.run(12_000, batches=2)
    job.run(4_000).run(3_000)
    assert job.known.stages[0].overhead_s > 0.35
    # All of it booked on the records would be 0.55 s for 250 of them: 1.8 k/s of 20 k/s.
    assert job.believed_rps(4) > 0.5 * job.true_rps(4)


def test_stages_that_are_not_measured_for_long_are_done_without() -> None:
    job = Job().run(4800, batches=6)
    for after_s in (10.0, 200.0):
        seen = job.snapshot(4800)
        bare = structs.replace(seen.batches[0], stages=(), started_at_s=job.at_s + after_s)
        seen = structs.replace(seen, at_s=job.at_s + after_s + 4.0, batches=(bare,))
        known = learn(job.known, seen, job.before)
        assert known.has_stages == (after_s == 10.0)


def test_two_slow_batches_at_a_high_load_do_not_make_all_of_it_overhead() -> None:
    """Tasks of 192, 88 us per record, at night and by day; then two that take 1.4 times as long."""

    def learn(known: StageCost, size: int, slower: float = 1.0) -> StageCost:
        return known.with_batch(192, 192 * size, 192 * slower * (0.0017 + 88e-6 * size))

    stage = StageCost(192)
    for size in [220, 240, 230, 260] * 10 + [1_550, 1_620, 1_500, 1_600] * 40:
        stage = learn(stage, size)
    assert stage.record_s == pytest.approx(88e-6, rel=0.05)
    for size in (1_640, 2_490):
        stage = learn(stage, size, slower=1.4)
    for size in (3_480, 3_280, 2_000, 1_100, 1_000):
        stage = learn(stage, size)
        assert stage.overhead_s < 0.2 * stage.last_took_s
    assert stage.record_s == pytest.approx(88e-6, rel=0.25)


def test_tasks_that_start_more_slowly_on_a_larger_fleet_do_not_make_records_dear() -> None:
    """As YSB was seen on two cores: 55 ms for a small task on one executor, 143 ms on eight.

    Records cost 1.08 ms throughout.
    """
    stage = StageCost(12)
    for _ in range(4):
        stage = stage.with_batch(12, 139, 0.66)
    for records in (2_071, 2_459, 1_958, 2_180, 3_220, 4_267, 6_049, 4_000, 2_922, 3_314) * 2:
        stage = stage.with_batch(12, records, 1.72 + 1.08e-3 * records)
    assert 12 * stage.overhead_s == pytest.approx(1.72, rel=0.2)
    assert 1e3 * stage.record_s == pytest.approx(1.08, rel=0.1)
