"""Heron's detectors and diagnosers, and what stands in for backpressure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Batch, Fleet, OperatorSample, Snapshot
from penstock.policies.algorithms.measurements import (
    excess_backlog_records,
    excess_delay_s,
    grown,
    held_back_fraction,
    skew,
    under_provisioned,
)


def test_skew_needs_two_instances_and_more_than_the_ratio() -> None:
    assert skew({"a": 9.0}, ratio=1.5) == ((), ())
    assert skew({"a": 15.0, "b": 10.0}, ratio=1.5) == ((), ())
    found = skew({"a": 16.0, "b": 10.0, "c": 15.0, "d": 10.5}, ratio=1.5)
    assert found == (("a", "c"), ("b", "d"))
    assert skew({"a": 1.0, "b": 0.0}, ratio=1.5) == (("a",), ("b",))


def test_backpressure_is_under_provisioning_unless_instances_differ() -> None:
    assert under_provisioned(["back_pressure"])
    assert not under_provisioned([])
    assert not under_provisioned(["back_pressure", "queue_skew"])


@pytest.mark.parametrize(
    ("instances", "pressure", "target"),
    [(2, [500.0, 0.0], 4), (2, [750.0, 0.0], 8), (4, [0.0], 4), (1, [5000.0], 5)],
)
def test_an_operator_grows_by_suspended_over_normal_time(
    instances: int, pressure: list[float], target: int
) -> None:
    assert grown(instances, pressure) == target


@given(st.integers(1, 500), st.floats(0.0, 2000.0))
def test_growth_is_at_most_fivefold_and_never_a_shrink(instances: int, pressure: float) -> None:
    assert instances <= grown(instances, [pressure]) <= 5 * instances


def test_a_batch_that_takes_twice_its_trigger_holds_the_source_back_half_of_the_time() -> None:
    fleet = Fleet(2, 2, 2)
    late = (Batch(1, 0.0, 3.0, 10), Batch(2, 3.0, 5.0, 10))
    assert held_back_fraction(Snapshot(8.0, fleet, trigger_interval_s=2.0, batches=late)) == 0.5
    # ... and Dhalion's growth makes up for it: a mean of 4 s in a trigger of 2 s needs twice.
    assert grown(2, [500.0]) == 4
    assert held_back_fraction(Snapshot(8.0, fleet, trigger_interval_s=9.0, batches=late)) == 0.0
    assert held_back_fraction(Snapshot(8.0, fleet, trigger_interval_s=0.0, batches=late)) is None
    assert held_back_fraction(Snapshot(8.0, fleet, trigger_interval_s=2.0)) is None


def test_the_last_batch_counts_while_the_next_one_runs() -> None:
    # It took 8 s on a trigger of 2 s: reading was suspended for three quarters of the time.
    running = Snapshot(8.0, Fleet(1, 1, 1), trigger_interval_s=2.0, latency_s=8.0)
    assert held_back_fraction(running) == 0.75


def test_backpressure_that_an_engine_reports_comes_first() -> None:
    operators = (
        OperatorSample("a", backpressured_fraction=0.3),
        OperatorSample("b", backpressured_fraction=0.1),
        OperatorSample("c"),
    )
    assert held_back_fraction(Snapshot(0.0, Fleet(1, 1, 1), operators=operators)) == 0.3


def test_only_what_exceeds_two_triggers_is_a_lag() -> None:
    fleet = Fleet(1, 1, 1)
    assert excess_delay_s(Snapshot(0.0, fleet, delay_s=3.0)) == 3.0
    assert excess_delay_s(Snapshot(0.0, fleet, trigger_interval_s=2.0, delay_s=3.0)) == 0.0
    assert excess_delay_s(Snapshot(0.0, fleet, trigger_interval_s=2.0, delay_s=9.0)) == 5.0
    assert excess_delay_s(Snapshot(0.0, fleet, trigger_interval_s=2.0)) is None


def test_a_lag_is_the_mean_over_partitions_where_that_is_known() -> None:
    # The oldest record of the worst partition is 9 s old, those of all partitions 6 s on average.
    fleet = Fleet(1, 1, 1)
    assert excess_delay_s(Snapshot(0.0, fleet, delay_s=9.0, mean_delay_s=6.0)) == 6.0
    batched = Snapshot(0.0, fleet, trigger_interval_s=2.0, delay_s=9.0, mean_delay_s=6.0)
    assert excess_delay_s(batched) == 2.0


def test_what_arrives_in_two_triggers_is_no_backlog() -> None:
    # 2 x 2 s x 30 k/s = 120 k records wait in a job that keeps up.
    fleet = Fleet(1, 1, 1)

    def excess(
        backlog: float | None, arrival_rps: float | None, throughput_rps: float | None = None
    ) -> float | None:
        return excess_backlog_records(
            Snapshot(
                0.0,
                fleet,
                trigger_interval_s=2.0,
                arrival_rps=arrival_rps,
                throughput_rps=throughput_rps,
                backlog_records=backlog,
            )
        )

    assert excess(120e3, arrival_rps=30e3) == 0.0
    assert excess(170e3, arrival_rps=30e3, throughput_rps=9e3) == 50e3
    assert excess(170e3, arrival_rps=None, throughput_rps=30e3) == 50e3
    assert excess(170e3, arrival_rps=None) == 170e3
    assert excess(None, arrival_rps=30e3) is None
    assert excess_backlog_records(Snapshot(0.0, fleet, backlog_records=7.0)) == 7.0
