"""Cron expressions in the dialect of Quartz: with seconds, and with Sunday as day 1.

``second minute hour day-of-month month day-of-week [year]``. One of the two days must be ``?``.
"""

from __future__ import annotations

from calendar import monthrange, weekday
from collections.abc import Callable

from msgspec import Struct

from penstock.core.errors import ConfigError

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LAST_YEAR = 2199


class LocalTime(Struct, frozen=True, order=True, gc=False):
    """A time on the wall."""

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0

    @property
    def day_of_week(self) -> int:
        """1 is Sunday.

        >>> LocalTime(2023, 12, 14).day_of_week
        5
        """
        return (weekday(self.year, self.month, self.day) + 1) % 7 + 1

    @property
    def days_in_month(self) -> int:
        return monthrange(self.year, self.month)[1]


class _Field(Struct, frozen=True, gc=False):
    """One field: its name, its least and greatest number, and words for numbers."""

    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


_SECOND = _Field("second", 0, 59)
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_WEEKDAY = _Field("day of week", 1, 7, _DAYS)
_YEAR = _Field("year", 1970, _LAST_YEAR)

DayTest = Callable[[LocalTime], bool]


class Cron(Struct, frozen=True, gc=False):
    """A cron expression, ready to be asked."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    years: frozenset[int]
    is_day: DayTest

    def __call__(self, at: LocalTime) -> bool:
        return (
            at.second in self.seconds
            and at.minute in self.minutes
            and at.hour in self.hours
            and at.month in self.months
            and at.year in self.years
            and self.is_day(at)
        )


def read_cron(text: str) -> Cron:
    """A cron expression, or `ConfigError`.

    >>> office = read_cron("* * 9-16 ? * MON-FRI")
    >>> office(LocalTime(2023, 12, 14, 16, 59, 59)), office(LocalTime(2023, 12, 16, 12))
    (True, False)
    >>> read_cron("* * * ? * 2,5555")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: cron: day of week must lie in 1..7, not 5555
    """
    fields = text.upper().split()
    if not 6 <= len(fields) <= 7:
        raise ConfigError(f"cron '{text}' must have 6 or 7 fields, not {len(fields)}")
    second, minute, hour, day, month, day_of_week, year = (*fields, "*")[:7]
    if (day == "?") == (day_of_week == "?"):
        raise ConfigError(f"cron '{text}' must have '?' for exactly one of the two days")
    return Cron(
        _numbers(second, _SECOND),
        _numbers(minute, _MINUTE),
        _numbers(hour, _HOUR),
        _numbers(month, _MONTH),
        _numbers(year, _YEAR),
        _weekday_test(day_of_week) if day == "?" else _day_test(day),
    )


def _numbers(text: str, field: _Field) -> frozenset[int]:
    """``*``, numbers, words, ranges that may wrap, steps, and lists of them."""
    numbers: set[int] = set()
    for part in text.split(","):
        numbers.update(_range(part, field))
    return frozenset(numbers)


def _range(part: str, field: _Field) -> set[int]:
    span, has_step, step_text = part.partition("/")
    step = _whole(step_text, field) if has_step else 1
    size = field.most - field.least + 1
    if not 1 <= step <= size:
        raise ConfigError(f"cron: a step of {field.name} must lie in 1..{size}, not {step}")
    if span in ("*", "") and (span or has_step):
        return set(range(field.least, field.most + 1, step))
    first_text, is_range, last_text = span.partition("-")
    first = _number(first_text, field)
    if not is_range:
        return set(range(first, field.most + 1, step)) if has_step else {first}
    last = _number(last_text, field)
    if last >= first:
        return set(range(first, last + 1, step))
    if field is _YEAR:
        raise ConfigError(f"cron: {field.name} {span} ends before it begins")
    wrapped = range(first, last + size + 1, step)
    return {field.least + (number - field.least) % size for number in wrapped}


def _number(text: str, field: _Field) -> int:
    if text in field.words:
        return field.words.index(text) + 1
    number = _whole(text, field)
    if not field.least <= number <= field.most:
        raise ConfigError(
            f"cron: {field.name} must lie in {field.least}..{field.most}, not {number}"
        )
    return number


def _whole(text: str, field: _Field) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"cron: '{text}' is no number for {field.name}")
    return int(text)


def _day_test(text: str) -> DayTest:
    """Days of a month: numbers, ``L`` (the last, or ``L-3``), ``15W`` (weekday nearest), ``LW``."""
    if text.startswith("L"):
        is_weekday, before = text.endswith("W"), text[1:].removesuffix("W")
        back = 0
        if before:
            if not before.startswith("-"):
                raise ConfigError(f"cron: '{text}' is no day of month")
            back = _whole(before[1:], _DAY)
            if back > 30:
                raise ConfigError(f"cron: '{text}' reaches back more than 30 days")
        return lambda at: at.day == _nearest(at, at.days_in_month - back, is_weekday)
    if text.endswith("W"):
        wanted = _number(text[:-1], _DAY)
        return lambda at: at.day == _nearest(at, min(wanted, at.days_in_month), True)
    days = _numbers(text, _DAY)
    return lambda at: at.day in days


def _nearest(at: LocalTime, day: int, is_weekday: bool) -> int:
    """That day or, if it must be one from Monday to Friday, the nearest of the same month."""
    if not is_weekday or day < 1:
        return day
    name = LocalTime(at.year, at.month, day).day_of_week
    if name == 7:
        return day + 2 if day == 1 else day - 1
    if name == 1:
        return day - 2 if day == at.days_in_month else day + 1
    return day


def _weekday_test(text: str) -> DayTest:
    """Days of a week: numbers, words, ``L`` (Saturday), ``6L`` (last Friday), ``6#3`` (third)."""
    name, is_nth, nth_text = text.partition("#")
    if is_nth:
        wanted, nth = _number(name, _WEEKDAY), _whole(nth_text, _WEEKDAY)
        if not 1 <= nth <= 5:
            raise ConfigError(f"cron: '{text}' must name the first to fifth, not {nth}")
        return lambda at: at.day_of_week == wanted and (at.day - 1) // 7 + 1 == nth
    if text == "L":
        return lambda at: at.day_of_week == len(_DAYS)
    if text.endswith("L"):
        wanted = _number(text[:-1], _WEEKDAY)
        return lambda at: at.day_of_week == wanted and at.day + 7 > at.days_in_month
    days = _numbers(text, _WEEKDAY)
    return lambda at: at.day_of_week in days
