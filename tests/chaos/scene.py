"""The scene of a chaos run: a broker, a cluster of two nodes, the job, and the load on it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient

from penstock.testbed import Testbed, wait_until
from tests.chaos.policy import MAX, MIN, RPS
from tests.survival.scene import PARTITIONS, Feed, mentioning, new_topic, now_s

SLOTS, NODES = 6, 2  #: More than `MAX`, so that a fleet could grow too large.
#: Nothing takes this long, not even on a machine that does other things.
LIMIT_S = 240.0

Answer = TypeVar("Answer")


class Application:
    """The driver as a process that obeys commands."""

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
        self._answer()
        self.pids: dict[str, int] = self.ask("processes")

    def ask(self, command: str, **values: Any) -> Any:
        """Let the driver do something, and wait for its answer."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"do": command, **values}) + "\n")
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        alarm = threading.Timer(LIMIT_S, self._kill)  # an answer that never comes
        alarm.start()
        try:
            line = self.process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise AssertionError(f"the driver ended: {self._log.read_text()[-1000:]}")
        reply = json.loads(line)
        assert "error" not in reply, reply["error"]
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


class Scene:
    """What faults act on. A fresh one has a job that has settled under the least load."""

    def __init__(self, bed: Testbed, disks: Path, rng: Random) -> None:
        self.bed, self.rng = bed, rng
        self.journal_disk, self.checkpoint_disk = disks / "journal", disks / "checkpoint"
        name = new_topic(bed)
        self.journal = self.journal_disk / f"{name}.jsonl"
        self.settings: dict[str, Any] = {
            "conf": bed.spark_conf(
                initial_executors=MIN,
                **{
                    "spark.sql.shuffle.partitions": str(PARTITIONS),
                    "spark.sql.streaming.noDataProgressEventInterval": "500",
                },
            ),
            "bootstrap": bed.bootstrap_servers,
            "topic": name,
            "output": new_topic(bed),
            "checkpoint": str(self.checkpoint_disk / name),
            "journal": str(self.journal),
        }
        self.size = MIN
        self.partitions = PARTITIONS
        self.statuses: list[dict[str, Any]] = []  # all that was seen since the fault began
        self.began_at_s = 0.0
        self.feed = Feed(bed, name, rate_rps=0.0)
        self.feed.__enter__()
        self.start_driver()
        self.load(MIN)

    def close(self) -> None:
        self.app.kill()
        self.feed._stopping.set()
        self.wait_gone()

    def start_driver(self) -> None:
        self.app = Application(self.bed, self.journal_disk.parent / "driver.log", self.settings)
        self.baseline: dict[str, Any] = {}  # threads, handles, listeners of a driver at rest
        self.failed_tasks = self._warned = 0

    def kill_driver(self) -> None:
        self.app.kill()
        self.wait_gone()

    def wait_gone(self) -> None:
        self.wait(lambda: not mentioning(self.settings["topic"]), "a driver survived its SIGKILL")
        self.wait(lambda: not self.bed.executors(), "executors survived their driver")

    # -- What faults do and wait for --------------------------------------------------------------

    @property
    def topic(self) -> str:
        return str(self.settings["topic"])

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.bed.broker.client_settings)

    def load(self, executors: int) -> None:
        """Send what that many executors are needed for."""
        self.size = executors
        self.feed.rate_rps = (executors - 0.5) * RPS

    def another_load(self) -> None:
        self.load(self.rng.choice([size for size in range(MIN, MAX + 1) if size != self.size]))

    def begin(self) -> dict[str, Any]:
        """Forget what was seen before; how things are before the fault."""
        self.began_at_s = now_s()
        self.statuses.clear()
        status = self.status()
        self._warned = len(status["warnings"])
        return status | {"sent": self.feed.sent}

    def status(self) -> dict[str, Any]:
        self.statuses.append(self.app.ask("status") | {"at_s": now_s()})
        return self.statuses[-1]

    def warnings(self) -> list[str]:
        """What was logged as a warning since the fault began."""
        return list(self.status()["warnings"][self._warned :])

    def job(self) -> dict[str, Any]:
        found: dict[str, Any] = self.app.ask("job")
        assert found["is_active"], f"the query ended: {found['error']}"
        return found

    def wait(
        self, condition: Callable[[], Answer], message: str, limit_s: float = LIMIT_S
    ) -> Answer:
        return wait_until(condition, limit_s, message, every_s=0.25)

    def wait_status(self, message: str, limit_s: float = LIMIT_S, **wanted: Any) -> dict[str, Any]:
        """Wait until the scaler's status has these values."""

        def found() -> dict[str, Any] | None:
            status = self.status()
            assert status["state"] == "running", status["error"]
            return status if wanted.items() <= status.items() else None

        status = self.wait(found, message, limit_s)
        assert status is not None
        return status

    def turns(self, more: int) -> list[dict[str, Any]]:
        """What is seen during so many more turns."""
        begin, first = len(self.statuses), self.status()["decisions"]
        self.wait(lambda: self.status()["decisions"] >= first + more, "no turn is taken")
        return self.statuses[begin:]

    def settle(self, limit_s: float) -> None:
        """The fleet has the size that the load needs, and nobody comes or goes."""
        size = {"target": self.size, "active": self.size, "registered": self.size}
        where = f"the fleet did not settle at {self.size}"
        self.wait_status(where, limit_s, is_settled=True, **size)

    def batches(self, more: int) -> None:
        first = self.job()["batch"]
        self.wait(lambda: self.job()["batch"] >= first + more, "the query stands still")

    def warned(self, text: str) -> int:
        return sum(text in each for each in self.warnings())

    @contextmanager
    def broken(self, command: str, **values: Any) -> Iterator[None]:
        """Something inside the driver is broken for the block."""
        self.app.ask(command, **values)
        try:
            yield
        finally:
            self.app.ask("heal")

    @contextmanager
    def stopped(self, *pids: int) -> Iterator[None]:
        """SIGSTOP for the block."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    @contextmanager
    def command(self, begin: list[str], end: list[str]) -> Iterator[None]:
        """A command of the system for the block, and the one that undoes it."""
        subprocess.run(begin, check=True, capture_output=True)
        try:
            yield
        finally:
            subprocess.run(end, check=True, capture_output=True)

    def restart_broker(self) -> None:
        """SIGKILL, then the same command again."""
        broker = self.bed.broker
        words = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes().decode().split("\0")
        broker.process.stop()
        started = self.bed.start_program("broker", words[:-1])
        self.bed._broker = dataclasses.replace(broker, process=started)
        started.wait_ready(self.bed.broker.answers, LIMIT_S)
