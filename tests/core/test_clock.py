"""Instants at which turns are taken, in a simulation and in real time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from penstock.core.clock import LiveClock, LoopTime, SimulatedClock, WallClock


@dataclass
class World:
    """Time that passes when somebody sleeps, a load that surges, and a pause button."""

    now_s: float = 1000.0
    surges_at_s: list[float] = field(default_factory=list)
    paused: tuple[float, float] = (0.0, 0.0)
    refused: tuple[float, float] = (0.0, 0.0)
    end_s: float = 1060.0
    reconciled: list[float] = field(default_factory=list)
    read_at_s: float = 1000.0
    jumps: dict[float, float] = field(default_factory=dict)

    def wall_s(self) -> float:
        """The clock of the machine, which somebody sets to another time."""
        return self.now_s + sum(by_s for at_s, by_s in self.jumps.items() if at_s <= self.now_s)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def has_surged(self) -> bool:
        return any(self.read_at_s < at_s <= self.now_s for at_s in self.surges_at_s)

    def turns(self, every_s: float) -> Iterator[float]:
        clock = LiveClock(
            is_over=lambda: self.now_s >= self.end_s,
            is_paused=lambda: self.paused[0] <= self.now_s < self.paused[1],
            may_turn=lambda: not self.refused[0] <= self.now_s < self.refused[1],
            has_surged=self.has_surged,
            wall=WallClock(
                LoopTime(wall=self.wall_s, steady=lambda: self.now_s).now, sleep=self.sleep
            ),
        )
        for now_s in clock.ticks(every_s, self.reconciled.append):
            self.read_at_s = now_s
            yield now_s - 1000.0


def test_turns_are_a_period_apart_and_the_fleet_is_reconciled_in_between() -> None:
    world = World(end_s=1030.0)
    assert list(world.turns(10.0)) == pytest.approx([0.0, 10.0, 20.0])
    assert len(world.reconciled) == pytest.approx(300, abs=2)


def test_a_surge_causes_a_turn_at_once_and_another_soon() -> None:
    world = World(surges_at_s=[1033.0])
    assert list(world.turns(10.0)) == pytest.approx([0, 10, 20, 30, 33, 35, 45, 55], abs=0.2)


def test_live_and_simulated_turns_follow_the_same_rule() -> None:
    surges = [1007.0, 1021.5, 1041.0]
    live = list(World(surges_at_s=surges, end_s=1100.0).turns(10.0))
    simulated = SimulatedClock(100.0, surges_s=[at_s - 1000.0 for at_s in surges]).ticks(10.0)
    assert live == pytest.approx(list(simulated), abs=0.2)


def test_a_turn_that_is_due_in_a_pause_is_taken_at_its_end() -> None:
    world = World(paused=(1008.0, 1024.0))
    assert list(world.turns(10.0)) == pytest.approx([0, 24, 34, 44, 54], abs=0.2)
    assert len(world.reconciled) > 590  # also in the pause


def test_a_turn_that_may_not_be_taken_is_left_out() -> None:
    world = World(refused=(1008.0, 1024.0))
    assert list(world.turns(10.0)) == pytest.approx([0, 30, 40, 50], abs=0.2)


@pytest.mark.parametrize("by_s", [3600.0, -3600.0, 86_400.0, -1e9])
def test_a_clock_that_is_set_to_another_time_moves_no_turn(by_s: float) -> None:
    world = World(jumps={1023.0: by_s, 1047.0: -by_s})
    assert list(world.turns(10.0)) == pytest.approx([0, 10, 20, 30, 40, 50], abs=0.2)
    assert len(world.reconciled) == pytest.approx(600, abs=2)


def test_the_time_of_the_loop_says_how_far_the_clock_is_ahead_of_it() -> None:
    world = World(jumps={1010.0: 3600.0})
    loop = LoopTime(wall=world.wall_s, steady=lambda: world.now_s)
    world.now_s = 1015.0
    assert (loop.now(), loop.ahead_s()) == (1015.0, 3600.0)
    world.jumps[1020.0] = -3599.5
    world.now_s = 1025.0
    assert (loop.now(), loop.ahead_s()) == (1025.0, 0.0)  # half a second is no other time


def test_the_time_of_a_restarted_loop_goes_on_after_a_journal_from_the_future() -> None:
    """The clock was set back by an hour while the driver was down."""
    loop = LoopTime(5000.0, wall=lambda: 1400.0, steady=lambda: 7.0)
    assert (loop.now(), loop.ahead_s()) == (5000.0, -3600.0)


def test_simulated_clocks_never_call_what_is_to_be_done_meanwhile() -> None:
    calls: list[float] = []
    assert list(SimulatedClock(30.0).ticks(10.0, calls.append)) == [0.0, 10.0, 20.0]
    assert list(SimulatedClock(30.0, surges_s=()).ticks(10.0, calls.append)) == [0.0, 10.0, 20.0]
    assert not calls


def test_a_wall_clock_skips_the_instants_that_a_long_turn_missed() -> None:
    world = World()
    found = []
    for at_s in WallClock(now=lambda: world.now_s, sleep=world.sleep).ticks(10.0):
        found.append(at_s - 1000.0)
        world.now_s += 25.0 if len(found) == 2 else 0.0
        if len(found) == 4:
            break
    assert found == [0.0, 10.0, 40.0, 50.0]
