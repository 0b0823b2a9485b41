"""A real Spark standalone cluster: a master and one worker with more slots than cores."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.core.errors import ConfigError
from penstock.testbed.broker import QUICK_START, START_TIMEOUT_S
from penstock.testbed.jars import spark_home
from penstock.testbed.java import JavaRuntime
from penstock.testbed.ports import LOOPBACK, free_ports, require_free
from penstock.testbed.processes import Process, Processes

EXECUTOR_PROGRAM = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# What the worker claims to have per slot. Only the master's sums use it; nothing is set aside.
CLAIMED_GIB_PER_SLOT = 2


@dataclass(frozen=True, slots=True)
class ExecutorProcess:
    """An executor's process as the system sees it."""

    id: str
    application: str
    pid: int


@dataclass(frozen=True)
class Cluster:
    """A running master and worker."""

    master: Process
    worker: Process
    master_url: str

    @classmethod
    def start(
        cls,
        processes: Processes,
        *,
        java: JavaRuntime,
        directory: Path,
        environment: Mapping[str, str],
        slots: int,
        port: int | None = None,
    ) -> Cluster:
        """Start both and wait until the master counts the worker in."""
        own_port, web_port, worker_port, worker_web_port = free_ports(4)
        if port is not None:
            own_port = require_free(port, "the Spark master")
        temporary = directory / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        jvm = [
            java.executable,
            "-Xmx256m",
            *QUICK_START,
            f"-Djava.io.tmpdir={temporary}",
            # An occupied port is an error: without this, Spark would move on to the next.
            "-Dspark.port.maxRetries=0",
            # Nobody submits over it, and its port is fixed: two clusters at once would collide.
            "-Dspark.master.rest.enabled=false",
            "-cp",
            f"{spark_home()}/jars/*",
        ]
        url = f"spark://{LOOPBACK}:{own_port}"
        state = partial(master_state, web_port, url)
        deploy = "org.apache.spark.deploy"
        at_master = ["--host", LOOPBACK, "--port", f"{own_port}", "--webui-port", f"{web_port}"]
        master = processes.start(
            "master", [*jvm, f"{deploy}.master.Master", *at_master], environment
        )
        # A worker that finds no master tries again after 5 to 15 s; waiting here is sooner.
        master.wait_ready(lambda: state().get("status") == "ALIVE", START_TIMEOUT_S)
        at_worker = ["--host", LOOPBACK, "--port", f"{worker_port}"]
        offer = ["--webui-port", f"{worker_web_port}", "--cores", f"{slots}"]
        offer += ["--memory", f"{slots * CLAIMED_GIB_PER_SLOT}g"]
        offer += ["--work-dir", str(directory / "executors"), url]
        worker = processes.start(
            "worker", [*jvm, f"{deploy}.worker.Worker", *at_worker, *offer], environment
        )
        worker.wait_ready(lambda: state().get("aliveworkers") == 1, START_TIMEOUT_S)
        return cls(master, worker, url)

    def executors(self) -> list[ExecutorProcess]:
        """The executors that live now, oldest first, straight from the process table."""
        found = []
        for pid, argv in processes_of_group(self.worker.pid):
            if EXECUTOR_PROGRAM in argv:
                options = dict(pairwise(argv))
                found.append(ExecutorProcess(options["--executor-id"], options["--app-id"], pid))
        return sorted(found, key=lambda each: int(each.id))

    def kill_executor(self, executor_id: str | None = None) -> ExecutorProcess:
        """SIGKILL one executor, the newest unless named."""
        alive = self.executors()
        chosen = [each for each in alive if executor_id in (None, each.id)]
        if not chosen:
            known = ", ".join(each.id for each in alive) or "none"
            raise ConfigError(f"no executor {executor_id or ''} to kill: alive are {known}")
        os.kill(chosen[-1].pid, signal.SIGKILL)
        return chosen[-1]


def master_state(web_port: int, url: str) -> dict[str, Any]:
    """What the master says of itself, or nothing while it does not answer."""
    connection = HTTPConnection(LOOPBACK, web_port, timeout=5.0)
    try:
        connection.request("GET", "/json/")
        state: dict[str, Any] = json.loads(connection.getresponse().read())
        return state if state.get("url") == url else {}
    except (OSError, HTTPException, ValueError):
        return {}
    finally:
        connection.close()


def processes_of_group(group: int) -> Iterator[tuple[int, list[str]]]:
    """Process ids and arguments of all in a process group."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name, which may hold anything) state parent group ..."
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[2]) == group and after_name[0] != "Z":
                argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                yield int(entry.name), argv
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
