"""Erlang C and the response time of a queue."""

from __future__ import annotations

from math import factorial, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ModelError
from penstock.policies.queueing.formulas import (
    Station,
    erlang_c,
    fewest_servers,
    fewest_stable,
    response_time_s,
)


def textbook_erlang_c(servers: int, offered: float) -> float:
    """By the sum over all states, as it is printed in books."""
    last = offered**servers / factorial(servers) * servers / (servers - offered)
    return last / (sum(offered**i / factorial(i) for i in range(servers)) + last)


@given(st.integers(1, 30), st.floats(0.01, 0.99))
def test_the_recursion_agrees_with_the_textbook(servers: int, utilisation: float) -> None:
    offered = servers * utilisation
    assert erlang_c(servers, offered) == pytest.approx(textbook_erlang_c(servers, offered))


def test_large_systems_neither_overflow_nor_vanish() -> None:
    assert 0.0 < erlang_c(5_000, 4_950.0) < 1.0
    assert erlang_c(5_000, 10.0) == 0.0
    assert erlang_c(3, 3.0) == erlang_c(3, 9.0) == 1.0


def test_one_server_is_the_textbook_m_m_1() -> None:
    # T = 1 / (mu - lambda)
    assert response_time_s(Station(8.0, 10.0), 1) == pytest.approx(0.5)
    assert erlang_c(1, 0.5) == 0.5


def test_a_queue_that_cannot_keep_up_never_answers() -> None:
    assert response_time_s(Station(10.0, 10.0), 1) == inf


def test_regular_service_halves_the_wait_of_exponential_service() -> None:
    # M/D/1 against M/M/1: 0.4 s and 0.2 s of waiting after 0.1 s of service.
    assert response_time_s(Station(8.0, 10.0, service_cv2=0.0), 1) == pytest.approx(0.3)


@given(st.floats(0.1, 500.0), st.floats(0.1, 100.0), st.floats(1.01, 20.0), st.floats(0.0, 9.0))
def test_the_fewest_servers_meet_the_goal_and_one_fewer_does_not(
    arrival_rps: float, service_rps: float, slack: float, cv2: float
) -> None:
    station = Station(arrival_rps, service_rps, cv2, 1.0)
    goal_s = slack / service_rps
    servers = fewest_servers(station, goal_s)
    assert servers >= fewest_stable(station)
    assert response_time_s(station, servers) <= goal_s * (1 + 1e-9)
    assert servers == 1 or response_time_s(station, servers - 1) > goal_s * (1 - 1e-9)


def test_a_goal_below_the_mere_service_is_refused() -> None:
    with pytest.raises(ModelError, match="no number of servers answers within"):
        fewest_servers(Station(1.0, 10.0), 0.05)
