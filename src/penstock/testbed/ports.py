"""Ports on the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from penstock.core.errors import ConfigError

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Free ports, all different.

    >>> ports = free_ports(3)
    >>> len(set(ports)), min(ports) > 1023
    (3, True)
    """
    with ExitStack() as stack:
        # All are held at once: one by one, the system may hand out the same port twice.
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def require_free(port: int, purpose: str) -> int:
    """The same port, or a `ConfigError` if it is taken."""
    with socket.socket() as probe:
        # As the servers will: a port whose last connection is still fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} for {purpose} is taken ({error.strerror}): "
                "name another one, or none to get a free one"
            ) from None
    return port


def listening(port: int) -> bool:
    """Whether a program accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
