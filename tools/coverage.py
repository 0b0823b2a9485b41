"""Lines and branches of `src` that the fast tests run, by package, against the goals.

``python -m tools.coverage [tests ...]`` runs them with coverage and exits with 1 if a package
misses its goal. What only runs beside real Spark is tested by the slow tests, which do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = "src/penstock/"
#: Percent of lines and branches; every other package has `USUAL`.
GOALS = {"core": 95.0, "policies": 95.0, "settings": 95.0}
USUAL = 85.0


class Measured(NamedTuple):
    """What of a package ran: lines and branches together."""

    package: str
    percent: float
    goal: float


def by_package(files: Mapping[str, Any]) -> list[Measured]:
    """The packages with what ran of them, from the files of a report of coverage.

    >>> summary = {"covered_lines": 8, "covered_branches": 1}
    >>> summary |= {"num_statements": 8, "num_branches": 2}
    >>> by_package({"src/penstock/core/model.py": {"summary": summary}})
    [Measured(package='core', percent=90.0, goal=95.0)]
    """
    ran: dict[str, int] = defaultdict(int)
    there: dict[str, int] = defaultdict(int)
    for path, report in files.items():
        inside = path.partition(SOURCE)[2]
        package = inside.partition("/")[0] if "/" in inside else "(top)"
        summary = report["summary"]
        ran[package] += summary["covered_lines"] + summary["covered_branches"]
        there[package] += summary["num_statements"] + summary["num_branches"]
    return [
        Measured(name, round(100.0 * ran[name] / there[name], 1), GOALS.get(name, USUAL))
        for name in sorted(there)
        if there[name]
    ]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-coverage-") as folder:
        report = Path(folder, "coverage.json")
        pytest = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not slow and not cluster"]
        counted = ["--cov=penstock", "--cov-branch", "--cov-report", f"json:{report}"]
        code = subprocess.run([*pytest, *counted, *sys.argv[1:]], check=False).returncode
        if code != 0:
            return code
        found = by_package(json.loads(report.read_text(encoding="utf-8"))["files"])
    print(f"{'package':12} {'ran':>6} {'goal':>6}   (lines and branches, fast tests only)")
    for each in found:
        missed = "  missed" if each.percent < each.goal else ""
        print(f"{each.package:12} {each.percent:5.1f}% {each.goal:5.0f}%{missed}")
    return int(any(each.percent < each.goal for each in found))


if __name__ == "__main__":
    sys.exit(main())
