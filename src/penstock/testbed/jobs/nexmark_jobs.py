"""The Nexmark queries as jobs."""

from __future__ import annotations

from penstock.testbed.jobs import nexmark_queries as records
from penstock.testbed.jobs import nexmark_tables as tables
from penstock.testbed.jobs import nexmark_windows as windows
from penstock.testbed.jobs.job import BenchmarkJob, OutputMode, Pipeline

ORIGIN = "github.com/nexmark/nexmark"


def _job(
    number: str,
    pipeline: Pipeline,
    summary: str,
    dataflow: str,
    *,
    state: str = "none",
    mode: OutputMode = "append",
    reads: int = 1,
) -> BenchmarkJob:
    return BenchmarkJob(
        name=f"q{number}",
        summary=summary,
        origin=f"{ORIGIN}, query {number}",
        dataflow=f"nexmark -> {dataflow}",
        pipeline=pipeline,
        streams=("nexmark",),
        output_mode=mode,
        state=state,
        reads=reads,
    )


_WINDOWS = "tumbling windows of 10 s"
_PER_DAY = "a row for each"

NEXMARK_JOBS = (
    _job("0", records.pass_through, "bids as they are", "bids"),
    _job("1", records.currency_conversion, "prices of bids in euros", "bids -> price in euros"),
    _job("2", records.selection, "bids on some auctions", "bids -> auction % 123 = 0"),
    _job(
        "3",
        tables.local_item_suggestion,
        "who in three states sells in category 10",
        "auctions of category 10, persons of OR, ID, CA -> join by seller",
        state="all such auctions and persons, without end",
        reads=2,
    ),
    BenchmarkJob(
        name="q3-thesis",
        summary="who in three states sells, from two topics with half the rate each",
        origin="Koper, master's thesis 2022; query 3 of Nexmark without the category",
        dataflow="nexmark-auctions, nexmark-persons of OR, ID, CA -> join by seller",
        pipeline=tables.local_sellers,
        streams=("nexmark-auctions", "nexmark-persons"),
        state="all auctions and such persons, without end",
    ),
    _job(
        "5",
        windows.hot_items,
        "auctions with the most bids",
        "bids -> count by auction and window -> most by window",
        state="windows of 10 s that slide by 2 s, twice",
    ),
    _job(
        "7",
        windows.highest_bids,
        "bids with the highest price",
        "bids -> list by price and window -> highest by window",
        state=f"{_WINDOWS}, twice",
    ),
    _job(
        "8",
        windows.new_users,
        "who registered and opened an auction in the same 10 s",
        "persons, auctions -> join by seller and window -> distinct",
        state=f"{_WINDOWS}, join and distinct",
        reads=2,
    ),
    _job(
        "10",
        records.log_rows,
        "bids with the day and minute by which files are split",
        "bids -> day, minute",
    ),
    _job(
        "11",
        windows.user_sessions,
        "bids of each bidder per session",
        "bids -> count by bidder and session with a gap of 10 s",
        state="session windows",
    ),
    _job(
        "12",
        windows.bids_per_batch_time,
        "bids of each bidder per 10 s of processing time",
        "bids -> count by bidder and window",
        state=_WINDOWS,
    ),
    _job(
        "13",
        records.side_input,
        "bids joined with a fixed table",
        "bids -> join with 10,000 rows",
    ),
    _job(
        "14",
        records.calculation,
        "bids of a price range, time of day, letters c",
        "bids -> filter -> functions",
    ),
    _job(
        "15",
        tables.bidding_statistics,
        "bids, bidders and auctions of a day",
        "bids -> counts by day",
        state=f"{_PER_DAY} day, with sets of its bidders and auctions",
        mode="update",
    ),
    _job(
        "16",
        tables.channel_statistics,
        "bids, bidders and auctions of a channel and day",
        "bids -> counts by channel and day",
        state=f"{_PER_DAY} channel and day, with sets of its bidders and auctions",
        mode="update",
    ),
    _job(
        "17",
        tables.auction_statistics,
        "bids and prices of an auction and day",
        "bids -> counts, prices by auction and day",
        state=f"{_PER_DAY} auction and day",
        mode="update",
    ),
    _job(
        "18",
        tables.last_bids,
        "the last bid of each bidder on each auction",
        "bids -> last by bidder and auction",
        state=f"{_PER_DAY} bidder and auction",
        mode="update",
    ),
    _job(
        "19",
        tables.top_bids,
        "the ten highest bids on each auction",
        "bids -> list by auction -> first ten",
        state="all bids",
        mode="update",
    ),
    _job(
        "20",
        tables.expanded_bids,
        "bids with their auction, of category 10",
        "bids, auctions of category 10 -> join by auction",
        state="all bids and such auctions, without end",
        reads=2,
    ),
    _job("21", records.channel_ids, "bids with the id of their channel", "bids -> channel id"),
    _job("22", records.url_directories, "bids with the parts of their url", "bids -> split url"),
)

#: Queries that Structured Streaming cannot express with DataFrame operations, and why.
NOT_EXPRESSIBLE = {
    "q4": "the average per category of the highest bid per auction: an aggregation without a "
    "window over another one; Spark chains aggregations in append mode only, where both need a "
    "window",
    "q6": "the average of the last ten winning bids of a seller: a window that counts rows, which "
    "a stream does not have; Flink SQL cannot express it either",
    "q9": "the winning bid of an auction is final when the auction expires, but a watermark is on "
    "when the auction was opened, so no aggregation after the join can end",
}
