"""The numeric cases of the originals pass, and the runner cannot be fooled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.runner import CASES, judge, main, read, run, same


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.name)
def test_every_case_that_is_not_pending_passes(path: Path) -> None:
    assert [verdict for verdict in run(path, pending=False) if not verdict.passed] == []


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.name)
def test_every_file_of_cases_holds_some(path: Path) -> None:
    assert len(read(path)) > 5


def verdict(expected: Any, got: Any, differs: dict[str, str] | None = None) -> bool:
    case = {"id": "a.b.1", "group": "a", "expected": expected}
    return judge(case, {"a.b": lambda _: got}, differs or {}).passed


def test_a_wrong_number_fails() -> None:
    assert verdict({"x": 1.0}, {"x": 1.0, "more": 2})
    assert not verdict({"x": 1.0}, {"x": 1.001})
    assert not verdict({"x": 1.0}, {})
    assert not verdict([1, 2], [1])
    assert not verdict({"x": True}, {"x": 1})
    assert not verdict(None, 0)


def test_a_case_that_nobody_knows_fails() -> None:
    assert not judge({"id": "q", "group": "z", "expected": 1}, {}, {}).passed
    assert not judge({"id": "q", "kind": "z", "expected": 1}, {}, {}).passed
    assert not judge({"id": "q", "function": "z", "expected": 1}, {}, {}).passed


def test_a_translator_that_breaks_fails_its_case() -> None:
    def broken(case: Any) -> Any:
        raise KeyError(case["kind"])

    result = judge({"id": "a", "kind": "k", "expected": 1}, {"k": broken}, {})
    assert (result.passed, result.got) == (False, "KeyError: 'k'")


def test_what_differs_on_purpose_must_differ() -> None:
    table = {"a.b.*/x": "the printed formula is wrong"}
    assert verdict({"x": 1, "y": 2}, {"x": 5, "y": 2}, table)
    assert not verdict({"x": 1, "y": 2}, {"x": 1, "y": 2}, table)
    assert not verdict({"x": 1, "y": 2}, {"x": 5, "y": 3}, table)


def test_integers_are_compared_exactly_and_others_to_six_digits() -> None:
    assert not same(2147483647, 2147483646)
    assert same(0.52381, 0.5238095238)
    assert not same(0.52381, 0.52382)


def test_a_file_that_holds_no_cases_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.json"
    path.write_text("{}")
    assert main([str(path)]) == 2
    assert "not a file of cases" in capsys.readouterr().err
