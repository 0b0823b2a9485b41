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
from penstock.testbed.jobs.parsing import parse_json, timestamp_of_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SESSION_GAP_S = 10
#: Dollars to euros, as the benchmark counts them. A decimal, so that prices stay exact.
EUROS_PER_DOLLAR = "0.908"
Q3_CATEGORY = 10
Q3_STATES = ("OR", "ID", "CA")

EVENT_TYPES = {"person": 0, "auction": 1, "bid": 2}


def currency_conversion(source: DataFrame) -> DataFrame:
    """Query 1, stateless: every bid with its price in euros.

    Gives auction, bidder, price, dateTime, extra.
    """
    bids = events_of_kind(
        source, "bid", "auction BIGINT, bidder BIGINT, price BIGINT, extra STRING"
    )
    price = f"{EUROS_PER_DOLLAR} * price AS price"
    return bids.selectExpr("auction", "bidder", price, "at AS dateTime", "extra")


def local_item_suggestion(source: DataFrame) -> DataFrame:
    """Query 3, a join that keeps all it has seen: who in OR, ID or CA sells in category 10.

    Gives name, city, state and the auction's id. A seller and an auction may come in either
    order and any time apart, so the state only grows. Spark reads the source once for each side:
    its progress counts each record twice, and a pace is paid twice.
    """
    return _sales(source, source, f"category = {Q3_CATEGORY}")


def local_sellers(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    """Query 3 as in the thesis of Koper: auctions and persons of two topics, any category."""
    return _sales(auctions, persons, "true")


def _sales(auctions: DataFrame, persons: DataFrame, wanted: str) -> DataFrame:
    opened = events_of_kind(auctions, "auction", "id BIGINT, seller BIGINT, category BIGINT")
    people = events_of_kind(persons, "person", "id BIGINT, name STRING, city STRING, state STRING")
    states = ", ".join(f"'{state}'" for state in Q3_STATES)
    offers = opened.where(wanted).selectExpr("id AS auction", "seller")
    sellers = people.where(f"state IN ({states})").withColumnRenamed("id", "person")
    joined = offers.join(sellers, offers["seller"] == sellers["person"])
    return joined.selectExpr("name", "city", "state", "auction AS id")


def user_sessions(source: DataFrame) -> DataFrame:
    """Query 11, session windows: how many bids each bidder made without a pause of over 10 s.

    Gives bidder, bid_count, starttime, endtime; a session ends 10 s after its last bid. A stream
    gives a session once the watermark, 4 s behind the newest bid, has passed its end.
    """
    from pyspark.sql import functions as f

    timed = events_of_kind(source, "bid", "bidder BIGINT")
    session = f.session_window("at", f"{SESSION_GAP_S} seconds").alias("session")
    counted = (
        timed.withWatermark("at", f"{nexmark.WATERMARK_S} seconds")
        .groupBy("bidder", session)
        .agg(f.count(f.lit(1)).alias("bid_count"))
    )
    times = ("session.start AS starttime", "session.end AS endtime")
    return counted.selectExpr("bidder", "bid_count", *times)


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
