"""Notices: when there is one, how it looks in a log, and how it reaches a webhook."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from penstock.core.model import Decision, Fleet, Reason, Receipt, Snapshot, Step
from penstock.observe.notices import JsonLines, Notice, notices
from penstock.observe.webhook import MOST_WAITING, Webhook
from penstock.testbed import wait_until


def turn(at_s: float, target: int, accepted: bool | None, text: str = "") -> Step:
    receipt = None if accepted is None else Receipt(accepted, text)
    decision = Decision.of(target, Reason("plan_grows", "2 more now"))
    return Step(at_s, Snapshot(at_s, Fleet(2, 2, 2)), decision, receipt)


def kinds(*steps: Step, acts: bool = True) -> list[list[str]]:
    pairs = zip([None, *steps], steps, strict=False)
    return [[each.kind for each in notices(step, last, acts=acts)] for last, step in pairs]


def test_a_refusal_is_told_again_only_if_it_is_another_one() -> None:
    same = [turn(float(n), 4, False, "no room") for n in range(2)]
    other, held = turn(2.0, 5, False, "no room"), turn(3.0, 2, None)
    expected = [["refusal"], [], ["refusal"], [], ["refusal"], ["rescale"]]
    assert kinds(*same, other, held, turn(4.0, 5, False, "no room"), turn(5.0, 5, True)) == expected
    assert kinds(*same, acts=False) == [["recommendation"], []]


def test_a_line_of_the_log_as_json_has_the_fields_of_its_notice() -> None:
    (notice,) = notices(turn(1_700_000_000.0, 4, True), None)
    record = logging.LogRecord("penstock.x", logging.INFO, "", 0, "%s", (notice.text,), None)
    record.notice = notice
    line = json.loads(JsonLines().format(record))
    assert line["notice"]["kind"] == "rescale"
    assert (line["notice"]["before"], line["notice"]["target"]) == (2, 4)
    assert (line["level"], line["message"]) == ("info", notice.text)
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        parts = (type(error), error, error.__traceback__)
        record = logging.LogRecord("penstock", logging.ERROR, "", 0, "failed", (), parts)
    line = json.loads(JsonLines().format(record))
    assert "ZeroDivisionError: a bug" in line["exception"]
    assert "notice" not in line


class Receiver(BaseHTTPRequestHandler):
    """Takes events; answers first what the test has put into `answers`."""

    events: ClassVar[list[dict[str, Any]]] = []
    answers: ClassVar[list[int]] = []
    requests: ClassVar[list[str]] = []
    logins: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append(self.headers["Content-Type"])
        if login := self.headers["Authorization"]:
            self.logins.append(login)
        code = self.answers.pop(0) if self.answers else 204
        if code == 204:
            self.events.append(json.loads(body))
        self.send_response(code)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    for each in (Receiver.events, Receiver.answers, Receiver.requests):
        each.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook?secret=1"
        server.shutdown()
        thread.join()


def notice(at_s: float = 1_700_000_000.0) -> Notice:
    return Notice("rescale", at_s, "2 -> 4 executors", 4, 2, ("plan_grows",))


def test_a_receiver_that_is_down_for_a_moment_gets_the_event_once(receiver: str) -> None:
    Receiver.answers[:] = [503, 429]
    webhook = Webhook(receiver, "app-1", retries_s=(0.01, 0.01, 0.01))
    webhook.send(notice())
    wait_until(lambda: len(Receiver.events) == 1, 10.0, "no event came")
    webhook.close()
    (event,) = Receiver.events
    assert (event["specversion"], event["type"]) == ("1.0", "penstock.rescale")
    assert (event["source"], event["data"]["target"]) == ("/penstock/app-1", 4)
    assert Receiver.requests == ["application/cloudevents+json"] * 3


def test_a_refused_or_unreachable_receiver_is_one_warning_without_the_secret(
    receiver: str, caplog: pytest.LogCaptureFixture
) -> None:
    Receiver.answers[:] = [403, 403]
    webhook = Webhook(receiver, "app-1", retries_s=(0.01,))
    for n in range(2):
        webhook.send(notice(float(n)))
    wait_until(lambda: len(Receiver.requests) == 2, 10.0, "it was not asked twice")
    webhook.close()
    words = "a notice for the webhook at 127.0.0.1 is dropped: it answers 403"
    assert [each.message for each in caplog.records] == [words]


def test_a_receiver_that_hangs_never_holds_up_the_sender(caplog: pytest.LogCaptureFixture) -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        webhook = Webhook(url, "app-1", retries_s=())
        for n in range(MOST_WAITING + 10):
            webhook.send(notice(float(n)))
        wait_until(lambda: "100 notices wait for it" in caplog.text, 1.0, "no warning")
        webhook.close()


def test_a_login_in_the_address_is_sent_as_a_header_and_never_logged(
    receiver: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Python's own client would take ``name:password@host`` for a port, and say so in full."""
    webhook = Webhook(receiver.replace("://", "://me:hush%40home@"), "app-1", retries_s=())
    webhook.send(notice())
    wait_until(lambda: len(Receiver.events) == 1, 10.0, "no event came")
    webhook.close()
    assert Receiver.logins == [basic("me:hush@home")]
    broken = Webhook("http://127.0.0.1:1/hook ?secret=hush\n", "app-1", retries_s=())
    broken.send(notice())
    wait_until(lambda: "is dropped: InvalidURL" in caplog.text, 10.0, "no warning")
    broken.close()
    assert "hush" not in caplog.text


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"
