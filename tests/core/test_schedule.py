"""Limits at certain times: cron texts, time zones, changes of the clocks, and the guard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.guards import Guards
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Fleet, Limits, Reason, Snapshot
from penstock.core.schedule import ScheduledLimit, read_cron

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


def floor(cron: str, hours: float = 2.0, timezone: str = "UTC", least: int = 6) -> ScheduledLimit:
    return ScheduledLimit(
        cron=cron, duration_s=3600.0 * hours, timezone=timezone, min_executors=least, name="peak"
    )


@pytest.mark.parametrize(
    ("cron", "moment", "is_on"),
    [
        ("0 8 * * *", "2026-11-16 08:00", True),
        ("0 8 * * *", "2026-11-16 09:59", True),
        ("0 8 * * *", "2026-11-16 10:00", False),
        ("0 8 * * *", "2026-11-16 07:59", False),
        ("0 23 * * *", "2026-11-17 00:30", True),  # it began the day before
        ("0 8 * * mon-fri", "2026-11-16 09:00", True),  # a Monday
        ("0 8 * * mon-fri", "2026-11-15 09:00", False),
        ("0 8 * * 7", "2026-11-15 09:00", True),  # 7 is Sunday, as 0 is
        ("0 8 1 * *", "2026-11-01 09:00", True),
        ("0 8 1 * mon", "2026-11-16 09:00", True),  # both days given: either counts
        ("0 8 1 12 *", "2026-11-01 09:00", False),
        ("*/30 * * * *", "2026-11-16 13:37", True),
        ("0 8,20 * * *", "2026-11-16 21:00", True),
    ],
)
def test_a_limit_holds_from_each_start_for_its_duration(
    cron: str, moment: str, is_on: bool
) -> None:
    assert floor(cron).is_on(at(moment)) == is_on


def test_the_last_of_several_starts_counts() -> None:
    twice = floor("0,30 8 * * *", hours=1 / 3)
    assert twice.is_on(at("2026-11-16 08:45"))
    assert not twice.is_on(at("2026-11-16 08:25"))


@pytest.mark.parametrize(
    ("minutes", "found"),
    [("5/20", {5, 25, 45}), ("8-20/6", {8, 14, 20}), ("7", {7}), ("50-59/20", {50})],
)
def test_steps_go_to_the_end_of_their_range_or_of_the_field(minutes: str, found: set[int]) -> None:
    assert read_cron(f"{minutes} * * * *")[0] == found


@pytest.mark.parametrize(
    "bounds", [{"max_executors": 1}, {"min_executors": 2, "max_executors": 2}, {"min_executors": 0}]
)
def test_the_tightest_limits_that_make_sense_are_taken(bounds: dict[str, Any]) -> None:
    limit = ScheduledLimit(cron="0 8 * * *", duration_s=0.5, **bounds)
    assert limit.is_on(at("2026-11-16 08:00"))


def test_a_time_zone_moves_the_start() -> None:
    berlin = floor("0 8 * * *", timezone="Europe/Berlin")
    assert berlin.is_on(at("2026-11-16 07:00"))  # winter: UTC+1
    assert berlin.is_on(at("2026-07-16 06:00"))  # summer: UTC+2
    assert not berlin.is_on(at("2026-11-16 06:59"))


def test_a_start_that_the_change_of_the_clocks_skips_comes_an_hour_later() -> None:
    """On 2026-03-29 clocks in Berlin go from 2:00 to 3:00: 2:30 does not exist."""
    night = floor("30 2 * * *", hours=1.0, timezone="Europe/Berlin")
    assert not night.is_on(at("2026-03-29 01:15"))
    assert night.is_on(at("2026-03-29 03:30", BERLIN))
    assert night.is_on(at("2026-03-29 04:29", BERLIN))
    assert not night.is_on(at("2026-03-29 04:30", BERLIN))


def test_a_start_that_comes_twice_counts_once_and_lasts_as_long_as_always() -> None:
    """On 2026-10-25 clocks in Berlin go back from 3:00 to 2:00: 2:30 comes at 0:30 and 1:30 UTC."""
    night = floor("30 2 * * *", hours=1.0, timezone="Europe/Berlin")
    assert night.is_on(at("2026-10-25 00:30"))
    assert night.is_on(at("2026-10-25 01:29"))
    assert not night.is_on(at("2026-10-25 01:30"))


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    hours=st.floats(0.1, 80.0),
    after=st.floats(0.0, 200.0),
)
def test_a_daily_limit_holds_if_a_start_was_within_its_duration(
    minute: int, hour: int, hours: float, after: float
) -> None:
    start = datetime(2026, 6, 1, hour, minute, tzinfo=UTC)
    moment = start + timedelta(hours=after)
    since_s = (moment - start).total_seconds() % 86_400.0
    limit = floor(f"{minute} {hour} * * *", hours=hours)
    # Before the first of June it started every day as well, so only the last start counts.
    assert limit.is_on(moment.timestamp()) == (since_s < 3600.0 * hours)


def decided(limits: Limits, wanted: int, fleet: int, moment: str, ahead_s: float = 0.0) -> Decision:
    knowledge = Knowledge(limits)
    size = Fleet(fleet, fleet, fleet)
    snapshot = Snapshot(at(moment), size, arrival_rps=1.0, clock_ahead_s=ahead_s)
    knowledge.learn(snapshot, snapshot.at_s)
    decision = Decision.of(wanted, Reason("plan", "a plan"))
    return Guards(limits).check(decision, snapshot, knowledge)


def test_a_floor_grows_the_fleet_and_says_why() -> None:
    limits = Limits(schedule=(floor("0 8 * * *"),))
    held = decided(limits, wanted=2, fleet=2, moment="2026-11-16 08:30")
    assert held.target_executors == 6
    assert held.reasons[-1].code == "scheduled_min"
    assert held.reasons[-1].text == "2 executors wanted, schedule 'peak' has 6 as the fewest"
    assert decided(limits, 2, 2, "2026-11-16 10:30").target_executors == 2


def test_a_schedule_goes_by_the_clock_on_the_wall_when_that_was_set_to_another_time() -> None:
    limits = Limits(schedule=(floor("0 8 * * *"),))
    assert decided(limits, 2, 2, "2026-11-16 07:30").target_executors == 2
    assert decided(limits, 2, 2, "2026-11-16 07:30", ahead_s=3600.0).target_executors == 6
    assert decided(limits, 2, 2, "2026-11-16 08:30", ahead_s=-3600.0).target_executors == 2


def test_a_ceiling_caps_and_a_floor_wins_over_it() -> None:
    ceiling = ScheduledLimit(cron="0 8 * * *", duration_s=3600.0, max_executors=4, name="night")
    assert decided(Limits(schedule=(ceiling,)), 9, 3, "2026-11-16 08:30").target_executors == 4
    both = Limits(schedule=(ceiling, floor("0 8 * * *")))
    assert decided(both, 9, 3, "2026-11-16 08:30").target_executors == 6


def test_a_quiet_period_keeps_the_fleet() -> None:
    quiet = ScheduledLimit(cron="0 8 * * *", duration_s=3600.0, quiet=True, name="release")
    held = decided(Limits(schedule=(quiet,)), 9, 3, "2026-11-16 08:30")
    assert (held.target_executors, held.reasons[-1].code) == (3, "scheduled_quiet")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"cron": "0 8 * *"}, "must have five fields"),
        ({"cron": "0 25 * * *"}, "the hour must be from 0 to 23, not '25'"),
        ({"cron": "0 8 * * freitag"}, "the weekday must be from 0 to 7, not 'freitag'"),
        ({"cron": "*/0 8 * * *"}, "the minute must be from 0 to 59, not '*/0'"),
        ({"timezone": "Europe/Berln"}, "unknown time zone 'Europe/Berln': did you mean"),
        ({"duration_s": 0.0}, "the duration must be more than 0 s"),
        ({"min_executors": None}, "give min_executors, max_executors or quiet"),
        ({"max_executors": 2}, "max_executors must be at least 1 and min_executors"),
    ],
)
def test_bad_input_is_one_sentence(changed: dict[str, object], sentence: str) -> None:
    values: dict[str, object] = {"cron": "0 8 * * *", "duration_s": 60.0, "min_executors": 3}
    with pytest.raises(ConfigError) as found:
        ScheduledLimit(**(values | changed))  # type: ignore[arg-type]
    assert sentence in str(found.value)
    assert "\n" not in str(found.value)


def test_a_schedule_that_contradicts_the_bounds_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="min_executors = 20 is outside of the bounds of the fleet"
    ):
        Limits(max_executors=16, schedule=(floor("0 8 * * *", least=20),))


def test_a_cron_text_with_names_and_steps() -> None:
    minutes, hours, days, months, weekdays = read_cron("10-50/20 0 1,15 jan,JUL sat,sun")
    assert sorted(minutes) == [10, 30, 50]
    assert (sorted(hours), sorted(days), sorted(months)) == ([0], [1, 15], [1, 7])
    assert sorted(weekdays) == [0, 6]
