"""A pytest plugin that writes each failure as a JSON line.

Use it with ``-p tools.failure_log --failure-log FILE``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


class FailureLog:
    """Appends the name of each failed test, and the last line of what it said."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            entry = {"test": report.nodeid, "phase": report.when, "line": last_line(report)}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


def last_line(report: pytest.TestReport) -> str:
    """The last line of the error itself, or of the whole report where it has none."""
    lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return next(iter(errors[:1] or lines[-1:]), "no output")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failure-log", metavar="FILE", help="Write failures here, as JSON lines.")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failure-log")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLog(Path(path)))
