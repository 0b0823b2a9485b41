"""Sudden rises of the load: found, remembered, and planned for."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policies.penstock.surges import (
    LONGEST_S,
    MOST,
    Surge,
    Surges,
    chances,
    clock_belief,
    watch,
)

MINUTES = np.array([0.0, 60.0, 120.0, 180.0])


def watched(loads_rps: list[float], known: Surges | None = None, begin_s: float = 0.0) -> Surges:
    surges = Surges() if known is None else known
    for turn, load_rps in enumerate(loads_rps):
        surges = watch(surges, begin_s + 10.0 * turn, load_rps)
    return surges


def test_a_plateau_is_found_with_its_height_and_its_length() -> None:
    surges = watched([80e3] * 30 + [120e3] * 6 + [80e3] * 3)
    (one,) = surges.past
    assert (one.began_s, one.lasted_s) == (290.0, 70.0)
    assert one.rise_rps == pytest.approx(40e3)
    assert surges.recur


def test_small_swings_before_and_after_it_do_not_hide_a_surge() -> None:
    (one,) = watched([1e3 * load for load in (80, 82, 79, 120, 121, 120, 80, 81)]).past
    assert (one.began_s, one.lasted_s) == (20.0, 40.0)


def test_a_slow_climb_is_no_surge() -> None:
    assert watched([50e3 + 100.0 * turn for turn in range(600)]).past == ()


def test_a_load_that_always_jumps_by_as_much_has_no_surges() -> None:
    # A new level each minute, up to a tenth off.
    rng = np.random.default_rng(1)
    levels = np.repeat(100e3 * rng.uniform(0.9, 1.1, 120), 6)
    surges = watched(levels.tolist())
    assert surges.past == ()
    assert surges.began_s is None


def test_a_surge_is_under_way_until_half_of_it_is_gone() -> None:
    surges = watched([80e3] * 30 + [160e3] * 3)
    assert surges.is_rising() is False
    assert surges.began_s == 290.0
    assert watch(surges, 330.0, 125e3).began_s == 290.0
    assert watch(surges, 330.0, 115e3).began_s is None


def test_it_rises_as_long_as_each_turn_shows_more() -> None:
    assert watched([30e3] * 30 + [45e3]).is_rising()
    assert watched([30e3] * 30 + [45e3, 60e3]).is_rising()
    assert not watched([30e3] * 30 + [45e3, 60e3, 60e3]).is_rising()


def test_what_does_not_end_is_the_new_level() -> None:
    surges = watched([80e3] * 30 + [160e3] * int(LONGEST_S / 10.0 + 2))
    assert surges.began_s is None
    assert surges.calm_rps == pytest.approx(160e3)


def test_a_peak_that_decays_is_not_planned_for() -> None:
    decay = [30e3 + 90e3 * 0.95**turn for turn in range(30)]
    surges = watched([30e3] * 30 + decay + [30e3])
    assert len(surges.past) == 1
    assert not surges.recur
    # Twice may be chance; after the third time that is how they are.
    assert not surges.shapeless
    assert watched(([30e3] * 30 + decay) * 3 + [30e3]).shapeless


def test_three_at_equal_distances_are_expected_by_the_clock() -> None:
    surges = watched(([2e3] * 37 + [100e3] * 37) * 8 + [2e3] * 5)
    assert len(surges.past) == 8
    now_s = 10.0 * (74 * 8 + 4)
    early, due = (surges.begins(now_s, np.array([0.0, end])) for end in (200.0, 380.0))
    assert early[0] < 0.05
    assert due[0] > 0.9


def test_a_clock_that_stops_is_believed_in_less_and_less() -> None:
    due, overdue, forgotten = (
        chances([600.0] * 8, age_s, np.array([0.0, 60.0]))[0] for age_s in (570.0, 1200.0, 60_000.0)
    )
    assert due > 0.85
    assert overdue < 0.15
    assert forgotten < 0.01


def test_one_that_was_seen_once_may_come_again_but_need_not() -> None:
    soon, late = (chances([], age_s, MINUTES).sum() for age_s in (300.0, 7200.0))
    assert 0.0 < late < soon < 0.05


def test_of_irregular_spans_only_the_mean_counts() -> None:
    # One in 420 s: a tenth of that brings it with a chance of 1 - exp(-0.1), each time.
    found = chances([60.0, 900.0, 300.0], 0.0, np.array([0.0, 42.0, 84.0]))
    assert found.tolist() == pytest.approx([0.0952, 0.0952], abs=1e-4)


def test_none_seen_is_none_expected() -> None:
    assert Surges().begins(100.0, MINUTES).tolist() == [0.0, 0.0, 0.0]
    assert Surges().rise_rps() == 0.0


def test_memory_is_bounded_and_survives_the_journal() -> None:
    surges = watched(([80e3] * 30 + [120e3] * 6) * 40)
    assert len(surges.past) == MOST
    assert msgspec.json.decode(msgspec.json.encode(surges), type=Surges) == surges


def test_a_clock_that_is_set_back_starts_a_new_calm() -> None:
    surges = watch(watched([80e3] * 30 + [160e3]), 5.0, 80e3)
    assert surges.began_s is None
    assert surges.last_s == 5.0


@given(
    spans_s=st.lists(st.floats(1.0, 1e5), max_size=MOST),
    age_s=st.floats(0.0, 1e6),
    widths_s=st.lists(st.floats(1.0, 1e4), min_size=1, max_size=16),
)
def test_chances_lie_between_0_and_1(
    spans_s: list[float], age_s: float, widths_s: list[float]
) -> None:
    found = chances(spans_s, age_s, np.cumsum([0.0, *widths_s]))
    assert np.isfinite(found).all()
    assert ((found >= 0.0) & (found <= 1.0)).all()


@given(loads=st.lists(st.floats(0.0, 1e7), max_size=200))
def test_any_load_gives_few_surges_that_all_rise(loads: list[float]) -> None:
    surges = watched(loads)
    assert len(surges.past) <= MOST
    assert all(isinstance(one, Surge) and one.rise_rps > 0.0 for one in surges.past)


def test_one_repetition_makes_a_clock_likely_and_one_failure_ends_the_belief() -> None:
    assert clock_belief([]) == 0.0
    assert clock_belief([740.0]) == pytest.approx(0.3)
    assert clock_belief([740.0, 745.0]) > 0.9
    assert clock_belief([740.0, 745.0, 742.0]) == pytest.approx(0.95)
    assert clock_belief([740.0, 745.0, 300.0]) < 1e-6


def test_a_load_that_is_played_ten_times_as_fast_has_the_same_surges() -> None:
    loads = [80e3, 82e3, 79e3] * 4 + [120e3] * 9 + [80e3, 81e3] * 6 + [130e3] * 5 + [79e3] * 4
    slow, fast = Surges(), Surges()
    for turn, load_rps in enumerate(loads):
        slow, fast = watch(slow, 10.0 * turn, load_rps), watch(fast, 1.0 * turn, load_rps, pace=0.1)
        assert slow.is_rising() == fast.is_rising(pace=0.1)
    assert [one.lasted_s for one in slow.past] == [100.0, 60.0]
    assert [10.0 * one.lasted_s for one in fast.past] == [100.0, 60.0]
    edges_s = np.array([0.0, 60.0, 300.0])
    assert slow.begins(470.0, edges_s) == pytest.approx(fast.begins(47.0, 0.1 * edges_s, pace=0.1))
