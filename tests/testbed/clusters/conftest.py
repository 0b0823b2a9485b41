"""A cluster of each kind with two nodes of two slots, and sessions on it.

A machine that cannot run Kubernetes skips its tests and says why. CI has to end some time, so it
sets `UNTIL`, in seconds since 1970: no test begins after it. A cluster that does not start is a
reason to skip there as well.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from tools.run_tests import UNTIL

from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.testbed import Testbed, wait_until
from penstock.testbed.clusters import ClusterKind, kube_build
from penstock.testbed.keeper import descendants
from tests.drivers import end_driver
from tests.spark import test_attach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UP_S = 240.0
NOT_BUILT = pytest.StashKey[str]()
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def seconds_left() -> float:
    """Of those that tests on clusters have to begin; endless but in CI."""
    return float(os.environ.get(UNTIL, "inf")) - WallClock().now()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build Kubernetes before any test: it may take longer than a test is given."""
    wanted = any(item.get_closest_marker("kubernetes") for item in session.items)
    limit_s = min(seconds_left(), kube_build.BUILD_TIMEOUT_S)
    if not wanted or session.config.option.collectonly or kube_build.missing() or limit_s <= 0:
        return
    try:
        kube_build.build(lambda line: print(line, file=sys.stderr), limit_s)
    except ConfigError as error:
        session.config.stash[NOT_BUILT] = str(error)


def pytest_runtest_setup(item: pytest.Item) -> None:
    reason = ""
    if item.get_closest_marker("kubernetes"):
        reason = kube_build.missing() or item.config.stash.get(NOT_BUILT, "")
    if item.get_closest_marker("cluster") and seconds_left() <= 0:
        reason = f"no time is left for tests on clusters ({UNTIL})"
    if reason:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors come slower from these than from a standalone cluster."""
    monkeypatch.setattr(test_attach, "UP_S", UP_S)


@pytest.fixture(
    scope="package",
    params=[pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("yarn", "kubernetes")]
    + [pytest.param("standalone", marks=pytest.mark.standalone)],
)
def bed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    kind: ClusterKind = request.param
    directory = tmp_path_factory.mktemp(kind)
    with ExitStack() as stack:
        try:
            own = Testbed(4, directory, kafka=False, cluster=kind, nodes=2)
            running = stack.enter_context(own)
        except ConfigError as error:
            did_not_start(str(error))
        yield running
        processes = {running.cluster.master.pid}
        for node in running.cluster.nodes.values():
            processes |= {node.pid, *descendants(node.pid)}
    # Who was killed is in /proc until its parent has heard of it.
    with suppress(TimeoutError):
        wait_until(lambda: not left_behind(processes, directory), 60.0, "something is left")
    assert left_behind(processes, directory) == []


def did_not_start(reason: str) -> NoReturn:
    if UNTIL in os.environ:
        pytest.skip(reason)
    pytest.fail(reason)


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
