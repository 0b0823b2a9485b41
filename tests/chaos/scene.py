"""The scene of a chaos run: a broker, a cluster of two nodes, the job, and the load on it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from penstock.testbed import Testbed, wait_until
from penstock.testbed.clusters.cluster import ExecutorProcess
from tests.chaos.application import LIMIT_S, Application
from tests.chaos.policy import MAX, MIN, RPS
from tests.survival.scene import Feed, Results, mentioning, new_topic, now_s

SLOTS, NODES = 6, 2  #: More than `MAX`, so that a fleet could grow too large.
#: Of the topic and of the state: each task costs time, and `MAX` executors have one each.
PARTITIONS = MAX

Answer = TypeVar("Answer")


class Scene:
    """What faults act on. A fresh one has a job under the least load."""

    def __init__(self, bed: Testbed, disks: Path, rng: Random) -> None:
        self.bed, self.rng = bed, rng
        self.journal_disk, self.checkpoint_disk = disks / "journal", disks / "checkpoint"
        self.add_nodes()
        name, output = new_topic(bed, PARTITIONS), new_topic(bed)
        self.journal = self.journal_disk / f"{name}.jsonl"
        self.settings: dict[str, Any] = {
            "conf": bed.spark_conf(
                initial_executors=MIN,
                **{
                    "spark.sql.shuffle.partitions": str(PARTITIONS),
                    "spark.sql.streaming.noDataProgressEventInterval": "500",
                    "spark.ui.retainedDeadExecutors": "10000",  # their failed tasks are counted
                },
            ),
            "bootstrap": bed.bootstrap_servers,
            "topic": name,
            "output": output,
            "checkpoint": str(self.checkpoint_disk / name),
            "journal": str(self.journal),
        }
        self.size, self.partitions = MIN, PARTITIONS
        self.results = Results(bed, output)
        self.statuses: list[dict[str, Any]] = []  # all that was seen since the fault began
        self.began_at_s = 0.0
        self.kills = 0  # of executors and drivers since the fault began
        self.feed = Feed(bed, name, rate_rps=0.0, partitions=PARTITIONS)
        self.feed.__enter__()
        self.start_driver()
        self.load(MIN)

    def close(self) -> None:
        self.feed._stopping.set()
        self.app.kill()
        self.wait_gone()

    def start_driver(self) -> None:
        self.app = Application(self.bed, self.journal_disk.parent / "driver.log", self.settings)
        self.baseline: dict[str, Any] = {}  # threads, handles, listeners of a driver at rest
        self.failed_tasks = self._logged = 0

    def kill_driver(self) -> None:
        self.kills += 1
        self.app.kill()
        self.wait_gone()

    def wait_gone(self) -> None:
        self.wait(lambda: not mentioning(self.settings["topic"]), "a driver survived its SIGKILL")
        self.wait(lambda: not self.bed.executors(), "executors survived their driver")

    def begin(self) -> None:
        """Forget what was seen before."""
        self.began_at_s, self.kills = now_s(), 0
        self.statuses.clear()
        self._logged += len(self.log())

    # -- The load ---------------------------------------------------------------------------------

    def load(self, executors: int) -> None:
        """Send what that many executors are needed for."""
        self.size = executors
        self.feed.rate_rps = (executors - 0.5) * RPS

    def another_load(self) -> None:
        self.load(self.rng.choice([size for size in range(MIN, MAX + 1) if size != self.size]))

    # -- What is seen, and waited for -------------------------------------------------------------

    @property
    def topic(self) -> str:
        return str(self.settings["topic"])

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.bed.broker.client_settings)

    def status(self) -> dict[str, Any]:
        self.statuses.append(self.app.ask("status") | {"at_s": now_s()})
        return self.statuses[-1]

    def log(self) -> list[tuple[str, str]]:
        """What Penstock logged since the fault began: level and text."""
        return [(level, text) for level, text in self.app.ask("log", since=self._logged)]

    def warnings(self) -> list[str]:
        return [text for level, text in self.log() if level != "INFO"]

    def warned(self, text: str) -> int:
        return sum(text in each for each in self.warnings())

    def job(self) -> dict[str, Any]:
        found: dict[str, Any] = self.app.ask("job")
        assert found["is_active"], f"the query ended: {found['error']}"
        return found

    def footprint(self) -> dict[str, Any]:
        """What the driver holds: of a scaler that lets go of things, it does not grow."""
        status = self.status()
        return {name: status[name] for name in ("threads", "files")} | {
            "listeners": self.job()["listeners"]
        }

    def wait(
        self,
        condition: Callable[[], Answer],
        message: str,
        limit_s: float = LIMIT_S,
        every_s: float = 0.25,
    ) -> Answer:
        return wait_until(condition, limit_s, message, every_s=every_s)

    def _running(self) -> dict[str, Any]:
        status = self.status()
        assert status["state"] == "running", f"Penstock is {status['state']}: {status['error']}"
        return status

    def wait_status(
        self, message: str, limit_s: float = LIMIT_S, every_s: float = 0.25, **wanted: Any
    ) -> None:
        """Wait until the scaler's status has these values; if it never has, say which it had."""
        try:
            self.wait(lambda: wanted.items() <= self._running().items(), message, limit_s, every_s)
        except TimeoutError as error:
            seen = self.statuses[-1]
            had = ", ".join(f"{name} {seen[name]}" for name in wanted)
            raise TimeoutError(f"{error}: {had}; {seen['last']}") from None

    def turns(self, more: int) -> list[dict[str, Any]]:
        """What is seen during as many more turns."""
        begin, first = len(self.statuses), self.status()["decisions"]
        self.wait(lambda: self._running()["decisions"] >= first + more, "no turn is taken")
        return self.statuses[begin:]

    def holds(self, turns: int) -> list[dict[str, Any]]:
        """The target stays for as many turns; what is seen meanwhile."""
        seen = self.turns(turns)
        targets = {each["target"] for each in seen}
        assert targets == {self.size}, f"targets were {sorted(targets)} and not {self.size}"
        return seen

    def holds_while(self, breaking: AbstractContextManager[object], code: str) -> None:
        """While it is blind, the load changes: the fleet holds."""
        size = self.size
        with breaking:
            self.wait_status(f"no {code}", code=code)
            self.another_load()
            targets = {each["target"] for each in self.turns(5)}
            assert targets == {size}, f"targets were {sorted(targets)} and not {size}"

    def settle(self, limit_s: float = LIMIT_S, *, fully: bool = True) -> None:
        """The fleet has the size that the load needs; `fully`: the actuator is at rest too."""
        wanted = dict.fromkeys(("target", "active", "registered"), self.size)
        message = f"the fleet did not settle at {self.size}"
        self.wait_status(message, limit_s, **wanted, **({"is_settled": True} if fully else {}))

    def batches(self, more: int) -> None:
        first = self.job()["batch"]
        self.wait(lambda: self.job()["batch"] >= first + more, "the query stands still")

    # -- What faults do ---------------------------------------------------------------------------

    def executors(self) -> list[ExecutorProcess]:
        """Those that Spark knows, oldest first; who has just left may still have a process."""
        known = self.job()["executors"]
        return [each for each in self.bed.executors() if each.id in known]

    def kill_executors(self, names: Iterable[str]) -> None:
        for each in names:
            self.bed.kill_executor(each)
            self.kills += 1

    def add_nodes(self) -> None:
        """Those that are missing."""
        while len(self.bed.cluster.nodes) < NODES:
            self.bed.cluster.add_node()

    def add_partition(self) -> None:
        self.partitions += 1
        wanted, admin = [NewPartitions(self.topic, self.partitions)], self.admin
        admin.create_partitions(wanted)[self.topic].result(60.0)

        self.wait(
            lambda: self.feed.known_partitions() == self.partitions,
            "the producer does not see the new partition",
        )
        self.feed.partitions = self.partitions

    def restart_broker(self) -> None:
        """SIGKILL, then the same command again."""
        broker = self.bed.broker
        words = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes().decode().split("\0")
        broker.process.stop()
        started = self.bed.start_program("broker", words[:-1])
        self.bed._broker = dataclasses.replace(broker, process=started)
        started.wait_ready(self.bed.broker.answers, LIMIT_S)

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
