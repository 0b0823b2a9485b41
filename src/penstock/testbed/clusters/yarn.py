"""Hadoop's YARN: a real ResourceManager, and a NodeManager on each node, a process each.

Each node has a loopback address of its own (127.0.0.2, 127.0.0.3, ...), by which YARN and Spark
tell the nodes apart.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from penstock.testbed import servers
from penstock.testbed.clusters import cluster
from penstock.testbed.clusters.cluster import ClusterSite, SparkCluster
from penstock.testbed.jars import HADOOP, fetch, spark_home
from penstock.testbed.processes import Process

PORTS = ("client_port", "scheduler_port", "tracker_port", "admin_port", "web_port")
NODE_PORTS = ("node_port", "localizer_port", "node_web_port")
#: The application master, heap and overhead. It fits beside the executors of a full node; on a
#: node without one, its room is too small for an executor.
MASTER_MIB = 256 + 384


def start(site: ClusterSite) -> SparkCluster:
    jars = fetch(HADOOP, site.java, say=site.say)
    ports = dict(zip(PORTS, servers.free_ports(len(PORTS)), strict=True))
    values = {
        **ports,
        "loopback": servers.LOOPBACK,
        "directory": site.directory,
        "spark_home": spark_home(),
        "java_options": " ".join(servers.QUICK_START),
        "overhead_mib": cluster.OVERHEAD_MIB,
    }
    settings = cluster.settings_of("yarn", values)
    web = f"http://{servers.LOOPBACK}:{ports['web_port']}/ws/v1/cluster"
    conf = _write_conf(site.directory / "conf", settings)
    manager = _start_server(site, "ResourceManager", conf, jars)
    manager.wait_ready(
        lambda: cluster.ask_json(f"{web}/info").get("state") == "STARTED", servers.START_TIMEOUT_S
    )
    nodes = partial(_start_node, site, jars, values, web)
    return SparkCluster("yarn", manager, nodes, settings["driver"], {"HADOOP_CONF_DIR": str(conf)})


def _start_node(
    site: ClusterSite, jars: Path, shared: Mapping[str, object], web: str, name: str
) -> Process:
    """Start a NodeManager and wait until the ResourceManager counts it in."""
    ports = dict(zip(NODE_PORTS, servers.free_ports(len(NODE_PORTS)), strict=True))
    place = site.directory / name
    own = {
        **ports,
        "host": f"127.0.0.{1 + int(name.rpartition('-')[2])}",
        "place": place,
        "room_mib": site.slots * (cluster.EXECUTOR_MIB + cluster.OVERHEAD_MIB) + MASTER_MIB,
        "vcores": site.slots + 1,
    }
    settings = cluster.settings_of("yarn", {**shared, **own})
    settings["yarn-site"] |= settings["node"]
    conf = _write_conf(place / "conf", settings)
    manager = _start_server(site, "NodeManager", conf, jars, name)

    def is_counted() -> bool:
        known = cluster.ask_json(f"{web}/nodes").get("nodes") or []
        states = {each["nodeId"].rpartition(":")[2]: each["state"] for each in known}
        return states.get(str(ports["node_port"])) == "RUNNING"

    manager.wait_ready(is_counted, servers.START_TIMEOUT_S)
    return manager


def _start_server(site: ClusterSite, kind: str, conf: Path, jars: Path, name: str = "") -> Process:
    opened = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("lang", "util")]
    jvm = servers.java_command(site.java, "256m", conf.parent, f"{conf}:{jars}/*", *opened)
    program = f"org.apache.hadoop.yarn.server.{kind.lower()}.{kind}"
    return site.processes.start(f"{kind} {name}".strip(), [*jvm, program], site.environment)


def _write_conf(conf: Path, settings: Mapping[str, Mapping[str, str]]) -> Path:
    """A directory of settings as Hadoop wants it."""
    conf.mkdir(parents=True, exist_ok=True)
    for name in ("yarn-site", "core-site", "capacity-scheduler"):
        (conf / f"{name}.xml").write_text(hadoop_xml(settings[name]))
    lines = [f"{key}={value}\n" for key, value in settings["log4j"].items()]
    (conf / "log4j.properties").write_text("".join(lines))
    return conf


def hadoop_xml(settings: Mapping[str, str]) -> str:
    """Settings in Hadoop's form.

    >>> hadoop_xml({"a.b": "1 < 2"})
    '<configuration><property><name>a.b</name><value>1 &lt; 2</value></property></configuration>'
    """
    form = "<property><name>{}</name><value>{}</value></property>"
    inner = "".join(form.format(name, escape(value)) for name, value in settings.items())
    return f"<configuration>{inner}</configuration>"
