"""Recorded loads as workloads: CSV files with a time and a rate in each row.

Most forms of files need no options: any usual separator, with or without a header; times as
seconds, as epoch seconds or milliseconds, or as ISO dates, of which only differences count. Columns
are found by the usual names, else the first that reads as a time and the first number after it; a
file with a single column of numbers has one value per second.
"""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from penstock.core.errors import ConfigError, unknown
from penstock.settings import notation
from penstock.simulation.workloads import shape
from penstock.simulation.workloads.shape import Capacity, Fraction, Instant, Series

DEFAULT_PEAK_EXECUTORS = 12
SEPARATORS = ",;|\t"
#: A week of seconds has half of it. Rows take ten times as much while they are read.
MOST_BYTES = 16 * 1024 * 1024

# fmt: off
TIME_NAMES = (
    "seconds", "second", "sec", "t", "time_s", "at_s", "time", "timestamp", "datetime", "date_time",
    "date", "epoch",
)
RATE_NAMES = (
    "rate", "rate_rps", "input_rate", "arrival_rate", "arrival_rps", "rps", "records_per_second",
    "records", "messages", "workload", "requests", "events", "count", "adcount", "value", "load",
)
# fmt: on

# Seconds since 1970 pass this in the year 5138, milliseconds passed it in 1973.
_MILLISECONDS_FROM = 1e11


class RecordedLoad(Struct, frozen=True):
    """A load as it was recorded: rates at instants, the first of which is second 0."""

    at_s: Series
    rates_rps: Series

    @property
    def duration_s(self) -> float:
        """The last rate holds for the usual gap: 288 rows of five minutes make a day."""
        return float(self.at_s[-1] + np.median(np.diff(self.at_s)))


class Trace(shape.Shape, frozen=True, tag="trace"):
    """A recorded load from a CSV file, scaled to the job, with noise between its rows.

    Rows are joined by straight lines. Both noises are normal, with these fractions of the rate as
    standard deviations: white noise is new in each second, slow noise wanders with a time constant
    of five minutes. Then the series is scaled: to `peak_executors` (12 by default), by the factor
    `scale`, or so that its largest value is `max_rps`. `start_s` and `hours` cut a piece out.
    """

    file: str
    hours: Annotated[float, Meta(gt=0, le=8784)] = 24.0
    start_s: Instant = 0.0
    scale: Annotated[float, Meta(ge=0)] | None = None
    max_rps: Annotated[float, Meta(gt=0)] | None = None
    noise_fraction: Fraction = 0.05
    slow_noise_fraction: Fraction = 0.03
    time: str | None = None
    rate: str | None = None

    def __post_init__(self) -> None:
        options = {"peak_executors": self.peak_executors, "scale": self.scale, "max": self.max_rps}
        given = [option for option, value in options.items() if value is not None]
        if len(given) > 1:
            raise ConfigError(f"{self.describe()}: give either {' or '.join(given)}, not both")

    def natural_duration_s(self) -> float:
        recording = self._recording()
        if self.start_s >= recording.at_s[-1]:
            raise ConfigError(
                f"{self.describe()}: start must be before its last row at "
                f"{recording.at_s[-1]:g} s, not {self.start_s:g} s"
            )
        return float(max(2, round(min(self.hours * 3600.0, recording.duration_s - self.start_s))))

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        # The scale is that of the whole piece, also when only a part of it is run.
        length = max(seconds, int(self.natural_duration_s()))
        series = self.series(np.arange(float(length)), np.random.default_rng(seed))
        if self.scale is not None:
            series = series * self.scale
        elif self.max_rps is not None:
            series = shape.to_peak(series, self.max_rps, self.describe, percentile=100.0)
        else:
            peak_executors = self.peak_executors or DEFAULT_PEAK_EXECUTORS
            series = shape.to_peak(series, capacity_rps(peak_executors), self.describe)
        return list(shape.refuse_negative(series, self.describe)[:seconds].tolist())

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        recording = self._recording()
        wrapped_s = self.start_s + at_s % self.natural_duration_s()
        means = np.interp(wrapped_s, recording.at_s, recording.rates_rps)
        noise = self.noise_fraction * random.standard_normal(len(at_s))
        noise += self.slow_noise_fraction * shape.slow_noise(at_s, random)
        return np.maximum(means * (1.0 + noise), 0.0)

    def describe(self) -> str:
        return notation.describe(self, "trace", positional=1)

    def piece(self) -> RecordedLoad:
        """The rows between which rates are taken; times count from the first row of the file."""
        recording = self._recording()
        end_s = self.start_s + self.natural_duration_s()
        first = int(np.searchsorted(recording.at_s, self.start_s, side="right")) - 1
        used = slice(first, int(np.searchsorted(recording.at_s, end_s)) + 1)
        return RecordedLoad(recording.at_s[used], recording.rates_rps[used])

    def _recording(self) -> RecordedLoad:
        return read_trace(self.file, self.time, self.rate)


class _TraceRow(Struct, frozen=True):
    file: str
    line: int
    cells: list[str]

    def cell(self, column: int) -> str:
        return self.cells[column].strip() if column < len(self.cells) else ""

    def refusal(self, problem: str) -> ConfigError:
        return ConfigError(f"trace {self.file}, line {self.line}: {problem}")


def read_trace(file: str, time: str | None = None, rate: str | None = None) -> RecordedLoad:
    """The recording in a CSV file; `time` and `rate` name columns, or number them from 1."""
    try:
        stamp = Path(file).stat()
    except FileNotFoundError:
        raise ConfigError(f"trace {file}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"trace {file}: cannot be read ({error})") from None
    return _read(file, time, rate, (stamp.st_mtime_ns, stamp.st_size))


# Comparing policies asks for the same file over and over; its stamp tells when it has changed.
@lru_cache(maxsize=16)
def _read(file: str, time: str | None, rate: str | None, stamp: tuple[int, int]) -> RecordedLoad:  # noqa: ARG001
    rows = list(_rows(file))
    if not rows:
        raise ConfigError(f"trace {file}: the file is empty")
    first = [cell.strip() for cell in rows[0].cells]
    header = first if all(_instant(cell) is None for cell in first) else None
    data = rows if header is None else rows[1:]
    if len(data) < 2:
        raise ConfigError(
            f"trace {file}: at least 2 rows of data are needed, but there are {len(data)}"
        )
    time_at, rate_at = _find_columns(header, data[0], time, rate)
    rates = np.array([_rate(row, rate_at) for row in data])
    at_s = np.arange(float(len(rates))) if time_at is None else _times(data, time_at)
    return RecordedLoad(at_s, rates)


def _rows(file: str) -> Iterator[_TraceRow]:
    """The rows that hold something, with their line numbers."""
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            size = f"{MOST_BYTES >> 20} MiB"
            raise ConfigError(f"trace {file}: has over {size}, give fewer rows or columns")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"trace {file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigError(f"trace {file}: expected lines of text, but the file is binary")
    lines = text.splitlines()
    sample = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    separator = max(SEPARATORS, key=sample.count)
    reader = csv.reader(lines, delimiter=separator)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not cells[0].startswith("#"):
                yield _TraceRow(file, reader.line_num, cells)
    except csv.Error as error:
        raise ConfigError(f"trace {file}, line {reader.line_num}: not CSV ({error})") from None


def _find_columns(
    header: list[str] | None, row: _TraceRow, time: str | None, rate: str | None
) -> tuple[int | None, int]:
    """Columns of time (``None``: a row per second) and rate: asked for, usual, or guessed."""
    numeric = [index for index, cell in enumerate(row.cells) if _number(cell) is not None]
    rate_at = _asked(header, row, rate)
    if rate_at is None and (usual := _usual(header, RATE_NAMES)) in numeric:
        rate_at = usual
    time_at = _asked(header, row, time)
    if time_at is None:
        time_at = _usual(header, TIME_NAMES)
    is_guess = time_at is None or len(row.cells) == 1
    if time_at is None:
        instants = [_instant(cell.strip()) for cell in row.cells]
        timely = (index for index, at_s in enumerate(instants) if at_s is not None)
        time_at = next((index for index in timely if index != rate_at), None)
    if rate_at is None and is_guess and numeric == [time_at]:
        rate_at = time_at  # what looked like a time is the only number
    elif rate_at is None:
        after = (index for index in numeric if time_at is None or index > time_at)
        rate_at = next(after, None)
    if rate_at is None:
        raise row.refusal("no column of rates found, expected a number")
    return None if time_at == rate_at else time_at, rate_at


def _usual(header: list[str] | None, usual: tuple[str, ...]) -> int | None:
    names = [name.lower() for name in header or []]
    return next((names.index(name) for name in usual if name in names), None)


def _asked(header: list[str] | None, row: _TraceRow, column: str | None) -> int | None:
    """The index of the column that was asked for by name or number, if any was."""
    if column is None:
        return None
    if header is not None and column in header:
        return header.index(column)
    if column.isdecimal() and 1 <= int(column) <= len(row.cells):
        return int(column) - 1
    if header is None:
        raise ConfigError(
            f"trace {row.file}: has no header, so a column is a number "
            f"from 1 to {len(row.cells)}, not '{column}'"
        )
    raise unknown("column", column, [name for name in header if name], f"trace {row.file}")


def _rate(row: _TraceRow, column: int) -> float:
    cell = row.cell(column)
    rate = _number(cell)
    if rate is None:
        raise row.refusal(f"expected a rate in column {column + 1}, not '{cell}'")
    if not (isfinite(rate) and rate >= 0.0):
        raise row.refusal(f"rates must be finite and not negative, not {cell}")
    return rate


def _times(rows: list[_TraceRow], column: int) -> Series:
    """The instant of each row, counted from the first."""
    instants: list[float] = []
    for row in rows:
        cell = row.cell(column)
        instant = _instant(cell)
        if instant is None:
            expected = f"a time in column {column + 1} (seconds or an ISO date)"
            raise row.refusal(f"expected {expected}, not '{cell}'")
        if instants and instant <= instants[-1]:
            before = rows[len(instants) - 1].cells[column].strip()
            raise row.refusal(f"times must rise, but {cell} follows {before}")
        instants.append(instant)
    per_second = 1000.0 if instants[0] >= _MILLISECONDS_FROM else 1.0
    return np.asarray((np.array(instants) - instants[0]) / per_second)


def _instant(cell: str) -> float | None:
    """Seconds from a number or an ISO date; ``None`` if it is neither.

    >>> _instant("90"), _instant("1970-01-01 00:01:30"), _instant("1970-01-01T01:00:00+01:00")
    (90.0, 90.0, 0.0)
    """
    number = _number(cell)
    if number is not None:
        return number if isfinite(number) else None
    try:
        date = datetime.fromisoformat(cell)
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _number(cell: str) -> float | None:
    """A number, if it is one; NaN and infinity count, to be refused with their line."""
    try:
        return float(cell)
    except ValueError:
        return None
