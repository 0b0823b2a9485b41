"""The time of day as a forecast: learned over days, and used only if it was better."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sin

import pytest

from penstock.policies.penstock.days import DAY_S, SLOT_S, Days
from penstock.policies.penstock.forecasters import Forecast

BIN_S = 30.0


def flat(load_rps: float) -> Forecast:
    """A forecast that says: it stays as it is."""
    return Forecast([load_rps] * 31, [0.05 * load_rps] * 31, "naive")


def lived(load: Callable[[float], float], days: float, known: Days | None = None) -> Days:
    known, begin_s = known or Days(), 0.0 if known is None else known.slot * SLOT_S + SLOT_S
    for turn in range(int(days * DAY_S / 60.0)):
        at_s = begin_s + 60.0 * turn
        known = known.observed(at_s, load(at_s), flat(load(at_s)), BIN_S)
    return known


def wave(at_s: float) -> float:
    return 1000.0 + 800.0 * sin(2.0 * pi * at_s / DAY_S)


def test_nothing_is_expected_on_the_first_day() -> None:
    known = lived(wave, 0.8)
    assert known.relative(known.slot * SLOT_S, 1000.0, [900.0]) is None
    plain = flat(1000.0)
    assert known.improved(0.8 * DAY_S, 1000.0, plain, BIN_S) is plain


def test_a_day_that_repeats_is_expected_on_the_second() -> None:
    known = lived(wave, 2.0)
    assert known.is_better
    assert known.shape_error < 0.2 * known.plain_error
    at_s = 2.0 * DAY_S + 6 * 3600.0  # the top of the wave
    before_s = at_s - 3 * 3600.0
    ahead = known.improved(before_s, wave(before_s), flat(wave(before_s)), BIN_S)
    assert ahead.mean[-1] == pytest.approx(wave(before_s + 15 * 60.0), rel=0.02)
    assert ahead.deviation[-1] < 0.5 * flat(wave(before_s)).deviation[-1]


def test_a_level_that_differs_from_the_day_before_keeps_its_shape() -> None:
    """Twice the load at the same time of day is expected to rise by the same factor."""
    known = lived(wave, 2.0)
    at_s = 2.0 * DAY_S + 3 * 3600.0
    found = known.relative(at_s, 2.0 * wave(at_s), [900.0])
    assert found is not None
    assert found[0] == pytest.approx(2.0 * wave(at_s + 900.0), rel=0.03)


def test_days_that_do_not_repeat_are_not_believed() -> None:
    """Each day has its wave at another time: what was usual is worse than what is now."""
    known = lived(lambda at_s: wave(1.37 * at_s), 4.0)
    assert not known.is_better


def test_a_gap_of_days_does_no_harm() -> None:
    known = lived(wave, 2.0)
    later_s = 9.0 * DAY_S
    again = known.observed(later_s, wave(later_s), flat(wave(later_s)), BIN_S)
    assert again.slot == int(later_s / SLOT_S)
    assert again.means == pytest.approx(known.means, rel=0.05)


def test_a_weekend_has_its_own_level() -> None:
    """Half of the load on days 5 and 6 of each week, for three weeks."""

    def load(at_s: float) -> float:
        return wave(at_s) * (0.5 if int(at_s / DAY_S) % 7 >= 5 else 1.0)

    known = lived(load, 21.0)
    assert known.levels[5] < 0.75 * known.levels[2]
