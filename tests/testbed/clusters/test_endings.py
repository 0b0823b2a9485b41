"""A cluster whose test is killed leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testbed import wait_until
from penstock.testbed.clusters import kube_build
from tests.testbed.clusters.conftest import left_behind

pytestmark = [pytest.mark.cluster, pytest.mark.short]

PROGRAM = """
import json, sys, time
from penstock.testbed import Testbed
from penstock.testbed.keeper import descendants
with Testbed(2, sys.argv[2], kafka=False, cluster=sys.argv[1]) as bed:
    node = bed.cluster.worker.pid
    print(json.dumps([bed.cluster.master.pid, node, *descendants(node)]), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("yarn", "kubernetes")],
)
def test_nothing_outlives_a_killed_test(kind: str, tmp_path: Path) -> None:
    if kind == "kubernetes" and (reason := kube_build.missing()):
        pytest.skip(reason)
    argv = [sys.executable, "-c", PROGRAM, kind, str(tmp_path)]
    parent = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    processes = set(json.loads(parent.stdout.readline()))
    assert len(left_behind(processes, tmp_path)) >= 2
    parent.kill()
    parent.communicate()
    wait_until(
        lambda: left_behind(processes, tmp_path) == [], 15.0, "something of the cluster is left"
    )
