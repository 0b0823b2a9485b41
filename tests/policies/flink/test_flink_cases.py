"""The cases of Flink's autoscaler can fail, and each function that they name is known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.flink_cases import RUNNERS
from tests.conformance.runner import CASES, judge

DOCUMENT: dict[str, Any] = json.loads((CASES / "flink.json").read_text(encoding="utf-8"))


def test_every_function_that_the_file_describes_has_a_translator() -> None:
    assert set(DOCUMENT["meta"]["functions"]) <= set(RUNNERS)
    assert {case["function"] for case in DOCUMENT["cases"]} <= set(RUNNERS)


@pytest.mark.parametrize("case", DOCUMENT["cases"], ids=lambda case: case["id"])
def test_a_case_with_another_expectation_fails(case: dict[str, Any]) -> None:
    key, value = next(iter(case["expect"].items()))
    other = {**case, "expect": {**case["expect"], key: _changed(key, value)}}
    assert judge(case, RUNNERS, {}).passed
    assert not judge(other, RUNNERS, {}).passed


def _changed(key: str, value: Any) -> Any:
    """Something else; a bound becomes one that no coefficient is beyond."""
    if key in ("greater_than", "less_than"):
        return 9.0 if key == "greater_than" else -9.0
    if isinstance(value, bool):
        return not value
    return [value, "else"]
