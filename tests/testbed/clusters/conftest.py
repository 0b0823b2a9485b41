"""A cluster of each kind with two nodes of two slots, and sessions on it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testbed import Testbed
from penstock.testbed.clusters import ClusterKind, kube_build
from penstock.testbed.keeper import descendants
from tests.drivers import end_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(
    scope="package",
    params=[pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("yarn", "kubernetes")]
    + [pytest.param("standalone", marks=pytest.mark.standalone)],
)
def bed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    kind: ClusterKind = request.param
    if kind == "kubernetes" and (reason := kube_build.missing()):
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp(kind)
    with Testbed(4, directory, kafka=False, cluster=kind, nodes=2) as running:
        yield running
        processes = {running.cluster.master.pid}
        for node in running.cluster.nodes.values():
            processes |= {node.pid, *descendants(node.pid)}
    assert left_behind(processes, directory) == []


def left_behind(processes: set[int], directory: Path) -> list[str]:
    """What a cluster that has ended has left on this machine."""
    found = [f"process {pid}" for pid in processes if Path(f"/proc/{pid}").exists()]
    # Not those of another testbed that runs meanwhile: its groups have processes.
    for conflist in directory.glob("cluster/node-*/cni/*"):
        bridge = json.loads(conflist.read_text())["plugins"][0]["bridge"]
        found += [bridge] if Path("/sys/class/net", bridge).exists() else []
        groups = Path("/sys/fs/cgroup").glob("**/k8s.io/*/cgroup.procs")
        found += [str(path) for path in groups if not path.read_text()]
    mounts = Path("/proc/mounts").read_text().splitlines()
    return found + [line for line in mounts if str(directory) in line]


@contextmanager
def session_on(bed: Testbed, executors: int = 1, **extra: str) -> Iterator[SparkSession]:
    """A driver of its own, whose state is kept in RocksDB; ended whatever became of it."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    end_driver()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bed.driver_environment.items():
            patch.setenv(name, value)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        own = {
            "spark.sql.shuffle.partitions": "6",
            "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        }
        settings = bed.spark_conf(initial_executors=executors, **own, **extra)
        conf = SparkConf().setAll(list(settings.items()))
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            end_driver()


@pytest.fixture(scope="module")
def spark(bed: Testbed) -> Iterator[SparkSession]:
    with session_on(bed) as session:
        yield session
