"""Interrupts that come in the middle of a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.testbed.demo.plan import make_plan
from penstock.testbed.demo.scene import start_producer
from penstock.testbed.interrupts import uninterrupted

STARTED: list[subprocess.Popen[bytes]] = []


class InterruptedStart(subprocess.Popen[bytes]):
    """Ctrl-C comes when the program runs and its number has not been handed over yet."""

    def __init__(self, argv: list[str], **options: Any) -> None:
        super().__init__([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        STARTED.append(self)
        os.kill(os.getpid(), signal.SIGINT)


class Bed:
    """What a producer has to know of a testbed."""

    bootstrap_servers = "127.0.0.1:1"

    def __init__(self, run_directory: Any) -> None:
        self.run_directory = run_directory
        (run_directory / "logs").mkdir()


def test_a_program_whose_start_is_interrupted_is_ended(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", InterruptedStart)
    bed: Any = Bed(tmp_path)
    plan = make_plan("q1", None, fast=True)
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        start_producer(stack, bed, plan, "producer", "--rates", "-")
    (started,) = STARTED
    assert started.stdin is not None
    started.stdin.close()
    assert started.returncode == -signal.SIGKILL


def test_a_termination_is_handled_as_usual_afterwards() -> None:
    heard: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == []
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, usual)


def test_another_thread_goes_on_as_it_is() -> None:
    handlers = []

    def look() -> None:
        with uninterrupted():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
