"""Kubernetes: etcd, API server, controllers, scheduler; a kubelet and containerd on each node.

Everything is real but the machines. A node is a process in mount and process namespaces of its
own: when it is killed, the kernel ends its pods and removes its mounts, as if it had lost power.
Pods sit in network namespaces on a bridge, which is all that they can reach.
"""

import json
import os
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

import penstock
from penstock.core.errors import ConfigError
from penstock.testbed.clusters import cluster, images
from penstock.testbed.clusters.cluster import ClusterSite, SparkCluster
from penstock.testbed.clusters.kube_build import CGROUPS, SOURCES, build, missing, plugins
from penstock.testbed.jars import spark_home
from penstock.testbed.processes import Process, Processes
from penstock.testbed.servers import LOOPBACK, START_TIMEOUT_S, free_ports

#: Of the address of a bridge, followed by its number and that of a node or pod.
SUBNET = "10.213"
BRIDGES = 250
FIRST_POD = 100
SOCKET = "/run/containerd.sock"


def make_bridge(processes: Processes) -> str:
    """A bridge for pods that is removed with the processes; its address."""
    if reason := missing():
        raise ConfigError(reason)
    for number in range(BRIDGES):
        name, address = f"penstock{number}", f"{SUBNET}.{number}.1"
        if Path(f"/sys/class/net/{name}").exists():
            continue  # that of another testbed
        problem = _ip("link", "add", name, "type", "bridge")
        if not problem:
            processes.at_the_end(["ip", "link", "delete", name])
            problem = _ip("address", "add", f"{address}/24", "dev", name)
        if problem := problem or _ip("link", "set", name, "up"):
            raise ConfigError(f"cannot make the network bridge {name}: {problem}")
        return address
    raise ConfigError(f"there are {BRIDGES} bridges of testbeds already: see ip link")


def _ip(*arguments: str) -> str:
    """What went wrong, or nothing."""
    return subprocess.run(["ip", *arguments], capture_output=True, text=True).stderr.strip()


def start(site: ClusterSite) -> SparkCluster:
    """Start all but the nodes; the API server answers on return."""
    programs = build(site.say)
    directory, kube = site.directory, str(programs / "kube")
    token = secrets.token_hex(16)
    key = subprocess.run([kube, "key"], capture_output=True, check=True).stdout
    (directory / "key.pem").write_bytes(key)
    (directory / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (directory / "images").mkdir()
    images.write_images(directory / "images", programs / "pause")
    etcd_port, peer_port, port = free_ports(3)
    url = f"https://{LOOPBACK}:{port}"
    (directory / "kubeconfig").write_text(json.dumps(_kubeconfig(url, token)))
    values = {
        "loopback": LOOPBACK,
        "directory": directory,
        "etcd": f"http://{LOOPBACK}:{etcd_port}",
        "peer": f"http://{LOOPBACK}:{peer_port}",
        "port": port,
        "socket": SOCKET,
        "host": site.host,
        "token": token,
        "executor_image": images.EXECUTOR,
        "millicores": 1000 * (os.cpu_count() or 1) // site.slots,
        "overhead_mib": cluster.OVERHEAD_MIB,
        "java_home": site.java.home,
        "spark_home": spark_home(),
        "python": sys.executable,
        "package": Path(penstock.__file__).parent.parent,
    }
    settings = cluster.settings_of("kubernetes", values)
    servers = {}
    for name, flags in settings["servers"].items():
        argv = [kube, name, *_flags(flags)]
        servers[name] = site.processes.start(name, argv, site.environment)
        if name == "apiserver":
            is_there = partial(cluster.ask_json, f"{url}/api/v1/namespaces/default", token)
            servers[name].wait_ready(is_there, START_TIMEOUT_S)
    # Containers that were killed with their node leave control groups. Only empty ones can go.
    groups = ["find", str(CGROUPS), "-depth", "-regex", r".*/k8s\.io\(/.*\)?", "-type", "d"]
    site.processes.at_the_end([*groups, "-exec", "rmdir", "{}", "+"])
    site.processes.at_the_end(["rmdir", "/var/lib/cni"])  # node.sh needs it; empty out here
    nodes = partial(_start_node, site, kube, settings["kubelet"], f"{url}/api/v1/nodes", token)
    return SparkCluster(f"k8s://{url}", servers["apiserver"], nodes, settings["driver"])


def _start_node(
    site: ClusterSite, kube: str, kubelet: dict[str, Any], url: str, token: str, name: str
) -> Process:
    """Start containerd and a kubelet, and wait until the node is ready."""
    place = site.directory / name
    (place / "cni").mkdir(parents=True)
    bridge = f"penstock{site.host.split('.')[2]}"
    address = f"{site.host.rpartition('.')[0]}.{1 + int(name.rpartition('-')[2])}"
    if problem := _ip("address", "add", f"{address}/24", "dev", bridge):
        raise ConfigError(f"cannot give {name} its address {address}: {problem}")
    # Pods get addresses on the bridge; there is no way from there to any other network.
    subnet = site.host.rpartition(".")[0]
    pods = {"subnet": f"{subnet}.0/24", "rangeStart": f"{subnet}.{FIRST_POD}"}
    addresses = str(site.directory / "addresses")
    ipam = {"type": "host-local", "ranges": [[pods]], "dataDir": addresses}
    plugin = {"type": "bridge", "bridge": bridge, "isGateway": False, "ipMasq": False, "ipam": ipam}
    network = {"cniVersion": "1.0.0", "name": "testbed", "plugins": [plugin]}
    (place / "cni" / "network.conflist").write_text(json.dumps(network))
    port, health_port = free_ports(2)
    own = {"port": port, "healthzPort": health_port, "podLogsDir": str(place / "pods")}
    own["volumePluginDir"] = str(place / "plugins")
    (place / "kubelet.json").write_text(json.dumps(kubelet | own))
    values = {"place": place, "socket": SOCKET, "pause_image": images.PAUSE, "plugins": plugins()}
    runtime = Template((SOURCES / "containerd.toml").read_text()).substitute(values)
    (place / "containerd.toml").write_text(runtime)
    flags = {
        "kubeconfig": site.directory / "kubeconfig",
        "config": place / "kubelet.json",
        "root-dir": "/run/kubelet",
        "cert-dir": place / "certificates",
        "hostname-override": name,
        "node-ip": address,
    }
    # --kill-child: all in the process namespace ends with the first process, which ends with this.
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += ["sh", str(SOURCES / "node.sh"), str(place), str(site.directory / "images"), kube]
    node = site.processes.start(f"kubelet {name}", [*argv, *_flags(flags)], site.environment)

    def is_ready() -> bool:
        conditions = (
            cluster.ask_json(f"{url}/{name}", token).get("status", {}).get("conditions", [])
        )
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    node.wait_ready(is_ready, START_TIMEOUT_S)
    return node


def _flags(flags: dict[str, Any]) -> list[str]:
    return [f"--{flag}={value}" for flag, value in flags.items()]


def _kubeconfig(url: str, token: str) -> dict[str, Any]:
    server = {"server": url, "insecure-skip-tls-verify": True}
    context = {"cluster": "testbed", "user": "admin"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "testbed", "context": context}],
        "current-context": "testbed",
    }
