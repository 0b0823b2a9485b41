"""Nexmark queries 1, 3 and 11, from DataFrame to DataFrame.

Each takes a DataFrame with the events as JSON in `value` (text or bytes, as Kafka gives it), batch
or stream alike, and uses DataFrame expressions only. `dateTime` comes out as a timestamp.

References
----------
github.com/nexmark/nexmark at 6b3646c3, `nexmark-flink/src/main/resources/queries`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.testbed.jobs import nexmark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SESSION_GAP_S = 10
#: Dollars to euros, as the benchmark counts them. A decimal, so that prices stay exact.
EUROS_PER_DOLLAR = "0.908"
Q3_CATEGORY = 10
Q3_STATES = ("OR", "ID", "CA")

_PERSON, _AUCTION, _BID = 0, 1, 2


def currency_conversion(source: DataFrame) -> DataFrame:
    """Query 1, stateless: every bid with its price in euros.

    Gives auction, bidder, price, dateTime, extra.
    """
    fields = "auction BIGINT, bidder BIGINT, price BIGINT, dateTime BIGINT, extra STRING"
    price, at = f"{EUROS_PER_DOLLAR} * price AS price", "timestamp_millis(dateTime) AS dateTime"
    bids = _of_kind(source, _BID, "bid", fields)
    return bids.selectExpr("auction", "bidder", price, at, "extra")


def local_item_suggestion(source: DataFrame) -> DataFrame:
    """Query 3, a join that keeps all it has seen: who in OR, ID or CA sells in category 10.

    Gives name, city, state and the auction's id. A seller and an auction may come in either
    order and any time apart, so the state only grows. Spark reads the source once for each side:
    its progress counts each record twice, and a pace is paid twice.
    """
    auctions = _of_kind(source, _AUCTION, "auction", "id BIGINT, seller BIGINT, category BIGINT")
    fields = "id BIGINT, name STRING, city STRING, state STRING"
    persons = _of_kind(source, _PERSON, "person", fields)
    states = ", ".join(f"'{state}'" for state in Q3_STATES)
    offers = auctions.where(f"category = {Q3_CATEGORY}").selectExpr("id AS auction", "seller")
    sellers = persons.where(f"state IN ({states})").withColumnRenamed("id", "person")
    joined = offers.join(sellers, offers["seller"] == sellers["person"])
    return joined.selectExpr("name", "city", "state", "auction AS id")


def user_sessions(source: DataFrame) -> DataFrame:
    """Query 11, session windows: how many bids each bidder made without a pause of over 10 s.

    Gives bidder, bid_count, starttime, endtime; a session ends 10 s after its last bid. A stream
    gives a session once the watermark, 4 s behind the newest bid, has passed its end.
    """
    from pyspark.sql import functions as f

    bids = _of_kind(source, _BID, "bid", "bidder BIGINT, dateTime BIGINT")
    timed = bids.selectExpr("bidder", "timestamp_millis(dateTime) AS at")
    session = f.session_window("at", f"{SESSION_GAP_S} seconds").alias("session")
    counted = (
        timed.withWatermark("at", f"{nexmark.WATERMARK_S} seconds")
        .groupBy("bidder", session)
        .agg(f.count(f.lit(1)).alias("bid_count"))
    )
    times = ("session.start AS starttime", "session.end AS endtime")
    return counted.selectExpr("bidder", "bid_count", *times)


def _of_kind(source: DataFrame, event_type: int, name: str, fields: str) -> DataFrame:
    """The events of one kind, with those fields as columns; what is not JSON is left out."""
    schema = f"event_type INT, {name} STRUCT<{fields}>"
    parsed = source.selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS event")
    return parsed.where(f"event.event_type = {event_type}").select(f"event.{name}.*")
