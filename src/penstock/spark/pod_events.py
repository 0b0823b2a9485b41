"""Notices as Events on the driver's pod, by the Kubernetes client that Spark's driver has.

``kubectl describe pod DRIVER`` shows them. The driver's role needs ``create`` on ``events``; with
``get`` and ``patch`` too, a reason that comes again raises the count of its Event instead of making
another (the client gets an object before it patches it).
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.observe.notices import Notice, NoticeKind
from penstock.observe.webhook import NoticeSender
from penstock.spark.internals import JVM_ERRORS, Driver, first_line

POD_NAME, NAMESPACE = "spark.kubernetes.driver.pod.name", "spark.kubernetes.namespace"


class PodEvents(NoticeSender):
    """Makes Events of notices: one for each reason, whose count rises."""

    def __init__(self, jvm: Any, client: Any, namespace: str, pod: str) -> None:
        fabric8 = jvm.io.fabric8.kubernetes.client.dsl.base
        self._client, self._merge = client, fabric8.PatchContext.of(fabric8.PatchType.JSON_MERGE)
        self._namespace, self._pod, self._uid = namespace, pod, ""
        self._made: dict[NoticeKind, dict[str, Any]] = {}  # the newest Event of each kind
        super().__init__(f"the pod {pod}")

    def post(self, notice: Notice) -> tuple[str, bool]:
        try:
            if not self._uid:  # `kubectl describe` selects by it
                pod = self._client.pods().inNamespace(self._namespace).withName(self._pod).get()
                self._uid = "" if pod is None else str(pod.getMetadata().getUid())
            event = event_of(notice, self._namespace, self._pod, self._uid)
            if not self._raises_count(notice.kind, event):
                text = msgspec.json.encode(event).decode()
                self._client.resource(text).inNamespace(self._namespace).create()
                self._made[notice.kind] = event
        except JVM_ERRORS as error:
            problem = first_line(error)
            return problem, "forbidden" not in problem
        return "", False

    def _raises_count(self, kind: NoticeKind, event: dict[str, Any]) -> bool:
        """Whether there is an Event of that kind that can be changed; it may have expired."""
        if (made := self._made.pop(kind, None)) is None:
            return False
        change = {key: event[key] for key in ("message", "lastTimestamp")}
        change["count"] = made["count"] + 1
        try:
            events = self._client.v1().events().inNamespace(self._namespace)
            found = events.withName(made["metadata"]["name"])
            found.patch(self._merge, msgspec.json.encode(change).decode())
        except JVM_ERRORS:
            return False
        self._made[kind] = made | change
        return True


def event_of(notice: Notice, namespace: str, pod: str, uid: str) -> dict[str, Any]:
    """The Event that says what a notice does.

    >>> notice = Notice("no_room", 1_700_000_000.0, "2 of 4 executors", 4)
    >>> event = event_of(notice, "jobs", "driver-1", "")
    >>> event["metadata"]["name"], event["reason"], event["type"], event["lastTimestamp"]
    ('driver-1.noroom.18bcfe56800', 'NoRoom', 'Warning', '2023-11-14T22:13:20Z')
    """
    reason = notice.kind.title().replace("_", "")
    name = f"{pod}.{reason.lower()}.{round(1e3 * notice.at_s):x}"
    at = f"{datetime.fromtimestamp(notice.at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": about,
        "reason": reason,
        "message": notice.text[:1024],  # the most that Kubernetes takes
        "type": "Warning" if notice.kind in ("refusal", "blind", "no_room") else "Normal",
        "source": {"component": "penstock"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def driver_pod_events(driver: Driver) -> PodEvents | None:
    """Where the driver runs in a pod that Spark knows; always so in cluster mode."""
    if not driver.master().startswith("k8s://") or not (pod := driver.conf(POD_NAME)):
        return None
    namespace = driver.conf(NAMESPACE, "default")
    return PodEvents(driver.jvm, driver.kubernetes_client(), namespace, pod)
