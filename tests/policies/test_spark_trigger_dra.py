"""Dynamic allocation by the trigger interval, batch by batch."""

from __future__ import annotations

import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import Batch, Decision, ExecutorSample, Fleet, Snapshot, Step
from penstock.policies.spark_trigger_dra import SparkTriggerDra

#: The timeout of a trigger of 10 s is 10 s; batches of up to 6 s leave executors idle.
TRIGGER_S = 10.0


def seen(
    at_s: float,
    *batches: tuple[float, float],
    target: int = 4,
    busy: float | None = 1.0,
    backlog_records: float | None = 100.0,
    trigger_s: float | None = TRIGGER_S,
    tasks: int | None = 64,
) -> Snapshot:
    """What is seen after batches with these starts and durations."""
    samples = tuple(ExecutorSample(str(i), 0.0, busy_fraction=busy) for i in range(target))
    return Snapshot(
        at_s,
        Fleet(target, target, target, cores_per_executor=2),
        trigger_interval_s=trigger_s,
        batches=tuple(Batch(i, start, took, 900) for i, (start, took) in enumerate(batches)),
        executors=samples,
        partitions=tasks,
        backlog_records=backlog_records,
    )


def drive(*snapshots: Snapshot) -> list[Decision]:
    knowledge, decisions = Knowledge(), []
    for snapshot in snapshots:
        decision = SparkTriggerDra().decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
        decisions.append(decision)
    return decisions


@pytest.mark.parametrize(
    ("took_s", "target"),
    [
        (9.9, 4),  # inside the timeout of 10 s
        (10.0, 5),  # one timeout: 1 more
        (20.0, 7),  # two: 1 + 2
        (30.0, 11),  # three: 1 + 2 + 4
        (400.0, 32),  # 64 tasks on 2 cores fill 32 executors
    ],
)
def test_each_timeout_for_which_a_batch_waits_doubles_what_is_added(
    took_s: float, target: int
) -> None:
    (decision,) = drive(seen(took_s, (0.0, took_s), backlog_records=0.0))
    assert decision.target_executors == target


def test_a_batch_that_is_still_running_is_not_waited_for() -> None:
    # The batch from 0 to 7 s is followed by one from 10 s on: at 20 s it has waited for one
    # timeout, at 30 s for two, the first of which was answered. After 21 s it ends: none is left.
    first, second, third = seen(7.0, (0.0, 7.0)), seen(20.0), seen(30.0, target=5)
    ended = seen(31.5, (10.0, 21.0), target=7)
    decisions = drive(first, second, third, ended)
    assert [decision.target_executors for decision in decisions] == [4, 5, 7, 7]


def test_a_batch_that_took_little_of_its_trigger_lets_a_tenth_go() -> None:
    (decision,) = drive(seen(10.0, (0.0, 6.0), target=25))
    assert decision.target_executors == 23
    assert (
        decision.reasons[0].text
        == "batches took up to 0.60 of their trigger, at most 0.6: 23 executors instead of 25"
    )


def test_a_small_fleet_shrinks_by_one() -> None:
    assert drive(seen(10.0, (0.0, 5.0), target=4))[0].target_executors == 3


def test_executors_are_removed_once_per_trigger_interval() -> None:
    looks = [seen(at_s, (at_s - 5.0, 2.0)) for at_s in (10.0, 15.0, 20.0)]
    assert [decision.target_executors for decision in drive(*looks)] == [3, 4, 3]


def test_the_slowest_batch_of_a_turn_decides() -> None:
    (decision,) = drive(seen(20.0, (0.0, 2.0), (10.0, 7.0)))
    assert (decision.target_executors, decision.reasons[0].code) == (4, "batches_fit")


def test_executors_that_do_nothing_go_though_no_batch_is_committed() -> None:
    (decision,) = drive(seen(10.0, busy=0.0, backlog_records=0.0))
    assert decision.target_executors == 3


def test_a_stream_that_stops_is_no_batch_that_hangs() -> None:
    # The last batch ended long ago, nothing waits: what is busy no more is not a running batch.
    first, later = seen(7.0, (0.0, 7.0)), seen(60.0, backlog_records=0.0)
    assert [decision.target_executors for decision in drive(first, later)] == [4, 4]


@pytest.mark.parametrize(
    ("snapshot", "name"),
    [
        (seen(10.0, trigger_s=None), "trigger_interval_s"),
        (seen(10.0, tasks=None), "tasks"),
        (seen(10.0, busy=None, backlog_records=None), "busy_fraction"),
    ],
)
def test_it_holds_while_it_does_not_see_what_it_needs(snapshot: Snapshot, name: str) -> None:
    (decision,) = drive(snapshot)
    assert decision.reasons[0].text == f"holding 4 executors: {name} not measured"
