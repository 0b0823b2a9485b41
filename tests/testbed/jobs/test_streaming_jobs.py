"""The jobs of the studies on a real Spark: plain Python, batch and stream agree."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from math import cos, floor, radians
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testbed.jobs import state_size, traffic, ysb
from penstock.testbed.jobs.parsing import parse_json, timestamp_of_millis
from penstock.testbed.jobs.timeline import Timeline
from tests.testbed.jobs.spark_runs import run_stream, table
from tests.testbed.jobs.test_traffic import metres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CASES = Path(__file__).parents[2] / "cases" / "jobs.json"
BASE_MS = 1_700_000_000_000
#: None of these is an event of any job.
NONSENSE = [b"{", b"[]", b"17", b'"text"', b"null", b'[{"key":1}]', b"{}", b"\xff\xfe"]


def millis(row: Row, name: str) -> int:
    at_ms: int = round(row[name].timestamp() * 1000)
    return at_ms


# --- JSON


def test_what_does_not_fit_the_schema_is_malformed(spark: SparkSession) -> None:
    fits = [b'{"a":1,"t":"x"}', b' {"a":2} ', b'{"a":3,"more":[1]}', b'{"a":4} and more', b"{}"]
    fits_not = [*NONSENSE[:6], NONSENSE[7], b"", None, b'{"a":"1"}', b'{"a":1.5}', b'{"a":1e99}']
    parsed = parse_json(table(spark, [*fits, *fits_not]), "a BIGINT, t STRING", "records")
    assert [tuple(row) for row in parsed.collect()] == [
        (1, "x"),
        (2, None),
        (3, None),
        (4, None),
        (None, None),
    ]
    assert observed(parsed, "records") == len(fits_not)


def observed(frame: DataFrame, observation: str) -> int:
    """The count of malformed records in a table that was collected."""
    metrics: Any = frame._jdf.queryExecution().observedMetrics()
    return int(metrics.apply(observation).getAs("malformed"))


def test_what_a_job_requires_must_be_there(spark: SparkSession) -> None:
    values = [b'{"a":1,"ts":5}', b'{"a":1}', b'{"ts":5}', b'{"a":1,"ts":9223372036854775807}']
    required = ("a", timestamp_of_millis("ts"))
    parsed = parse_json(table(spark, values), "a INT, ts BIGINT", "records", required)
    assert [tuple(row) for row in parsed.collect()] == [(1, 5)]
    assert observed(parsed, "records") == 3


def test_a_query_that_parses_its_source_twice_counts_under_two_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    def both_sides(source: DataFrame) -> DataFrame:
        left = parse_json(source, "key INT, left STRING", "left", ["key"])
        right = parse_json(source, "key INT, right STRING", "right", ["key", "right"])
        return left.where("left IS NOT NULL").join(right, "key")

    values = [b'{"key":1,"left":"a"}', b'{"key":1,"right":"b"}', b"{", b'{"left":"c"}']
    run = run_stream(spark, both_sides, values, tmp_path, mode="append", batches=1)
    assert [tuple(row) for row in run.rows] == [(1, "a", "b")]
    assert (run.malformed("left"), run.malformed("right")) == (2, 3)


# --- The Yahoo Streaming Benchmark


def ad_event(ad: str, at: object, kind: str = "view") -> bytes:
    return json.dumps({"ad_id": ad, "event_type": kind, "event_time": str(at)}).encode()


def views(values: Iterable[bytes]) -> Counter[tuple[str, int]]:
    """Views of each campaign and window, in plain Python."""
    campaigns = ysb.campaign_of_ad()
    return Counter(
        (campaigns[event["ad_id"]], int(event["event_time"]) // 10_000 * 10_000)
        for event in map(json.loads, values)
        if event["event_type"] == "view"
    )


def counted(rows: Iterable[Row]) -> dict[tuple[str, int], int]:
    found = {}
    for row in rows:
        key = row.campaign_id, millis(row, "starttime")
        assert key not in found, "a window was given twice"
        assert millis(row, "endtime") == key[1] + 10_000
        found[key] = row.views
    return found


def test_views_are_counted_as_plain_python_counts_them(spark: SparkSession, tmp_path: Path) -> None:
    due_ms = partial(Timeline([100.0]).due_ms, base_ms=BASE_MS)
    events = ysb.AdEvents(seed=7, due_ms=due_ms).block(0)
    expected = views(events)
    assert len(expected) > 450  # nearly all of 100 campaigns in each of 5 windows
    assert counted(ysb.views_per_campaign(table(spark, events)).collect()) == expected
    # The last windows stay open until time moves on: a view an hour later closes them.
    closing = ad_event(next(iter(ysb.campaign_of_ad())), BASE_MS + 3_600_000)
    bad = [*NONSENSE, ad_event("x", "soon"), ad_event("x", 10**18)]
    values = [*bad, *events, closing]
    run = run_stream(spark, ysb.views_per_campaign, values, tmp_path, mode="append")
    assert counted(run.rows) == expected
    assert run.malformed("ads") == len(bad)


def test_only_views_of_known_advertisements_count(spark: SparkSession) -> None:
    ad, campaign = next(iter(ysb.campaign_of_ad().items()))
    values = [
        ad_event(ad, BASE_MS),
        ad_event(ad, BASE_MS, "click"),
        ad_event(ad, BASE_MS, "purchase"),
        ad_event("unknown", BASE_MS),
    ]
    found = ysb.views_per_campaign(table(spark, values)).collect()
    assert counted(found) == {(campaign, BASE_MS): 1}


def test_windows_start_where_the_published_cases_say(spark: SparkSession) -> None:
    cases = {case["id"]: case for case in json.loads(CASES.read_text())["cases"]}
    case = cases["ysb.window"]
    ads = list(ysb.campaign_of_ad())[::10]  # of another campaign each, so that each has a row
    values = [ad_event(ad, at_ms) for ad, at_ms in zip(ads, case["input"], strict=False)]
    found = counted(ysb.views_per_campaign(table(spark, values)).collect())
    campaigns = ysb.campaign_of_ad()
    assert list(found.values()) == [1, 1, 1]
    assert dict(found.keys()) == {
        campaigns[ad]: start for ad, start in zip(ads, case["expected"], strict=False)
    }


# --- Traffic

Areas = dict[tuple[int, int, int], tuple[int, float | None]]
CENTRE = {"pt": {"lt": 52.51623, "lg": 13.38532}}


def report(plate: str, at_ms: int, latitude: float, longitude: float = 13.38532) -> bytes:
    body = {"lp": plate, "pt": {"lt": latitude, "lg": longitude}, "ts": at_ms}
    return json.dumps(body).encode()


def areas(values: Iterable[bytes]) -> Areas:
    """Vehicles and their average speed per cell and window, in plain Python."""
    ways: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for event in map(json.loads, values):
        if metres(event, CENTRE) <= 1000:
            start = (event["ts"] - 1000) // 10_000 * 10_000 + 1000
            ways[start, event["lp"]].append(event)
    speeds: dict[tuple[int, int, int], list[float | None]] = defaultdict(list)
    for (start, _), way in ways.items():
        way.sort(key=lambda each: each["ts"])
        last = way[-1]
        metres_per_degree = 6_371_008.8 * radians(1)
        north = floor((last["pt"]["lt"] - 52.51623) * metres_per_degree / 250)
        at_gate = metres_per_degree * cos(radians(52.51623))
        east = floor((last["pt"]["lg"] - 13.38532) * at_gate / 250)
        way_m = sum(metres(one, other) for one, other in pairwise(way))
        took_s = (last["ts"] - way[0]["ts"]) / 1000
        speeds[north, east, start].append(way_m / took_s * 3.6 if took_s else None)
    return {key: (len(found), mean(found)) for key, found in speeds.items()}


def mean(speeds: list[float | None]) -> Any:
    known = [speed for speed in speeds if speed is not None]
    return pytest.approx(sum(known) / len(known)) if known else None


def found_areas(rows: Iterable[Row]) -> Areas:
    found: Areas = {}
    for row in rows:
        key = row.north, row.east, millis(row, "starttime")
        assert key not in found, "an area was given twice"
        assert millis(row, "endtime") == key[2] + 10_000
        found[key] = row.vehicles, row.speed_kmh
    return found


def test_speeds_are_those_that_plain_python_finds(spark: SparkSession, tmp_path: Path) -> None:
    timeline = Timeline([40.0] * 30 + [80.0] * 15)
    events = traffic.VehiclePositions(9, timeline, BASE_MS).block(0)[: timeline.events]
    expected = areas(events)
    assert len(expected) > 60
    assert found_areas(traffic.speeds_per_area(table(spark, events)).collect()) == expected
    closing = report("late", BASE_MS + 3_600_000, 52.51623)
    bad = [*NONSENSE, b'{"lp":"B","ts":1,"pt":{"lt":"52","lg":13}}', report("far", 10**18, 52.5)]
    values = [*bad, *events, closing]
    run = run_stream(spark, traffic.speeds_per_area, values, tmp_path, mode="append")
    assert found_areas(run.rows) == expected
    assert run.malformed("vehicles") == len(bad)


def test_the_speed_of_a_vehicle_is_way_over_time(spark: SparkSession) -> None:
    # A thousandth of a degree of latitude is 111.195 m: in 8 s that is 50.04 km/h.
    start_ms = BASE_MS + 1000
    values = [
        report("a", start_ms + 8000, 52.5180),
        report("a", start_ms, 52.5170),
        report("a", start_ms + 2000, 52.5171),
    ]
    (row,) = traffic.vehicle_speeds(table(spark, values)).collect()
    assert (row.plate, row.lt) == ("a", 52.5180)
    assert row.speed_kmh == pytest.approx(111.195 / 8 * 3.6, rel=1e-4)


def test_one_report_makes_a_vehicle_but_no_speed(spark: SparkSession) -> None:
    # 252 m north of the centre is the second cell. The same report again is no second place.
    values = [report("a", BASE_MS + 1000, 52.5185), report("b", BASE_MS + 2000, 52.5185)]
    found = found_areas(traffic.speeds_per_area(table(spark, [*values, values[0]])).collect())
    assert found == {(1, 0, BASE_MS + 1000): (2, None)}


@pytest.mark.parametrize(("latitude", "kept"), [(52.52522, True), (52.52523, False)])
def test_the_fence_is_a_kilometre_from_the_centre(
    spark: SparkSession, latitude: float, kept: bool
) -> None:
    # 1,000 m are 0.008993 degrees of latitude: 52.525223.
    values = [report("a", BASE_MS, latitude)]
    assert (traffic.vehicle_speeds(table(spark, values)).count() == 1) is kept


# --- State of a chosen size


@pytest.fixture
def rocksdb(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    settings = state_size.state_settings(changelog=request.param)
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@pytest.mark.parametrize("rocksdb", [True, False], indirect=True, ids=["changelog", "snapshots"])
@pytest.mark.usefixtures("rocksdb")
def test_the_last_string_of_each_key_is_kept_in_a_store_of_that_size(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys, characters = 500, 4096
    events = state_size.KeyedStrings(4, keys, characters).block(0)[:1_000]
    expected = {event["key"]: (2, event["text"]) for event in map(json.loads, events)}
    pipeline = state_size.last_string_per_key
    batch = pipeline(table(spark, reversed(events))).collect()
    assert {row.key: (row.updates, row.text) for row in batch} == expected

    run = run_stream(spark, pipeline, [*NONSENSE, *events], tmp_path, mode="update")
    assert run.malformed("strings") == len(NONSENSE)
    last: dict[int, tuple[int, str]] = {}
    for row in run.rows:
        last[row.key] = max(last.get(row.key, (0, "")), (row.updates, row.text))
    assert last == expected
    (state,) = run.progress[-1]["stateOperators"]
    assert state["numRowsTotal"] == keys
    saved = sum(file.stat().st_size for file in (tmp_path / "checkpoint/state").rglob("*.*"))
    assert saved > 2 * keys * characters
