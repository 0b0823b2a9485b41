"""Simulated executors: who is there, who is paid for, and what happens to them."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.simulation.engines.engine import Level
from penstock.simulation.engines.fleet import Roster, Startup, active, edges_s
from penstock.simulation.faults import (
    CapacityDrop,
    ExecutorLost,
    FailedStart,
    Fault,
    SlowExecutor,
    SlowStart,
)

TEN = Startup(10.0, 10.0)


def roster(executors: int, *faults: Fault, seed: int = 1, startup: Startup = TEN) -> Roster:
    return Roster(executors, startup=startup, rng=Random(seed), faults=faults)


def test_starting_executors_are_paid_for_from_the_request_on() -> None:
    fleet = roster(2)
    fleet.ask(5, 100.0)
    assert fleet.paid == [Level(0.0, 2), Level(100.0, 5)]
    assert (len(fleet.ready), len(fleet.starting)) == (2, 3)
    assert fleet.next_event_s == 110.0
    assert len(fleet.advance(110.0).joined) == 3
    assert fleet.paid == [Level(0.0, 2), Level(100.0, 5)]
    assert (len(fleet.ready), fleet.next_event_s) == (5, inf)


def test_asking_for_the_same_changes_nothing() -> None:
    fleet = roster(2)
    assert not fleet.ask(2, 5.0)
    assert fleet.ask(4, 6.0)
    assert not fleet.ask(4, 7.0)
    assert fleet.targets == [Level(0.0, 2), Level(6.0, 4)]


def test_a_negative_target_is_none() -> None:
    fleet = roster(2)
    fleet.ask(-3, 5.0)
    assert (fleet.target, fleet.ready, len(fleet.leaving)) == (0, [], 2)


def test_fewer_calls_off_those_that_start_before_sending_any_away() -> None:
    fleet = roster(3)
    fleet.ask(6, 0.0)
    fleet.ask(2, 4.0)
    assert (len(fleet.ready), fleet.starting, len(fleet.leaving)) == (2, [], 1)
    assert fleet.leaving[0].id == "3"
    assert fleet.paid[-1] == Level(4.0, 3)
    fleet.release(9.0)
    assert fleet.paid[-1] == Level(9.0, 2)


def test_leaving_executors_can_be_let_go_one_by_one() -> None:
    fleet = roster(4)
    fleet.ask(2, 0.0)
    first = fleet.leaving[0]
    fleet.release(3.0, [first])
    assert len(fleet.leaving) == 1
    assert fleet.paid[-1] == Level(3.0, 3)


def test_start_up_times_spread_uniformly() -> None:
    fleet = roster(0, startup=Startup(10.0, 30.0))
    fleet.ask(400, 0.0)
    times = [one.ready_at_s for one in fleet.starting]
    assert 10.0 <= min(times) < 11.0
    assert 29.0 < max(times) <= 30.0
    assert sum(times) / 400 == pytest.approx(20.0, abs=1.0)


def test_a_lost_executor_is_replaced_and_paid_for_without_a_gap() -> None:
    fleet = roster(3, ExecutorLost(at_s=50.0, count=2))
    assert fleet.next_event_s == 50.0
    assert len(fleet.advance(50.0).lost) == 2
    assert (len(fleet.ready), len(fleet.starting), fleet.target) == (1, 2, 3)
    assert fleet.paid == [Level(0.0, 3)]
    assert {one.id for one in fleet.advance(60.0).joined} == {"4", "5"}


def test_no_more_executors_are_lost_than_there_are() -> None:
    fleet = roster(1, ExecutorLost(at_s=5.0, count=9))
    assert len(fleet.advance(5.0).lost) == 1


def test_a_failed_start_is_paid_for_and_asked_for_again() -> None:
    fleet = roster(1, FailedStart(at_s=0.0, duration_s=15.0))
    fleet.ask(2, 0.0)
    assert fleet.advance(10.0).joined == []
    assert fleet.paid[-1] == Level(0.0, 2)
    assert fleet.advance(20.0).joined == []  # asked for at 10 s, still inside the span
    assert len(fleet.advance(30.0).joined) == 1


def test_failing_starts_do_not_stop_the_clock() -> None:
    fleet = roster(0, FailedStart(at_s=0.0), startup=Startup(0.0, 0.0))
    fleet.ask(1, 0.0)
    assert fleet.next_event_s == 1.0


def test_a_slow_start_takes_so_many_times_longer() -> None:
    fleet = roster(1, SlowStart(at_s=0.0, duration_s=60.0, factor=5.0))
    fleet.ask(2, 0.0)
    assert fleet.starting[0].ready_at_s == 50.0
    fleet.ask(3, 60.0)
    assert fleet.starting[1].ready_at_s == 70.0


def test_the_oldest_executor_slows_down_and_recovers() -> None:
    fleet = roster(2, SlowExecutor(at_s=10.0, duration_s=20.0, speed_fraction=0.25))
    fleet.advance(10.0)
    assert [one.pace for one in fleet.ready] == [0.25, 1.0]
    fleet.advance(30.0)
    assert [one.pace for one in fleet.ready] == [1.0, 1.0]


def test_speeds_lie_inside_the_spread() -> None:
    fleet = Roster(200, rng=Random(3), speed_spread=0.1)
    speeds = [one.speed for one in fleet.ready]
    assert 0.9 <= min(speeds) < 0.92
    assert 1.08 < max(speeds) <= 1.1


def test_faults_under_way_and_their_edges() -> None:
    faults: list[Fault] = [CapacityDrop(at_s=5.0, duration_s=10.0), CapacityDrop(at_s=10.0)]
    assert len(active(faults, CapacityDrop, 12.0)) == 2
    assert edges_s(faults, CapacityDrop) == [5.0, 10.0, 15.0]
    assert edges_s(faults, SlowStart) == []


def test_a_start_up_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shortest_s <= longest_s, not 9\.0 and 3\.0"):
        Startup(9.0, 3.0)


@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(-1, 20)), max_size=20),
    st.integers(0, 5),
)
def test_what_is_paid_for_is_who_is_there_starting_or_leaving(
    moves: list[tuple[float, int]], seed: int
) -> None:
    faults: list[Fault] = [
        ExecutorLost(at_s=60.0, count=2),
        FailedStart(at_s=30.0, probability=0.5),
    ]
    fleet = roster(4, *faults, seed=seed, startup=Startup(5.0, 40.0))
    now_s = 0.0
    for wait_s, target in moves:
        while fleet.next_event_s <= now_s + wait_s:
            fleet.advance(fleet.next_event_s)
        now_s += wait_s
        fleet.ask(target, now_s)
        there = len(fleet.ready) + len(fleet.starting)
        assert there == fleet.target == fleet.targets[-1].executors
        assert fleet.paid[-1].executors == there + len(fleet.leaving)
        fleet.release(now_s)
        assert fleet.paid[-1].executors == there
        assert [level.at_s for level in fleet.paid] == sorted(level.at_s for level in fleet.paid)
