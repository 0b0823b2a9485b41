"""A real HDFS on the loopback device: a NameNode and a DataNode, a process each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.testbed.jars import HADOOP, fetch
from penstock.testbed.java import find_java
from penstock.testbed.processes import Process, Processes
from penstock.testbed.servers import free_ports, java_command, listening

START_S = 120.0


@dataclass(frozen=True)
class Hdfs:
    uri: str
    name_node: Process
    data_node: Process


@contextmanager
def hdfs(directory: Path) -> Iterator[Hdfs]:
    """Started and formatted; nothing stays behind."""
    java = find_java()
    port, data_port = free_ports(2)
    uri = f"hdfs://127.0.0.1:{port}"
    conf = directory / "conf"
    conf.mkdir(parents=True)
    settings = {
        "fs.defaultFS": uri,
        "hadoop.tmp.dir": str(directory / "hadoop"),
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.http-address": "127.0.0.1:0",
        "dfs.datanode.address": f"127.0.0.1:{data_port}",
        "dfs.datanode.http.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.namenode.safemode.extension": "0",
        "dfs.heartbeat.interval": "1",
    }
    form = "<property><name>{}</name><value>{}</value></property>"
    inner = "".join(form.format(*each) for each in settings.items())
    for name in ("core-site", "hdfs-site"):
        (conf / f"{name}.xml").write_text(f"<configuration>{inner}</configuration>")
    lines = (
        "log4j.rootLogger=WARN,console",
        "log4j.appender.console=org.apache.log4j.ConsoleAppender",
        "log4j.appender.console.layout=org.apache.log4j.SimpleLayout",
    )
    (conf / "log4j.properties").write_text("\n".join(lines))
    opened = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("lang", "util")]
    class_path = f"{conf}:{fetch(HADOOP, java)}/*"
    jvm = java_command(java, "256m", directory, class_path, *opened)
    server = "org.apache.hadoop.hdfs.server"
    program = f"{server}.namenode.NameNode"
    environment = dict(os.environ)
    with Processes(directory / "logs") as processes:
        argv = [*jvm, program, "-format", "-nonInteractive"]
        processes.start("format", argv, environment).wait_done(START_S)
        name_node = processes.start("NameNode", [*jvm, program], environment)
        name_node.wait_ready(lambda: listening(port), START_S)
        argv = [*jvm, f"{server}.datanode.DataNode"]
        data_node = processes.start("DataNode", argv, environment)
        data_node.wait_ready(lambda: listening(data_port), START_S)
        yield Hdfs(uri, name_node, data_node)
