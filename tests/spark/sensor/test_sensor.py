"""The live sensor on a real cluster, with sources that need no broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.core.errors import SensorError
from penstock.settings.goal import Goal, QueryGoal
from penstock.spark.application import Missing, probe
from penstock.spark.internals import Driver
from penstock.testbed import wait_until
from tests.spark.sensor.sensing import now_s, readings, sensing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@contextmanager
def running(
    frame: DataFrame, checkpoint: Path, mode: str = "append", trigger: str = "1 second"
) -> Iterator[StreamingQuery]:
    """The query over a stream once it has committed a batch."""
    writer = frame.writeStream.format("noop").outputMode(mode).trigger(processingTime=trigger)
    name = f"q{uuid4().hex[:6]}"
    query = writer.option("checkpointLocation", str(checkpoint / name)).queryName(name).start()
    try:
        wait_until(lambda: committed(query), 90.0, "no batch was committed")
        yield query
    finally:
        query.stop()


def committed(query: StreamingQuery) -> bool:
    return any("addBatch" in report["durationMs"] for report in query.recentProgress)


def rate(spark: SparkSession, rows_per_s: int, partitions: int = 3) -> DataFrame:
    reader = spark.readStream.format("rate").option("rowsPerSecond", rows_per_s)
    return reader.option("numPartitions", partitions).load()


def counts(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("value % 50 AS key").groupBy("key").count()


def test_every_capability_is_there_on_a_cluster(spark: SparkSession) -> None:
    assert probe(Driver(spark)) == Missing(*([""] * len(Missing.__struct_fields__)))


def test_a_stateful_query_is_seen_whole(spark: SparkSession, tmp_path: Path) -> None:
    with running(counts(rate(spark, 200)), tmp_path, "update"), sensing(spark) as sensor:
        first = sensor.read(now_s())
        assert first.throughput_rps is None
        assert first.batches == ()
        assert first.operators == ()
        assert [each.busy_fraction for each in first.executors] == [None, None]
        taken = readings(
            sensor,
            lambda seen: (
                seen.batches
                and len(seen.operators) == 2
                and seen.operators[1].service_time_s
                and seen.executors[0].state_partitions is not None
                and seen.executors[0].throughput_rps is not None
                and any(each.cpu_fraction for each in seen.executors)
            ),
        )
    last = taken[-1]
    assert last.trigger_interval_s == 1.0
    assert (last.fleet.target, last.fleet.registered, last.fleet.active) == (2, 2, 2)
    assert last.fleet.cores_per_executor == 1
    assert last.partitions == 4
    assert last.state_bytes is not None
    assert last.state_bytes > 0
    assert last.latency_s is not None

    source, state = last.operators
    assert (source.name, source.upstream, source.tasks) == ("source", (), 3)
    assert (state.name, state.upstream, state.tasks) == ("state", ("source",), 4)
    assert 0.0 < (state.busy_fraction or 0.0) <= 1.0
    in_use = (source.busy_fraction or 0.0) + (state.busy_fraction or 0.0)
    assert source.idle_fraction == state.idle_fraction == pytest.approx(max(0.0, 1.0 - in_use))

    assert len(last.executors) == 2
    assert all(each.ready for each in last.executors)
    assert sum(each.state_partitions or 0 for each in last.executors) == 4
    assert all(0.0 <= (each.busy_fraction or 0.0) <= 1.0 for each in last.executors)
    moved = [each.network_bytes_per_s or 0.0 for seen in taken for each in seen.executors]
    assert max(moved) > 0.0  # the shuffle between the two stages
    assert all(each.disk_bytes_per_s is not None for each in last.executors)
    assert state.service_cv2 is not None
    read_rps = sum(each.throughput_rps or 0.0 for each in last.executors)
    assert read_rps == pytest.approx(source.input_rps, abs=0.2)  # each is rounded to a tenth
    assert all(each.gc_fraction is None or each.gc_fraction <= 1.0 for each in last.executors)

    batches = [batch for seen in taken for batch in seen.batches if batch.stages]
    assert batches
    for batch in batches:
        source_stage, state_stage = batch.stages
        assert (source_stage.tasks, state_stage.tasks) == (3, 4)
        assert source_stage.end_s <= state_stage.end_s <= batch.duration_s + 0.1
        assert source_stage.work_s > 0.0

    numbers = [batch.id for seen in taken for batch in seen.batches]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_the_load_of_a_source_without_a_cap_is_what_its_batches_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The rate source gives whole seconds of 200 records, so a second more or less is right."""
    with running(rate(spark, 200), tmp_path), sensing(spark) as sensor:
        began_s = sensor.read(now_s()).at_s
        taken = readings(sensor, lambda seen: seen.at_s - began_s > 8.0)
    seconds = taken[-1].at_s - began_s
    processed = sum(batch.input_records for seen in taken for batch in seen.batches)
    assert processed == pytest.approx(200 * seconds, abs=600)
    measured = [seen.arrival_rps for seen in taken if seen.arrival_rps is not None]
    assert fmean(measured) == pytest.approx(200, abs=100)
    last = taken[-1]
    assert last.delay_s is not None
    assert 0.0 < last.delay_s < 10.0


def test_files_are_counted_once_and_an_idle_query_has_no_load(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "first").write_text("one\n" * 10)
    frame = spark.readStream.format("text").load(str(lines))
    with running(frame, tmp_path, trigger="500 milliseconds"), sensing(spark) as sensor:
        idle = readings(sensor, lambda seen: seen.arrival_rps == 0.0)[-1]
        assert (idle.backlog_records, idle.delay_s, idle.batches) == (0.0, 0.0, ())
        (lines / "second").write_text("two\n" * 30)
        seen = readings(sensor, lambda seen: seen.batches)[-1]
        assert [batch.input_records for batch in seen.batches] == [30]
        assert seen.state_bytes == 0.0


def test_what_a_cap_holds_back_is_not_made_up(spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    for number in range(40):
        (lines / str(number)).write_text("line\n")
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
    with running(reader.load(str(lines)), tmp_path), sensing(spark) as sensor:
        sensor.read(now_s())
        seen = readings(sensor, lambda seen: seen.batches)[-1]
    assert (seen.arrival_rps, seen.backlog_records, seen.delay_s) == (None, None, None)
    assert seen.throughput_rps is not None
    assert seen.throughput_rps > 0.0


def test_several_queries_make_one_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    with (
        running(rate(spark, 100), tmp_path) as light,
        running(counts(rate(spark, 300)), tmp_path, "update", "2 seconds") as heavy,
        sensing(spark) as sensor,
    ):
        sensor.read(now_s())
        seen = readings(
            sensor,
            lambda seen: len(seen.operators) == 3 and seen.batches and seen.arrival_rps is not None,
        )[-1]
        assert {each.name for each in seen.operators} == {
            f"{light.name}/source",
            f"{heavy.name}/source",
            f"{heavy.name}/state",
        }
        assert seen.partitions == 3 + 4
        assert seen.trigger_interval_s in (1.0, 2.0)
        heavy.stop()
        seen = readings(sensor, lambda seen: len(seen.operators) == 1 and seen.batches)[-1]
        assert seen.operators[0].name == "source"
        assert seen.trigger_interval_s == 1.0


def test_an_excluded_query_counts_by_its_slots_only(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        running(rate(spark, 100), tmp_path) as light,
        running(counts(rate(spark, 300)), tmp_path, "update", "2 seconds") as heavy,
        sensing(spark) as sensor,
    ):
        asked = QueryGoal(light.name, slo_s=5.0, weight=2.0), QueryGoal(heavy.name, exclude=True)
        sensor.goal = Goal(queries=(*asked, QueryGoal(light.name[:-1])))
        sensor.read(now_s())
        # Both queries have run: the partitions of one alone are not known.
        seen = readings(
            sensor,
            lambda seen: seen.operators and seen.batches and seen.arrival_rps and seen.partitions,
        )[-1]
        assert [each.name for each in seen.operators] == [f"{light.name}/source"]
        own, other = seen.queries
        assert (own.name, own.slo_s, own.weight, own.excluded) == (light.name, 5.0, 2.0, False)
        assert (own.arrival_rps, own.delay_s) == (seen.arrival_rps, seen.delay_s)
        assert (other.name, other.excluded) == (heavy.name, True)
        assert seen.arrival_rps is not None
        assert seen.arrival_rps < 200.0  # 100 and not 400 arrive each second
        assert seen.trigger_interval_s == 1.0
        assert seen.partitions == 3 + 4
        readings(sensor, lambda seen: seen.queries[1].busy_slots)
        assert {each.query for each in seen.topics} == {light.name, heavy.name}
        # The other way round, the trigger of two seconds is the one that is planned for.
        sensor.goal = Goal(queries=(QueryGoal(light.name, exclude=True),))
        seen = readings(sensor, lambda seen: seen.operators and seen.batches)[-1]
        assert seen.queries[0].name == heavy.name
        assert seen.trigger_interval_s == 2.0
    missing = f"no query '{light.name[:-1]}' runs: did you mean '{light.name}'?"
    assert caplog.text.count(missing) == 1


def test_a_self_join_reads_its_source_once(spark: SparkSession, tmp_path: Path) -> None:
    left = rate(spark, 20, partitions=1).withWatermark("timestamp", "1 second")
    joined = left.alias("a").join(left.alias("b"), ["value", "timestamp"])
    with running(joined, tmp_path), sensing(spark) as sensor:
        sensor.read(now_s())
        seen = readings(sensor, lambda seen: seen.arrival_rps is not None)[-1]
        assert seen.backlog_records is not None


class SilentListener(Driver):
    """No report is ever handed over."""

    def listen(self, spark: SparkSession) -> tuple[Callable[[], str | None], Callable[[], None]]:
        return lambda: None, lambda: None


def test_batches_that_no_listener_tells_of_are_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        running(rate(spark, 50), tmp_path),
        sensing(spark, driver=SilentListener(spark)) as sensor,
    ):
        sensor.read(now_s())
        taken = readings(sensor, lambda seen: seen.batches and seen.arrival_rps is not None)
    numbers = [batch.id for seen in taken for batch in seen.batches]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


class FaultyStore(Driver):
    """A status store that fails while `broken`, and answers only when `gate` is open."""

    broken = False

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.gate = Event()
        self.gate.set()

    def executors(self) -> list[dict[str, Any]]:
        self.gate.wait(30.0)
        if self.broken:
            raise Py4JError("the store is gone")
        return super().executors()


def test_a_broken_status_store_costs_details_and_one_line(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = FaultyStore(spark)
    with (
        caplog.at_level(logging.INFO, "penstock"),
        running(rate(spark, 50), tmp_path),
        sensing(spark, driver=driver) as sensor,
    ):
        readings(sensor, lambda seen: seen.operators)
        driver.broken = True
        blind = [sensor.read(now_s()) for _ in range(3)]
        driver.broken = False
        readings(sensor, lambda seen: seen.operators)
    assert all(seen.executors == () and seen.operators == () for seen in blind)
    assert all(seen.fleet.registered == 2 for seen in blind)
    assert all(seen.partitions is None or seen.partitions > 0 for seen in blind)
    said = [record.getMessage() for record in caplog.records]
    assert said.count("the status store cannot be read: the store is gone") == 1
    assert said.count("the status store can be read again") == 1


def test_a_slow_status_store_does_not_hold_up_the_turn(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = FaultyStore(spark)
    with (
        caplog.at_level(logging.INFO, "penstock"),
        running(rate(spark, 50), tmp_path),
        sensing(spark, driver=driver, store_timeout_s=0.3) as sensor,
    ):
        readings(sensor, lambda seen: seen.operators)
        driver.gate.clear()
        began_s = now_s()
        blind = [sensor.read(now_s()) for _ in range(3)]
        assert now_s() - began_s < 10.0
        driver.gate.set()
        readings(sensor, lambda seen: seen.operators)
    assert all(seen.executors == () and seen.fleet.registered == 2 for seen in blind)
    said = [record.getMessage() for record in caplog.records]
    assert said.count("the status store takes over 0.3 s") == 1


class LostDriver(Driver):
    """The Java process answers no more."""

    def executor_ids(self) -> list[str]:
        raise Py4JError("connection refused")


def test_only_a_fleet_that_cannot_be_seen_blinds_the_sensor(spark: SparkSession) -> None:
    with (
        sensing(spark, driver=LostDriver(spark)) as sensor,
        pytest.raises(SensorError, match="the fleet cannot be read: connection refused"),
    ):
        sensor.read(now_s())


def test_without_a_query_there_is_a_fleet_and_nothing_else(spark: SparkSession) -> None:
    with sensing(spark) as sensor:
        sensor.read(now_s())
        seen = sensor.read(now_s())
    assert seen.fleet.registered == 2
    assert len(seen.executors) == 2
    measured = (seen.arrival_rps, seen.throughput_rps, seen.backlog_records, seen.delay_s)
    assert measured == (None, None, None, None)


def test_an_executor_that_was_told_to_go_is_not_ready(spark: SparkSession) -> None:
    driver = Driver(spark)
    with sensing(spark) as sensor:
        before = sensor.read(now_s()).fleet
        driver.request_total_executors(2)
        (victim,) = driver.decommission(driver.executor_ids()[:1])
        seen = sensor.read(now_s())
        assert (before.registered, seen.fleet.target, seen.fleet.active) == (2, 2, 1)
        assert [each.ready for each in seen.executors if each.id == victim] in ([False], [])
        readings(sensor, lambda seen: seen.fleet.active == 2 and len(seen.executors) == 2)
