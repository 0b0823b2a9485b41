"""The driver of the job under chaos, from outside: a process that obeys commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.testbed import Testbed

#: Nothing takes this long, not even on a machine that does other things.
LIMIT_S = 150.0


class Application:
    """A process of `driver`, and what it answers."""

    def __init__(self, bed: Testbed, log: Path, settings: dict[str, Any]) -> None:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([str(Path(root, "src")), root])
        with log.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.driver", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                bufsize=1,
                env=bed.driver_environment | {"PYTHONPATH": path},
                start_new_session=True,
            )
        self._log = log
        self._answer("start")
        self.pids: dict[str, int] = self.ask("processes")

    def ask(self, command: str, **values: Any) -> Any:
        """Let the driver do something, and wait for its answer."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"do": command, **values}) + "\n")
        return self._answer(command)

    def _answer(self, command: str) -> Any:
        assert self.process.stdout is not None
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._kill()

        alarm = threading.Timer(LIMIT_S, give_up)  # an answer that never comes
        alarm.start()
        try:
            line = self.process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            why = f"gave no answer to {command!r}" if is_late.is_set() else "ended"
            raise AssertionError(f"the driver {why}: {self._log.read_text()[-1000:]}")
        reply = json.loads(line)
        assert "error" not in reply, f"{command}: {reply['error']}"
        return reply["answer"]

    def kill(self) -> None:
        """SIGKILL to Python and Java at once."""
        self._kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
