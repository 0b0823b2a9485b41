"""Who goes when the fleet shrinks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.actuator.victims import RemovalCandidate, choose

candidates = st.lists(
    st.builds(
        RemovalCandidate,
        st.integers(1, 99).map(str),
        st.floats(0, 1e9),
        st.one_of(st.none(), st.integers(0, 200)),
    ),
    unique_by=lambda each: each.id,
)


def test_the_executor_with_the_least_state_goes_first() -> None:
    fleet = [
        RemovalCandidate("1", 0.0, 9),
        RemovalCandidate("2", 50.0, 3),
        RemovalCandidate("3", 90.0, 4),
    ]
    assert choose(fleet, 2) == ("2", "3")


def test_of_those_with_equal_state_the_newest_goes() -> None:
    fleet = [
        RemovalCandidate("1", 0.0, 4),
        RemovalCandidate("2", 50.0, 4),
        RemovalCandidate("3", 20.0, 4),
    ]
    assert choose(fleet, 1) == ("2",)


def test_without_a_count_for_everybody_the_newest_goes() -> None:
    fleet = [
        RemovalCandidate("1", 0.0, 0),
        RemovalCandidate("2", 50.0, 7),
        RemovalCandidate("3", 90.0, None),
    ]
    assert choose(fleet, 2) == ("3", "2")


@given(candidates, st.integers(-3, 120))
def test_as_many_go_as_asked_for_each_once_and_the_order_of_the_list_is_no_matter(
    fleet: list[RemovalCandidate], count: int
) -> None:
    chosen = choose(fleet, count)
    assert len(set(chosen)) == len(chosen) == min(max(count, 0), len(fleet))
    assert set(chosen) <= {each.id for each in fleet}
    assert choose(reversed(fleet), count) == chosen
