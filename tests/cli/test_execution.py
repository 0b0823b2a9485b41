"""How far a long command is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from penstock.cli import execution
from penstock.cli.execution import progress
from penstock.testbed import wait_until


class Terminal(io.StringIO):
    """Standard error on a screen."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "BAR_EVERY_S", 0.001)
    monkeypatch.setattr(execution, "PROGRESS_EVERY_S", 0.001)


def test_a_terminal_shows_the_share_that_is_done_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, done = Terminal(), 0
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("advise", "tasks", lambda: (done, 10 if done else 0)):
        for done in (1, 3):
            shown = f"{done}/10"
            wait_until(lambda shown=shown: shown in screen.getvalue(), 60.0, "no bar")  # type: ignore[misc]
    assert ":" in screen.getvalue().partition("3/10")[2]  # 0:00:07, or -:--:--


def test_elsewhere_a_line_says_it_once_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    counted, seen = threading.Event(), []

    def count() -> tuple[int, int]:
        seen.append(1)
        if len(seen) > 3:
            counted.set()
        return (2, 5)

    with progress("compare", "runs", count):
        assert counted.wait(60.0)
    assert capsys.readouterr().err == "penstock: compare: 2 of 5 runs done\n"


def test_a_count_that_fails_does_not_end_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    failed = threading.Event()

    def count() -> tuple[int, int]:
        failed.set()
        raise ConnectionError("the driver is gone")

    with progress("advise", "tasks", count):
        assert failed.wait(60.0)
    assert capsys.readouterr().err == ""
