"""What all clusters have in common: nodes that come and go, and the executors on them."""

import json
import os
import signal
import ssl
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any, Literal

from penstock.core.errors import ConfigError
from penstock.testbed.java import JavaRuntime
from penstock.testbed.keeper import descendants
from penstock.testbed.processes import Process, Processes
from penstock.testbed.servers import LOOPBACK

ClusterKind = Literal["standalone", "yarn", "kubernetes"]

#: The last part of the class that an executor runs, whatever manages the cluster.
EXECUTOR_PROGRAMS = (
    "executor.CoarseGrainedExecutorBackend",
    "executor.YarnCoarseGrainedExecutorBackend",
    "k8s.KubernetesExecutorBackend",
)
UNCHECKED = ssl.create_default_context()  #: Servers of the testbed sign their own certificates.
UNCHECKED.check_hostname, UNCHECKED.verify_mode = False, ssl.CERT_NONE
#: What an executor of the testbed takes besides its heap; a node's room is counted in both.
EXECUTOR_MIB, OVERHEAD_MIB = 512, 384


@dataclass(frozen=True)
class ClusterSite:
    """Where and with what a cluster is started; `slots` are those of one node."""

    processes: Processes
    java: JavaRuntime
    environment: Mapping[str, str]
    directory: Path
    slots: int
    say: Callable[[str], None]
    port: int | None = None
    host: str = LOOPBACK


@dataclass(frozen=True, slots=True)
class ExecutorProcess:
    """An executor's process as the system sees it, and the node that it runs on."""

    id: str
    application: str
    pid: int
    node: str


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster: what gives out executors, and the nodes that they run on."""

    master_url: str
    master: Process
    #: Starts a node of that name and waits until the cluster counts it in.
    start_node: Callable[[str], Process]
    settings: Mapping[str, str] = field(default_factory=dict)  #: For a driver.
    environment: Mapping[str, str] = field(default_factory=dict)  #: For a driver.
    nodes: dict[str, Process] = field(default_factory=dict)

    @property
    def worker(self) -> Process:
        """The node that is there for the longest time."""
        return next(iter(self.nodes.values()))

    def add_node(self) -> str:
        """One more node, ready for executors on return; its name."""
        numbers = [int(name.rpartition("-")[2]) for name in self.nodes]
        name = f"node-{max(numbers, default=0) + 1}"
        self.nodes[name] = self.start_node(name)
        return name

    def remove_node(self, name: str) -> None:
        """Kill a node as if its machine lost power; the cluster finds out by itself."""
        if name not in self.nodes:
            raise ConfigError(f"no node {name!r} to remove: there are {', '.join(self.nodes)}")
        self.nodes.pop(name).stop()

    def executors(self) -> list[ExecutorProcess]:
        """The executors that live now, oldest first, straight from the process table."""
        found = []
        for name, node in list(self.nodes.items()):
            for pid in descendants(node.pid):
                with suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                    argv = line.split("\0")
                    if any(word.endswith(EXECUTOR_PROGRAMS) for word in argv):
                        options = dict(pairwise(argv))
                        own = (options["--executor-id"], options["--app-id"])
                        found.append(ExecutorProcess(*own, pid, name))
        return sorted(found, key=lambda each: int(each.id))

    def kill_executor(self, executor_id: str | None = None) -> ExecutorProcess:
        alive = self.executors()
        chosen = [each for each in alive if executor_id in (None, each.id)]
        if not chosen:
            known = ", ".join(each.id for each in alive) or "none"
            raise ConfigError(f"no executor {executor_id or ''} to kill: alive are {known}")
        os.kill(chosen[-1].pid, signal.SIGKILL)
        return chosen[-1]


def settings_of(name: str, values: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """The tables of a file of settings here; a name in it without a value stays as it is."""
    text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(Template(text).safe_substitute(values))


def ask_json(url: str, token: str = "") -> dict[str, Any]:
    """What a server on this machine answers, or nothing while it does not."""
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, headers=headers)
    try:
        # Straight to the server, past any proxy of the environment.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=UNCHECKED))
        opener = urllib.request.build_opener(*handlers)
        with opener.open(request, timeout=5.0) as response:
            return dict(json.load(response))
    except (OSError, HTTPException, ValueError, urllib.error.URLError):
        return {}
