"""Koper's next generation: sizes by the best throughput seen under lag."""

from __future__ import annotations

import msgspec
import pytest

from penstock.core.knowledge import Knowledge, Rescale
from penstock.core.model import Batch, Decision, Fleet, Reason, Snapshot, Step
from penstock.policies.throughput_table import (
    MOST_SIZES,
    Best,
    ThroughputTable,
    ThroughputTableMemory,
)


def seen(
    at_s: float = 0.0,
    *,
    executors: int = 4,
    arrival_rps: float | None = 600.0,
    throughput_rps: float = 400.0,
    delay_s: float = 8.0,
    backlog_records: float = 0.0,
    trigger_interval_s: float | None = None,
) -> Snapshot:
    return Snapshot(
        at_s,
        Fleet(executors, executors, executors),
        trigger_interval_s=trigger_interval_s,
        arrival_rps=arrival_rps,
        throughput_rps=throughput_rps,
        delay_s=delay_s,
        backlog_records=backlog_records,
    )


def knowing(*table: Best) -> Knowledge:
    knowledge = Knowledge()
    wish = Decision.of(4, Reason("x", "x"), memory=ThroughputTableMemory(table))
    knowledge.remember(Step(0.0, None, wish))
    return knowledge


def decide(knowledge: Knowledge, *snapshots: Snapshot) -> Decision:
    for snapshot in snapshots:
        knowledge.learn(snapshot, snapshot.at_s)
    return ThroughputTable().decide(snapshots[-1], knowledge)


def test_lag_that_grows_is_answered_by_what_an_executor_has_shown() -> None:
    decision = decide(Knowledge(), seen(0.0), seen(20.0, backlog_records=4000.0))
    # 600 x 1.2 / 100 = 7.2
    assert (decision.target_executors, decision.reasons[0].code) == (8, "scale_up")
    assert decision.expected_rps == 800.0
    assert decision.memory == ThroughputTableMemory((Best(4, 400.0),))


def test_lag_that_shrinks_is_left_alone_but_recorded() -> None:
    decision = decide(Knowledge(), seen(0.0, backlog_records=4000.0), seen(20.0))
    assert decision.reasons[0].code == "catching_up"
    assert decision.memory.nearest(4) == Best(4, 400.0)


def test_without_lag_nothing_is_recorded_and_the_table_sizes_the_way_down() -> None:
    quiet = seen(arrival_rps=150.0, throughput_rps=150.0, delay_s=0.2)
    decision = decide(knowing(Best(4, 400.0)), quiet)
    assert (decision.target_executors, decision.reasons[0].code) == (2, "scale_down")
    assert decision.memory == ThroughputTableMemory((Best(4, 400.0),))


def test_an_unknown_size_borrows_from_the_nearest() -> None:
    quiet = seen(arrival_rps=150.0, delay_s=0.2, executors=5)
    decision = decide(knowing(Best(2, 400.0), Best(6, 600.0)), quiet)
    assert decision.reasons[0].evidence["rps_per_executor"] == 100.0


def test_an_empty_table_holds_without_lag() -> None:
    decision = decide(Knowledge(), seen(delay_s=0.0))
    assert (decision.target_executors, decision.reasons[0].code) == (4, "not_learned")


def test_the_best_is_kept_and_a_lower_value_never_replaces_it() -> None:
    table = ThroughputTableMemory((Best(4, 400.0),))
    assert table.learn(4, 350.0) is table
    assert table.learn(4, 450.0).nearest(4) == Best(4, 450.0)


def test_the_table_is_bounded() -> None:
    table = ThroughputTableMemory()
    for executors in range(1, 3 * MOST_SIZES):
        table = table.learn(executors, 100.0 * executors)
    assert len(table.table) == MOST_SIZES


def test_soon_after_a_rescale_nothing_is_recorded() -> None:
    knowledge = Knowledge()
    knowledge.rescales.append(Rescale(0.0, 2, 4))
    decision = decide(knowledge, seen(10.0), seen(30.0, backlog_records=4000.0))
    assert decision.memory == ThroughputTableMemory()
    assert decision.reasons[0].code == "not_learned"


def test_the_wait_for_a_trigger_is_no_lag() -> None:
    decision = decide(
        knowing(Best(4, 400.0)), seen(arrival_rps=150.0, delay_s=8.0, trigger_interval_s=5.0)
    )
    assert decision.target_executors == 2


def test_a_long_batch_that_is_handed_in_at_once_does_not_pass_for_speed() -> None:
    # 40 000 records in 100 s are 400/s, though they all appear within the last 20 s.
    now = Snapshot(
        100.0,
        Fleet(4, 4, 4),
        trigger_interval_s=2.0,
        batches=(Batch(1, 0.0, 100.0, 40_000),),
        arrival_rps=600.0,
        throughput_rps=2000.0,
        delay_s=60.0,
        backlog_records=9000.0,
    )
    assert decide(Knowledge(), now).memory == ThroughputTableMemory((Best(4, 400.0),))


def test_a_batch_that_began_on_another_fleet_does_not_count() -> None:
    knowledge = Knowledge()
    knowledge.rescales.append(Rescale(0.0, 2, 4))
    now = Snapshot(
        100.0,
        Fleet(4, 4, 4),
        trigger_interval_s=2.0,
        batches=(Batch(1, 50.0, 30.0, 9_000), Batch(2, 80.0, 20.0, 8_000)),
        arrival_rps=600.0,
        throughput_rps=500.0,
        delay_s=60.0,
        backlog_records=9000.0,
    )
    assert decide(knowledge, now).memory == ThroughputTableMemory((Best(4, 400.0),))


@pytest.mark.parametrize("executors", [1, 2, 16])
def test_the_table_survives_the_journal(executors: int) -> None:
    memory = ThroughputTableMemory().learn(executors, 123.5)
    plain = msgspec.json.decode(msgspec.json.encode(memory))
    assert msgspec.convert(plain, ThroughputTableMemory) == memory


def test_what_is_not_measured_is_named_and_the_table_kept() -> None:
    decision = decide(knowing(Best(4, 400.0)), seen(arrival_rps=None))
    assert decision.reasons[0].text == "holding 4 executors: arrival_rps not measured"
    assert decision.memory == ThroughputTableMemory((Best(4, 400.0),))
