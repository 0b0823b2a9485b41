"""When events are due."""

from __future__ import annotations

from math import ceil, inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.testbed.jobs.timeline import Timeline

rates = st.lists(st.integers(0, 300).map(lambda tenths: tenths / 10), min_size=1, max_size=20)


@given(rates)
def test_due_times_never_fall_and_stay_inside(rates_rps: list[float]) -> None:
    timeline = Timeline(rates_rps)
    due_s = timeline.due_s(np.arange(timeline.events))
    assert timeline.events == ceil(round(sum(rates_rps), 3))
    assert np.all(np.diff(due_s) >= 0)
    assert np.all((due_s >= 0) & (due_s < timeline.duration_s))


@given(rates)
def test_each_second_has_as_many_events_as_its_rate(rates_rps: list[float]) -> None:
    timeline = Timeline(rates_rps)
    seconds = np.floor(timeline.due_s(np.arange(timeline.events)) + 1e-6).astype(int)
    for second, rate_rps in enumerate(rates_rps):
        assert abs(int(np.sum(seconds == second)) - rate_rps) <= 1.0


@given(rates, st.floats(0, 20))
def test_what_is_due_by_a_moment_was_due_before_it(rates_rps: list[float], at_s: float) -> None:
    timeline = Timeline(rates_rps)
    due_s = timeline.due_s(np.arange(timeline.events))
    count = timeline.due_by(at_s)
    assert np.all(due_s[:count] <= at_s + 1e-6)
    assert np.all(due_s[count:] >= at_s - 1e-6)


def test_nothing_is_due_before_the_start() -> None:
    assert Timeline([100.0]).due_by(-0.5) == 0


def test_beyond_the_end_the_last_rate_goes_on() -> None:
    assert Timeline([10.0, 0.0]).due_s(np.array([10, 15])).tolist() == [2.0, 2.5]
    assert Timeline([]).events == 0


def test_milliseconds_are_not_lost_to_rounding() -> None:
    assert Timeline([100.0]).due_ms(np.arange(30), base_ms=1000).tolist() == [
        1000 + 10 * i for i in range(30)
    ]


@pytest.mark.parametrize("rate_rps", [-1.0, nan, inf])
def test_a_rate_that_is_none_is_refused(rate_rps: float) -> None:
    with pytest.raises(ConfigError, match="the rate of second 1 must be finite and not negative"):
        Timeline([5.0, rate_rps])
