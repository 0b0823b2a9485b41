"""The page over HTTP: GET and HEAD only, and a login where there is a token.

Events are sent as they come (server-sent events): the list of jobs, and the job that is looked at.
Whatever a client does costs its own thread at most.
"""

import hashlib
import hmac
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec

from penstock.core.errors import ConfigError
from penstock.observe.dashboard.state import WatchedJob
from penstock.observe.report.frame import template
from penstock.settings.notation import address

log = logging.getLogger(__name__)

#: Where the token is read from: not an option, which every process of the machine could see.
TOKEN_VARIABLE = "PENSTOCK_DASHBOARD_TOKEN"
SHORTEST_TOKEN = 16
#: A viewer gets a message this often, also if there is nothing new: so a lost one is noticed.
BEAT_S = 1.0
#: A client that does not send or take anything for this long is dropped.
CLIENT_TIMEOUT_S = 20.0
MOST_CLIENTS = 64
LONGEST_FORM = 4096
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class JobBoard:
    """The jobs that a server shows."""

    def __init__(self) -> None:
        self._jobs: dict[str, WatchedJob] = {}
        self.closing = threading.Event()

    def add(self, job: WatchedJob) -> None:
        self._jobs = {**self._jobs, job.key: job}  # others may read it meanwhile

    def jobs(self) -> Sequence[WatchedJob]:
        return list(self._jobs.values())

    def find(self, key: str) -> WatchedJob | None:
        """The job of that key, or the first where none is named."""
        return self._jobs.get(key) if key else next(iter(self._jobs.values()), None)


class DashboardServer(ThreadingHTTPServer):
    """Serves a board at ``http://HOST:PORT/``, in threads of its own."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, where: str, board: JobBoard) -> None:
        self.host, port = address(where, "dashboard")
        self.board, self.token = board, token_for(self.host)
        self.has_room = threading.BoundedSemaphore(MOST_CLIENTS)
        self.address_family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            super().__init__((self.host, port), DashboardRequest)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"the dashboard cannot be served at {where}: {why}") from None
        self._thread = threading.Thread(target=self.serve_forever, name="penstock-dashboard")
        self._thread.daemon = True
        self._thread.start()

    @property
    def cookie(self) -> tuple[str, str]:
        """Its name and value. It is valid until the token changes, and does not contain it."""
        value = hmac.new(self.token.encode(), b"penstock dashboard", hashlib.sha256).hexdigest()
        return f"penstock-{self.server_address[1]}", value

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without asking a name server for the name of this machine

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.has_room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.has_room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request to the dashboard failed", exc_info=True)

    def close(self) -> None:
        """Free the port; may be repeated."""
        self.board.closing.set()
        self.shutdown()
        self.server_close()
        self._thread.join(timeout=5.0)


class DashboardRequest(BaseHTTPRequestHandler):
    """One request. Nothing that it is asked can change anything."""

    timeout = CLIENT_TIMEOUT_S
    server_version, sys_version = "penstock", ""
    server: DashboardServer

    def do_GET(self) -> None:
        url = parsed_url(self.path)
        if not self._is_expected_host():
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"This name is not served here.\n")
        elif url.path in ("/page.css", "/page.js"):
            kind = "text/css" if url.path.endswith("css") else "text/javascript"
            self._answer(HTTPStatus.OK, kind, asset(url.path[1:]))
        elif url.path not in ("/", "/data", "/events"):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"There is nothing here.\n")
        elif not self._is_known():
            login = asset("login.html") if url.path == "/" else b"Log in at / first.\n"
            self._answer(HTTPStatus.UNAUTHORIZED, "text/html", login)
        elif url.path == "/":
            self._answer(HTTPStatus.OK, "text/html", asset("dashboard.html"))
        else:
            key = parse_qs(url.query).get("job", [""])[0]
            if url.path == "/events" and self.command == "GET":
                self._stream(key)
            else:
                jobs, job = self._parts(key)
                self._answer(
                    HTTPStatus.OK, "application/json", b'{"jobs":%b,"job":%b}' % (jobs, job)
                )

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """The login; anything else is refused."""
        size = self.headers.get("Content-Length", "")
        if self.path != "/login" or not self.server.token or not self._is_expected_host():
            return self._refuse()
        if not size.isdecimal() or len(size) > 4 or int(size) > LONGEST_FORM:
            return self._answer(HTTPStatus.BAD_REQUEST, "text/plain", b"This is no login form.\n")
        form = parse_qs(self.rfile.read(int(size)).decode("utf-8", "replace"))
        given = form.get("token", [""])[0]
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            return self._answer(HTTPStatus.UNAUTHORIZED, "text/html", asset("login.html"))
        name, value = self.server.cookie
        cookie = f"{name}={value}; HttpOnly; SameSite=Strict; Path=/"
        return self._answer(HTTPStatus.SEE_OTHER, Location="/", Set_Cookie=cookie)

    def _refuse(self) -> None:
        text = b"This page can only be read.\n"
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", text, Allow="GET, HEAD")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses: a method that is not there, a request that is none."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            return self._refuse()
        return self._answer(HTTPStatus(code), "text/plain", b"This request is not understood.\n")

    def _is_expected_host(self) -> bool:
        """Without a token, only names of this machine: a page elsewhere may resolve to it too."""
        host = parsed_url(f"//{self.headers.get('Host', '')}").hostname or ""
        return bool(self.server.token) or host == self.server.host or is_loopback(host)

    def _is_known(self) -> bool:
        """Whether the request has the token, or the cookie that it was exchanged for."""
        server = self.server
        if not server.token:
            return True
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), server.token.encode())
        name, value = server.cookie
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(name)
        except CookieError:
            return False
        return morsel is not None and hmac.compare_digest(morsel.value.encode(), value.encode())

    def _parts(self, key: str) -> tuple[bytes, bytes]:
        """The list of jobs and the one of that key, as JSON."""
        board = self.server.board
        job = board.find(key)
        jobs = msgspec.json.encode([each.summary() for each in board.jobs()])
        return jobs, b"null" if job is None else job.drawn()

    def _stream(self, key: str) -> None:
        """Send what changes, until the client or the server goes."""
        self._answer(HTTPStatus.OK, "text/event-stream")
        sent = b"", b""
        while not self.server.board.closing.is_set():
            parts = self._parts(key)
            for name, old, new in zip((b"jobs", b"job"), sent, parts, strict=True):
                if new != old:
                    self.wfile.write(b"event: %b\ndata: %b\n\n" % (name, new))
            self.wfile.write(b"event: beat\ndata: {}\n\n")
            self.wfile.flush()
            sent = parts
            self.server.board.closing.wait(BEAT_S)

    def _answer(
        self, status: HTTPStatus, kind: str = "", body: bytes | None = None, **headers: str
    ) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if kind:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if body is not None or not kind:
            self.send_header("Content-Length", str(len(body or b"")))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged: nothing that a client sends belongs into the log of the job."""


def parsed_url(text: str) -> SplitResult:
    """What a client calls an address; one that is none has no host and no path."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that host.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_for(host: str) -> str:
    """The token of the environment, empty if there is none; other machines need one."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token and not is_loopback(host):
        raise ConfigError(
            f"a dashboard at {host}, which other machines can reach, needs a token of at least "
            f"{SHORTEST_TOKEN} characters in the environment variable {TOKEN_VARIABLE}"
        )
    if 0 < len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"the token in {TOKEN_VARIABLE} must have at least {SHORTEST_TOKEN} characters, "
            f"not {len(token)}"
        )
    return token


@cache
def asset(name: str) -> bytes:
    """A file of the page; style and script are made of those of the report and its own."""
    shared, last = {
        "page.css": (("page.css",), "dashboard.css"),
        "page.js": (("theme.js", "charts.js", "decisions.js"), "dashboard.js"),
    }.get(name, ((), name))
    own = files("penstock.observe.dashboard") / "templates" / last
    return "".join([*map(template, shared), own.read_text(encoding="utf-8")]).encode()
