"""Times at which nothing may be scaled.

A period is a time of day (``09:00:00-11:30:00``), a cron expression, or both joined by ``&&``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.core.errors import ConfigError
from tests.conformance.reference.flink_cron import Cron, LocalTime, read_cron

Test = Callable[[LocalTime], bool]


def is_excluded(periods: Iterable[str], at: LocalTime) -> bool:
    """Whether a local time lies in any of the periods.

    >>> noon = LocalTime(2023, 12, 14, 12, 0, 0)
    >>> is_excluded(["09:00:00-11:00:00", "11:30:00-12:00:00"], noon)
    True
    >>> is_excluded(["* * 9-11 * * ?"], noon)
    False
    """
    return any(all(test(at) for test in read_period(period)) for period in periods)


def read_period(period: str) -> list[Test]:
    """The conditions that must all hold, or `ConfigError`.

    >>> len(read_period("* * * ? * MON,THU && 14:00:00-16:00:00"))
    2
    >>> read_period("16:00-14:00")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: excluded period '16:00-14:00' is neither a time of day nor
        cron
    """
    parts = [part.strip() for part in period.split("&&")]
    if len(parts) > 2:
        raise ConfigError(f"excluded period '{period}' has more than two parts")
    tests: list[Test] = []
    for part in parts:
        test = _read_daily(part) or _read_cron(part)
        if test is None:
            raise ConfigError(f"excluded period '{period}' is neither a time of day nor cron")
        tests.append(test)
    if len(tests) == 2 and isinstance(tests[0], Cron) == isinstance(tests[1], Cron):
        raise ConfigError(f"excluded period '{period}' must join a time of day with cron")
    return tests


def _read_cron(text: str) -> Cron | None:
    try:
        return read_cron(text)
    except ConfigError:
        return None


def _read_daily(text: str) -> Test | None:
    """``HH:mm[:ss[:mmm]]`` twice, the second later, both included."""
    first, _, last = text.partition("-")
    first_ms, last_ms = _time_of_day_ms(first), _time_of_day_ms(last)
    if first_ms is None or last_ms is None or first_ms >= last_ms:
        return None

    def is_between(at: LocalTime) -> bool:
        ms = _ms(at.hour, at.minute, at.second)
        return first_ms <= ms <= last_ms

    return is_between


def _time_of_day_ms(text: str) -> int | None:
    fields = text.split(":")
    if not 2 <= len(fields) <= 4 or not all(field.strip().isdecimal() for field in fields):
        return None
    hour, minute, second, ms, *_ = (*map(int, fields), 0, 0)
    if hour > 23 or minute > 59 or second > 59 or ms > 999:
        return None
    return _ms(hour, minute, second) + ms


def _ms(hour: int, minute: int, second: int) -> int:
    return ((hour * 60 + minute) * 60 + second) * 1000
