"""Real clusters on this machine, one for each cluster manager, behind one interface (`cluster`).

Each module has a function `start` that gives a running `SparkCluster`. They end with the testbed's
processes.
"""

from collections.abc import Callable

from penstock.testbed.clusters import kubernetes, standalone, yarn
from penstock.testbed.clusters.cluster import ClusterKind, ClusterSite, SparkCluster

KINDS: dict[ClusterKind, Callable[[ClusterSite], SparkCluster]] = {
    "standalone": standalone.start,
    "yarn": yarn.start,
    "kubernetes": kubernetes.start,
}

__all__ = ["KINDS", "ClusterKind", "ClusterSite", "SparkCluster"]
