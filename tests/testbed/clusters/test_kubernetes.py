"""What only Kubernetes has, on a real API server: manifests, permissions and Events."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.internals import Driver
from penstock.spark.pod_events import POD_NAME
from penstock.testbed import Testbed, wait_until
from penstock.testbed.clusters.cluster import UNCHECKED, ask_json
from tests.spark.test_attach import Dial, attached, come_to, committed
from tests.testbed.clusters.conftest import session_on
from tests.testbed.clusters.test_scaling import start_query

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "spark-job.yaml"
TOKEN = "spark.kubernetes.authenticate.oauthToken"
#: Where objects of a kind are made.
PATHS = {
    "ServiceAccount": "api/v1/namespaces/default/serviceaccounts",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
    "Service": "api/v1/namespaces/default/services",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "Job": "apis/batch/v1/namespaces/default/jobs",
    "Pod": "api/v1/namespaces/default/pods",
}
#: The driver of a test runs outside of the cluster. This pod stands for its own, and never starts.
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "driver-of-a-test"},
    "spec": {
        "containers": [{"name": "none", "image": "none"}],
        "nodeSelector": {"no-such": "node"},
    },
}


@pytest.fixture(autouse=True)
def only_kubernetes(bed: Testbed) -> None:
    if not bed.cluster.master_url.startswith("k8s:"):
        pytest.skip("a test of what only Kubernetes has")


def url(bed: Testbed, path: str) -> str:
    return f"{bed.cluster.master_url.removeprefix('k8s://')}/{path}"


def post(bed: Testbed, path: str, body: str) -> dict[str, Any]:
    """Make an object; what the server made of it."""
    headers = {
        "Authorization": f"Bearer {bed.cluster.settings[TOKEN]}",
        "Content-Type": "application/yaml",
    }
    request = urllib.request.Request(url(bed, path), body.encode(), headers, method="POST")
    with urllib.request.urlopen(request, context=UNCHECKED, timeout=30.0) as response:
        return dict(json.load(response))


def objects() -> list[tuple[str, str]]:
    """Kind and text of each object of the manifest."""
    texts = MANIFEST.read_text("utf-8").split("\n---\n")
    return [(re.findall(r"^kind: (\w+)$", text, re.MULTILINE)[0], text) for text in texts]


def test_the_api_server_takes_every_object_of_the_manifest(bed: Testbed) -> None:
    for kind, text in objects():
        made = post(bed, f"{PATHS[kind]}?fieldValidation=Strict&dryRun=All", text)
        assert (made["kind"], made["metadata"]["name"].removesuffix("-driver")) == (kind, "orders")


def test_the_role_of_the_manifest_is_enough_and_a_rescale_is_an_event_on_the_pod_of_the_driver(
    bed: Testbed, tmp_path: Path
) -> None:
    for kind, text in objects():
        if kind in ("ServiceAccount", "Role", "RoleBinding"):
            post(bed, PATHS[kind], text)
    order = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = post(bed, f"{PATHS['ServiceAccount']}/orders/token", json.dumps(order))
    pod = post(bed, PATHS["Pod"], json.dumps(POD))["metadata"]

    def rescales() -> list[tuple[str, int]]:
        """Messages and counts of the Events that `kubectl describe` would select."""
        events = ask_json(url(bed, "api/v1/namespaces/default/events"), bed.cluster.settings[TOKEN])
        return [
            (each["message"], each["count"])
            for each in events["items"]
            if each["involvedObject"].get("uid") == pod["uid"] and each["reason"] == "Rescale"
        ]

    with session_on(bed, **{TOKEN: answer["status"]["token"]}) as spark:
        query = start_query(spark, tmp_path / "checkpoint")
        committed(query, 2)
        Driver(spark).context.conf().set(POD_NAME, pod["name"])
        dial = Dial(1)
        with attached(spark, dial):
            come_to(spark, 1)
            for size in 2, 1:
                dial.executors = size
                come_to(spark, size)
            wait_until(lambda: sum(count for _, count in rescales()) >= 2, 60.0, "no event came")
        ((text, count),) = rescales()
        assert "2 -> 1 executor" in text
        assert count == 2
        query.stop()
