"""The words of a reproduced study: ranks, distances, what is reached."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.lab.experiments.spread import spread
from penstock.lab.studies import reproduce
from penstock.lab.studies.study import (
    Claim,
    Comparison,
    Distance,
    Entry,
    Metric,
    Study,
    distances,
    mean_relative_error,
    ranks,
    spearman,
    typical_factor,
)

numbers = st.floats(-1e6, 1e6)


def test_places_count_from_one_and_ties_share_theirs() -> None:
    assert ranks([5.0, 5.0, 5.0]) == [2.0, 2.0, 2.0]
    assert ranks([]) == []


def test_spearman_agrees_with_the_formula_of_squared_rank_differences_where_none_tie() -> None:
    # Ranks (1,2,3,4,5) and (2,1,4,3,5): d = 1,1,1,1,0, so 1 - 6 x 4 / (5 x 24) = 0.8.
    pairs = [(1.0, 20.0), (2.0, 10.0), (3.0, 40.0), (4.0, 30.0), (5.0, 50.0)]
    assert spearman(pairs) == 0.8


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=20))
def test_a_rank_correlation_is_symmetric_and_lies_between_minus_one_and_one(
    pairs: list[tuple[float, float]],
) -> None:
    value = spearman(pairs)
    assert -1.0 <= value <= 1.0
    assert value == spearman([(right, left) for left, right in pairs])


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=20, unique=True))
def test_only_the_order_counts_for_a_rank_correlation(values: list[int]) -> None:
    assert spearman([(float(v), float(v) ** 3) for v in values]) == 1.0
    assert spearman([(float(v), -float(v)) for v in values]) == -1.0


def test_a_side_without_any_order_correlates_with_nothing() -> None:
    assert spearman([(1.0, 7.0), (2.0, 7.0)]) == 0.0


def test_one_pair_is_too_few_for_a_rank_correlation() -> None:
    with pytest.raises(ConfigError, match="at least two pairs, not 1"):
        spearman([(1.0, 2.0)])


def test_errors_relative_to_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one pair"):
        mean_relative_error([(0.0, 1.0)])
    with pytest.raises(ConfigError, match="at least one pair"):
        typical_factor([(0.0, 1.0)])


def test_a_typical_factor_is_the_same_whichever_side_is_larger() -> None:
    assert typical_factor([(2.0, 8.0), (8.0, 2.0)]) == 4.0


def _table() -> Comparison:
    rows = (("a", 1.0, 1.0, 5.0), ("b", 2.0, 4.0, None), ("c", 4.0, 3.0, 6.0))
    return Comparison(
        "table 1",
        (Metric("workers"), Metric("latency", "s")),
        tuple(
            Entry(label, {"workers": paper, "latency": late}, {"workers": ours, "latency": late})
            for label, paper, ours, late in rows
        ),
    )


def test_pairs_leave_out_what_one_side_does_not_have() -> None:
    assert _table().pairs("latency") == [(5.0, 5.0), (6.0, 6.0)]


def test_the_distances_of_a_table_are_a_correlation_and_an_error_per_metric() -> None:
    found = {each.name: each for each in distances(_table(), {"workers": 0.8}, "q1 ")}
    assert found["rank correlation, q1 workers"] == Distance(
        "rank correlation, q1 workers", 0.5, 0.8
    )
    assert found["rank correlation, q1 workers"].reached is False
    assert found["rank correlation, q1 latency"].reached is None
    # (0/1 + 2/2 + 1/4) / 3
    assert found["mean relative error, q1 workers"].value == pytest.approx(1.25 / 3)


def test_an_error_reaches_its_aim_from_above() -> None:
    assert Distance("error", 0.2, 0.3, more_is_better=False).reached is True


def test_a_study_counts_its_claims_and_can_be_written_as_json() -> None:
    claims = (
        Claim("X1", "one is one", True, {"one": 1.0}),
        Claim("X2", "one is two", False, {"one": 1.0}, "it is not"),
    )
    study = Study("x", "X", "nowhere", "none", (_table(),), claims)
    assert study.held == 1
    assert msgspec.json.decode(msgspec.json.encode(study), type=Study) == study


def test_an_unknown_study_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown study 'koper': did you mean 'koper2022'"):
        reproduce("koper")


def test_work_comes_back_in_order_whatever_the_number_of_processes() -> None:
    done: list[int] = []
    assert spread(abs, [-1, -2, -3], 2, done.append) == [1, 2, 3]
    assert done[-1] == 3
    assert spread(abs, [], 2) == []


def test_work_that_fails_fails_here_too() -> None:
    with pytest.raises(ValueError, match="x"):
        spread(int, ["1", "x"], 2)
