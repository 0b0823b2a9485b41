"""The Nexmark queries, from DataFrame to DataFrame: the SQL of each is in ``jobs.toml``.

Each takes a DataFrame with the events as JSON in `value`, batch or stream alike. For a stream:

- Windows (5, 7, 8, 11 and 12) are in append mode: a window is given once, when the watermark, 4 s
  behind the newest event, has passed its end. Queries 5 and 7 aggregate twice, which Spark does in
  append mode only; in update mode the second aggregation would see the same window again and again.
- Joins (3 and 20) are in append mode and keep all they have seen.
- Aggregations without a window (15 to 19) are in update mode: no result is ever final, and each
  batch gives those that it has changed.

After github.com/nexmark/nexmark at 6b3646c3, `nexmark-flink/src/main/resources/queries`.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.testbed.jobs.parsing import parse_json, timestamp_of_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_TYPES = {"person": 0, "auction": 1, "bid": 2}
#: Fields that are whole numbers; all others are text.
NUMBERS = {"id", "auction", "bidder", "price", "seller", "category"}


class NexmarkQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pipeline of a query: what it reads, and its SQL."""

    sql: str
    #: The fields that it reads of each kind. The kind is a table of the SQL, `{bids}`, that has
    #: the time of the event as `at` too. With several streams each kind has its own, in this order.
    auctions: str = ""
    persons: str = ""
    bids: str = ""
    at: str = ""  #: What stands for the time of an event, if that is not its own.
    watermark_s: int | None = None  #: How far behind the newest event the watermark is, if any.
    #: Selects from `{rows}`, which are those of `sql` without repeats. SQL's own DISTINCT would
    #: remember them for good, and not only those of open windows.
    sql_of_distinct: str = ""

    def __call__(self, *sources: DataFrame) -> DataFrame:
        """From one DataFrame per stream to the results."""
        every = {"auction": self.auctions, "person": self.persons, "bid": self.bids}
        kinds = [(kind, names) for kind, names in every.items() if names]
        tables = {}
        for (kind, names), source in zip(kinds, cycle(sources), strict=False):
            events = events_of_kind(source, kind, names.split(", "), self.at)
            if self.watermark_s is not None:
                events = events.withWatermark("at", f"{self.watermark_s} seconds")
            tables[f"{kind}s"] = events
        spark = sources[0].sparkSession
        results = spark.sql(self.sql, None, **tables)
        if self.sql_of_distinct:
            results = spark.sql(self.sql_of_distinct, rows=results.dropDuplicates())
        return results


def events_of_kind(source: DataFrame, kind: str, names: list[str], at: str) -> DataFrame:
    """The persons, auctions or bids of a source: those fields, and when it was, as `at`.

    What is no event, or has no time, is left out and counted under the name of the kind.
    """
    event_at = timestamp_of_millis(f"{kind}.dateTime")
    is_other = f"event_type <> {EVENT_TYPES[kind]}"
    fields = [f"{name} {'BIGINT' if name in NUMBERS else 'STRING'}" for name in names]
    events = parse_json(
        source,
        f"event_type INT, {kind} STRUCT<{', '.join(fields)}, dateTime: BIGINT>",
        observation=f"{kind}s",
        required=(f"CASE WHEN {is_other} OR {event_at} IS NOT NULL THEN true END",),
    )
    found = events.where(f"event_type = {EVENT_TYPES[kind]}")
    columns = [f"{kind}.{name}" for name in names]
    return found.selectExpr(*columns, f"{at or event_at} AS at")
