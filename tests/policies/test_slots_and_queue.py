"""Busy slots and queued tasks, with worked numbers."""

from __future__ import annotations

import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Fleet, OperatorSample, Snapshot
from penstock.policies.slots_and_queue import SlotsAndQueue


def seen(
    busy: float | None,
    *,
    at_s: float = 0.0,
    active: int = 4,
    target: int | None = None,
    tasks: int | None = 20,
    trigger_s: float | None = 10.0,
) -> Snapshot:
    """Executors with two slots each, and one stage that makes them busy."""
    return Snapshot(
        at_s,
        Fleet(active if target is None else target, active, active, cores_per_executor=2),
        trigger_interval_s=trigger_s,
        executors=tuple(ExecutorSample(str(i), 0.0, busy_fraction=busy) for i in range(active)),
        operators=(OperatorSample("count", busy_fraction=busy, tasks=tasks),),
    )


def decided(*snapshots: Snapshot) -> Decision:
    knowledge = Knowledge()
    for snapshot in snapshots:
        knowledge.learn(snapshot, snapshot.at_s)
    return SlotsAndQueue().decide(snapshots[-1], knowledge)


@pytest.mark.parametrize(
    ("busy", "tasks", "queued", "target"),
    [
        # 8 slots, 12 tasks more than those: half of them wait while the stage runs
        (0.9, 20, 5.4, 6),  # (0.9 + 0.675) / 0.7 = 2.25, 1.5 at most: 4 x 1.5
        (0.84, 10, 0.84, 6),  # (0.84 + 0.105) / 0.7 = 1.35: ceil(5.4)
        (0.84, 9, 0.42, 4),  # 0.0525 of a task for each slot is no queue
        (1.0, 8, 0.0, 4),  # every task has its slot
        (0.7, 20, 4.2, 4),  # between 0.6 and 0.8
        (0.35, 20, 2.1, 2),  # ceil(4 x 0.35 / 0.7)
        (0.0, 20, 0.0, 1),
    ],
)
def test_utilization_says_when_and_the_queue_how_much(
    busy: float, tasks: int, queued: float, target: int
) -> None:
    looks = [seen(busy, at_s=at_s, tasks=tasks) for at_s in (0.0, 30.0, 60.0)]
    decision = decided(*looks)
    assert decision.target_executors == target
    assert decision.reasons[0].evidence["queued_tasks"] == pytest.approx(queued)


def test_full_slots_without_a_queue_say_that_more_would_not_help() -> None:
    assert (
        decided(seen(1.0, tasks=8)).reasons[0].text
        == "slots 100% busy, 0 tasks wait, more executors would not help: 4 executors stay"
    )


def test_both_signals_are_means_over_the_window() -> None:
    # (0.9 + 0.5) / 2 = 0.7: neither busy nor idle. What is older than a minute does not count.
    looks = [seen(1.0, at_s=0.0), seen(0.9, at_s=100.0), seen(0.5, at_s=130.0)]
    decision = decided(*looks)
    assert decision.reasons[0].evidence["utilization"] == pytest.approx(0.7)
    assert decision.target_executors == 4


def test_what_another_fleet_showed_does_not_count() -> None:
    decision = decided(seen(1.0, at_s=0.0, active=2), seen(0.7, at_s=30.0, active=4))
    assert decision.reasons[0].evidence["utilization"] == pytest.approx(0.7)


def test_executors_that_have_just_joined_do_not_make_the_fleet_look_idle() -> None:
    # Two joined in the middle of a batch and have no task before the next.
    joined = seen(0.45, at_s=60.0, active=4)
    decision = decided(seen(0.9, at_s=30.0, active=2), joined)
    assert (decision.target_executors, decision.reasons[0].code) == (4, "settling")
    assert "less than 60%, but not for 60 s at this size" in decision.reasons[0].text


def test_executors_that_are_starting_are_not_asked_for_twice() -> None:
    # 4 x 1.5 = 6 are wanted, 6 were asked for.
    assert decided(seen(0.9, active=4, target=6)).target_executors == 6


def test_a_continuous_engine_has_no_queue_and_grows_by_utilization_alone() -> None:
    # 4 x 0.84 / 0.7 = 4.8
    assert decided(seen(0.84, tasks=8, trigger_s=None)).target_executors == 5


@pytest.mark.parametrize(
    ("snapshot", "names"),
    [(seen(None), "busy_fraction, tasks"), (seen(0.9, tasks=None), "tasks")],
)
def test_it_holds_without_its_signals(snapshot: Snapshot, names: str) -> None:
    assert decided(snapshot).reasons[0].text == f"holding 4 executors: {names} not measured"
