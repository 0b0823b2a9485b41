"""A real broker that wants TLS and a password, with certificates made for it, and ACLs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.testbed.jars import BROKER, fetch
from penstock.testbed.java import find_java
from penstock.testbed.processes import Processes
from penstock.testbed.servers import (
    Broker,
    free_ports,
    java_command,
    new_cluster_id,
    server_properties,
)

#: A machine that does other things may take minutes.
PATIENCE_S = 300.0
USER, PASSWORD = "reader", 'p"ss\\w0rd-7f3a'
STORE_PASSWORD = "store-secret-91c2"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class SecureBroker:
    """`secure_port` has a valid certificate, `expired_port` one that ended days ago."""

    plain: Broker
    directory: Path
    secure_port: int
    expired_port: int

    def options(
        self,
        ssl: Mapping[str, str] | None = None,
        *,
        expired: bool = False,
        password: str = PASSWORD,
    ) -> dict[str, str]:
        """What the user of a Kafka source writes; its trust store is PEM if no other is given."""
        quoted = password.replace("\\", "\\\\").replace('"', '\\"')
        port, name = (self.expired_port, "expired") if expired else (self.secure_port, "valid")
        given = ssl or {
            "truststore.type": "PEM",
            "truststore.location": str(self.directory / f"{name}.pem"),
        }
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{_LOGIN} username="{USER}" password="{quoted}";',
            **{f"kafka.ssl.{key}": value for key, value in given.items()},
        }

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.plain.client_settings)

    def allow(self, topic: str, *operations: str) -> None:
        """Let the user do no more than this to the topic, and join any group in order to read."""
        from confluent_kafka import admin as admin_module

        kafka: Any = admin_module
        wanted = [(kafka.ResourceType.TOPIC, topic, each) for each in operations]
        if "READ" in operations:
            wanted.append((kafka.ResourceType.GROUP, "*", "READ"))
        allowed, literal = kafka.AclPermissionType.ALLOW, kafka.ResourcePatternType.LITERAL
        bindings = [
            kafka.AclBinding(
                kind, name, literal, f"User:{USER}", "*", kafka.AclOperation[operation], allowed
            )
            for kind, name, operation in wanted
        ]
        admin = self.admin()  # in a variable: a client that nobody holds ends its request
        for done in admin.create_acls(bindings).values():
            done.result(30.0)


def keytool(directory: Path, *arguments: str) -> None:
    """Run it in the directory; all stores have the same password."""
    tool = find_java().home / "bin" / "keytool"
    own = ("-storepass", STORE_PASSWORD, "-noprompt")
    subprocess.run([tool, *arguments, *own], cwd=directory, check=True, capture_output=True)


def make_certificates(directory: Path) -> None:
    """Key stores ``valid.p12`` and ``expired.p12``, what they certify, and trust stores of it."""
    for name, times in (("valid", ()), ("expired", ("-startdate", "-10d"))):
        keytool(
            directory, "-genkeypair", "-alias", name, "-keystore", f"{name}.p12", "-storetype",
            "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=broker",
            "-ext", "san=ip:127.0.0.1", "-validity", "5", *times,
        )  # fmt: skip
        export = ("-exportcert", "-rfc", "-alias", name, "-keystore", f"{name}.p12")
        keytool(directory, *export, "-file", f"{name}.pem")
    for kind in ("jks", "pkcs12"):
        keytool(
            directory, "-importcert", "-alias", "broker", "-file", "valid.pem", "-keystore",
            f"trust.{kind}", "-storetype", kind,
        )  # fmt: skip


def _properties(directory: Path, ports: Sequence[int]) -> str:
    plain, controller, secure, expired = ports
    listeners = {"PLAINTEXT": plain, "SECURE": secure, "EXPIRED": expired}
    addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
    kinds = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,EXPIRED:SASL_SSL"
    own = {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": kinds,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    for listener, name in (("secure", "valid"), ("expired", "expired")):
        prefix = f"listener.name.{listener}"
        own |= {
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_LOGIN};",
            f"{prefix}.ssl.keystore.type": "PKCS12",
            f"{prefix}.ssl.keystore.location": str(directory / f"{name}.p12"),
            f"{prefix}.ssl.keystore.password": STORE_PASSWORD,
            f"{prefix}.ssl.truststore.type": "PEM",
            f"{prefix}.ssl.truststore.location": str(directory / "valid.pem"),
            f"{prefix}.ssl.client.auth": "requested",
        }
    kept = [
        line
        for line in server_properties(plain, controller, directory / "data").splitlines()
        if line.partition("=")[0] not in own
    ]
    return "\n".join([*kept, *(f"{key}={value}" for key, value in own.items())])


@contextmanager
def secure_broker(directory: Path) -> Iterator[SecureBroker]:
    """The broker, with a user and without any ACL, until the block is left."""
    from confluent_kafka import admin as admin_module

    kafka: Any = admin_module

    directory.mkdir(parents=True, exist_ok=True)
    make_certificates(directory)
    java, ports, identity = find_java(), free_ports(4), new_cluster_id()
    settings = directory / "server.properties"
    settings.write_text(_properties(directory, ports))
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    jvm = java_command(java, "512m", directory, f"{fetch(BROKER, java)}/*", log)
    with Processes(directory / "logs") as processes:
        tool = [*jvm, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
        processes.start("formatting", tool, os.environ).wait_done(PATIENCE_S)
        process = processes.start("broker", [*jvm, "kafka.Kafka", str(settings)], os.environ)
        plain = Broker(process, ports[0], identity)
        process.wait_ready(plain.answers, PATIENCE_S)
        broker = SecureBroker(plain, directory, ports[2], ports[3])
        info = kafka.ScramCredentialInfo(kafka.ScramMechanism.SCRAM_SHA_512, 4096)
        change = kafka.UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        admin = broker.admin()
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30.0)
        yield broker
