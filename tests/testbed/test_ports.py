"""An occupied port is refused before anything starts."""

from __future__ import annotations

import socket

import pytest

from penstock.core.errors import ConfigError
from penstock.testbed.bed import Testbed
from penstock.testbed.servers import LOOPBACK, free_ports, listening, require_free


def test_a_port_that_somebody_listens_on_is_refused_by_number_and_purpose() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert listening(port)
        with pytest.raises(ConfigError, match=f"port {port} for the broker is taken"):
            require_free(port, "the broker")
    assert not listening(port)
    assert require_free(port, "the broker") == port


def test_free_ports_are_free() -> None:
    for port in free_ports(4):
        assert require_free(port, "anything") == port


@pytest.mark.parametrize("slots", [0, -1])
def test_a_testbed_without_slots_is_refused(slots: int) -> None:
    with pytest.raises(ConfigError, match=f"slots must be at least 1, not {slots}"):
        Testbed(slots=slots)


def test_a_testbed_that_was_not_started_says_so() -> None:
    bed = Testbed()
    with pytest.raises(ConfigError, match="has not been started"):
        _ = bed.run_directory
    with pytest.raises(ConfigError, match="has no broker"):
        _ = bed.bootstrap_servers
