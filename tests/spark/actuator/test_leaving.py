"""Who leaves when the fleet shrinks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.actuator.actuator import choose_leaving

names = st.integers(1, 99).map(str)
starts = st.dictionaries(names, st.floats(0, 1e9))
states = st.dictionaries(names, st.one_of(st.none(), st.integers(0, 200)))


def test_the_executor_with_the_least_state_goes_first() -> None:
    started_at_s = {"1": 0.0, "2": 50.0, "3": 90.0}
    assert choose_leaving(started_at_s, {"1": 9, "2": 3, "3": 4}, 2) == ["2", "3"]


def test_of_those_with_equal_state_the_newest_goes() -> None:
    started_at_s = {"1": 0.0, "2": 50.0, "3": 20.0}
    assert choose_leaving(started_at_s, {"1": 4, "2": 4, "3": 4}, 1) == ["2"]


def test_without_a_count_for_everybody_the_newest_goes() -> None:
    started_at_s = {"1": 0.0, "2": 50.0, "3": 90.0}
    assert choose_leaving(started_at_s, {"1": 0, "2": 7, "3": None}, 2) == ["3", "2"]
    assert choose_leaving(started_at_s, {"1": 0, "2": 7}, 2) == ["3", "2"]


@given(starts, states, st.integers(-3, 120))
def test_as_many_go_as_asked_for_each_once_and_the_order_of_the_fleet_is_no_matter(
    started_at_s: dict[str, float], state: dict[str, int | None], count: int
) -> None:
    chosen = choose_leaving(started_at_s, state, count)
    assert len(set(chosen)) == len(chosen) == min(max(count, 0), len(started_at_s))
    assert set(chosen) <= started_at_s.keys()
    backwards = dict(reversed(started_at_s.items()))
    assert choose_leaving(backwards, state, count) == chosen
