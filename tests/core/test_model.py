"""What the fields of a snapshot promise, checked on the simulated engines."""

from __future__ import annotations

import pytest

from penstock.core.errors import ModelError
from penstock.core.model import Batch, ExecutorSample, Fleet, Snapshot
from penstock.lab.experiments.scenario import Scenario
from penstock.simulation.engines.engine import Engine


def started(engine: str, executors: int = 4) -> Engine:
    scenario = Scenario("constant:20k", engine, duration_s=1200.0)
    return scenario.job.start(scenario.rates(), executors=executors, seed=1)


def test_only_time_and_fleet_go_without_a_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        Snapshot(0.0, Fleet(1, 1, 1), 2.0)  # type: ignore[call-arg]


def test_each_batch_is_in_exactly_one_snapshot_oldest_first() -> None:
    engine = started("micro-batch")
    found: list[Batch] = []
    last_s = 0.0
    for now_s in (7.0, 15.0, 15.5, 16.0, 90.0, 91.0, 300.0):
        batches = engine.read(now_s).batches
        ends = [batch.started_at_s + batch.duration_s for batch in batches]
        assert all(last_s < end_s <= now_s for end_s in ends)
        found += batches
        last_s = now_s
    assert [batch.id for batch in found] == list(range(len(found)))
    assert not engine.read(300.1).batches  # the next one is still running


def test_a_continuous_engine_has_no_batches_and_no_trigger() -> None:
    snapshot = started("continuous").read(60.0)
    assert (snapshot.batches, snapshot.trigger_interval_s) == ((), None)
    assert snapshot.arrival_rps == pytest.approx(20e3, rel=0.1)


@pytest.mark.parametrize("name", ["micro-batch", "continuous"])
def test_target_is_what_was_asked_for_and_active_what_works(name: str) -> None:
    engine = started(name)
    engine.read(60.0)
    engine.apply(6, 60.0)
    fleet = engine.read(61.0).fleet
    assert (fleet.target, fleet.registered, fleet.active) == (6, 4, 4)
    settled = engine.read(300.0).fleet
    assert (settled.target, settled.registered, settled.active) == (6, 6, 6)
    engine.apply(2, 300.0)
    fleet = engine.read(301.0).fleet
    assert fleet.target == 2
    assert fleet.active <= 2
    assert fleet.active <= fleet.registered


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_what_no_instrument_can_have_measured_is_refused(value: float) -> None:
    with pytest.raises(ModelError, match=r"ExecutorSample\.disk_bytes_per_s must be finite"):
        ExecutorSample("1", 0.0, disk_bytes_per_s=value)
    with pytest.raises(ModelError, match=r"Snapshot\.mean_delay_s must be finite"):
        Snapshot(0.0, Fleet(1, 1, 1), mean_delay_s=value)


def test_no_partition_has_fewer_than_no_records_waiting() -> None:
    with pytest.raises(ModelError, match="Snapshot is not complete"):
        Snapshot(0.0, Fleet(1, 1, 1), partition_backlog_records=(3, -1))
