"""The Nexmark queries as jobs."""

from __future__ import annotations

from penstock.testbed.jobs import nexmark_queries as queries
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


NEXMARK_JOBS = (
    _job("1", queries.currency_conversion, "prices of bids in euros", "bids -> price in euros"),
    _job(
        "3",
        queries.local_item_suggestion,
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
        pipeline=queries.local_sellers,
        streams=("nexmark-auctions", "nexmark-persons"),
        state="all auctions and such persons, without end",
    ),
    _job(
        "11",
        queries.user_sessions,
        "bids of each bidder per session",
        "bids -> count by bidder and session with a gap of 10 s",
        state="session windows",
    ),
)
