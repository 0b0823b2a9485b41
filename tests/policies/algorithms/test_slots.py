"""Whole instances on limited slots."""

from __future__ import annotations

from penstock.policies.algorithms.slots import with_margin, worth_reconfiguring


def test_a_margin_rounds_up() -> None:
    assert [with_margin(n, 1.25) for n in range(1, 8)] == [2, 3, 4, 5, 7, 8, 9]
    assert with_margin(100, 2.000001) == 201


def test_a_shrink_by_one_is_not_worth_a_restart() -> None:
    assert not worth_reconfiguring([4], [3])
    assert worth_reconfiguring([4], [2])
    assert worth_reconfiguring([4, 4], [1, 5])
    assert worth_reconfiguring([4], [3], least_shrink=1)
    assert not worth_reconfiguring([4], [4], least_shrink=1)
