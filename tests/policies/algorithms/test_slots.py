"""Whole instances on limited slots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.policies.algorithms.slots import deal, fit, with_margin, worth_reconfiguring


def test_a_margin_rounds_up() -> None:
    assert [with_margin(n, 1.25) for n in range(1, 8)] == [2, 3, 4, 5, 7, 8, 9]
    assert with_margin(100, 2.000001) == 201


def test_a_shrink_by_one_is_not_worth_a_restart() -> None:
    assert not worth_reconfiguring([4], [3])
    assert worth_reconfiguring([4], [2])
    assert worth_reconfiguring([4, 4], [1, 5])
    assert worth_reconfiguring([4], [3], least_shrink=1)
    assert not worth_reconfiguring([4], [4], least_shrink=1)


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 50), min_size=1), st.integers(1, 99)
)
def test_fitting_keeps_one_instance_each_and_never_asks_for_more_than_wanted_in_all(
    wanted: dict[str, int], available: int
) -> None:
    allotment = fit(wanted, available)
    assert allotment.instances.keys() == wanted.keys()
    assert min(allotment.instances.values()) >= 1
    assert allotment.slots == sum(allotment.instances.values()) <= sum(wanted.values())
    if sum(wanted.values()) <= available:
        assert allotment.instances == wanted


def test_a_missed_rounding_is_put_right_by_one_slot_only() -> None:
    fitted = fit(dict.fromkeys("abcde", 9), available=12)
    assert (fitted.instances, fitted.slots) == ({"a": 3, "b": 2, "c": 2, "d": 2, "e": 2}, 11)


@given(st.integers(0, 10_000), st.integers(1, 99))
def test_dealing_gives_all_away_evenly(total: int, among: int) -> None:
    shares = deal(total, among)
    assert (len(shares), sum(shares)) == (among, total)
    assert max(shares) - min(shares) <= 1
