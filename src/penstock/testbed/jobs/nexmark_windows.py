"""Nexmark queries on windows of time: 5, 7, 8, 11 and 12, from DataFrame to DataFrame.

A stream of each is in append mode: a window is given once, when the watermark, 4 s behind the
newest event, has passed its end. Queries 5 and 7 aggregate twice, which Spark does in append mode
only; in update mode the second aggregation would see the same window again and again.

References
----------
github.com/nexmark/nexmark at 6b3646c3, `nexmark-flink/src/main/resources/queries`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.testbed.jobs import nexmark
from penstock.testbed.jobs.nexmark_queries import events_of_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SESSION_GAP_S = 10
WINDOW_S = 10
SLIDE_S = 2

_LATE = f"{nexmark.WATERMARK_S} seconds"
_TIMES = ("window.start AS starttime", "window.end AS endtime")


def hot_items(source: DataFrame) -> DataFrame:
    """Query 5: the auctions with the most bids in each window of 10 s that slides by 2 s.

    Gives auction, num, starttime, endtime; several rows if auctions share the first place.
    """
    from pyspark.sql import functions as f

    bids = events_of_kind(source, "bid", "auction BIGINT").withWatermark("at", _LATE)
    window = f.window("at", f"{WINDOW_S} seconds", f"{SLIDE_S} seconds").alias("window")
    counted = bids.groupBy(window, "auction").agg(f.count(f.lit(1)).alias("num"))
    ranked = counted.groupBy("window").agg(f.collect_list(f.struct("num", "auction")).alias("all"))
    most = "filter(all, one -> one.num = array_max(all).num)"
    first = ranked.selectExpr("window", f"explode({most}) AS one")
    return first.selectExpr("one.auction", "one.num", *_TIMES)


def highest_bids(source: DataFrame) -> DataFrame:
    """Query 7: the bids with the highest price of each 10 s.

    Gives auction, price, bidder, dateTime, extra. The original's window has both ends in it, so
    that a bid at the very end may appear twice; here it belongs to the next window alone.
    """
    from pyspark.sql import functions as f

    fields = "auction BIGINT, bidder BIGINT, price BIGINT, extra STRING"
    bids = events_of_kind(source, "bid", fields).withWatermark("at", _LATE)
    window = f.window("at", f"{WINDOW_S} seconds").alias("window")
    bid = f.struct("auction", "price", "bidder", "at", "extra")
    by_price = bids.groupBy(window, "price").agg(f.collect_list(bid).alias("bids"))
    highest = by_price.groupBy("window").agg(f.max_by("bids", "price").alias("bids"))
    each = highest.select(f.explode("bids").alias("bid"))
    return each.selectExpr(
        "bid.auction", "bid.price", "bid.bidder", "bid.at AS dateTime", "bid.extra"
    )


def new_users(source: DataFrame) -> DataFrame:
    """Query 8: who opened an auction in the same 10 s in which they registered.

    Gives id, name, starttime. Spark reads the source once for each side of the join.
    """
    from pyspark.sql import functions as f

    window = f.window("at", f"{WINDOW_S} seconds")
    persons = events_of_kind(source, "person", "id BIGINT, name STRING").withWatermark("at", _LATE)
    auctions = events_of_kind(source, "auction", "seller BIGINT").withWatermark("at", _LATE)
    registered = persons.select("id", "name", window.alias("window"))
    opened = auctions.select("seller", window.alias("opened"))
    both = registered.join(opened, f.expr("id = seller AND window = opened"))
    once = both.dropDuplicates(["id", "name", "window"])
    return once.selectExpr("id", "name", "window.start AS starttime")


def user_sessions(source: DataFrame) -> DataFrame:
    """Query 11, session windows: how many bids each bidder made without a pause of over 10 s.

    Gives bidder, bid_count, starttime, endtime; a session ends 10 s after its last bid. A stream
    gives a session once the watermark, 4 s behind the newest bid, has passed its end.
    """
    from pyspark.sql import functions as f

    timed = events_of_kind(source, "bid", "bidder BIGINT")
    session = f.session_window("at", f"{SESSION_GAP_S} seconds").alias("session")
    counted = (
        timed.withWatermark("at", _LATE)
        .groupBy("bidder", session)
        .agg(f.count(f.lit(1)).alias("bid_count"))
    )
    times = ("session.start AS starttime", "session.end AS endtime")
    return counted.selectExpr("bidder", "bid_count", *times)


def bids_per_batch_time(source: DataFrame) -> DataFrame:
    """Query 12: bids of each bidder in each 10 s of processing time.

    Gives bidder, bid_count, starttime, endtime. The time of a bid is when its batch began.
    """
    from pyspark.sql import functions as f

    bids = events_of_kind(source, "bid", "bidder BIGINT")
    seen = bids.select("bidder", f.current_timestamp().alias("seen"))
    window = f.window("seen", f"{WINDOW_S} seconds").alias("window")
    counted = (
        seen.withWatermark("seen", "0 seconds")
        .groupBy("bidder", window)
        .agg(f.count(f.lit(1)).alias("bid_count"))
    )
    return counted.selectExpr("bidder", "bid_count", *_TIMES)
