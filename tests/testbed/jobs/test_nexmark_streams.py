"""Each Nexmark query as a stream gives what plain Python gives, on a real Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from penstock.testbed.jobs.benchmark_jobs import JOBS, NOT_EXPRESSIBLE
from penstock.testbed.jobs.nexmark_events import Kind, NexmarkEvents, NexmarkKind
from penstock.testbed.jobs.timeline import Timeline
from tests.testbed.jobs import nexmark_answers
from tests.testbed.jobs.spark_runs import run_stream, table

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

slow = pytest.mark.slow
pytestmark = [
    # PySpark leaves the socket of each collect to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BASE_MS = 1_700_000_000_000
LATER_MS = BASE_MS + 3_600_000
NAMES = [name for name in JOBS if name.startswith("q")]
#: Windows close only when time moves on.
WINDOWED = {"q5", "q7", "q8", "q11"}
#: How many columns of a row in update mode are its key.
KEY_COLUMNS = {"q15": 1, "q16": 2, "q17": 2, "q18": 2, "q19": 2}
MALFORMED = [b"{", b"[]", b'{"event_type":2,"bid":{"auction":1,"dateTime":-5}}', b'{"bid":{}}']


@pytest.fixture(scope="module")
def values() -> list[bytes]:
    """Five thousand events over 100 s."""
    due_ms = partial(Timeline([50.0]).due_ms, base_ms=BASE_MS)
    return NexmarkEvents(seed=11, due_ms=due_ms).block(0)


def bodies(values: list[bytes]) -> nexmark_answers.Events:
    events = list(map(json.loads, values))
    kinds = ("person", "auction", "bid")
    return {kind: [each[kind] for each in events if kind in each] for kind in kinds}


def closing() -> list[bytes]:
    """A person, an auction and a bid an hour later."""
    return [
        json.dumps({"event_type": number, kind: {"id": 1, "dateTime": LATER_MS}}).encode()
        for number, kind in enumerate(("person", "auction", "bid"))
    ]


def plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def answer_of(rows: list[Row], key_columns: int | None) -> Counter[tuple[Any, ...]]:
    found = [tuple(map(plain, row)) for row in rows]
    if key_columns is None:
        return Counter(found)
    return Counter({row[:key_columns]: row for row in found}.values())


def answers(name: str) -> Callable[[nexmark_answers.Events], nexmark_answers.Rows]:
    found: Callable[[nexmark_answers.Events], nexmark_answers.Rows]
    found = getattr(nexmark_answers, name.replace("-", "_"))
    return found


def test_every_query_up_to_22_is_a_job_or_has_a_reason() -> None:
    queries = {f"q{number}" for number in range(23)}
    assert queries == {name for name in NAMES if "-" not in name} | set(NOT_EXPRESSIBLE)


@slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"q12", "q3-thesis"}])
def test_a_stream_gives_what_plain_python_gives(
    spark: SparkSession, values: list[bytes], tmp_path: Path, name: str
) -> None:
    job = JOBS[name]
    sent = [*values, *(closing() if name in WINDOWED else [])]
    sent[100:100] = MALFORMED
    run = run_stream(spark, job.over, sent, tmp_path, mode=job.output_mode, batches=2)
    expected = Counter(answers(name)(bodies(values)))
    assert expected.total() > 0
    assert answer_of(run.rows, KEY_COLUMNS.get(name)) == expected
    observed = {key for each in run.progress for key in each["observedMetrics"]}
    malformed = {key: run.malformed(key) for key in observed}
    # Only who reads bids needs the time of a bid.
    assert malformed == {key: 4 if key == "bids" else 3 for key in observed}
    assert malformed


@slow
def test_the_query_of_the_thesis_joins_two_streams(spark: SparkSession) -> None:
    due_ms = partial(Timeline([50.0]).due_ms, base_ms=BASE_MS)
    auctions = NexmarkKind("auction", 11, due_ms).block(0)
    persons = NexmarkKind("person", 11, due_ms).block(0)
    sources = (table(spark, auctions), table(spark, persons))
    found = JOBS["q3-thesis"].over(*sources).collect()
    expected = Counter(nexmark_answers.q3_thesis(bodies(auctions + persons)))
    assert expected.total() > 100
    assert answer_of(found, None) == expected


@slow
def test_windows_of_processing_time_count_every_bid_once(
    spark: SparkSession, values: list[bytes]
) -> None:
    found = JOBS["q12"].over(table(spark, values)).collect()
    counts: Counter[int] = Counter()
    for row in found:
        counts[row.bidder] += row.bid_count
        assert (row.endtime - row.starttime).total_seconds() == 10
    assert counts == Counter(bid["bidder"] for bid in bodies(values)["bid"])


def test_a_part_of_the_stream_has_the_ids_and_texts_of_the_whole() -> None:
    whole = NexmarkEvents(seed=3, due_ms=lambda events: 0 * events).block(2)
    persons = NexmarkKind("person", seed=3, due_ms=lambda events: 0 * events).block(2)
    auctions = NexmarkKind("auction", seed=3, due_ms=lambda events: 0 * events).block(2)
    assert persons == whole[0::50]
    assert auctions[:4] == [*whole[1:4], whole[51]]


def test_each_event_of_a_part_is_due_by_its_own_number() -> None:
    for kind in get_args(Kind):
        part = NexmarkKind(kind, seed=3, due_ms=lambda events: 10 * events)
        block = part.block(1)
        assert len(block) == part.block_size
        found = [event["dateTime"] for of_kind in bodies(block).values() for event in of_kind]
        assert found == [10 * (part.block_size + i) for i in range(part.block_size)]
