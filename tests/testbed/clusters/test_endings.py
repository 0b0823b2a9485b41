"""A cluster whose test is killed leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testbed import wait_until
from tests.testbed.clusters.conftest import did_not_start, left_behind

pytestmark = [pytest.mark.cluster, pytest.mark.short]

PROGRAM = """
import json, sys, time
from penstock.core.errors import ConfigError
from penstock.testbed import Testbed
from penstock.testbed.keeper import descendants
try:
    with Testbed(2, sys.argv[2], kafka=False, cluster=sys.argv[1]) as bed:
        node = bed.cluster.worker.pid
        print(json.dumps([bed.cluster.master.pid, node, *descendants(node)]), flush=True)
        time.sleep(600)
except ConfigError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("yarn", "kubernetes")],
)
def test_nothing_outlives_a_killed_test(kind: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, kind, str(tmp_path)]
    parent = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    answer = json.loads(parent.stdout.readline())
    if isinstance(answer, str):
        parent.communicate()
        did_not_start(answer)
    processes = set(answer)
    assert len(left_behind(processes, tmp_path)) >= 2
    parent.kill()
    parent.communicate()
    wait_until(
        lambda: left_behind(processes, tmp_path) == [], 15.0, "something of the cluster is left"
    )
