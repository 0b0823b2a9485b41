"""A simulated Spark job when something goes wrong."""

from __future__ import annotations

import msgspec
import pytest

from penstock.simulation.faults import (
    CapacityDrop,
    ExecutorLost,
    FailedStart,
    Fault,
    SkewSetsIn,
    SlowExecutor,
    SlowStart,
    SourceSilence,
)
from tests.simulation.engines.plain_batches import PLAIN, longest_s


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
