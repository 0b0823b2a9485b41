"""The testbed as one context manager."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.errors import ConfigError
from penstock.testbed.clusters import KINDS, ClusterKind, ClusterSite, SparkCluster, kubernetes
from penstock.testbed.clusters.cluster import EXECUTOR_MIB, ExecutorProcess, settings_of
from penstock.testbed.cpu_share import ExecutorShares, check_share
from penstock.testbed.jars import BROKER, checkpoint_manager, connector, fetch, spark_home
from penstock.testbed.java import JavaRuntime, find_java, pyspark_version, tell_stderr
from penstock.testbed.processes import Process, Processes
from penstock.testbed.servers import LOOPBACK, QUICK_START, Broker

Part = TypeVar("Part")

PYTHON_DAEMON = "penstock.testbed.python_daemon"


class Testbed:
    """A real Kafka broker and a real Spark cluster on this machine, for as long as the block lasts.

    Needs Java and nothing else; jars are fetched once into the user's cache. When the block is
    left, or this process ends in any other way, SIGKILL included, all processes are gone.
    docs/testbed.md has a complete script and all calls.

    Parameters
    ----------
    slots: Executor cores that the cluster offers; may be more than the machine has. They are spread
        evenly over the nodes; if they do not divide, each node has the larger part.
    run_directory: Where settings, data and logs go. A temporary one by default, which is removed
        afterwards unless an error leaves the block.
    kafka_port, master_port: Ports of the broker and the master; free ones by default.
    kafka, spark: Leave either out with False.
    cluster: What manages the executors: ``standalone``, ``yarn`` or ``kubernetes``.
    nodes: How many nodes the cluster starts with.
    cpu_share: The part of a core that each executor may use once it has started; all by default.
    say: Receives the few lines about what takes long.
    """

    __test__ = False  # the name is not that of a test class

    def __init__(
        self,
        slots: int = 8,
        run_directory: Path | str | None = None,
        *,
        kafka_port: int | None = None,
        master_port: int | None = None,
        kafka: bool = True,
        spark: bool = True,
        cluster: ClusterKind = "standalone",
        nodes: int = 1,
        cpu_share: float | None = None,
        say: Callable[[str], None] = tell_stderr,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"slots must be at least 1, not {slots}")
        if cluster not in KINDS:
            raise ConfigError(f"cluster must be one of {', '.join(KINDS)}, not {cluster!r}")
        if not 1 <= nodes <= slots:
            raise ConfigError(f"nodes must be between 1 and the {slots} slots, not {nodes}")
        if cpu_share is not None:
            check_share(cpu_share, slots, os.cpu_count() or 1)
        self.slots = slots
        self._kind, self._nodes = cluster, nodes
        self._cpu_share = cpu_share
        self._given_directory = Path(run_directory).absolute() if run_directory else None
        self._ports = (kafka_port, master_port)
        self._parts = (kafka, spark)
        self._say = say
        self._stack = ExitStack()
        self._java: JavaRuntime | None = None
        self._directory: Path | None = None
        self._connector: Path | None = None
        self._processes: Processes | None = None
        self._broker: Broker | None = None
        self._cluster: SparkCluster | None = None

    def __enter__(self) -> Testbed:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
        if self._given_directory is None and error[0] is None:
            shutil.rmtree(self.run_directory, ignore_errors=True)

    def _start(self, stack: ExitStack) -> None:
        kafka, spark = self._parts
        self._java = java = find_java()
        broker_jars = fetch(BROKER, java, say=self._say) if kafka else None
        if kafka and spark:
            self._connector = fetch(connector(pyspark_version()), java, say=self._say)
        self._directory = directory = self._given_directory or Path(
            tempfile.mkdtemp(prefix="penstock-testbed-")
        )
        directory.mkdir(parents=True, exist_ok=True)
        for folder in ("conf", "tmp"):
            (directory / folder).mkdir(exist_ok=True)
        shares: ExecutorShares | None = None
        if self._cpu_share is not None and spark:
            # Before the processes, so that its groups are removed after them.
            shares = stack.enter_context(ExecutorShares(self._cpu_share))
        self._processes = processes = stack.enter_context(Processes(directory / "logs"))
        environment = self._environment(java, directory)
        kafka_port, master_port = self._ports
        in_pods = spark and self._kind == "kubernetes"
        # Pods cannot reach this machine's loopback interface, nor a broker on it.
        host = kubernetes.make_bridge(processes) if in_pods else LOOPBACK

        def start_broker(jars: Path) -> None:
            place = directory / "broker"
            self._broker = Broker.start(
                processes, java, environment, place, jars=jars, port=kafka_port, host=host
            )

        def start_cluster() -> None:
            place, share = directory / "cluster", -(-self.slots // self._nodes)
            place.mkdir(exist_ok=True)
            own = (processes, java, environment, place, share, self._say, master_port, host)
            self._cluster = running = KINDS[self._kind](ClusterSite(*own))
            for _ in range(self._nodes):
                running.add_node()

        # Both at once: together they take little longer than the slower one.
        with ThreadPoolExecutor(2) as pool:
            try:
                starting = [pool.submit(start_broker, broker_jars)] if broker_jars else []
                starting += [pool.submit(start_cluster)] if spark else []
                for each in as_completed(starting):
                    each.result()
            except BaseException:
                stack.close()  # so that the other one does not go on for nothing
                raise
        if shares is not None:
            shares.follow(lambda: [each.pid for each in self.executors()])

    def _environment(self, java: JavaRuntime, directory: Path) -> dict[str, str]:
        """That of this process, with whatever else the user runs of Spark kept out."""
        ours = {
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(directory / "conf"),
            "SPARK_LOCAL_DIRS": str(directory / "cluster" / "scratch"),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_SCALA_VERSION": "2.13",
            # Workers of this Python, which has what the jobs compute with.
            "PYSPARK_PYTHON": sys.executable,
        }
        foreign = ("SPARK_", "PYSPARK_", "KAFKA_", "CLASSPATH")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return kept | ours

    @property
    def run_directory(self) -> Path:
        return _present(self._directory)

    @property
    def broker(self) -> Broker:
        return _present(self._broker, "this testbed has no broker")

    @property
    def cluster(self) -> SparkCluster:
        return _present(self._cluster, "this testbed has no cluster")

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def master_url(self) -> str:
        return self.cluster.master_url

    @property
    def driver_environment(self) -> dict[str, str]:
        """The environment for a driver that is started as a process of its own."""
        own = self._environment(_present(self._java), self.run_directory)
        return own | dict(self._cluster.environment if self._cluster else {})

    def start_program(self, name: str, argv: Sequence[str]) -> Process:
        """Start a program that ends with the testbed; its log is named after it."""
        return _present(self._processes).start(name, argv, os.environ)

    def create_topic(self, name: str, partitions: int) -> None:
        self.broker.create_topic(name, partitions)

    def pause_broker(self) -> None:
        """Freeze the broker: clients see open connections and silence."""
        self.broker.process.pause()

    def resume_broker(self) -> None:
        self.broker.process.resume()

    def executors(self) -> list[ExecutorProcess]:
        return self.cluster.executors()

    def kill_executor(self, executor_id: str | None = None) -> ExecutorProcess:
        """SIGKILL one executor, the newest unless named; returns which."""
        return self.cluster.kill_executor(executor_id)

    def spark_conf(self, *, initial_executors: int = 1, **extra: str) -> dict[str, str]:
        """Settings for a driver on this cluster; ``extra`` wins.

        A standalone application without dynamic allocation grabs every slot at once. These
        settings let it start with as many executors as asked for, lose none for idleness, add
        none by itself and replace those that die: a fleet that stands still until a scaler takes
        over. Its Java options make executors start in half the time and forgo the last speed; give
        your own ``spark.executor.extraJavaOptions`` to measure throughput.
        """
        if not 1 <= initial_executors <= self.slots:
            allowed = f"between 1 and the {self.slots} slots"
            raise ConfigError(f"initial_executors must be {allowed}, not {initial_executors}")
        values = {
            "master": self.master_url,
            "host": LOOPBACK,
            "directory": self.run_directory,
            "executors": initial_executors,
            "executor_mib": EXECUTOR_MIB,
            "slots": self.slots,
            "java_options": " ".join(QUICK_START),
            "daemon": PYTHON_DAEMON,
            "checkpoint_manager": checkpoint_manager(),
        }
        settings = settings_of("driver", values)["driver"]
        if self._connector is not None:
            # On the class path of both sides: executors on this machine need no copy of their own.
            settings["spark.driver.extraClassPath"] = f"{self._connector}/*"
            settings["spark.executor.extraClassPath"] = f"{self._connector}/*"
        return settings | dict(self.cluster.settings) | extra


def _present(part: Part | None, problem: str = "the testbed has not been started") -> Part:
    if part is None:
        raise ConfigError(problem)
    return part
