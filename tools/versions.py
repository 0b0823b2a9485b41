"""Try Penstock with each version of PySpark, Python and Java, each in an environment of its own.

``python -m tools.versions`` makes the environments below ``.venv-versions``, runs tests/versions
in each and writes docs/compatibility.json, of which `make docs` makes the table. Names, such as
``pyspark-4.2``, choose rows; the others keep their last result. Exits with 1 if a test failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import msgspec
from msgspec import Struct

from penstock.testbed.java import candidates, examine
from tools.pythons import python_of
from tools.run_tests import Summary, run_alone

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "compatibility.json"
ENVIRONMENTS = ROOT / ".venv-versions"
LOCK = ROOT / "requirements.lock"
UV = str(Path(sys.executable).with_name("uv"))


class Row(Struct, frozen=True):
    """What is tried together: minor versions; that of Python and Java as found unless named."""

    pyspark: str
    python: str = ""
    java: int = 0

    @property
    def environment(self) -> str:
        """The name of its environment, which says nothing of Java."""
        return f"pyspark-{self.pyspark}" + (f"-python-{self.python}" if self.python else "")

    @property
    def name(self) -> str:
        """The name of the row.

        >>> Row("4.0", "3.13").name, Row("4.3", java=25).name
        ('pyspark-4.0-python-3.13', 'pyspark-4.3-java-25')
        """
        return self.environment + (f"-java-{self.java}" if self.java else "")


ROWS = (
    *(Row(pyspark) for pyspark in ("3.5", "4.0", "4.1", "4.2", "4.3")),
    Row("4.0", "3.12"),
    Row("4.0", "3.13"),
    Row("4.3", "3.13"),
    Row("4.0", java=21),
    Row("4.3", java=25),
)


class Result(Struct, omit_defaults=True):
    """How the last run of a row went."""

    tried: str  #: The day.
    missing: str = ""  #: Why it could not be tried.
    facts: dict[str, str] = {}  #: Versions, as the programs themselves say them.
    #: Seconds of each part that passed, 0 where they mean nothing; ``None`` if it failed.
    parts: dict[str, float | None] = {}

    @property
    def failed(self) -> bool:
        return not self.missing and (not self.parts or None in self.parts.values())


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """The last result of each row, by its name."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Result]) if path.exists() else {}


def main(names: Sequence[str]) -> int:
    rows = [row for row in ROWS if row.name in names or not names]
    if unknown := set(names) - {row.name for row in rows}:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(row.name for row in ROWS)}")
        return 2
    # So that the tests which run are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = read_results()
    for row in rows:
        print(f"== {row.name}", flush=True)
        results[row.name] = result = attempt(row)
        print(f"{row.name}: {result.missing or result.parts}", flush=True)
        ordered = {each.name: results[each.name] for each in ROWS if each.name in results}
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n")
    return int(any(results[row.name].failed for row in rows))


def attempt(row: Row) -> Result:
    """Make the environment of a row where it is missing, and run the tests in it."""
    today = date.today().isoformat()
    java = java_home(row.java) if row.java else None
    if row.java and java is None:
        return Result(today, f"no Java {row.java} on this machine")
    place = ENVIRONMENTS / row.environment
    if missing := make(row, place):
        return Result(today, missing)
    variables = os.environ | ({"JAVA_HOME": str(java)} if java else {})
    with tempfile.TemporaryDirectory(prefix="penstock-versions-") as folder:
        report = Path(folder, "report.xml")
        argv = [str(place / "bin" / "python"), "-m", "pytest", "-m", "cluster", "tests/versions"]
        argv += ["-o", "junit_family=xunit1", "--junitxml", str(report)]
        summary = Summary()
        run_alone(argv, summary, variables)
        for each in summary.left_behind:
            print(f"left behind and ended: {each}", flush=True)
        return read_report(report.read_text("utf-8"), today) if report.exists() else Result(today)


def make(row: Row, place: Path) -> str:
    """An environment with everything of the lock file but PySpark; why not, empty if it is made."""
    ready = place / ".ready"
    if ready.exists() and ready.stat().st_mtime >= LOCK.stat().st_mtime:
        return ""
    python = (python_of(row.python) or row.python) if row.python else sys.executable
    install = ["pip", "install", "--python", str(place)]
    steps = {
        f"no Python {row.python} on this machine": [
            "venv", "--allow-existing", "--python", python, str(place),
        ],
        "the lock file cannot be installed": [
            "pip", "sync", "--python", str(place), "--require-hashes", str(LOCK),
        ],
        f"PySpark {row.pyspark} cannot be installed": [
            *install, "--upgrade", f"pyspark=={row.pyspark}.*",
        ],
        "Penstock cannot be installed": [
            *install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT),
        ],
    }  # fmt: skip
    for problem, command in steps.items():
        if subprocess.run([UV, *command, "--quiet"]).returncode != 0:
            return problem
    ready.touch()
    return ""


def java_home(feature: int) -> Path | None:
    """Where a Java of that version is, if there is one."""
    for executable in candidates(os.environ):
        found, _ = examine(executable, None)
        if found is not None and found.version == feature:
            return found.home
    return None


def read_report(text: str, today: str) -> Result:
    """What a report of pytest in the form of JUnit says.

    >>> read_report('''<testsuites><testsuite><properties>
    ...     <property name="pyspark" value="4.2.1"/></properties>
    ...     <testcase name="test_up_brings"><properties>
    ...         <property name="seconds" value="5.5"/></properties></testcase>
    ...     <testcase name="test_down_removes"><failure/></testcase>
    ... </testsuite></testsuites>''', "2026-11-17")
    Result(tried='2026-11-17', missing='', facts={'pyspark': '4.2.1'},
           parts={'up': 5.5, 'down': None})
    """
    tree = ElementTree.fromstring(text)
    parts: dict[str, float | None] = {}
    for case in tree.iter("testcase"):
        passed = all(case.find(each) is None for each in ("failure", "error", "skipped"))
        seconds = float(_properties(case).get("seconds", 0.0))
        parts[case.attrib["name"].split("_")[1]] = seconds if passed else None
    suite = tree.find("testsuite")
    return Result(today, facts=_properties(suite) if suite is not None else {}, parts=parts)


def _properties(element: ElementTree.Element) -> dict[str, str]:
    found = element.findall("properties/property")
    return {each.attrib["name"]: each.attrib["value"] for each in found}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
