"""A real Kafka broker: one node, KRaft, loopback only."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError
from penstock.testbed.java import JavaRuntime
from penstock.testbed.ports import LOOPBACK, free_ports, listening, require_free
from penstock.testbed.processes import Process, Processes

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

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

    @classmethod
    def start(
        cls,
        processes: Processes,
        *,
        java: JavaRuntime,
        jars: Path,
        directory: Path,
        environment: Mapping[str, str],
        port: int | None = None,
    ) -> Broker:
        """Format a log directory, start the broker on it and wait until it answers."""
        own_port, controller_port = free_ports(2)
        if port is not None:
            own_port = require_free(port, "the broker")
        temporary = directory / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        identity = new_cluster_id()
        settings = directory / "server.properties"
        settings.write_text(server_properties(own_port, controller_port, directory / "data"))
        jvm = [
            java.executable,
            "-Xmx512m",
            *QUICK_START,
            f"-Djava.io.tmpdir={temporary}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp",
            f"{jars}/*",
        ]
        tool = [*jvm, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
        formatting = processes.start("formatting of the broker", tool, environment)
        formatting.wait_done(START_TIMEOUT_S)
        process = processes.start("broker", [*jvm, "kafka.Kafka", str(settings)], environment)
        broker = cls(process, own_port, identity)
        process.wait_ready(broker.answers, START_TIMEOUT_S)
        return broker

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self.port}"

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
        if not listening(self.port):
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
        admin = self._admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
        try:
            admin.create_topics([topic], operation_timeout=ASK_TIMEOUT_S)[name].result()
        except KafkaException as error:
            reason = error.args[0].str()
            raise ConfigError(f"cannot create topic {name!r}: {reason}") from None

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


def server_properties(port: int, controller_port: int, data: Path) -> str:
    """The broker's settings file.

    >>> print(server_properties(9092, 9093, Path("data")).splitlines()[3])
    listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        # A misspelt topic is to be an error and not a new, empty topic.
        "auto.create.topics.enable": "false",
        # One node cannot keep the three copies that internal topics have by default.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())
