"""The page over HTTP: what is served to whom, and what is refused."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from penstock.core.errors import ConfigError
from penstock.observe.dashboard import server as served
from penstock.observe.dashboard.server import (
    MOST_CLIENTS,
    TOKEN_VARIABLE,
    DashboardServer,
    JobBoard,
)
from penstock.observe.dashboard.state import WatchedJob
from penstock.testbed import wait_until
from tests.observe.dashboard.played import recorded_run
from tests.prometheus import free_port

TOKEN = "correct horse battery"


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[DashboardServer]:
    board = JobBoard()
    _, steps = recorded_run()
    for name in ("orders", "clicks <b>"):
        job = WatchedJob(name, name)
        for step in steps[:20]:
            job.take(step)
        board.add(job)
    with closing(DashboardServer(f"{host}:{free_port()}", board)) as server:
        yield server


@pytest.fixture(scope="module")
def open_server() -> Iterator[DashboardServer]:
    with serving() as server:
        yield server


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[DashboardServer]:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with serving("0.0.0.0") as server:
        yield server


def ask(
    server: DashboardServer,
    path: str = "/",
    method: str = "GET",
    body: str | None = None,
    **headers: str,
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=30.0)
    with closing(connection):
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read().decode()


def test_the_page_loads_nothing_from_elsewhere_and_may_do_nothing_inline(
    open_server: DashboardServer,
) -> None:
    answer, page = ask(open_server)
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert re.findall(r'(?:src|href)="([^"#]+)"', page) == ["data:,", "page.css", "page.js", "data"]
    assert not re.search(r"<style|style=| on\w+=|<script>", page)
    _, script = ask(open_server, "/page.js")
    assert not re.search(r"https?://|innerHTML|insertAdjacentHTML|eval\(", script)


def test_the_data_of_a_job_is_found_by_its_name(open_server: DashboardServer) -> None:
    _, text = ask(open_server, "/data?job=clicks%20%3Cb%3E")
    data: dict[str, Any] = json.loads(text)
    assert [job["name"] for job in data["jobs"]] == ["orders", "clicks <b>"]
    assert data["job"]["id"] == "clicks <b>"
    assert json.loads(ask(open_server, "/data")[1])["job"]["id"] == "orders"
    assert json.loads(ask(open_server, "/data?job=../orders")[1])["job"] is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_nothing_can_be_changed(open_server: DashboardServer, method: str) -> None:
    answer, _ = ask(open_server, "/", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_post_is_refused_also_at_the_login_where_there_is_no_token(
    open_server: DashboardServer,
) -> None:
    assert ask(open_server, "/", "POST", "token=x")[0].status == 405
    assert ask(open_server, "/login", "POST", "token=x")[0].status == 405


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page.css/../state.py", "/state.py"]
)
def test_no_other_file_is_served(open_server: DashboardServer, path: str) -> None:
    answer, text = ask(open_server, path)
    assert answer.status == 404
    assert text == "There is nothing here.\n"


def test_head_says_what_get_would_without_the_body(open_server: DashboardServer) -> None:
    answer, body = ask(open_server, "/data", "HEAD")
    assert (answer.status, body) == (200, "")
    assert int(answer.headers["Content-Length"]) > 1000
    assert ask(open_server, "/events", "HEAD")[0].status == 200


def test_a_page_elsewhere_whose_name_resolves_to_this_machine_gets_nothing(
    open_server: DashboardServer,
) -> None:
    answer, text = ask(open_server, "/data", Host="evil.example:4041")
    assert (answer.status, text) == (403, "This name is not served here.\n")
    assert ask(open_server, "/data", Host="localhost:8080")[0].status == 200


def test_events_carry_the_jobs_and_each_new_turn(open_server: DashboardServer) -> None:
    port, board = open_server.server_address[1], open_server.board
    with closing(HTTPConnection("127.0.0.1", port, timeout=30.0)) as connection:
        connection.request("GET", "/events?job=orders")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        found = [read_event(answer) for _ in range(3)]
        assert [name for name, _ in found] == ["jobs", "job", "beat"]
        before = found[1][1]["now_s"]
        job = board.find("orders")
        assert job is not None
        job.take(recorded_run()[1][20])
        later = next(data for name, data in iter(lambda: read_event(answer), None) if name == "job")
        assert later["now_s"] > before


def read_event(answer: HTTPResponse) -> tuple[str, Any]:
    lines = iter(lambda: answer.readline().decode().rstrip("\n"), "")
    fields = dict(line.split(": ", 1) for line in lines)
    return fields["event"], json.loads(fields["data"])


def test_without_the_token_there_is_a_login_and_no_data(guarded: DashboardServer) -> None:
    answer, text = ask(guarded)
    assert answer.status == 401
    assert '<form method="post" action="login">' in text
    for path in ("/data", "/events"):
        answer, text = ask(guarded, path)
        assert (answer.status, text) == (401, "Log in at / first.\n")
    assert ask(guarded, "/data", Authorization=f"Bearer {TOKEN}x")[0].status == 401
    assert ask(guarded, "/data", Cookie="penstock-1=x; =;")[0].status == 401


def test_the_token_works_as_a_header_and_never_as_a_part_of_the_address(
    guarded: DashboardServer,
) -> None:
    assert ask(guarded, "/data", Authorization=f"Bearer {TOKEN}")[0].status == 200
    assert ask(guarded, f"/data?token={TOKEN.replace(' ', '+')}")[0].status == 401


def test_a_login_gives_a_cookie_that_is_not_the_token_and_outlives_a_restart(
    guarded: DashboardServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong, _ = ask(guarded, "/login", "POST", "token=wrong")
    assert (wrong.status, wrong.headers["Set-Cookie"]) == (401, None)
    right, _ = ask(guarded, "/login", "POST", f"token={TOKEN.replace(' ', '+')}")
    assert (right.status, right.headers["Location"]) == (303, "/")
    cookie, *marks = right.headers["Set-Cookie"].split("; ")
    assert marks == ["HttpOnly", "SameSite=Strict", "Path=/"]
    assert TOKEN not in cookie
    assert ask(guarded, "/data", Cookie=f"other=1; {cookie}")[0].status == 200
    assert guarded.cookie == (cookie.partition("=")[0], cookie.partition("=")[2])
    assert ask(guarded, "/login", "POST", "x" * 5000)[0].status == 400
    assert TOKEN not in caplog.text + "".join(capfd.readouterr())


def test_another_address_needs_a_token_and_a_token_has_sixteen_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="needs a token of at least 16 characters"):
        DashboardServer("0.0.0.0:4041", JobBoard())
    monkeypatch.setenv(TOKEN_VARIABLE, "fifteen letters")
    with pytest.raises(ConfigError, match=f"{TOKEN_VARIABLE} must have .* 16 .*, not 15"):
        DashboardServer("127.0.0.1:4041", JobBoard())


def test_a_port_in_use_and_a_host_that_is_not_here_are_one_sentence(
    open_server: DashboardServer,
) -> None:
    where = f"127.0.0.1:{open_server.server_address[1]}"
    with pytest.raises(ConfigError, match=f"cannot be served at {where}: Address already in use"):
        DashboardServer(where, JobBoard())
    with pytest.raises(ConfigError, match=r"dashboard must be HOST:PORT such as .*, not '4041'"):
        DashboardServer("4041", JobBoard())


def test_clients_that_say_nothing_neither_block_others_nor_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served.DashboardRequest, "timeout", 1.0)
    with serving() as server:
        here = ("127.0.0.1", server.server_address[1])
        silent = [socket.create_connection(here, timeout=60.0) for _ in range(MOST_CLIENTS)]
        try:
            with socket.create_connection(here, timeout=60.0) as one_more:
                assert one_more.recv(1) == b""  # there are no more threads than these
            for each in silent:
                assert each.recv(1) == b""  # each is dropped after a second
            wait_until(lambda: answers(server), 30.0, "it does not answer")
        finally:
            for each in silent:
                each.close()


def answers(server: DashboardServer) -> bool:
    try:
        return ask(server, "/data")[0].status == 200
    except OSError:
        return False


def test_a_client_that_does_not_read_is_dropped_and_the_turns_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served.DashboardRequest, "timeout", 1.0)
    monkeypatch.setattr(served, "BEAT_S", 0.0)
    with serving() as server:
        job = server.board.find("orders")
        assert job is not None
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.server_address[1]))
        with closing(slow):
            slow.sendall(b"GET /events?job=orders HTTP/1.0\r\nHost: localhost\r\n\r\n")
            free: Any = server.has_room
            wait_until(lambda: free._value < MOST_CLIENTS, 30.0, "it is not served")
            last, at_s = recorded_run()[1][20], recorded_run()[1][20].at_s

            def is_dropped() -> bool:
                nonlocal at_s
                at_s += 5.0
                job.take(type(last)(at_s, last.snapshot, last.decision))
                return bool(free._value == MOST_CLIENTS)

            wait_until(is_dropped, 120.0, "it is still served", every_s=0.02)
        assert answers(server)
