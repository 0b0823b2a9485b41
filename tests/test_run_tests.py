"""What `make test` prints at its end, and what it exits with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tools.run_tests import UNTIL, Summary, run

ROOT = Path(__file__).parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]

FLAKY = """
from pathlib import Path

def test_steady():
    pass

def test_flaky():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the port was taken"

def test_broken():
    assert {broken} == 1, "one is not two"
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "test_flaky.py"


def test_a_flaky_slow_test_is_retried_and_named(
    suite: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    suite.write_text(FLAKY.format(broken=1))
    summary = Summary()
    assert run(["slow"], {"slow": PYTEST}, summary) == 0
    assert summary.retried == [
        "test_flaky.py::test_flaky passed at the second attempt; "
        "first: AssertionError: the port was taken"
    ]
    assert summary.lines()[0] == "retried: 1 test"
    out = capfd.readouterr().out
    assert "1 failed, 2 passed in" in out  # the closing lines of pytest stay
    assert "1 passed in" in out


def test_a_test_that_fails_twice_fails_the_run_and_is_named(suite: Path) -> None:
    suite.write_text(FLAKY.format(broken=2))
    summary = Summary()
    assert run(["slow"], {"slow": PYTEST}, summary) == 1
    assert [line.split(";")[0] for line in summary.retried] == [
        "test_flaky.py::test_flaky passed at the second attempt",
        "test_flaky.py::test_broken failed again",
    ]


def test_a_retry_runs_nothing_but_the_failed_test_and_has_no_limit_of_time(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = suite.parent / "tests"
    folder.mkdir()
    text = f"import os\ndef test_good(): pass\ndef test_late(): assert {UNTIL!r} not in os.environ"
    (folder / "test_late.py").write_text(text)
    monkeypatch.setenv(UNTIL, "9999999999")
    assert run(["yarn"], {"yarn": [*PYTEST, "tests/test_late.py"]}, Summary()) == 0
    assert "1 passed in" in capfd.readouterr().out


def test_a_part_that_fails_ends_the_run(suite: Path) -> None:
    suite.write_text(FLAKY.format(broken=2))
    summary = Summary()
    assert run(["fast", "slow"], {"fast": PYTEST, "slow": PYTEST}, summary) == 1
    assert list(summary.seconds) == ["fast"]
    assert summary.lines()[-1].startswith("time: fast ")


def test_a_run_that_is_ended_leaves_no_process_and_still_prints_its_summary() -> None:
    sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    code = (
        "import sys; from tools import run_tests\n"
        f"run_tests.PARTS['fast'] = [sys.executable, '-c', {sleeper!r}]\n"
        "sys.argv[1:] = ['fast']; sys.exit(run_tests.main())"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        sleeping = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "time: fast" in out
    with pytest.raises(ProcessLookupError):
        os.kill(sleeping, 0)


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes in /proc")
def test_what_a_part_leaves_behind_is_ended_and_named() -> None:
    sleeper = "import time; time.sleep(60)  # orphan"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}])"
    summary = Summary()
    assert run(["cases"], {"cases": [sys.executable, "-c", parent]}, summary) == 0
    assert len(summary.left_behind) == 1
    assert "# orphan" in summary.left_behind[0]


def test_a_cluster_is_left_out_when_no_time_is_left(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(UNTIL, "0")
    summary = Summary()
    parts = {"cases": [sys.executable, "-c", "print('done')"], "yarn": ["false"]}
    assert run(["cases", "yarn"], parts, summary) == 0
    assert list(summary.seconds) == ["cases"]
    assert capfd.readouterr().out.splitlines() == [
        "done",
        "yarn: left out, no time is left for tests on clusters",
    ]
