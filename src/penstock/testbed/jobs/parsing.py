"""Events out of JSON: one way to read them, and to count those that cannot be read.

A stream has no end of strange records, and a job that crashes on one crashes again after each
restart. So a malformed record is left out and counted: a running query shows the count of each
batch in its progress, ``observedMetrics[NAME]["malformed"]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MALFORMED = "malformed"
#: 9999-12-31, near the last day that Python can show; sums with later times may overflow.
LATEST_MS = 253_402_214_400_000

_CORRUPT = "_corrupt_record"


def parse_json(
    source: DataFrame, schema: str, observation: str, required: Sequence[str] = ()
) -> DataFrame:
    """The fields of the JSON object in `value` as columns, without the records that have none.

    A record is malformed if it does not start with a JSON object, if a field is of another type
    than the schema (``"key BIGINT, text STRING"``) says, or if a required expression is NULL for
    it. The count of malformed records appears as `observation`, which must be unique in a query: a
    join of a source with itself needs two. `required` are SQL expressions of the fields that must
    not fail: under ANSI rules, which are the default of Spark 4, ``CAST`` does, ``try_cast`` not.
    """
    from pyspark.sql import functions as f

    event = f.from_json(
        f.col("value").cast("string"),
        f"{schema}, {_CORRUPT} STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    # Empty text and NULL give no object at all, so no corrupt record either.
    parsed = source.select(event.alias("event"))
    parsed = parsed.select(f.isnull("event").alias("_empty"), "event.*")
    tests = ["_empty", f"{_CORRUPT} IS NOT NULL", *(f"({each}) IS NULL" for each in required)]
    malformed = f.expr(" OR ".join(tests))
    # Filters do not move past an observation, so it counts what they leave out.
    observed = parsed.observe(observation, f.count_if(malformed).alias(MALFORMED))
    return observed.where(~malformed).drop("_empty", _CORRUPT)


def timestamp_of_millis(expression: str) -> str:
    """A timestamp from milliseconds since the epoch, in SQL; NULL for what is no such time.

    `timestamp_millis` alone fails on a number that is too large.

    >>> timestamp_of_millis("ts")
    'timestamp_millis(CASE WHEN ts BETWEEN 0 AND 253402214400000 THEN ts END)'
    """
    in_range = f"{expression} BETWEEN 0 AND {LATEST_MS}"
    return f"timestamp_millis(CASE WHEN {in_range} THEN {expression} END)"
