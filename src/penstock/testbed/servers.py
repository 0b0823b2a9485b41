"""A real Kafka broker on this machine, and what all servers of the testbed are started with."""

from __future__ import annotations

import base64
import socket
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError
from penstock.testbed.java import JavaRuntime
from penstock.testbed.processes import Process, Processes

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 90.0
ASK_TIMEOUT_S = 10.0
# Up in seconds rather than fast for days: no second compiler, the simplest collector, no
# statistics file that a killed process would leave in the system's temporary directory.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    process: Process
    port: int
    cluster_id: str
    host: str = LOOPBACK

    @classmethod
    def start(
        cls,
        processes: Processes,
        java: JavaRuntime,
        environment: Mapping[str, str],
        directory: Path,
        *,
        jars: Path,
        port: int | None = None,
        host: str = LOOPBACK,
    ) -> Broker:
        """Format a log directory, start the broker on it and wait until it answers."""
        own_port, controller_port = free_ports(2)
        if port is not None:
            own_port = require_free(port, "the broker")
        log = {"defaultLogLevel": "warn", "showDateTime": "true", "dateTimeFormat": "HH:mm:ss.SSS"}
        options = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in log.items()]
        jvm = java_command(java, "512m", directory, f"{jars}/*", *options)
        identity = new_cluster_id()
        settings = directory / "server.properties"
        data = directory / "data"
        settings.write_text(server_properties(own_port, controller_port, data, host))
        tool = [*jvm, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
        formatting = processes.start("formatting of the broker", tool, environment)
        formatting.wait_done(START_TIMEOUT_S)
        process = processes.start("broker", [*jvm, "kafka.Kafka", str(settings)], environment)
        broker = cls(process, own_port, identity, host)
        process.wait_ready(broker.answers, START_TIMEOUT_S)
        return broker

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def client_settings(self) -> dict[str, str | int | float | bool]:
        """Settings for a confluent-kafka client that stays quiet while the broker is away."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
        }

    def answers(self) -> bool:
        """Whether it gives its metadata: it, and not another program on its port."""
        if not listening(self.port, self.host):
            return False
        from confluent_kafka import KafkaException

        try:
            metadata = self._admin().list_topics(timeout=2.0)
        except KafkaException:
            return False
        return len(metadata.brokers) == 1 and metadata.cluster_id == self.cluster_id

    def create_topic(self, name: str, partitions: int) -> None:
        """A new topic, ready to be written to on return."""
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        if partitions < 1:
            raise ConfigError(f"topic {name!r} needs at least one partition, not {partitions}")
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
        admin = self._admin()  # in a variable: a client that nobody holds ends its request
        try:
            admin.create_topics([topic], operation_timeout=ASK_TIMEOUT_S)[name].result()
        except KafkaException as error:
            raise ConfigError(f"cannot create topic {name!r}: {error.args[0].str()}") from None

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.client_settings)


def new_cluster_id() -> str:
    """A new one as Kafka wants it: 16 random bytes in 22 characters.

    One in 64 would begin with a dash, which Kafka's tool takes for an option.

    >>> len(new_cluster_id()), any(new_cluster_id().startswith("-") for _ in range(1000))
    (22, False)
    """
    while True:
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not identity.startswith("-"):
            return identity


def server_properties(port: int, controller_port: int, data: Path, host: str = LOOPBACK) -> str:
    """The broker's settings file.

    >>> print(server_properties(9092, 9093, Path("data")).splitlines()[5])
    listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
    """
    form = Template(Path(__file__).with_name("broker.properties").read_text())
    controller = f"{LOOPBACK}:{controller_port}"
    return form.substitute(address=f"{host}:{port}", controller=controller, data=data)


def java_command(
    java: JavaRuntime, heap: str, directory: Path, class_path: str, *options: str
) -> list[str]:
    """The command of a Java program up to its class; its temporary files go into the directory."""
    temporary = directory / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    start = [java.executable, f"-Xmx{heap}", *QUICK_START, f"-Djava.io.tmpdir={temporary}"]
    return [*start, *options, "-cp", class_path]


def free_ports(count: int) -> list[int]:
    """Free ports, all different.

    >>> ports = free_ports(3)
    >>> len(set(ports)), min(ports) > 1023
    (3, True)
    """
    with ExitStack() as stack:
        # All are held at once: one by one, the system may hand out the same port twice.
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def require_free(port: int, purpose: str) -> int:
    """The same port, or a `ConfigError` if it is taken."""
    with socket.socket() as probe:
        # As the servers will: a port whose last connection is still fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} for {purpose} is taken ({error.strerror}): "
                "name another one, or none to get a free one"
            ) from None
    return port


def listening(port: int, host: str = LOOPBACK) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0
