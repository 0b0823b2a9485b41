"""The command: what it refuses, and real demos."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.core.journal import JournalHeader, read_header, read_steps
from penstock.core.model import Decision, Reason, Step
from penstock.testbed import java, wait_until
from penstock.testbed.demo.attached import WatchedJournal

UP_S = 240.0


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence with which a demo is refused."""
    with pytest.raises(SystemExit) as end:
        main(["demo", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--job", "q99"], "unknown job 'q99'"),
        (["--policy", "penstok"], "unknown policy 'penstok': did you mean 'penstock'?"),
        (["--policy", "ds2:speed=3"], "unknown option 'speed' in ds2"),
        (["--minutes", "-1"], "--minutes must be"),
        (["--cpu-share", "0"], "--cpu-share must be greater than 0, not '0'"),
        (["--cpu-share", "1.5"], "the share of a core must be between 0.05 and 1, not 1.5"),
        (["--cpu-share", "0.05", "--job", "q1"], "--cpu-share needs a job that computes"),
        (["--out", "nowhere/page.html"], "cannot write nowhere/page.html: nowhere is not a folder"),
        (["--journal", "a.jsonl", "--out", "a.jsonl"], "--out a.jsonl is the journal"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(arguments, capsys)


def test_a_journal_that_is_there_is_not_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "run.jsonl"
    there.write_text("something of mine")
    assert "exists already" in refused(["--journal", str(there)], capsys)
    assert there.read_text() == "something of mine"


def test_without_java_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(java, "candidates", lambda _: iter(()))
    usual = signal.getsignal(signal.SIGTERM)
    try:
        assert "Spark needs Java 17" in refused([], capsys)
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert not list(tmp_path.glob("penstock-demo-*"))


def test_what_is_shown_is_what_the_journal_says(tmp_path: Path) -> None:
    step = Step(0.0, None, Decision.of(3, Reason("sensor_blind", "holding: no answer")))
    journal = WatchedJournal(tmp_path / "run.jsonl", JournalHeader.of({"policy": "hpa"}))
    with journal:
        journal.write(step)
    assert journal.steps == list(read_steps(tmp_path / "run.jsonl")) == [step]


# -- Real demos ------------------------------------------------------------------------------------


def remaining(directory: Path) -> list[str]:
    """The processes that have to do with a directory: by their command line or their place."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(directory).encode() in told and int(process.name) != os.getpid():
                found.append((process / "cmdline").read_bytes().decode().replace("\0", " "))
        except OSError:  # it has just ended
            continue
    return [command for command in found if command]


def produces(directory: Path) -> bool:
    """Whether its producer runs; the query is started right after it, by many calls to Java."""
    return any("penstock.testbed.jobs.producer" in command for command in remaining(directory))


@contextmanager
def started(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A demo as a process, whose temporary files, and no others, are in `directory`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "demo", *arguments],
        cwd=directory,
        env=os.environ | {"TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return
    pytest.fail(f"never said '{words}' but: {''.join(lines)}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_demo_grows_its_fleet_and_leaves_a_page_and_nothing_else(tmp_path: Path) -> None:
    arguments = ["--minutes", "0.75", "--policy", "elastic_scaling"]
    arguments += ["--journal", "run.jsonl", "--out", "page.html"]
    with started(tmp_path, *arguments) as process:
        output, _ = process.communicate(timeout=500)
        assert process.returncode == 0, output
    assert "Each record waits 1 ms, so that one machine can stand for a cluster." in output
    assert "executors 1 wanted 1 registered 1 working" in output
    assert "executor-seconds" in output
    steps = list(read_steps(tmp_path / "run.jsonl"))
    assert read_header(tmp_path / "run.jsonl").run["pace"] == "0.001 s per record"
    assert any(step.receipt is not None and step.receipt.accepted for step in steps)
    assert max(step.snapshot.fleet.active for step in steps if step.snapshot is not None) > 1
    page = (tmp_path / "page.html").read_text()
    assert "elastic_scaling" in page
    assert "Each record waits 1 ms, so that one machine can stand for a cluster." in page
    assert not remaining(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "run.jsonl"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("calling_java", [False, True])
def test_an_interrupt_ends_everything_within_seconds(tmp_path: Path, calling_java: bool) -> None:
    with started(tmp_path, "--journal", "run.jsonl") as process:
        read_until(process, "starting the job")
        if calling_java:
            wait_until(partial(produces, tmp_path), UP_S, "the producer did not start")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "interrupted; everything has ended" in output
    assert "Traceback" not in output
    assert not remaining(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    with started(tmp_path, "--journal", "run.jsonl") as process:
        read_until(process, "starting the job")
        wait_until(partial(produces, tmp_path), UP_S, "the producer did not start")
        process.kill()
        process.wait()
    wait_until(lambda: not remaining(tmp_path), 60.0, "processes outlive the demo")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_occupied_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with started(tmp_path, "--kafka-port", port) as process:
            output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"penstock: port {port} for the broker is taken" in output
    assert "Traceback" not in output
    assert not remaining(tmp_path)
