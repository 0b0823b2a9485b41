"""Nexmark queries whose state has no window: 3, 15 to 20, from DataFrame to DataFrame.

Joins (3 and 20) are in append mode and keep all they have seen. Aggregations (15 to 19) are in
update mode: no result is ever final, and each batch gives those that it has changed. Spark does
not count distinct values of a stream: 15 and 16 keep them in a set.

References
----------
github.com/nexmark/nexmark at 6b3646c3, `nexmark-flink/src/main/resources/queries`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.testbed.jobs.nexmark_queries import BID_FIELDS, events_of_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Q3_CATEGORY = Q20_CATEGORY = 10
Q3_STATES = ("OR", "ID", "CA")
TOP_BIDS = 10
#: Conditions of the three ranks of prices.
RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")

_DAY = "date_format(at, 'yyyy-MM-dd') AS day"


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


def bidding_statistics(source: DataFrame) -> DataFrame:
    """Query 15: bids, bidders and auctions of each day, in all and by rank of the price.

    Gives day, total_bids, rank1_bids to rank3_bids, and the same for bidders and auctions.
    """
    from pyspark.sql import functions as f

    bids = events_of_kind(source, "bid", "auction BIGINT, bidder BIGINT, price BIGINT")
    dated = bids.selectExpr("*", _DAY)
    return dated.groupBy("day").agg(*(f.expr(each) for each in _rank_counts()))


def channel_statistics(source: DataFrame) -> DataFrame:
    """Query 16: the same for each channel and day, with the last minute in which a bid came.

    Gives channel, day, minute, total_bids, ...
    """
    from pyspark.sql import functions as f

    bids = events_of_kind(source, "bid", BID_FIELDS)
    minute = "max(date_format(at, 'HH:mm')) AS minute"
    dated = bids.selectExpr("*", _DAY)
    counts = (f.expr(each) for each in (minute, *_rank_counts()))
    return dated.groupBy("channel", "day").agg(*counts)


def auction_statistics(source: DataFrame) -> DataFrame:
    """Query 17: bids of each auction and day by rank, and their prices.

    Gives auction, day, total_bids, rank1_bids to rank3_bids, min_price, max_price, avg_price,
    sum_price.
    """
    from pyspark.sql import functions as f

    bids = events_of_kind(source, "bid", "auction BIGINT, price BIGINT")
    prices = [f"{each}(price) AS {each}_price" for each in ("min", "max", "avg", "sum")]
    figures = [f.expr(each) for each in (*_rank_counts(distinct=False), *prices)]
    return bids.selectExpr("*", _DAY).groupBy("auction", "day").agg(*figures)


def last_bids(source: DataFrame) -> DataFrame:
    """Query 18: the last bid of each bidder on each auction; of several at once the highest.

    Gives bidder, auction, price, channel, url, dateTime, extra.
    """
    from pyspark.sql import functions as f

    bids = events_of_kind(source, "bid", BID_FIELDS)
    bid = f.struct("at", "price", "channel", "url", "extra")
    last = bids.groupBy("bidder", "auction").agg(f.max(bid).alias("bid"))
    fields = ("price", "channel", "url", "at AS dateTime", "extra")
    return last.selectExpr("bidder", "auction", *(f"bid.{field}" for field in fields))


def top_bids(source: DataFrame) -> DataFrame:
    """Query 19: the ten highest bids on each auction, the earliest first among equal ones.

    Gives auction and rank, price, bidder, dateTime. Spark has no aggregate for the highest ten, so
    all bids on an auction are kept.
    """
    from pyspark.sql import functions as f

    bids = events_of_kind(source, "bid", "auction BIGINT, bidder BIGINT, price BIGINT")
    bid = f.expr("struct(-price AS below, at, bidder)")
    ranked = bids.groupBy("auction").agg(f.sort_array(f.collect_list(bid)).alias("bids"))
    top = ranked.selectExpr("auction", f"posexplode(slice(bids, 1, {TOP_BIDS})) AS (place, bid)")
    return top.selectExpr(
        "auction", "place + 1 AS rank", "-bid.below AS price", "bid.bidder", "bid.at AS dateTime"
    )


def expanded_bids(source: DataFrame) -> DataFrame:
    """Query 20: bids with their auction, of category 10. Spark reads the source twice.

    Gives auction, bidder, price, dateTime, itemName, seller, category.
    """
    bids = events_of_kind(source, "bid", "auction BIGINT, bidder BIGINT, price BIGINT")
    fields = "id BIGINT, itemName STRING, seller BIGINT, category BIGINT"
    auctions = events_of_kind(source, "auction", fields).drop("at")
    wanted = auctions.where(f"category = {Q20_CATEGORY}")
    joined = bids.join(wanted, bids["auction"] == wanted["id"])
    names = ("itemName", "seller", "category")
    return joined.selectExpr("auction", "bidder", "price", "at AS dateTime", *names)


def _rank_counts(*, distinct: bool = True) -> list[str]:
    """How many bids, bidders and auctions, in all and of each rank."""
    groups = {"total": "true"} | {f"rank{i + 1}": rank for i, rank in enumerate(RANKS)}
    counts = [f"count_if({rank}) AS {name}_bids" for name, rank in groups.items()]
    for key in ("bidder", "auction") if distinct else ():
        counts += [
            f"size(collect_set(CASE WHEN {rank} THEN {key} END)) AS {name}_{key}s"
            for name, rank in groups.items()
        ]
    return counts
