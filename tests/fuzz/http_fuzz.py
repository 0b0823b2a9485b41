"""Any bytes to any of our servers: it answers or closes, stays up, and prints no traceback."""

from __future__ import annotations

import os
import socket
import struct
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

from penstock.observe.dashboard.server import TOKEN_VARIABLE, DashboardServer, JobBoard
from penstock.observe.dashboard.state import WatchedJob
from penstock.observe.endpoint import Endpoint
from penstock.testbed.servers import LOOPBACK, free_ports

TIMEOUT_S = 30.0
MOST_BYTES = 10_000_000
TOKEN = "correct horse battery"

Address = tuple[str, int]


@dataclass
class ServedMetrics:
    """A real endpoint, and what its threads failed with."""

    endpoint: Endpoint
    address: Address
    failures: list[str] = field(default_factory=list)


@cache
def metrics_endpoint() -> ServedMetrics:
    (port,) = free_ports(1)
    where = f"{LOOPBACK}:{port}"
    return ServedMetrics(Endpoint(where, lambda: {("target_executors",): 3.0}), (LOOPBACK, port))


@dataclass
class ServedPage:
    """A real dashboard, and what its requests failed with, besides clients that are gone."""

    address: Address
    failures: list[str] = field(default_factory=list)

    def note(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            self.failures.append(traceback.format_exc())


@cache
def dashboards() -> tuple[ServedPage, ...]:
    """One without a token and one with; their streams of events end at once."""
    found = []
    for token in ("", TOKEN):
        (port,) = free_ports(1)
        board = JobBoard()
        board.add(WatchedJob("orders", "orders"))
        board.closing.set()
        with patch.dict(os.environ, {TOKEN_VARIABLE: token}):
            server = DashboardServer(f"{LOOPBACK}:{port}", board)
        page = ServedPage((LOOPBACK, port))
        server.handle_error = page.note  # type: ignore[method-assign]
        found.append(page)
    return tuple(found)


def send(address: Address, data: bytes) -> bytes:
    """The answer. Bytes that end with an odd one are sent by a client that hangs up at once."""
    with socket.create_connection(address, TIMEOUT_S) as client, suppress(ConnectionError):
        client.sendall(data)
        if data[-1:] and data[-1] % 2:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        try:
            client.shutdown(socket.SHUT_WR)
        except OSError:  # it has hung up on us already
            return b""
        return _all(client)
    return b""


def ask(address: Address, path: bytes) -> bytes:
    with socket.create_connection(address, TIMEOUT_S) as client:
        client.sendall(b"GET %b HTTP/1.0\r\nHost: localhost\r\n\r\n" % path)
        return _all(client)


def _all(client: socket.socket) -> bytes:
    answer = b""
    while chunk := client.recv(65_536):
        answer += chunk
        assert len(answer) < MOST_BYTES, "the answer has no end"
    return answer
