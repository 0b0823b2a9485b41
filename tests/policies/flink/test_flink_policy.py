"""The policy `flink`: when it looks, what it sees, what it remembers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from msgspec import structs

from penstock.core.knowledge import Knowledge
from penstock.core.model import (
    Decision,
    ExecutorSample,
    Fleet,
    OperatorSample,
    Receipt,
    Snapshot,
    Step,
)
from penstock.policies.flink.flink import Flink, Scalings
from penstock.settings.policy_spec import PolicySpec, wire
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.microbatch import MicroBatchJob

#: No waiting, no restart, no catching up: the bare rule.
QUICK = Flink(
    window_s=120.0,
    stabilization_s=60.0,
    catch_up_s=0.0,
    scale_down_interval_s=0.0,
    alignment="off",
)

See = Callable[[float, int], Snapshot]


def flow(
    at_s: float, executors: int, source_busy: float, sink_busy: float, **more: float
) -> Snapshot:
    """1,000 records/s through a source that doubles them and a sink."""
    operators = (
        OperatorSample(
            "source",
            input_rps=1000.0,
            output_rps=2000.0,
            busy_fraction=source_busy,
            backlog_records=more.get("backlog", 0.0),
            tasks=executors,
        ),
        OperatorSample(
            "sink", ("source",), input_rps=2000.0, busy_fraction=sink_busy, tasks=executors
        ),
    )
    return Snapshot(at_s, Fleet(executors, executors, executors), operators=operators)


def steer(
    policy: Flink, see: See, turns: int, executors: int, knowledge: Knowledge | None = None
) -> list[Decision]:
    """Let a policy steer a job whose fleet is what it asked for one turn later."""
    knowledge = Knowledge() if knowledge is None else knowledge
    decisions = []
    for turn in range(turns):
        at_s = 1000.0 + turn * policy.period_s
        snapshot = see(at_s, executors)
        knowledge.learn(snapshot, at_s)
        decision = policy.decide(snapshot, knowledge)
        moved = decision.target_executors != executors
        knowledge.remember(Step(at_s, snapshot, decision, Receipt(True) if moved else None))
        executors = decision.target_executors
        decisions.append(decision)
    return decisions


def codes(decisions: list[Decision]) -> list[str]:
    return [decision.reasons[0].code for decision in decisions]


def test_it_looks_at_a_full_window_of_a_settled_fleet() -> None:
    decisions = steer(QUICK, lambda at_s, n: flow(at_s, n, 0.2, 0.5), 4, executors=4)
    assert codes(decisions) == [
        "window_not_full",
        "window_not_full",
        "within_band",
        "within_band",
    ]


def test_after_a_rescale_it_settles_and_fills_its_window_anew() -> None:
    # 2,000 records/s at 0.9 of 4 tasks: capacity 2,222; 2,000/0.5 = 4,000 needed; ceil(7.2) = 8.
    policy = replace(QUICK, utilization_target=0.5, utilization_max=0.8)
    see = lambda at_s, n: flow(at_s, n, 0.1, 3.6 / n)  # noqa: E731
    decisions = steer(policy, see, 9, executors=4)
    assert [decision.target_executors for decision in decisions] == [4, 4, 8, 8, 8, 8, 8, 8, 8]
    assert codes(decisions)[2:] == [
        "scale_up",
        "stabilizing",
        "window_not_full",
        "window_not_full",
        "right_size",
        "right_size",
        "right_size",
    ]


def test_the_widest_vertex_sizes_the_fleet_and_tells_why() -> None:
    policy = replace(QUICK, utilization_target=0.5, utilization_max=0.8)
    decision = steer(policy, lambda at_s, n: flow(at_s, n, 0.1, 0.9), 3, executors=4)[-1]
    assert decision.reasons[0].text == (
        "sink can process 2.2 k/s, 2.0 k/s arrive and 4.0 k/s are needed: 8 executors instead of 4"
    )
    # At 8 tasks the sink can do 4,444 and so lets 2,222 of the source's records through.
    assert decision.expected_rps == pytest.approx(2222.2, rel=1e-3)


def test_a_vertex_that_must_follow_the_widest_is_no_reason_to_rescale() -> None:
    # The source is almost idle, and far outside its band; the sink would like 5 tasks of 6.
    decisions = steer(QUICK, lambda at_s, n: flow(at_s, n, 0.01, 0.5), 6, executors=6)
    assert {decision.target_executors for decision in decisions} == {6}
    assert codes(decisions)[-1] == "within_band"


def test_a_scale_down_waits_for_its_interval() -> None:
    policy = replace(QUICK, scale_down_interval_s=300.0)
    decisions = steer(policy, lambda at_s, n: flow(at_s, n, 0.1, 0.2), 8, executors=6)
    assert codes(decisions)[2:7] == ["scale_down_delayed"] * 5
    assert decisions[7].target_executors == 3
    assert (
        decisions[7]
        .reasons[0]
        .text.endswith("3 executors instead of 6, the most of the last 5 min")
    )


def test_a_refused_rescale_is_no_past_and_the_scale_down_goes_on_waiting() -> None:
    policy = replace(QUICK, scale_down_interval_s=120.0)
    knowledge = Knowledge()
    memories = []
    for turn in range(8):
        snapshot = flow(1000.0 + 60.0 * turn, 6, 0.1, 0.2)
        knowledge.learn(snapshot, snapshot.at_s)
        decision = policy.decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision, Receipt(False, "no")))
        memories.append(decision.memory)
    last = memories[-1]
    assert isinstance(last, Scalings)
    assert (last.past, last.restarts) == ({}, ())
    assert last.proposed
    assert last.pending["sink"].since_s == 1120.0


def test_a_scale_up_that_brought_nothing_is_not_repeated_if_so_asked() -> None:
    policy = replace(QUICK, effectiveness_enabled=True, utilization_target=0.5, utilization_max=0.8)
    # However many tasks there are, the sink is as busy as before: its sink is the bottleneck.
    decisions = steer(policy, lambda at_s, n: flow(at_s, n, 0.1, 0.9), 7, executors=4)
    assert [decision.target_executors for decision in decisions] == [4, 4, 8, 8, 8, 8, 8]
    assert decisions[-1].reasons[0].code == "ineffective"
    assert decisions[-1].reasons[0].text == (
        "the last scale up of sink brought 0% of its promise: 8 executors stay"
    )


def test_a_restart_is_measured_until_the_fleet_is_as_wanted() -> None:
    policy = replace(QUICK, track_restarts=True, utilization_target=0.5, utilization_max=0.8)
    decisions = steer(policy, lambda at_s, n: flow(at_s, n, 0.1, 3.6 / n), 5, executors=4)
    memory = decisions[-1].memory
    assert [restart.took_s for restart in memory.restarts] == [60.0]
    assert memory.past["sink"][0].after == 8


def test_while_a_backlog_is_worked_off_nothing_shrinks() -> None:
    see = lambda at_s, n: flow(at_s, n, 0.1, 0.2, backlog=400_000.0)  # noqa: E731
    assert codes(steer(QUICK, see, 6, executors=6))[-1] == "within_band"


def test_what_waits_is_added_to_what_is_needed() -> None:
    policy = replace(QUICK, catch_up_s=600.0, restart_s=0.0)
    see = lambda at_s, n: flow(at_s, n, 0.1, 0.8, backlog=240_000.0)  # noqa: E731
    # The sink gets 2 x 240,000/600 = 800 records/s on top of 2,000/0.7; it can do 2,500.
    decision = steer(policy, see, 3, executors=4)[-1]
    assert decision.reasons[0].evidence["needed_rps"] == 3657.0
    assert decision.target_executors == 6


def stages(at_s: float, executors: int) -> Snapshot:
    """Two stages that take turns on two cores each, busy half of the time and 30 % of it."""
    operators = (
        OperatorSample("read", input_rps=600.0, busy_fraction=0.5, tasks=64),
        OperatorSample("write", ("read",), input_rps=60.0, busy_fraction=0.3, tasks=200),
    )
    fleet = Fleet(executors, executors, executors, cores_per_executor=2)
    return Snapshot(
        at_s, fleet, trigger_interval_s=10.0, operators=operators, backlog_records=6000.0
    )


def test_stages_that_take_turns_are_busy_in_sum() -> None:
    policy = replace(QUICK, utilization_target=0.5, utilization_max=0.7)
    decision = steer(policy, stages, 3, executors=3)[-1]
    # 600 records/s at 0.8 of 6 slots: 750 at most; 1,200 needed; ceil(6 x 1.6) = 10 slots.
    assert decision.reasons[0].evidence["capacity_rps"] == 750.0
    assert decision.target_executors == 5


def test_full_memory_forbids_any_scaling() -> None:
    policy = replace(QUICK, heap_threshold=0.8, utilization_target=0.5, utilization_max=0.7)
    full = (
        ExecutorSample("1", 0.0, memory_fraction=0.5),
        ExecutorSample("2", 0.0, memory_fraction=0.9),
    )

    def see(at_s: float, executors: int) -> Snapshot:
        return structs.replace(stages(at_s, executors), executors=full)

    assert codes(steer(policy, see, 3, executors=3))[-1] == "memory_pressure"


def test_a_backlog_that_is_never_measured_counts_as_none() -> None:
    # The sink does 2,000/s in 0.9 of its time, 2,222 at most: 4 x 2,000/0.5/2,222 = 7.2.
    def see(at_s: float, executors: int) -> Snapshot:
        snapshot = flow(at_s, executors, 0.2, 0.9)
        blind = tuple(structs.replace(one, backlog_records=None) for one in snapshot.operators)
        return structs.replace(snapshot, operators=blind)

    policy = replace(QUICK, utilization_target=0.5, utilization_max=0.8)
    decision = steer(policy, see, 3, executors=4)[-1]
    assert decision.target_executors == 8
    assert decision.reasons[0].evidence["target_rps"] == 2000.0


@pytest.mark.parametrize("name", ["input_rps", "busy_fraction", "backlog_records"])
def test_a_metric_that_is_missing_now_means_hold(name: str) -> None:
    def see(at_s: float, executors: int) -> Snapshot:
        snapshot = flow(at_s, executors, 0.9, 0.9)
        if at_s == 1000.0:
            return snapshot
        blind = tuple(structs.replace(one, **{name: None}) for one in snapshot.operators)
        return structs.replace(snapshot, operators=blind)

    decision = steer(QUICK, see, 4, executors=4)[-1]
    assert decision.target_executors == 4
    assert decision.reasons[0].code == "not_measured"
    assert name in decision.reasons[0].text


def test_a_metric_that_was_missing_before_is_bridged() -> None:
    def see(at_s: float, executors: int) -> Snapshot:
        snapshot = flow(at_s, executors, 0.2, 0.9)
        return structs.replace(snapshot, operators=()) if at_s == 1060.0 else snapshot

    policy = replace(QUICK, utilization_target=0.5, utilization_max=0.8)
    decision = steer(policy, see, 3, executors=4)[-1]
    assert decision.target_executors == 8
    assert decision.reasons[0].evidence["target_rps"] == 2000.0


def test_without_active_executors_it_holds() -> None:
    snapshot = structs.replace(flow(0.0, 3, 0.5, 0.5), fleet=Fleet(3, 0, 0))
    decision = QUICK.decide(snapshot, Knowledge())
    assert (decision.target_executors, decision.reasons[0].code) == (3, "no_executors")


def test_a_clock_that_was_set_back_costs_one_window_and_no_more() -> None:
    policy = replace(QUICK, utilization_target=0.5, utilization_max=0.8)

    def see(at_s: float, executors: int) -> Snapshot:
        back_s = 900.0 if at_s >= 1240.0 else 0.0
        return flow(at_s - back_s, executors, 0.1, 3.6 / executors)

    decisions = steer(policy, see, 9, executors=4)
    assert [decision.target_executors for decision in decisions][2:] == [8] * 7
    assert codes(decisions)[-1] == "right_size"


@pytest.mark.parametrize("job", [ContinuousJob(), MicroBatchJob()])
def test_it_carries_a_step_of_the_load_on_both_engines(job: ContinuousJob | MicroBatchJob) -> None:
    before, after = 0.5 * job.capacity_rps(3), 0.9 * job.capacity_rps(6)
    rates = [before] * 3600 + [after] * 3 * 3600
    engine = job.start(rates, executors=3, seed=1)
    controller = wire(PolicySpec.of(Flink()), engine, engine)
    steps = [controller.turn(60.0 * turn) for turn in range(1, len(rates) // 60)]
    assert {step.decision.target_executors for step in steps[:59]} == {3}
    last = steps[-1]
    assert last.snapshot is not None
    assert last.snapshot.backlog_records is not None
    # Micro-batches that outlast their trigger carry more than those that fit it: 5 are enough.
    assert 5 <= last.decision.target_executors <= 16
    assert last.snapshot.backlog_records < 30.0 * after
    # Few rescales: between two of them lie at least settling and a window.
    moved_at_s = [step.at_s for step in steps if step.receipt is not None]
    assert all(later - sooner >= 1200.0 for sooner, later in pairwise(moved_at_s))
