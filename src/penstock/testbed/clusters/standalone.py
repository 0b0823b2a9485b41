"""Spark's own cluster manager: a master, and a worker on each node."""

from functools import partial

from penstock.testbed import servers
from penstock.testbed.clusters.cluster import ClusterSite, SparkCluster, ask_json
from penstock.testbed.jars import spark_home
from penstock.testbed.processes import Process

DEPLOY = "org.apache.spark.deploy"
# What a worker claims to have per slot. Only the master's sums use it; nothing is set aside.
CLAIMED_GIB_PER_SLOT = 2


def start(site: ClusterSite) -> SparkCluster:
    own_port, web_port = servers.free_ports(2)
    if site.port is not None:
        own_port = servers.require_free(site.port, "the Spark master")
    url = f"spark://{servers.LOOPBACK}:{own_port}"
    web = f"http://{servers.LOOPBACK}:{web_port}/json/"
    argv = [*_jvm(site), f"{DEPLOY}.master.Master", "--host", servers.LOOPBACK]
    argv += ["--port", f"{own_port}", "--webui-port", f"{web_port}"]
    master = site.processes.start("master", argv, site.environment)

    def is_ready() -> bool:
        state = ask_json(web)
        return state.get("url") == url and state.get("status") == "ALIVE"

    # A worker that finds no master tries again after 5 to 15 s; waiting here is sooner.
    master.wait_ready(is_ready, servers.START_TIMEOUT_S)
    return SparkCluster(url, master, partial(_start_worker, site, url, web))


def _start_worker(site: ClusterSite, url: str, web: str, name: str) -> Process:
    """Start a worker and wait until the master counts it in."""
    port, web_port = servers.free_ports(2)
    argv = [*_jvm(site), f"{DEPLOY}.worker.Worker", "--host", servers.LOOPBACK]
    argv += ["--port", f"{port}", "--webui-port", f"{web_port}"]
    argv += ["--cores", f"{site.slots}", "--memory", f"{site.slots * CLAIMED_GIB_PER_SLOT}g"]
    argv += ["--work-dir", str(site.directory / name), url]
    worker = site.processes.start(f"worker {name}", argv, site.environment)

    def is_counted() -> bool:
        known = ask_json(web).get("workers", [])
        return any((each["port"], each["state"]) == (port, "ALIVE") for each in known)

    worker.wait_ready(is_counted, servers.START_TIMEOUT_S)
    return worker


def _jvm(site: ClusterSite) -> list[str]:
    # An occupied port is an error: Spark would move on to the next. Nobody submits over REST,
    # and its port is fixed: two clusters at once would collide.
    options = ("-Dspark.port.maxRetries=0", "-Dspark.master.rest.enabled=false")
    return servers.java_command(
        site.java, "256m", site.directory, f"{spark_home()}/jars/*", *options
    )
