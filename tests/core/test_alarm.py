"""Surges that wake a policy between two turns."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.alarm import alarms_s
from penstock.core.clock import SimulatedClock
from penstock.core.model import Limits
from penstock.lab.experiments.scenario import Scenario, run
from penstock.policies.penstock.penstock import Penstock
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.simulation.faults import SensorLate, SourceSilence

SPIKES = "spikes:every=10m"


def test_each_spike_rings_once_a_second_after_it_began() -> None:
    assert list(Scenario(SPIKES, duration_s=2000.0).alarms_s()) == [601.0, 1201.0, 1801.0]


def test_a_smooth_load_wakes_nobody() -> None:
    assert not Scenario("sine:period=1h", duration_s=7200.0).alarms_s()


def test_the_end_of_a_silence_rings() -> None:
    silence = SourceSilence(at_s=100.0, duration_s=60.0)
    scenario = Scenario("constant:rate=40k", duration_s=300.0, faults=(silence,))
    assert list(scenario.alarms_s()) == [161.0]


def test_a_late_sensor_wakes_nobody() -> None:
    assert not Scenario(SPIKES, duration_s=2000.0, faults=(SensorLate(),)).alarms_s()


def test_only_a_policy_that_wants_it_is_asked_at_once() -> None:
    scenario, limits = Scenario(SPIKES, duration_s=700.0), Limits()
    ours = [step.at_s for step in run(scenario, Penstock(), limits, Goal()).steps]
    theirs = [step.at_s for step in run(scenario, Static(5), limits, Goal()).steps]
    # The last turn was at 600 s, so that the first can be LOOK_AGAIN_S after it.
    assert [at_s for at_s in ours if 600.0 <= at_s < 615.0] == [600.0, 602.0, 604.0, 614.0]
    assert all(at_s % Static(5).period_s == 0.0 for at_s in theirs)


@given(
    alarms=st.lists(st.floats(0.0, 500.0), max_size=40).map(sorted),
    every_s=st.floats(2.0, 60.0),
)
def test_turns_are_never_closer_than_a_look_nor_further_apart_than_a_period(
    alarms: list[float], every_s: float
) -> None:
    at_s = list(SimulatedClock(500.0, surges_s=alarms).ticks(every_s))
    gaps = [after - before for before, after in pairwise(at_s)]
    assert all(2.0 - 1e-9 <= gap <= every_s + 1e-9 for gap in gaps)


@given(rates=st.lists(st.floats(0.0, 1e9), max_size=200))
def test_alarms_come_in_order_and_not_before_anything_is_usual(rates: list[float]) -> None:
    found = list(alarms_s(rates))
    assert found == sorted(set(found))
    assert all(at_s == pytest.approx(round(at_s)) and at_s > 6.0 for at_s in found)
