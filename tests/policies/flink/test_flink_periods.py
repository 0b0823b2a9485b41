"""Times at which nothing may be scaled."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigError
from penstock.policies.flink.cron import LocalTime, read_cron
from penstock.policies.flink.periods import is_excluded, read_period

THURSDAY = LocalTime(2023, 12, 14, 14, 1, 30)


def test_both_ends_of_a_time_of_day_belong_to_it() -> None:
    at = LocalTime(2023, 12, 14, 9, 30, 0)
    assert is_excluded(["09:30-10:00"], at)
    assert is_excluded(["09:00-09:30"], at)
    assert not is_excluded(["09:30:01-10:00"], at)
    assert not is_excluded(["09:00:00:000-09:29:59:999"], at)
    assert not is_excluded([], at)


def test_cron_and_time_of_day_must_both_hold() -> None:
    period = "* * * ? * 2,5 && 14:01:20-16:00:00"
    assert is_excluded([period], THURSDAY)
    assert not is_excluded([period], LocalTime(2023, 12, 13, 14, 1, 30))
    assert is_excluded([period], LocalTime(2023, 12, 11, 14, 1, 30))
    assert not is_excluded([period], LocalTime(2023, 12, 14, 14, 1, 19))


@pytest.mark.parametrize(
    "period",
    [
        "",
        "noon",
        "09:00",
        "25:00:00-26:00:00",
        "09:60:00-10:00:00",
        "10:00:00-10:00:00",
        "18:01:20-16:00:00",
        "09:13:17-11:15:18 && 12:01:20-16:00:00",
        "* * * ? * 2,5 && 18:01:20-16:00:00",
        "* * * ? * 2 && 09:00-10:00 && 11:00-12:00",
        "* * * * * *",
        "* * * ? * ?",
        "* * * ? *",
        "* * 24 ? * 2",
        "* */0 * ? * 2",
        "* * * ? * MOON",
        "* * * ? * 2#6",
        "* * * 32 * ?",
        "* * * L5 * ?",
        "* * * L-40 * ?",
        "* * * ? * 2 2030-2029",
    ],
)
def test_a_period_that_makes_no_sense_is_refused(period: str) -> None:
    with pytest.raises(ConfigError):
        read_period(period)


@pytest.mark.parametrize(
    ("text", "day", "expected"),
    [
        ("* * * ? * MON-FRI", 14, True),
        ("* * * ? * SAT-MON", 17, True),
        ("* * * ? * SAT-MON", 19, False),
        ("* * * ? * L", 16, True),
        ("* * * ? * 6L", 29, True),
        ("* * * ? * 6L", 22, False),
        ("* * * ? * THU#2", 14, True),
        ("* * * ? * THU#3", 14, False),
        ("* * * L * ?", 31, True),
        ("* * * L-3 * ?", 28, True),
        ("* * * LW * ?", 29, True),
        ("* * * 16W * ?", 15, True),
        ("* * * 17W * ?", 18, True),
        ("* * * 1,14 NOV-JAN ?", 14, True),
        ("* * * 14 1-11 ?", 14, False),
        ("* * * 2/4 * ?", 14, True),
        ("* * * ? DEC * 2023", 14, True),
        ("* * * ? DEC * 2024/1", 14, False),
    ],
)
def test_days_are_read_as_quartz_reads_them(text: str, day: int, expected: bool) -> None:
    assert read_cron(text)(LocalTime(2023, 12, day, 14, 0, 0)) is expected


def test_hours_minutes_and_seconds_may_have_steps_and_wrap() -> None:
    night = read_cron("0/30 */15 22-5 * * ?")
    assert night(LocalTime(2023, 12, 14, 23, 45, 30))
    assert night(LocalTime(2023, 12, 14, 0, 0, 0))
    assert not night(LocalTime(2023, 12, 14, 6, 0, 0))
    assert not night(LocalTime(2023, 12, 14, 23, 46, 0))
    assert not night(LocalTime(2023, 12, 14, 23, 45, 31))
