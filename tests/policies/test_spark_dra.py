"""Spark's dynamic allocation, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Fleet, OperatorSample, Snapshot, Step
from penstock.policies.spark_dra import SparkDra


def seen(
    at_s: float,
    busy: Sequence[float | None],
    *,
    tasks: int | None = 32,
    target: int | None = None,
    backlog_records: float | None = None,
    operators: tuple[OperatorSample, ...] = (),
) -> Snapshot:
    executors = tuple(
        ExecutorSample(str(i), 0.0, busy_fraction=fraction) for i, fraction in enumerate(busy)
    )
    count = len(busy)
    return Snapshot(
        at_s,
        Fleet(count if target is None else target, count, count, cores_per_executor=4),
        executors=executors,
        partitions=tasks,
        backlog_records=backlog_records,
        operators=operators,
    )


def drive(snapshots: list[Snapshot]) -> list[Decision]:
    knowledge = Knowledge()
    decisions = []
    for snapshot in snapshots:
        decision = SparkDra().decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
        decisions.append(decision)
    return decisions


def obeyed(turns: int, tasks: int) -> list[int]:
    """The targets of a fleet that comes at once and is always busy."""
    knowledge = Knowledge()
    fleet, targets = 1, []
    for turn in range(turns):
        snapshot = seen(float(turn), [1.0] * fleet, tasks=tasks)
        decision = SparkDra().decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
        fleet = decision.target_executors
        targets.append(fleet)
    return targets


def test_it_adds_1_2_4_8_up_to_the_tasks_whatever_the_load() -> None:
    # 80 tasks on 4 cores need 20 executors: 1 + 1 + 2 + 4 + 8, then the 4 that are missing
    assert obeyed(8, tasks=80) == [1, 2, 4, 8, 16, 20, 20, 20]


def test_the_first_executor_waits_for_the_backlog_timeout() -> None:
    decision = drive([seen(0.0, [1.0])])[0]
    assert decision.target_executors == 1
    assert (
        decision.reasons[0].text
        == "32 tasks need 8 executors: holding 1 executor until tasks have waited for 1 s"
    )


def test_a_pause_between_triggers_starts_the_doubling_anew() -> None:
    busy, pause = [1.0], [0.0]
    run = [seen(0.0, busy), seen(1.0, busy), seen(2.0, pause), seen(3.0, busy), seen(4.0, busy)]
    assert [d.target_executors for d in drive(run)] == [1, 2, 1, 1, 2]


def test_executors_idle_for_more_than_a_minute_go() -> None:
    run = [seen(10.0 * i, [1.0, 0.0, 0.0, 0.0], tasks=8) for i in range(8)]
    decisions = drive(run)
    # Three are idle, but 8 tasks still need two executors.
    assert [d.target_executors for d in decisions] == [4] * 7 + [2]
    assert decisions[-1].reasons[0].code == "idle"


def test_a_short_trigger_never_lets_an_executor_be_idle_for_long() -> None:
    run = [seen(10.0 * i, [float(i % 2)] * 4, tasks=8) for i in range(30)]
    assert {d.target_executors for d in drive(run)} == {4}


def test_the_widest_stage_counts() -> None:
    stages = (OperatorSample("read", tasks=4), OperatorSample("shuffle", tasks=200))
    decision = drive([seen(0.0, [1.0], operators=stages)])[0]
    assert decision.reasons[0].evidence["needed"] == 50.0


def test_a_backlog_wakes_a_fleet_of_none() -> None:
    run = [seen(float(i), [], tasks=8, backlog_records=10.0) for i in range(2)]
    assert [d.target_executors for d in drive(run)] == [0, 1]


def test_without_tasks_or_any_sign_of_work_it_holds() -> None:
    no_tasks, no_sign = seen(0.0, [1.0], tasks=None), seen(0.0, [None])
    assert drive([no_tasks])[0].reasons[0].text == "holding 1 executor: tasks not measured"
    assert drive([no_sign])[0].reasons[0].text == "holding 1 executor: busy_fraction not measured"


def test_a_clock_set_back_does_not_delay_the_next_executor_for_long() -> None:
    run = [seen(5000.0, [1.0]), seen(100.0, [1.0]), seen(101.0, [1.0])]
    assert [d.target_executors for d in drive(run)] == [1, 1, 2]
