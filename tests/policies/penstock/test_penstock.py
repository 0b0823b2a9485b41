"""The model-predictive policy: what it decides, what it says, and what it survives."""

from __future__ import annotations

import re
from functools import cache
from math import pi, sin

import msgspec
import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import (
    Batch,
    BatchStage,
    Decision,
    ExecutorSample,
    Fleet,
    Limits,
    OperatorSample,
    Reason,
    Receipt,
    Snapshot,
    Step,
)
from penstock.lab.experiments.scenario import Scenario, run
from penstock.lab.experiments.score import Score
from penstock.policies.penstock.penstock import Penstock, PenstockMemory
from penstock.policies.penstock.rescaling import Growth
from penstock.settings.goal import Goal
from penstock.simulation.faults import CapacityDrop, FailedStart, Fault, SensorLate


def seen(at_s: float, load: float, executors: int, *, delay_s: float = 0.0) -> Snapshot:
    """A dataflow of which each executor carries 10 k/s."""
    busy = min(0.95, 0.95 * load / (10_000.0 * max(executors, 1)))
    done = min(load, 10_000.0 * executors)
    window = OperatorSample("window", busy_fraction=busy, input_rps=done, output_rps=done)
    return Snapshot(
        at_s, Fleet(executors, executors, executors), arrival_rps=load, throughput_rps=done,
        backlog_records=delay_s * load, delay_s=delay_s, operators=(window,), partitions=64,
    )  # fmt: skip


def decide(snapshots: list[Snapshot], limits: Limits | None = None) -> Decision:
    """What it decides at last; the fleet stays what the snapshots say."""
    knowledge, policy = Knowledge(limits), Penstock()
    for snapshot in snapshots:
        knowledge.learn(snapshot, snapshot.at_s)
        decision = policy.decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
    return decision


def steady(load: float, executors: int, turns: int = 60) -> list[Snapshot]:
    return [seen(10.0 * turn, load, executors) for turn in range(turns)]


def ramp(first: float, last: float, executors: int, turns: int = 90) -> list[Snapshot]:
    step = (last - first) / (turns - 1)
    return [seen(10.0 * turn, first + step * turn, executors) for turn in range(turns)]


@cache
def outcome(engine: str = "micro-batch", fault: Fault | None = None) -> Score:
    """Two hours of a wave of two hours."""
    faults = () if fault is None else (fault,)
    scenario = Scenario("sine:period=2h", engine, 1, 7200.0, None, faults)
    return run(scenario, Penstock(), Limits(), Goal()).score


def test_the_first_turn_holds_because_nothing_is_known() -> None:
    decision = decide([Snapshot(10.0, Fleet(3, 3, 3), arrival_rps=100.0, delay_s=0.0)])
    assert decision.target_executors == 3
    assert decision.reasons[0].code == "not_measured"


def test_a_job_that_is_late_before_anything_is_known_grows_by_half() -> None:
    decision = decide([Snapshot(10.0, Fleet(6, 6, 6), arrival_rps=100.0, delay_s=60.0)])
    assert (decision.target_executors, decision.reasons[0].code) == (9, "late_unknown")


def long_batch(at_s: float, load: float | None, took_s: float) -> Snapshot:
    """Two executors, and a batch that ended just now."""
    stage = BatchStage(12, 2 * took_s, 0.1, took_s)
    batch = Batch(0, at_s - took_s, took_s, 4_000, stages=(stage,))
    return Snapshot(
        at_s, Fleet(2, 2, 2), trigger_interval_s=2.0, batches=(batch,), arrival_rps=load,
        delay_s=None if load is None else 2 * took_s,
        executors=(ExecutorSample("1", 0.0), ExecutorSample("2", 0.0)),
    )  # fmt: skip


def test_a_source_that_tells_nothing_while_a_batch_runs_has_its_last_rate() -> None:
    """1,000 records arrive each second, and two executors need 30 s for 4,000: seven times less."""
    decision = decide([long_batch(1000.0, 1000.0, 30.0), long_batch(1030.0, None, 30.0)])
    assert decision.target_executors > 2
    assert decision.reasons[0].code == "far_behind"
    # Two minutes later nobody knows any more.
    late = decide([long_batch(1000.0, 1000.0, 30.0), long_batch(1200.0, None, 1.0)])
    assert late.reasons[0].code == "not_measured"


def test_batches_that_are_too_long_ask_for_more_where_nothing_says_what_arrives() -> None:
    decision = decide([long_batch(1000.0, None, 3.0)])
    assert decision.target_executors == 3  # 2 x 3 s / 2 s
    assert decision.reasons[0].text == (
        "it is not known what arrives, and batches take 3.0 s where the trigger is 2.0 s: "
        "from 2 to 3 executors"
    )
    assert decide([long_batch(1000.0, None, 60.0)]).target_executors == 4  # at most twice as many
    assert decide([long_batch(1000.0, None, 1.0)]).reasons[0].code == "not_measured"


def test_growing_that_did_not_help_is_not_repeated_for_a_while() -> None:
    late = long_batch(1000.0, 1000.0, 30.0)
    growth = Growth(900.0, 1, 2, 133.0, 266.0, gain=0.02, known_at_s=990.0)
    memory = PenstockMemory(growth=growth)
    knowledge = Knowledge()
    before = long_batch(990.0, 1000.0, 30.0)
    knowledge.learn(before, 990.0)
    knowledge.remember(Step(990.0, before, Decision.of(2, Reason("x", "x"), memory=memory)))
    knowledge.learn(late, 1000.0)
    held = Penstock().decide(late, knowledge)
    assert (held.target_executors, held.reasons[-1].code) == (2, "growth_ineffective")
    assert held.reasons[-1].text == (
        "2 executors carry about as much as 1 did: no growth for 5 min; look for what they wait for"
    )
    later = long_batch(1300.0, 1000.0, 30.0)
    knowledge.learn(later, 1300.0)
    assert Penstock().decide(later, knowledge).target_executors > 2


@pytest.mark.parametrize("missing", ["arrival_rps", "delay_s"])
def test_what_is_not_measured_is_not_taken_for_zero(missing: str) -> None:
    *past, last = steady(35_000.0, 4)
    blind = msgspec.structs.replace(last, **{missing: None}, backlog_records=None)
    decision = decide([*past, blind])
    assert decision.target_executors == 4
    assert missing in decision.reasons[0].text


def test_a_full_fleet_inside_the_slo_is_left_alone() -> None:
    decision = decide(steady(38_000.0, 4))
    assert (decision.target_executors, decision.reasons[0].code) == (4, "plan_holds")
    assert "4 executors carry" in decision.reasons[0].text


def test_executors_that_are_not_needed_go() -> None:
    decision = decide(steady(18_000.0, 6))
    assert (decision.target_executors, decision.reasons[0].code) == (2, "plan_shrinks")
    assert decision.reasons[0].text == (
        "load is 18.0 k/s and is expected to stay there; 6 executors carry 60.0 k/s, no records "
        "wait; 2 would carry 20.8 k/s: 4 fewer now saves 2 executor-minutes against waiting"
    )


def test_a_rise_is_met_before_it_has_come() -> None:
    decision = decide(ramp(2_000.0, 39_900.0, 4))
    assert decision.target_executors > 4
    reason = decision.reasons[0]
    assert reason.code == "plan_grows"
    assert reason.text.startswith(
        "load rises now (39.9 k/s, was 37.3 k/s 60 s ago) and is expected to rise to "
    )
    assert "of arrivals are late" in reason.text
    assert reason.evidence["peak_rps"] > 40_000.0


def test_a_jump_is_met_at_once() -> None:
    past = steady(20_000.0, 2)
    decision = decide([*past, seen(600.0, 60_000.0, 2, delay_s=7.0)])
    assert decision.target_executors >= 6


def test_a_load_that_no_fleet_carries_gets_all_that_help_and_keeps_them() -> None:
    """16 executors carry not half of 400 k/s: no size is in time, and smaller ones cost less."""
    calm = steady(19_000.0, 2)
    decision = decide([*calm, seen(600.0, 400_000.0, 2)])
    assert decision.target_executors == 16
    late = [seen(600.0 + 10.0 * turn, 400_000.0, 16, delay_s=4.0 * turn) for turn in range(8)]
    assert decide([*calm, *late]).target_executors == 16


def test_it_says_when_more_executors_would_find_no_partition() -> None:
    full = [
        msgspec.structs.replace(seen(10.0 * turn, 60_000.0, 4, delay_s=2.0 * turn), partitions=4)
        for turn in range(60)
    ]
    decision = decide(full)
    assert decision.target_executors <= 4
    assert decision.reasons[0].code == "out_of_partitions"
    assert decision.reasons[0].text.endswith(
        "4 executors have all partitions, more would have none: more partitions would let more of "
        "them work"
    )


def batch_seen(at_s: float, planning_s: float, work_s: float, records: int) -> Snapshot:
    """A query without a trigger interval, whose batches follow each other."""
    took_s = planning_s + work_s
    batch = Batch(
        int(at_s), max(0.0, at_s - took_s), took_s, records,
        {"queryPlanning": planning_s, "addBatch": work_s},
    )  # fmt: skip
    load = records / took_s
    return Snapshot(
        at_s, Fleet(2, 2, 2), trigger_interval_s=0.0, batches=(batch,), arrival_rps=load,
        throughput_rps=load, backlog_records=records, delay_s=2.0 * took_s, partitions=64,
    )  # fmt: skip


def test_it_says_when_the_driver_takes_longer_than_the_slo_allows() -> None:
    # Records wait for up to two batches: with 6 s of planning, no fleet is in time.
    decision = decide([batch_seen(10.0 * turn, 6.0, 0.5, 5_000) for turn in range(1, 60)])
    assert decision.target_executors <= 2
    assert decision.reasons[0].code == "driver_bound"
    assert decision.reasons[0].text.endswith(
        "the driver takes 6.0 s of each batch, which executors do not shorten: give it more cpu, "
        "and its plan fewer stages"
    )


def test_it_says_when_the_sink_does() -> None:
    # What a batch costs besides its records shows in how little less small ones take.
    sizes = (1_000, 4_000, 2_000, 6_000, 3_000)
    snapshots = [
        batch_seen(10.0 * turn, 0.2, 7.0 + 1e-4 * sizes[turn % 5], sizes[turn % 5])
        for turn in range(1, 120)
    ]
    decision = decide(snapshots)
    assert decision.reasons[0].code == "sink_bound"
    # Nine tenths of the shortest task at the most, and the driver.
    assert "the sink takes 6.6 s of each batch" in decision.reasons[0].text


def with_stage(at_s: float, fixed: str, records: int, load: float = 500.0) -> Snapshot:
    """A batch on two executors, of which 6 s do not depend on its records; a record takes 1 ms.

    They are in the driver, in a sink that writes after the stage, or in 60 tasks of 0.2 s each.
    """
    tasks, overhead_s = (60, 12.0) if fixed == "tasks" else (8, 0.0)
    ran_s, outside_s = (overhead_s + 1e-3 * records) / 2.0, 0.0 if fixed == "tasks" else 6.0
    stage = BatchStage(tasks, overhead_s + 1e-3 * records, 0.0, ran_s)
    phases = {"addBatch": ran_s + (outside_s if fixed == "sink" else 0.0)}
    phases["queryPlanning"] = outside_s if fixed == "driver" else 0.0
    batch = Batch(int(at_s), at_s - 20.0, ran_s + outside_s, records, phases, stages=(stage,))
    return Snapshot(
        at_s, Fleet(2, 2, 2), trigger_interval_s=0.0, batches=(batch,), arrival_rps=load,
        delay_s=15.0, partitions=64,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fixed", "code"),
    [("driver", "driver_bound"), ("sink", "sink_bound"), ("tasks", "task_bound")],
)
def test_who_takes_the_time_that_executors_do_not_shorten_has_a_code(fixed: str, code: str) -> None:
    sizes = (3_000, 6_000, 2_000, 9_000, 4_000)
    turns = [with_stage(1000.0 + 30.0 * n, fixed, sizes[n % 5]) for n in range(60)]
    reason = decide(turns).reasons[0]
    assert (reason.code, "which executors do not shorten: " in reason.text) == (code, True)
    assert float(re.findall(r"takes (\S+) s of each batch", reason.text)[0]) == pytest.approx(
        6, 0.2
    )


def test_a_trigger_that_is_longer_than_the_slo_is_named_and_does_not_freeze_the_fleet() -> None:
    """20 s between batches of 3 s: records wait for 40 s, the SLO is 10 s, and 2 of 8 would do.

    8,000 records of 3 ms take 24 core-seconds, so two need 12 of the 20 s.
    """
    stage = BatchStage(32, 24.0, 0.0, 3.0)
    turns = [
        Snapshot(
            20.0 * n, Fleet(8, 8, 8), trigger_interval_s=20.0, arrival_rps=400.0, delay_s=20.0,
            batches=(Batch(n, 20.0 * n - 3.0, 3.0, 8_000, stages=(stage,)),),
        )
        for n in range(1, 60)
    ]  # fmt: skip
    decision = decide(turns)
    assert decision.target_executors in (2, 3)
    assert [reason.code for reason in decision.reasons] == ["plan_shrinks", "trigger_bound"]
    assert decision.reasons[1].text == (
        "records wait for up to two triggers of 20 s: the SLO of 10 s cannot be met with any "
        "fleet; use a shorter trigger"
    )


def test_a_first_surge_is_met_with_more_than_it_shows() -> None:
    # Half as much again, and rising: where it ends nobody knows, and being late is expensive.
    decision = decide([*steady(30_000.0, 4), seen(600.0, 45_000.0, 4, delay_s=2.0)])
    assert decision.target_executors >= 8
    assert decision.reasons[0].text.startswith("load surges from 30.0 k/s to 45.0 k/s")


def test_head_room_stays_where_surges_recur() -> None:
    day = [30_000.0] * 60 + [60_000.0] * 9 + [30_000.0] * 37 + [60_000.0] * 7 + [30_000.0] * 80
    day += [60_000.0] * 12 + [30_000.0] * 40
    snapshots = [seen(10.0 * turn, load, 6) for turn, load in enumerate(day)]
    calm = decide(steady(30_000.0, 6, turns=len(day)))
    wary = decide(snapshots)
    assert calm.target_executors <= 4
    assert wary.target_executors > calm.target_executors
    assert "surges of 30.0 k/s recur, 3 were seen" in wary.reasons[0].text


def test_one_surge_does_not_recur() -> None:
    day = [30_000.0] * 60 + [60_000.0] * 9 + [30_000.0] * 37
    decision = decide([seen(10.0 * turn, load, 6) for turn, load in enumerate(day)])
    assert len(decision.memory.surges.past) == 1
    assert "recur" not in decision.reasons[0].text


def test_on_the_way_down_it_says_so_though_a_rise_is_expected() -> None:
    """A wave that has just passed its top, and will rise again in minutes."""
    wave = [30e3 + 8e3 * sin(2.0 * pi * turn / 36.0) for turn in range(36 * 6 + 23)]
    reason = decide([seen(10.0 * turn, load, 4) for turn, load in enumerate(wave)]).reasons[0]
    assert reason.text.startswith("load falls now (24.")
    assert "but is expected to rise to 37." in reason.text


def test_a_small_load_has_a_small_unit() -> None:
    reason = decide(steady(600.0, 1)).reasons[0]
    assert reason.text.startswith("load is 600/s and is expected to stay there; 1 executor carries")


def test_at_the_maximum_and_late_it_says_what_holds_it() -> None:
    late = [seen(10.0 * turn, 45_000.0, 4, delay_s=min(25.0, turn)) for turn in range(60)]
    decision = decide(late, Limits(max_executors=4))
    assert (decision.target_executors, decision.reasons[0].code) == (4, "at_maximum")
    assert decision.reasons[0].text.endswith(
        "records wait up to 25 s (SLO 10 s): max_executors=4 does not allow more; 5 would carry "
        "the load"
    )


def test_a_shrink_under_a_rise_says_why() -> None:
    decision = decide(ramp(4_000.0, 14_000.0, 8))
    reason = decision.reasons[0]
    assert reason.code == "plan_shrinks"
    assert reason.text.startswith(
        "load is 14.0 k/s (was 13.3 k/s 60 s ago) and is expected to reach "
    )
    assert ", which is enough for that: " in reason.text


def test_its_evidence_holds_the_fan_around_the_forecast() -> None:
    evidence = decide(ramp(2_000.0, 39_900.0, 4)).reasons[0].evidence
    assert evidence["peak_low_rps"] <= evidence["peak_rps"] <= evidence["peak_high_rps"]
    assert evidence["horizon_s"] == 31 * 30.0


@pytest.mark.parametrize("load", [0.0, 5.0], ids=["zeros", "constant"])
def test_a_flat_trace_shorter_than_the_horizon_has_a_sound_decision(load: float) -> None:
    decision = decide(steady(load, 2, turns=8))
    assert 0 <= decision.target_executors <= 16


def test_one_size_allowed_is_one_size_chosen() -> None:
    decision = decide(steady(90_000.0, 4), Limits(min_executors=4, max_executors=4))
    assert decision.target_executors == 4


def test_a_fleet_of_none_with_load_is_woken() -> None:
    past = steady(15_000.0, 2)
    asleep = [seen(600.0 + 10.0 * turn, 15_000.0, 0, delay_s=10.0 * turn) for turn in range(1, 5)]
    assert decide([*past, *asleep]).target_executors >= 1


def test_a_clock_that_is_set_back_does_no_harm() -> None:
    past = steady(35_000.0, 4)
    decision = decide([*past, seen(300.0, 35_000.0, 4), seen(310.0, 35_000.0, 4)])
    assert decision.target_executors == 4


def test_memory_survives_the_journal() -> None:
    memory = decide(steady(35_000.0, 4)).memory
    assert msgspec.json.decode(msgspec.json.encode(memory), type=PenstockMemory) == memory


def test_deciding_twice_gives_the_same() -> None:
    snapshots = ramp(20_000.0, 38_500.0, 4)
    assert decide(snapshots) == decide(snapshots)


def test_it_learns_how_long_executors_take() -> None:
    steps = run(Scenario("sine", "micro-batch", 1, 7200.0), Penstock(), Limits(), Goal()).steps
    memory = steps[-1].decision.memory
    assert 10.0 <= memory.startup_s <= 30.0
    assert any(isinstance(step.receipt, Receipt) for step in steps)
    assert isinstance(steps[-1].snapshot.batches[0] if steps[-1].snapshot else None, Batch)


@pytest.mark.parametrize("engine", ["micro-batch", "continuous"])
def test_a_smooth_load_is_carried_nearly_full_and_on_time(engine: str) -> None:
    result = outcome(engine)
    assert result.late_fraction < 0.005
    assert result.moved_executors < 60


@pytest.mark.parametrize(
    "fault",
    [SensorLate(), FailedStart(at_s=0.0, probability=0.3), CapacityDrop(at_s=3600.0)],
    ids=["sensor late", "failed starts", "capacity drop"],
)
def test_faults_make_it_more_expensive_but_never_run_away(fault: Fault) -> None:
    plain, faulty = outcome(), outcome(fault=fault)
    assert faulty.cost < 2.0 * plain.cost
    assert faulty.moved_executors < 4 * plain.moved_executors + 40
