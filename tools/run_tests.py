"""Run the parts of the tests in order; say at the end what was retried and how long each took.

``python -m tools.run_tests static fast cases slow`` stops at the first part that fails and exits
with its code. Tests start real processes and may fail on a busy machine: what failed is run
once more, one test at a time, and named at the end. Processes that a part left behind are ended
and named.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

MAKE = ["make", "--no-print-directory"]
PYTEST = [sys.executable, "-m", "pytest"]
PARTS: dict[str, list[str]] = {
    "static": [*MAKE, "check", "site"],
    "fast": [*PYTEST, "-n", "2", "--dist", "worksteal", "-m", "not slow and not cluster"],
    "cases": [*MAKE, "cases", "DONE=--done"],
    # The tests of a file share a Spark session, so a file is not divided.
    "slow": [*PYTEST, "-n2", "--dist=loadfile", "--durations=40", "-m", "slow and not long"],
    "long": [*PYTEST, "-n0", "--durations=0", "-m", "long"],
    "yarn": [*PYTEST, "-s", "-rs", "-m", "yarn and short", "tests/testbed/clusters"],
    "kubernetes": [*PYTEST, "-s", "-rs", "-m", "kubernetes and short", "tests/testbed/clusters"],
}
#: Parts whose failed tests get a second attempt.
RETRIED = {"fast", "slow", "long", "yarn", "kubernetes"}
CLUSTERS = {"yarn", "kubernetes"}
#: What pytest exits with when tests failed, as opposed to being interrupted or misused.
TESTS_FAILED = 1
#: When the last test on a cluster may begin; see tests/testbed/clusters/conftest.py.
UNTIL = "PENSTOCK_CLUSTER_TESTS_UNTIL"
END_WITHIN_S = 5.0


@dataclass
class Summary:
    """What is printed at the end, whatever happened before."""

    seconds: dict[str, float] = field(default_factory=dict)
    retried: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """One block of text, also for a run that was cut short.

        >>> Summary({"static": 41.2, "fast": 130.0}, ["a.py::b failed again"]).lines()
        ['retried: 1 test', '  a.py::b failed again', 'time: static 41 s, fast 130 s']
        """
        tests = "1 test" if len(self.retried) == 1 else f"{len(self.retried) or 'no'} tests"
        found = [f"retried: {tests}", *(f"  {line}" for line in self.retried)]
        found += [f"left behind and ended: {line}" for line in self.left_behind]
        times = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in self.seconds.items())
        return [*found, f"time: {times}"]


def run(parts: Sequence[str], commands: dict[str, list[str]], summary: Summary) -> int:
    """Run the parts until one fails; the exit code of that one, or 0."""
    for part in parts:
        if part in CLUSTERS and time.time() > float(os.environ.get(UNTIL, "inf")):
            print(f"{part}: left out, no time is left for tests on clusters", flush=True)
            continue
        begin = time.monotonic()
        try:
            if part in RETRIED:
                code = run_with_retry(commands[part], summary)
            else:
                code = run_alone(commands[part], summary)
        finally:
            summary.seconds[part] = time.monotonic() - begin
        if code != 0:
            return code
    return 0


def run_with_retry(command: list[str], summary: Summary) -> int:
    """Run pytest; run what failed once more, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-tests-") as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        code = run_alone([*command, *_logging_to(first)], summary)
        failures = _read(first)
        if code != TESTS_FAILED or not failures:
            return code
        print(f"retrying {len(failures)} of the tests", flush=True)
        # Only what failed, whatever the time: a test that is skipped now would count as passed.
        command = [word for word in command if not word.startswith("tests/")]
        environment = {name: value for name, value in os.environ.items() if name != UNTIL}
        argv = [*command, "-n", "0", *_logging_to(second), *failures]
        code = run_alone(argv, summary, environment)
        again = _read(second)
    for test, line in failures.items():
        failed = test in again or code not in (0, TESTS_FAILED)
        outcome = "failed again" if failed else "passed at the second attempt"
        summary.retried.append(f"{test} {outcome}; first: {line}")
    return code


def _logging_to(path: Path) -> list[str]:
    return ["-p", "tools.failure_log", "--failure-log", str(path)]


def _read(path: Path) -> dict[str, str]:
    """The first failure of each test."""
    failures: dict[str, str] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            failures.setdefault(entry["test"], entry["line"])
    return failures


def run_alone(
    command: list[str], summary: Summary, environment: dict[str, str] | None = None
) -> int:
    """Run a command in a session of its own, and end what it leaves behind."""
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        code = process.wait()
    except BaseException:
        # Its session does not hear our Ctrl-C. It may end in its own way first.
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_WITHIN_S)
        raise
    finally:
        summary.left_behind += end_session(process.pid)
    # A child that was killed by a signal: as a shell says it.
    return 128 - code if code < 0 else code


def end_session(session: int) -> list[str]:
    """End the processes of a session that do not end by themselves; what they were."""
    deadline = time.monotonic() + END_WITHIN_S
    while (left := members(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return list(left.values())


def members(session: int) -> dict[int, str]:
    """The running processes of a session with their commands, where there is a /proc."""
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                found[int(path.name)] = command[:100] or path.name
    return found


def _stop(_signal: int, _frame: object) -> None:
    sys.exit(143)


def main() -> int:
    parts = sys.argv[1:] or list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        print(f"unknown part '{unknown[0]}'; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _stop)
    summary = Summary()
    try:
        return run(parts, PARTS, summary)
    except KeyboardInterrupt:
        return 130
    finally:
        print(*summary.lines(), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
