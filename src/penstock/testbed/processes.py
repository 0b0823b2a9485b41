"""Programs that cannot outlive us, waiting for them, and what their logs say when they fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.testbed import keeper

Answer = TypeVar("Answer")

THROWABLE = re.compile(r"(?:[a-z_]\w*\.)+[A-Z]\w*(?:Exception|Error)\b.*")
ERROR = re.compile(r"\b(?:ERROR|FATAL|Error:|error:)\s*(.*)")


class Processes:
    """Starts programs through a keeper, which ends them when we end; safe in several threads."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._turn = threading.Lock()
        self._keeper: subprocess.Popen[str] | None = None

    def __enter__(self) -> Processes:
        self.logs.mkdir(parents=True, exist_ok=True)
        # Not the module but its file: importing the package would cost more than all the rest.
        # A session of its own: Ctrl-C in the terminal is ours to handle, not the keeper's.
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self._turn:
            running, self._keeper = self._keeper, None
            if running is not None:
                running.communicate()  # closes its input, at which it kills all and ends

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Start a program; ``name`` is what messages call it and what its log is named after."""
        log = self.logs / f"{name.replace(' ', '-')}.log"
        order = {"argv": list(argv), "log": str(log), "environment": dict(environment)}
        return Process(self, name, self.request({"start": order})["pid"], log)

    def at_the_end(self, argv: Sequence[str]) -> None:
        """Leave a command that runs after all programs are gone, even if we are killed."""
        self.request({"finally": {"argv": list(argv)}})

    def request(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """One question to the keeper, and its answer."""
        with self._turn:
            running = self._keeper
            if running is None or running.stdin is None or running.stdout is None:
                raise ConfigError("the testbed is closed")
            try:
                running.stdin.write(json.dumps(order) + "\n")
                line = running.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise ConfigError("the keeper of the testbed's processes was killed, and they with it")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ConfigError(f"cannot start a program of the testbed: {answer['error']}")
        return answer


@dataclass(frozen=True)
class Process:
    """A program that was started; it leads a process group of the same number."""

    processes: Processes
    name: str
    pid: int
    log: Path

    def exit_code(self) -> int | None:
        """How it ended; ``None`` while it runs."""
        code: int | None = self.processes.request({"ask": self.pid})["exit"]
        return code

    def running(self) -> bool:
        return self.exit_code() is None

    def stop(self) -> None:
        """Kill it and all that it started; they are gone on return."""
        self.processes.request({"stop": self.pid})

    def pause(self) -> None:
        """Freeze it: connections stay open without an answer."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def wait_ready(self, ready: Callable[[], object], timeout_s: float) -> None:
        """Ask until it is ready; if it ends before, or the time does, say why."""
        try:
            wait_until(lambda: ready() or not self.running(), timeout_s, self.name, every_s=0.05)
        except TimeoutError:
            raise ConfigError(
                f"the {self.name} did not answer within {timeout_s:g} s: {self.why()}"
            ) from None
        if not self.running():
            raise ConfigError(f"the {self.name} ended while it started: {self.why()}")

    def wait_done(self, timeout_s: float) -> None:
        """Wait until it ended by itself; anything but success is an error."""
        try:
            wait_until(lambda: not self.running(), timeout_s, self.name, every_s=0.05)
        except TimeoutError:
            raise ConfigError(f"the {self.name} took more than {timeout_s:g} s") from None
        if self.exit_code() != 0:
            raise ConfigError(f"the {self.name} failed: {self.why()}")

    def why(self) -> str:
        """The cause, from the log, and where to read more."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"{cause(text)} (log: {self.log})"


def cause(log: str) -> str:
    """The line of a log that says best what went wrong.

    The innermost Java exception if there is one, else the last error, else the last line.

    >>> cause('''[main] ERROR kafka.Kafka$ - Exiting due to fatal exception
    ... org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:9092
    ...     at kafka.network.Acceptor.openServerSocket(SocketServer.scala:746)
    ... Caused by: java.net.BindException: Address already in use
    ...     at java.base/sun.nio.ch.Net.bind0(Native Method)''')
    'java.net.BindException: Address already in use'
    >>> cause("INFO starting" + chr(10) + "ERROR no space left" + chr(10) + "INFO ending")
    'no space left'
    >>> cause("Unrecognized option: -Xmy" + chr(10))
    'Unrecognized option: -Xmy'
    >>> cause("")
    'it wrote nothing'
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    written = [line for line in lines if not line.startswith(("at ", "... "))]
    for pattern in (THROWABLE, ERROR):
        if found := [match[0] for line in written if (match := pattern.search(line))]:
            return ERROR.sub(r"\1", found[-1]).strip()[:300]
    return written[-1][:300] if written else "it wrote nothing"


def wait_until(
    condition: Callable[[], Answer], timeout_s: float, message: str, *, every_s: float = 0.1
) -> Answer:
    """The first answer of ``condition`` that is true, or a `TimeoutError` that says ``message``.

    The only way in which the testbed lets time pass. It is asked at least once.

    >>> answers = iter([False, 0, "ready"])
    >>> wait_until(lambda: next(answers), timeout_s=5.0, message="never ready", every_s=0.001)
    'ready'
    >>> wait_until(lambda: False, timeout_s=0.0, message="the broker is asleep", every_s=0.001)
    Traceback (most recent call last):
    TimeoutError: the broker is asleep (waited 0 s)
    """
    instants = WallClock().ticks(every_s)
    started_at_s = now_s = next(instants)
    while not (answer := condition()):
        if now_s - started_at_s >= timeout_s:
            raise TimeoutError(f"{message} (waited {timeout_s:g} s)")
        now_s = next(instants)
    return answer
