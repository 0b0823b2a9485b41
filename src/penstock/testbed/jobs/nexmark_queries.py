"""Nexmark queries without state: 0, 1, 2, 10, 13, 14, 21 and 22, from DataFrame to DataFrame.

Each takes a DataFrame with the events as JSON in `value` (text or bytes, as Kafka gives it), batch
or stream alike, and uses DataFrame expressions only. `dateTime` comes out as a timestamp. Days and
hours are those of the session's time zone.

References
----------
github.com/nexmark/nexmark at 6b3646c3, `nexmark-flink/src/main/resources/queries`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.testbed.jobs.parsing import parse_json, timestamp_of_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_TYPES = {"person": 0, "auction": 1, "bid": 2}
BID_FIELDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, extra STRING"
#: Dollars to euros, as the benchmark counts them. A decimal, so that prices stay exact.
EUROS_PER_DOLLAR = "0.908"
Q2_DIVISOR = 123
SIDE_ROWS = 10_000
Q14_PRICES = (1_000_000, 50_000_000)
CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def pass_through(source: DataFrame) -> DataFrame:
    """Query 0: every bid as it is. Gives auction, bidder, price, dateTime, extra."""
    return _short_bids(source).selectExpr("auction", "bidder", "price", "at AS dateTime", "extra")


def currency_conversion(source: DataFrame) -> DataFrame:
    """Query 1: every bid with its price in euros.

    Gives auction, bidder, price, dateTime, extra.
    """
    price = f"{EUROS_PER_DOLLAR} * price AS price"
    return _short_bids(source).selectExpr("auction", "bidder", price, "at AS dateTime", "extra")


def selection(source: DataFrame) -> DataFrame:
    """Query 2: bids on some auctions. Gives auction, price."""
    bids = events_of_kind(source, "bid", "auction BIGINT, price BIGINT")
    return bids.where(f"auction % {Q2_DIVISOR} = 0").select("auction", "price")


def log_rows(source: DataFrame) -> DataFrame:
    """Query 10: bids with the columns by which a file sink splits them, dt and hm.

    Gives auction, bidder, price, dateTime, extra, dt (the day) and hm (hour and minute). Files
    are up to the sink: ``writeStream.partitionBy("dt", "hm")``.
    """
    days = ("date_format(at, 'yyyy-MM-dd') AS dt", "date_format(at, 'HH:mm') AS hm")
    bids = _short_bids(source)
    return bids.selectExpr("auction", "bidder", "price", "at AS dateTime", "extra", *days)


def side_input(source: DataFrame) -> DataFrame:
    """Query 13: bids joined with a table of 10,000 rows that does not change.

    Gives auction, bidder, price, dateTime, value.
    """
    from pyspark.sql import functions as f

    side = source.sparkSession.range(SIDE_ROWS).selectExpr("id AS key", "CAST(id AS STRING) value")
    bids = events_of_kind(source, "bid", "auction BIGINT, bidder BIGINT, price BIGINT")
    joined = bids.join(f.broadcast(side), f.expr(f"auction % {SIDE_ROWS} = key"))
    return joined.selectExpr("auction", "bidder", "price", "at AS dateTime", "value")


def calculation(source: DataFrame) -> DataFrame:
    """Query 14: bids of 1 to 50 million euro cents, the time of day, and how many c in `extra`.

    Gives auction, bidder, price, bidTimeType, dateTime, extra, c_counts.
    """
    price = f"{EUROS_PER_DOLLAR} * price"
    hour = "hour(at)"
    time_type = (
        f"CASE WHEN {hour} BETWEEN 8 AND 18 THEN 'dayTime' "
        f"WHEN {hour} <= 6 OR {hour} >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType"
    )
    letters = "length(extra) - length(replace(extra, 'c', '')) AS c_counts"
    least, most = Q14_PRICES
    return (
        _short_bids(source)
        .where(f"{price} > {least} AND {price} < {most}")
        .selectExpr(
            "auction", "bidder", f"{price} AS price", time_type, "at AS dateTime", "extra", letters
        )
    )


def channel_ids(source: DataFrame) -> DataFrame:
    """Query 21: bids with the id of their channel, by its name or from the url.

    Bids without one are left out. Gives auction, bidder, price, channel, channel_id.
    """
    known = " ".join(f"WHEN '{name}' THEN '{number}'" for name, number in CHANNEL_IDS.items())
    named = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
    channel_id = f"CASE lower(channel) {known} ELSE nullif({named}, '') END AS channel_id"
    bids = events_of_kind(source, "bid", BID_FIELDS)
    found = bids.selectExpr("auction", "bidder", "price", "channel", channel_id)
    return found.where("channel_id IS NOT NULL")


def url_directories(source: DataFrame) -> DataFrame:
    """Query 22: bids with the three directories of their url.

    Gives auction, bidder, price, channel, dir1, dir2, dir3.
    """
    parts = [f"get(split(url, '/'), {2 + i}) AS dir{i}" for i in (1, 2, 3)]
    bids = events_of_kind(source, "bid", BID_FIELDS)
    return bids.selectExpr("auction", "bidder", "price", "channel", *parts)


def _short_bids(source: DataFrame) -> DataFrame:
    fields = "auction BIGINT, bidder BIGINT, price BIGINT, extra STRING"
    return events_of_kind(source, "bid", fields)


def events_of_kind(source: DataFrame, kind: str, fields: str) -> DataFrame:
    """The persons, auctions or bids of a source: those fields, and when it was, as `at`.

    What is no event, or has no time, is left out and counted under the name of the kind.
    """
    at = timestamp_of_millis(f"{kind}.dateTime")
    is_other = f"event_type <> {EVENT_TYPES[kind]}"
    events = parse_json(
        source,
        f"event_type INT, {kind} STRUCT<{fields}, dateTime: BIGINT>",
        observation=f"{kind}s",
        required=(f"CASE WHEN {is_other} OR {at} IS NOT NULL THEN true END",),
    )
    names = [f"{kind}.{field.split()[0]}" for field in fields.split(", ")]
    return events.where(f"event_type = {EVENT_TYPES[kind]}").selectExpr(*names, f"{at} AS at")
