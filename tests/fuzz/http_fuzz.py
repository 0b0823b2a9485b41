"""Any bytes to any of our servers: it answers or closes, stays up, and prints no traceback."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from penstock.observe.endpoint import Endpoint
from penstock.testbed.servers import LOOPBACK, free_ports

TIMEOUT_S = 30.0
MOST_BYTES = 10_000_000

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


def ask_metrics(address: Address) -> bytes:
    with socket.create_connection(address, TIMEOUT_S) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return _all(client)


def _all(client: socket.socket) -> bytes:
    answer = b""
    while chunk := client.recv(65_536):
        answer += chunk
        assert len(answer) < MOST_BYTES, "the answer has no end"
    return answer
