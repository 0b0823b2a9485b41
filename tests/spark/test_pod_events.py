"""Events on the driver's pod: the real client of Spark's driver, and an API server of our own.

A real Kubernetes is in tests/testbed/clusters.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.observe.notices import Notice
from penstock.spark.pod_events import PodEvents
from penstock.testbed import wait_until
from tests.drivers import java_gateway

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EVENTS = "/api/v1/namespaces/jobs/events"


class Api(ThreadingHTTPServer):
    """Keeps Events as the API server does; forbids the methods that a role lacks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.events: dict[str, dict[str, Any]] = {}
        self.forbidden: set[str] = set()
        self.refused = 0


class Handler(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.answer(
            200, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "uid": "u-1"}}
        )

    def do_POST(self) -> None:
        event = self.body()
        if self.is_allowed():
            assert self.path.partition("?")[0] == EVENTS
            self.server.events[event["metadata"]["name"]] = event
            self.answer(201, event)

    def do_PATCH(self) -> None:
        change = self.body()
        if self.is_allowed():
            assert self.headers["Content-Type"] == "application/merge-patch+json"
            event = self.server.events[self.path.partition("?")[0].removeprefix(f"{EVENTS}/")]
            event |= change
            self.answer(200, event)

    def is_allowed(self) -> bool:
        if self.command not in self.server.forbidden:
            return True
        self.server.refused += 1
        message = "events is forbidden"
        self.answer(403, {"kind": "Status", "apiVersion": "v1", "code": 403, "message": message})
        return False

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return found

    def answer(self, code: int, content: dict[str, Any]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_gateway() as gateway:
        yield gateway.jvm


@pytest.fixture
def events(api: Api, jvm: Any) -> Iterator[PodEvents]:
    fabric8 = jvm.io.fabric8.kubernetes.client
    url = f"http://127.0.0.1:{api.server_port}"
    config = fabric8.ConfigBuilder().withMasterUrl(url).withRequestRetryBackoffLimit(0).build()
    client = fabric8.KubernetesClientBuilder().withConfig(config).build()
    found = PodEvents(jvm, client, "jobs", "driver-1")
    yield found
    found.close()
    client.close()


def rescale(at_s: float, target: int) -> Notice:
    return Notice("rescale", at_s, f"{target - 1} -> {target} executors", target, target - 1)


def test_a_reason_that_comes_again_raises_the_count_of_its_event(
    api: Api, events: PodEvents
) -> None:
    for notice in rescale(1e9, 3), rescale(1e9 + 60.0, 4), Notice("no_room", 1e9, "no room", 9):
        events.send(notice)
    wait_until(lambda: len(api.events) == 2, 60.0, "the events do not come")
    moved, full = api.events.values()
    assert moved["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "jobs", "name": "driver-1", "uid": "u-1"
    }  # fmt: skip
    assert (moved["reason"], moved["type"], moved["count"]) == ("Rescale", "Normal", 2)
    assert moved["message"] == "3 -> 4 executors"
    assert moved["firstTimestamp"] == "2001-09-09T01:46:40Z"
    assert moved["lastTimestamp"] == "2001-09-09T01:47:40Z"
    assert (full["reason"], full["type"], full["count"]) == ("NoRoom", "Warning", 1)


def test_a_role_that_may_only_create_gets_an_event_each_time(api: Api, events: PodEvents) -> None:
    api.forbidden = {"PATCH"}
    for minute in range(3):
        events.send(rescale(1e9 + 60.0 * minute, 3 + minute))
    wait_until(lambda: len(api.events) == 3, 60.0, "the events do not come")
    assert {each["count"] for each in api.events.values()} == {1}


def test_without_permission_there_is_one_warning(
    api: Api, events: PodEvents, caplog: pytest.LogCaptureFixture
) -> None:
    api.forbidden = {"POST"}
    for minute in range(3):
        events.send(rescale(1e9 + 60.0 * minute, 3))
    wait_until(lambda: api.refused == 3, 60.0, "nothing is sent")
    wait_until(lambda: "forbidden" in caplog.text, 10.0, "nothing is said")
    events.close()
    (line,) = caplog.messages
    assert line.startswith("a notice for the pod driver-1 is dropped: ")
    assert "events is forbidden" in line
