"""Runs numeric cases of the originals against our code: ``make cases FILES="a.json b.json"``.

A translator (``*_cases.py``) turns the words of a case into our types and our answer back into
the words of the case; this file finds the translator, compares, and prints. Neither holds any
arithmetic of the rules. A case that no translator knows counts as failed, never as skipped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

Case = Mapping[str, Any]
Translator = Callable[[Case], Any]

CASES = Path(__file__).parent.parent / "cases"
TRANSLATORS = (
    "hpa_cases",
    "keda_cases",
    "seeds_cases",
    "jobs_cases",
    "flink_cases",
    "predictive_cases",
)

#: Cases whose code is not there yet, as patterns of ``FILE/ID``; ``make test`` leaves them out.
PENDING: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """How one case ended."""

    id: str
    passed: bool
    expected: Any = None
    got: Any = None


def translators() -> tuple[dict[str, Translator], dict[str, str]]:
    """All translators by kind, function or family of ids, and where we differ on purpose."""
    runners: dict[str, Translator] = {}
    differs: dict[str, str] = {}
    for name in TRANSLATORS:
        if not (Path(__file__).parent / f"{name}.py").exists():
            continue
        module = import_module(f"tests.conformance.{name}")
        runners.update(module.RUNNERS)
        differs.update(getattr(module, "DIFFERS", {}))
    return runners, differs


def translator_of(case: Case, runners: Mapping[str, Translator]) -> Translator | None:
    """By function (Flink), by family of dotted ids (studies, jobs), or by kind (HPA, KEDA)."""
    if "function" in case:
        return runners.get(case["function"])
    if "group" not in case:
        return runners.get(case.get("kind", ""))
    family = str(case["id"])
    while family:
        if family in runners:
            return runners[family]
        family = family.rpartition(".")[0]
    return None


def judge(case: Case, runners: Mapping[str, Translator], differs: Mapping[str, str]) -> Verdict:
    """Run one case and compare, key by key; what differs on purpose must really differ."""
    name, expected = str(case["id"]), case.get("expected", case.get("expect"))
    translator = translator_of(case, runners)
    if translator is None:
        return Verdict(name, passed=False, expected=expected, got="no translator knows this case")
    try:
        got = translator(case)
    except Exception as error:  # a broken case is a failed case, and the others still run
        return Verdict(
            name, passed=False, expected=expected, got=f"{type(error).__name__}: {error}"
        )
    wrong = dict(mismatches(expected, got, name))
    on_purpose = {path for path in wrong if any(fnmatchcase(path, known) for known in differs)}
    spoken_of = [known for known in differs if any(fnmatchcase(p, known) for p in paths(case))]
    agree = [known for known in spoken_of if not any(fnmatchcase(p, known) for p in on_purpose)]
    if agree:
        return Verdict(name, passed=False, expected=f"to differ at {agree}", got="the same")
    left = {path: pair for path, pair in wrong.items() if path not in on_purpose}
    return Verdict(
        name,
        passed=not left,
        expected={path: pair[0] for path, pair in left.items()},
        got={path: pair[1] for path, pair in left.items()},
    )


def mismatches(expected: Any, got: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Where the answer is not the expected one, as ``id/key/...``; extra keys do not count."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for key, value in expected.items():
            yield from mismatches(value, got.get(key, "(missing)"), f"{path}/{key}")
    elif isinstance(expected, list) and isinstance(got, list | tuple):
        if len(expected) != len(got):
            yield path, (expected, got)
            return
        for index, (value, other) in enumerate(zip(expected, got, strict=True)):
            yield from mismatches(value, other, f"{path}/{index}")
    elif not same(expected, got):
        yield path, (expected, got)


def same(expected: Any, got: Any) -> bool:
    """Numbers agree to the digits that the cases print; all else must be equal.

    They print at least six digits, and those above one at least four behind the point.
    """
    if isinstance(expected, bool) or isinstance(got, bool) or expected is None or got is None:
        return expected is got
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    if isinstance(expected, int | float) and isinstance(got, int | float):
        rounding = 6e-5 if abs(expected) > 1.0 else 6e-7
        return abs(expected - got) <= max(rounding, 1e-6 * abs(expected)) or expected == got
    return bool(expected == got)


def paths(case: Case) -> list[str]:
    """Everything that a case expects, as ``id/key/...``."""
    found = [str(case["id"])]
    pending = [(found[0], case.get("expected"))]
    while pending:
        path, value = pending.pop()
        inner: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Mapping):
            inner = value.items()
        elif isinstance(value, list):
            inner = enumerate(value)
        for key, below in inner:
            found.append(f"{path}/{key}")
            pending.append((found[-1], below))
    return found


def read(path: Path) -> list[Case]:
    document = json.loads(path.read_text(encoding="utf-8"))
    return list(document["cases"])


def run(path: Path, *, pending: bool) -> list[Verdict]:
    """All verdicts of a file; without `pending`, those of `PENDING` are left out."""
    runners, differs = translators()
    return [
        judge(case, runners, differs)
        for case in read(path)
        if pending or not any(fnmatchcase(f"{path.name}/{case['id']}", p) for p in PENDING)
    ]


def main(arguments: list[str]) -> int:
    pending = "--done" not in arguments
    files = [Path(name) for name in arguments if name != "--done"] or sorted(CASES.glob("*.json"))
    failed = 0
    for path in files:
        try:
            verdicts = run(path, pending=pending)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{path}: not a file of cases: {error}", file=sys.stderr)
            return 2
        wrong = [verdict for verdict in verdicts if not verdict.passed]
        for verdict in wrong:
            print(f"  {verdict.id}\n    expected {verdict.expected}\n    got      {verdict.got}")
        print(f"{path.name}: {len(verdicts) - len(wrong)} passed, {len(wrong)} failed")
        failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
