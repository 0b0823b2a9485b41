"""What a batch costs: waves, pinned state, skew."""

from __future__ import annotations

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.simulation.engines.stages import Stage, State, plan, tasks_per_executor, waves

MAP = Stage("map", tasks=8, core_s_per_record=1e-3, task_overhead_s=0.01)
COUNT = Stage("count", tasks=8, core_s_per_record=2e-3, stateful=True, task_overhead_s=0.01)


@given(
    tasks=st.integers(1, 400),
    cores=st.integers(1, 8),
    executors=st.integers(min_value=1, max_value=40),
)
def test_equal_executors_need_as_many_waves_as_tasks_fill_their_slots(
    tasks: int, cores: int, executors: int
) -> None:
    speeds = [1.0] * executors
    counts = tasks_per_executor(tasks, cores, speeds)
    assert sum(counts) == tasks
    assert waves(counts, cores, speeds) == ceil(tasks / (cores * executors))


@given(
    tasks=st.integers(1, 100),
    cores=st.integers(1, 4),
    speeds=st.lists(st.floats(0.1, 2.0), min_size=1, max_size=8),
)
def test_a_free_slot_takes_the_next_task(tasks: int, cores: int, speeds: list[float]) -> None:
    counts = tasks_per_executor(tasks, cores, speeds)
    # Task by task: each goes to the slot on which it ends first.
    ends = [(1 / speed, speed) for speed in speeds for _ in range(cores)]
    last = 0.0
    for _ in range(tasks):
        slot = min(range(len(ends)), key=lambda i: ends[i][0])
        last, speed = ends[slot]
        ends[slot] = (last + 1 / speed, speed)
    assert sum(counts) == tasks
    assert waves(counts, cores, speeds) == pytest.approx(last)


def test_a_batch_costs_its_waves_of_overhead_and_work() -> None:
    # 4 slots: 8 tasks are 2 waves. Base 2 x 2 x 10 ms; a record costs 2/8 of 1 ms and of 2 ms.
    speeds = [1.0, 1.0]
    cost = plan([MAP, COUNT], [[4, 4], [4, 4]], 2, speeds)
    assert cost.base_s == pytest.approx(0.04)
    assert cost.s_per_record == pytest.approx(0.25e-3 + 0.5e-3)
    # Each executor runs half of all tasks: 8 x 10 ms, and half of 3 ms of core time per record.
    assert cost.executor_base_s == pytest.approx([0.08, 0.08])
    assert cost.executor_s_per_record == pytest.approx([1.5e-3, 1.5e-3])
    assert cost.stage_s_per_record == pytest.approx([1e-3, 2e-3])
    assert cost.record_shares == [0.5, 0.5]


def test_records_that_a_stage_drops_cost_the_next_one_nothing() -> None:
    picky = Stage("filter", tasks=8, core_s_per_record=1e-3, selectivity=0.1)
    cost = plan([picky, COUNT], [[8], [8]], 2, [1.0])
    # 4 waves of 8 tasks: half of 1 ms, then half of 2 ms for one record in ten.
    assert cost.s_per_record == pytest.approx(0.5e-3 + 0.1e-3)
    assert cost.stage_s_per_record == pytest.approx([1e-3, 0.2e-3])


def test_the_hottest_key_bounds_every_stage_behind_a_shuffle() -> None:
    cost = plan([MAP, COUNT], [[4, 4], [4, 4]], 2, [1.0, 1.0], hot_fraction=0.6)
    # The hot task of the second stage gets 0.6 + 0.4/8 of the records at 2 ms each; two waves of
    # the others would take only 2 x 0.4/8. The first stage reads the source and is not hit.
    assert cost.s_per_record == pytest.approx(0.25e-3 + 0.65 * 2e-3)
    assert cost.executor_s_per_record[0] > cost.executor_s_per_record[1]
    # The work is the same, only its place is not.
    assert sum(cost.executor_s_per_record) == pytest.approx(3e-3)


def test_without_executors_a_batch_takes_for_ever() -> None:
    assert plan([MAP, COUNT], [[], []], 2, []).base_s == inf
    assert tasks_per_executor(8, 2, []) == []


def test_state_waits_for_executors_when_there_are_none() -> None:
    state = State(COUNT, load_s=1.0)
    state.follow(["1", "2"], 2, [1.0, 1.0])
    assert state.follow([], 2, []) == 0.0
    # Both newcomers load half of the state, at the same time.
    assert state.follow(["3", "4"], 2, [1.0, 1.0]) == 0.5
