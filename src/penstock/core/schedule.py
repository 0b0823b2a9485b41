"""Limits that hold at certain times: a floor, a ceiling, or a period without changes.

Times are written as in cron, ``minute hour day month weekday``, in a time zone. Each start lasts
for a while:

>>> mornings = ScheduledLimit(cron="30 7 * * mon-fri", duration_s=7200.0, timezone="Europe/Berlin",
...                           min_executors=6)
>>> from datetime import datetime, timezone
>>> monday = datetime(2026, 11, 16, 7, 0, tzinfo=timezone.utc)  # 8:00 in Berlin
>>> mornings.is_on(monday.timestamp()), mornings.is_on(monday.timestamp() + 2 * 3600.0)
(True, False)
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from msgspec import Struct

from penstock.core.errors import ConfigError, unknown

LONGEST_S = 31 * 86_400.0
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
#: The fields of a cron text: name, least and most value, and names that stand for values.
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("weekday", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_PART = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")


class ScheduledLimit(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """A limit that holds from each start for `duration_s`.

    Parameters
    ----------
    cron: When it starts: minute, hour, day of the month, month, weekday. Numbers, ``*``, ranges
        ``1-5``, steps ``*/15``, lists ``1,15``, names ``mon`` and ``jan``. If both days are given,
        either counts. A time that a change of the clocks skips starts an hour later, one that comes
        twice starts the first time.
    duration_s: How long it holds, in seconds that pass, whatever the clocks on the wall do.
    timezone: Of the cron text, such as ``Europe/Berlin``.
    min_executors, max_executors: A floor and a ceiling of the fleet inside the usual bounds.
    quiet: The fleet is not changed.
    name: For the reason that is given.
    """

    cron: str
    duration_s: float
    timezone: str = "UTC"
    min_executors: int | None = None
    max_executors: int | None = None
    quiet: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        read_cron(self.cron)
        find_zone(self.timezone)
        least, most = self.min_executors, self.max_executors
        if not 0.0 < self.duration_s <= LONGEST_S:
            raise ConfigError(
                f"{self.label}: the duration must be more than 0 s and at most 31 days, "
                f"not {self.duration_s:g} s"
            )
        if least is None and most is None and not self.quiet:
            raise ConfigError(f"{self.label}: give min_executors, max_executors or quiet")
        if (least or 0) < 0 or (most is not None and most < max(1, least or 0)):
            raise ConfigError(
                f"{self.label}: max_executors must be at least 1 and min_executors, which is not "
                f"negative, not {most} and {least}"
            )

    @property
    def label(self) -> str:
        return f"schedule '{self.name or self.cron}'"

    def check_bounds(self, least: int, most: int) -> None:
        """Refuse a floor or a ceiling that the bounds of the fleet do not allow."""
        for name in ("min_executors", "max_executors"):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                outside = f"{name} = {value} is outside of the bounds of the fleet"
                raise ConfigError(f"{self.label}: {outside}, {least} to {most}")

    def is_on(self, at_s: float) -> bool:
        # The answer stays the same within a minute unless its end lies in it.
        began_at_s = _last_start_s(self.cron, self.timezone, int(at_s // 60.0), self.duration_s)
        return began_at_s is not None and at_s < began_at_s + self.duration_s


def read_cron(text: str) -> tuple[frozenset[int], ...]:
    """The values of each field; ``7`` is Sunday as well.

    >>> minutes, hours, *_, days = read_cron("*/20 8-10 * * fri")
    >>> sorted(minutes), sorted(hours), sorted(days)
    ([0, 20, 40], [8, 9, 10], [5])
    >>> read_cron("61 * * * *")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: cron '61 * * * *': the minute must be from 0 to 59, not '61'
    """
    pieces = text.lower().split()
    if len(pieces) != len(_FIELDS):
        raise ConfigError(
            f"cron '{text}' must have five fields: minute, hour, day, month, weekday; "
            f"it has {len(pieces)}"
        )
    found = []
    for piece, (name, least, most, names) in zip(pieces, _FIELDS, strict=True):
        what = f"cron '{text}': the {name}"
        parts = [_values(part, least, most, names, what) for part in piece.split(",")]
        found.append(frozenset(chain.from_iterable(parts)))
    found[-1] = frozenset(day % 7 for day in found[-1])
    return tuple(found)


def _values(part: str, least: int, most: int, names: dict[str, int], what: str) -> range:
    match = _PART.fullmatch(part)
    allowed = f"{what} must be from {least} to {most}, not '{part}'"
    if match is None:
        raise ConfigError(allowed)
    first, last = least, most
    if match[2]:
        given = filter(None, match.group(2, 3))
        ends = [names.get(each, int(each) if each.isdecimal() else -1) for each in given]
        first, last = ends[0], ends[-1] if len(ends) > 1 or not match[4] else most
    step = int(match[4] or 1)
    if not least <= first <= last <= most or step < 1:
        raise ConfigError(allowed)
    return range(first, last + 1, step)


def find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = sorted(available_timezones())
        if not known:
            raise ConfigError(
                f"unknown time zone '{name}': this system has no time zones (pip install tzdata)"
            ) from None
        error = unknown("time zone", name, known)
        raise ConfigError(str(error).partition("Known:")[0].rstrip(" :")) from None


@lru_cache(maxsize=256)
def _last_start_s(cron: str, timezone: str, minute: int, duration_s: float) -> float | None:
    """The last start up to a minute since the epoch that may still last; ``None`` if none does."""
    minutes, hours, days, months, weekdays = read_cron(cron)
    _, _, day_text, _, weekday_text = cron.split()
    both_given = day_text != "*" and weekday_text != "*"
    zone = find_zone(timezone)
    now = datetime.fromtimestamp(60.0 * minute, UTC).astimezone(zone)

    for back in range(int(duration_s // 86_400.0) + 3):
        day = now.date() - timedelta(days=back)
        of_month, of_week = day.day in days, day.isoweekday() % 7 in weekdays
        fits = of_month or of_week if both_given else of_month and of_week
        if not fits or day.month not in months:
            continue
        for hour in sorted(hours, reverse=True):
            for each in sorted(minutes, reverse=True):
                local = datetime(day.year, day.month, day.day, hour, each, tzinfo=zone)
                if (start_s := local.timestamp()) <= 60.0 * minute:
                    return start_s
    return None
