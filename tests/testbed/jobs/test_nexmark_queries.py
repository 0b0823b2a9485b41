"""The queries against plain Python, and a stream of them against batch, on a real Spark."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testbed.jobs.benchmark_jobs import JOBS, BenchmarkJob
from penstock.testbed.jobs.nexmark_events import NexmarkEvents
from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.jobs.wordcount import TextLines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BASE_MS = 1_700_000_000_000
GAP_MS = 10_000


@pytest.fixture(scope="module")
def events() -> list[bytes]:
    """Ten thousand events over 200 s, so that persons come and go and sessions close."""
    due_ms = partial(Timeline([50.0]).due_ms, base_ms=BASE_MS)
    stream = NexmarkEvents(seed=11, due_ms=due_ms)
    return stream.block(0) + stream.block(1)


@pytest.fixture(scope="module")
def event_table(
    spark: SparkSession, events: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> DataFrame:
    file = tmp_path_factory.mktemp("events") / "events.txt"
    file.write_bytes(b"\n".join(events))
    return spark.read.text(str(file)).cache()


def bid(bidder: int, at_ms: int, price: int = 100) -> bytes:
    body = {"auction": 1000, "bidder": bidder, "price": price, "dateTime": at_ms, "extra": "x"}
    return json.dumps({"event_type": 2, "bid": body}).encode()


def person(number: int, state: str) -> bytes:
    body = {"id": number, "name": f"p{number}", "city": "Bend", "state": state, "dateTime": BASE_MS}
    return json.dumps({"event_type": 0, "person": body}).encode()


def auction(number: int, seller: int, category: int) -> bytes:
    body = {"id": number, "seller": seller, "category": category, "dateTime": BASE_MS}
    return json.dumps({"event_type": 1, "auction": body}).encode()


def table(spark: SparkSession, values: Iterable[bytes]) -> DataFrame:
    return spark.createDataFrame([(bytearray(value),) for value in values], "value BINARY")


def rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def streamed(
    spark: SparkSession, query: BenchmarkJob, values: list[bytes], place: Path, files: int = 4
) -> list[Row]:
    """The rows that a stream of the values gives, over as many batches as files."""
    inbox = place / "in"
    inbox.mkdir(parents=True)
    size = -(-len(values) // files)
    for i in range(files):
        file = inbox / f"{i:03}.txt"
        file.write_bytes(b"\n".join(values[i * size : (i + 1) * size]))
        # Spark takes the oldest file first; files of one moment come in any order, so late.
        os.utime(file, (1_000 + i, 1_000 + i))
    source = spark.readStream.option("maxFilesPerTrigger", 1).text(str(inbox))
    name = f"out_{query.name}"
    running = (
        query.over(source)
        .writeStream.format("memory")
        .queryName(name)
        .outputMode(query.output_mode)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert running.awaitTermination(120)
        return spark.table(name).collect()
    finally:
        running.stop()


def bodies(values: list[bytes], kind: str) -> list[dict[str, Any]]:
    return [event[kind] for event in map(json.loads, values) if kind in event]


def sessions(values: list[bytes]) -> Counter[tuple[int, int, int, int]]:
    """Query 11 in plain Python: (bidder, bids, start, end) with times in ms."""
    found: Counter[tuple[int, int, int, int]] = Counter()
    by_bidder: dict[int, list[int]] = {}
    for one in bodies(values, "bid"):
        by_bidder.setdefault(one["bidder"], []).append(one["dateTime"])
    for bidder, times in by_bidder.items():
        start = last = min(times)
        count = 0
        for at_ms in sorted(times):
            if at_ms > last + GAP_MS:
                found[bidder, count, start, last + GAP_MS] += 1
                start, count = at_ms, 0
            last, count = at_ms, count + 1
        found[bidder, count, start, last + GAP_MS] += 1
    return found


def in_ms(found: Iterable[Row]) -> Counter[tuple[int, int, int, int]]:
    return Counter(
        (
            row.bidder,
            row.bid_count,
            round(row.starttime.timestamp() * 1000),
            round(row.endtime.timestamp() * 1000),
        )
        for row in found
    )


def offers(values: list[bytes]) -> Counter[tuple[Any, ...]]:
    """Query 3 in plain Python."""
    persons = bodies(values, "person")
    return Counter(
        (who["name"], who["city"], who["state"], what["id"])
        for what in bodies(values, "auction")
        for who in persons
        if what["seller"] == who["id"]
        and what["category"] == 10
        and who["state"] in {"OR", "ID", "CA"}
    )


def test_query_1_turns_each_price_into_euros_exactly(
    event_table: DataFrame, events: list[bytes]
) -> None:
    found = JOBS["q1"].over(event_table).collect()
    assert Counter((row.auction, row.bidder, row.price, row.extra) for row in found) == Counter(
        (one["auction"], one["bidder"], Decimal("0.908") * one["price"], one["extra"])
        for one in bodies(events, "bid")
    )


def test_a_bid_of_1000_cents_is_908_cents_in_euros(spark: SparkSession) -> None:
    (found,) = JOBS["q1"].over(table(spark, [bid(1, BASE_MS, price=1000)])).collect()
    assert found.price == Decimal("908.000")
    assert found.dateTime.timestamp() * 1000 == BASE_MS


def test_what_is_not_an_event_is_left_out(spark: SparkSession) -> None:
    found = JOBS["q1"].over(table(spark, [b"", b"{", b"[]", person(1, "OR"), bid(7, BASE_MS)]))
    assert [row.bidder for row in found.collect()] == [7]


def test_query_3_finds_what_plain_python_finds(event_table: DataFrame, events: list[bytes]) -> None:
    expected = offers(events)
    assert expected.total() > 20
    assert rows(JOBS["q3"].over(event_table)) == expected


def test_query_3_needs_the_category_and_the_state(spark: SparkSession) -> None:
    values = [
        auction(1, seller=5, category=10),  # comes before its seller
        person(5, "OR"),
        auction(2, seller=5, category=11),
        person(6, "WA"),
        auction(3, seller=6, category=10),
        auction(4, seller=7, category=10),  # whose seller never registers
    ]
    assert rows(JOBS["q3"].over(table(spark, values))) == Counter([("p5", "Bend", "OR", 1)])


def test_query_11_finds_what_plain_python_finds(
    event_table: DataFrame, events: list[bytes]
) -> None:
    expected = sessions(events)
    assert len({key[0] for key in expected}) < expected.total()
    assert in_ms(JOBS["q11"].over(event_table).collect()) == expected


@pytest.mark.parametrize(("pause_ms", "count"), [(9_999, 1), (10_000, 1), (10_001, 2)])
def test_a_pause_of_more_than_ten_seconds_ends_a_session(
    spark: SparkSession, pause_ms: int, count: int
) -> None:
    values = [bid(1, BASE_MS), bid(1, BASE_MS + pause_ms)]
    assert sessions(values).total() == count
    assert in_ms(JOBS["q11"].over(table(spark, values)).collect()) == sessions(values)


@pytest.mark.parametrize("name", ["q1", "q3"])
def test_a_stream_gives_what_batch_gives(
    spark: SparkSession, event_table: DataFrame, events: list[bytes], name: str, tmp_path: Path
) -> None:
    query = JOBS[name]
    batch = rows(query.over(event_table))
    assert Counter(map(tuple, streamed(spark, query, events, tmp_path))) == batch


def test_a_stream_of_sessions_gives_what_batch_gives(
    spark: SparkSession, event_table: DataFrame, events: list[bytes], tmp_path: Path
) -> None:
    # The last sessions stay open until time moves on: a bid an hour later closes them.
    closing = bid(1, BASE_MS + 3_600_000)
    found = in_ms(streamed(spark, JOBS["q11"], [*events, closing], tmp_path))
    assert found == in_ms(JOBS["q11"].over(event_table).collect())


def test_the_last_count_of_each_word_is_what_batch_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = TextLines(seed=3).block(0)[:2_000]
    expected = Counter(word.decode() for line in lines for word in line.split())
    query = JOBS["wordcount"]
    batch = {row["word"]: row["count"] for row in query.over(table(spark, lines)).collect()}
    last: dict[str, int] = {}
    for row in streamed(spark, query, lines, tmp_path):
        last[row["word"]] = max(row["count"], last.get(row["word"], 0))
    assert batch == expected
    assert last == expected


def test_words_are_split_at_any_white_space_and_case_does_not_count(spark: SparkSession) -> None:
    found = rows(JOBS["wordcount"].over(table(spark, [b" Tic  tac\ttic ", b"", b"TAC"])))
    assert found == Counter([("tic", 2), ("tac", 2)])


def test_the_pace_sees_each_record_of_the_source(spark: SparkSession) -> None:
    seen: list[int] = []

    def pace(source: DataFrame) -> DataFrame:
        seen.append(source.count())
        return source.where("length(value) > 0")

    values = [b"", bid(1, BASE_MS), person(2, "OR")]
    assert JOBS["q1"].over(table(spark, values), pace=pace).count() == 1
    assert seen == [3]
