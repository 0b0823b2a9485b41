"""Conditions of claims: how rows compare, and what is said of those that do not."""

from __future__ import annotations

import pytest
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.lab.studies.claims import judge, verdict
from penstock.lab.studies.skeleton import Prose
from penstock.lab.studies.study import Claim, Study


class Cost(Struct, frozen=True):
    workers: float
    latency_s: float = 0.0


RUNS = {
    ("q1", "hpa 50"): [Cost(8.0, 1.0), Cost(10.0, 1.0)],
    ("q1", "hpa 70"): [Cost(5.0, 2.0), Cost(7.0, 2.0)],
    ("q1", "ds2 0"): [Cost(2.0, 9.0), Cost(4.0, 9.0)],
    ("q3", "hpa 50"): [Cost(12.0), Cost(12.0)],
    ("q3", "hpa 70"): [Cost(3.0), Cost(3.0)],
    ("q3", "ds2 0"): [Cost(4.0), Cost(4.0)],
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("workers, q1 | q3: hpa 50 > hpa 70", True),
        ("workers, q1: hpa 50 > hpa 70 > ds2 0", True),
        ("workers, q3: hpa 50 > hpa 70 > ds2 0", False),
        ("workers, q1 | q3: hpa 50|70 > ds2 0", False),
        ("3 of workers, q1 | q3: hpa 50|70 > ds2 0", True),
        ("workers, q1: hpa 50 <= 1.5 * hpa 70", True),
        ("workers, q1: hpa 50 < hpa 70 + 3", False),
        ("workers, q1: hpa 50 > *", True),
        ("workers, q3: hpa 70 < *", True),
        ("workers, q3: ds2 0 < *", False),
        ("latency_s, q1: ds2 0 > median", True),
        ("2 of workers, q1: q3/each > each", True),
        ("workers, q1: q3/each > each", False),
        ("workers, q1: 8 < hpa 50 < 10", True),
        ("workers, q1: hpa 50 > 8; latency_s, q1: hpa 50 > 8", False),
    ],
)
def test_rows_compare_as_written(condition: str, holds: bool) -> None:
    found = verdict(condition, RUNS)
    assert found.holds is holds
    assert bool(found.wrong) is not holds


def test_a_condition_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be judged by 'workers: many'"):
        verdict("workers: many", RUNS)


PROSE = Prose("x2024", "X", {
    "Protocol": "nothing",
    "X1": "fewer at 70\n\nHolds if: workers, q1: hpa 50 >\nhpa 70",
    "X2": "fewer still\n\nHolds if: workers, q1: hpa 70 > 6.5\n\nWhy not: they are few",
    "X3": "given\n\nHolds if: workers, q3: hpa 50 > 1\n\nBy construction: it was fitted",
    "X4": "unknown\n\nNot tested: there is no gauge",
    "X5": "computed",
})  # fmt: skip


def test_claims_come_in_order_with_verdicts_intervals_and_reasons() -> None:
    claims = judge(PROSE, RUNS, {"X5": (True, {"p": 0.01}, "")})
    assert [claim.holds for claim in claims] == [True, False, True, None, True]
    assert [claim.counts for claim in claims] == [True, True, False, False, True]
    # Workers of 8 and 10: 12.71 x 1.414 / sqrt(2) on either side.
    assert claims[0].intervals["q1, hpa 50, workers"] == pytest.approx(12.71)
    assert claims[0].evidence["part of single runs in which it holds"] == 1.0
    # Of the runs with 5 and 7 workers one is above 6.5.
    assert claims[1].evidence["part of single runs in which it holds"] == 0.5
    assert claims[1].reason == "q1: hpa 70 (6) > 6.5. they are few"
    assert claims[2].reason == "it was fitted"
    assert claims[3].reason == "there is no gauge"
    study = Study("x2024", "X", "", "", (), tuple(claims))
    assert study.summary == ("2 of 3 claims hold; 1 hold by construction; 1 cannot be tested here")


def test_what_was_fitted_and_still_fails_counts() -> None:
    assert Claim("X1", "", False, {}, is_given=True).counts
