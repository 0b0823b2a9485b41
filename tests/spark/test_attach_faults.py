"""Penstock on a real application while its disk, journal, queries and clock misbehave."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

import penstock
from penstock.core.clock import LoopTime
from penstock.core.journal import read_steps, write_all
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot
from penstock.spark.attach import Attachment
from penstock.spark.internals import Driver
from penstock.spark.sensor.progress import parse_instant
from penstock.testbed import wait_until
from penstock.testbed.servers import free_ports
from tests.disks import small_file_system
from tests.observe.report.example_steps import turn
from tests.spark.sensor.sensing import now_s, sensing
from tests.spark.sensor.test_sensor import rate, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EXECUTORS = 1
UP_S = 120.0


@dataclass
class Hold:
    """A policy that keeps the fleet, or wants a certain size."""

    executors: int | None = None
    period_s: float = 0.5
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        size = snapshot.fleet.target if self.executors is None else self.executors
        return Decision.of(size, Reason("hold", f"{size} are wanted"))


def sockets() -> int:
    """Open sockets of this process."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += each.readlink().name.startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def turns(handle: Attachment, more: int) -> None:
    first = handle.status().decisions
    wait_until(lambda: handle.status().decisions >= first + more, 60.0, "no turn is taken")


@contextmanager
def started(spark: SparkSession, place: Path, name: str) -> Iterator[StreamingQuery]:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    writer = stream.writeStream.format("noop").queryName(name)
    query = writer.option("checkpointLocation", str(place / name)).start()
    try:
        yield query
    finally:
        query.stop()


def test_queries_that_come_and_go_leave_no_thread_and_no_socket(
    spark: SparkSession, tmp_path: Path
) -> None:
    with running(rate(spark, 10), tmp_path), sensing(spark) as sensor:
        sensor.read(now_s())
        sensor.read(now_s())
        before = threading.active_count(), sockets()
        for number in range(10):
            with started(spark, tmp_path, f"short-{number}") as query:
                wait_until(lambda q=query: q.status["message"], 30.0, "it does not start")  # type: ignore[misc]
        seen = sensor.read(now_s())
        assert (threading.active_count(), sockets()) == before
        assert seen.batches  # those of the query that runs on


def test_the_stages_of_a_batch_that_is_not_committed_are_no_cap(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its first stage has one task; its second, with four, does not end before it is let go."""
    from pyspark.sql.functions import udf

    gate = tmp_path / "gate"

    @udf("bigint")
    def when_let_go(value: int) -> int:
        from threading import Event

        while not gate.exists():
            Event().wait(0.1)
        return value

    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "first").write_text("one\n" * 40)
    frame = spark.readStream.format("text").load(str(lines)).selectExpr("length(value) AS n")
    frame = frame.repartition(4).select(when_let_go("n"))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state"))
    query = writer.start()
    caps = []
    try:
        with sensing(spark, store_timeout_s=10.0) as sensor:

            def waits() -> bool:
                seen = sensor.read(now_s())
                caps.append(seen.partitions)
                return len(seen.operators) > 1 and (seen.operators[1].tasks or 0) == 4

            wait_until(waits, 60.0, "the second stage does not begin", every_s=0.5)
            assert set(caps) == {None}
            gate.touch()
            wait_until(lambda: sensor.read(now_s()).partitions == 4, 60.0, "its tasks stay unknown")
    finally:
        gate.touch()
        query.stop()


class JumpingClock(Driver):
    """The driver of a machine whose clock is `ahead_s` of ours from a batch on."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.ahead_s = 0.0
        self._ahead_at_batch: dict[int, float] = {}

    def listen(self, spark: SparkSession) -> tuple[Callable[[], str | None], Callable[[], None]]:
        return lambda: None, lambda: None

    def recent_progress(self, query: StreamingQuery) -> Iterator[str]:
        for text in super().recent_progress(query):
            report = msgspec.json.decode(text)
            ahead_s = self._ahead_at_batch.setdefault(report["batchId"], self.ahead_s)
            moved = parse_instant(report["timestamp"]) + ahead_s
            report["timestamp"] = datetime.fromtimestamp(moved, UTC).isoformat()
            yield msgspec.json.encode(report).decode()


@pytest.mark.parametrize("by_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_to_another_time_makes_no_delay_and_hides_no_batch(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, by_s: float
) -> None:
    driver = JumpingClock(spark)
    loop = LoopTime(wall=lambda: now_s() + driver.ahead_s)
    with (
        running(rate(spark, 50), tmp_path),
        sensing(spark, driver=driver, ahead_s=loop.ahead_s) as sensor,
    ):
        seen: list[Snapshot] = []

        def look() -> Snapshot:
            seen.append(sensor.read(loop.now()))
            return seen[-1]

        def count() -> int:
            return sum(len(one.batches) for one in seen)

        wait_until(lambda: look() and count() >= 3, 60.0, "no batches", every_s=0.5)
        driver.ahead_s = by_s
        before = count()
        wait_until(lambda: look() and count() >= before + 4, 60.0, "it is blind", every_s=0.5)
    delays = [one.delay_s for one in seen if one.delay_s is not None]
    assert max(delays) < 30.0
    for one in seen:
        assert all(one.at_s - 60.0 < batch.started_at_s <= one.at_s for batch in one.batches)
        assert all(abs(one.at_s - each.started_at_s) < 1800.0 for each in one.executors)
    assert caplog.text.count("was set by") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "disk", "256k") as place:
        yield place


def test_a_full_disk_under_the_journal_costs_steps_and_no_turn(
    spark: SparkSession, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    journal, filler = small_disk / "live.jsonl", small_disk / "filler"
    with penstock.attach(spark, Hold(), max=4, journal=journal) as handle:
        turns(handle, 2)
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"x" * 256 * 1024)
        wait_until(lambda: "cannot be written" in caplog.text, 60.0, "the disk is not full")
        turns(handle, 5)
        assert handle.status().state == "running"
        filler.unlink()
        wait_until(lambda: "can be written again" in caplog.text, 60.0, "nobody tries again")
        turns(handle, 2)
    steps = list(read_steps(journal))
    assert len(steps) >= 4
    with penstock.attach(spark, Hold(), max=4, journal=journal) as handle:
        turns(handle, 1)
    assert caplog.text.count("cannot be written") == 1


def test_a_restart_begins_with_the_fleet_that_the_journal_knows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    driver, journal = Driver(spark), tmp_path / "live.jsonl"
    write_all(journal, [turn(now_s() - 60.0, executors=9)])
    with penstock.attach(spark, Hold(), max=2, journal=journal) as handle:
        assert handle.status().target == 2  # nine, within the bounds
        turns(handle, 2)
        assert handle.status().target == 2
        wait_until(lambda: len(driver.executor_ids()) == 2, UP_S, "the fleet did not come")
    assert "the fleet begins with 2 executors, as the journal ends" in caplog.text
    with penstock.attach(spark, Hold(1), max=2) as handle:
        wait_until(lambda: len(driver.executor_ids()) == 1, UP_S, "the fleet did not go")


def test_a_sensor_that_does_not_start_leaves_no_port_no_claim_and_no_journal_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    metrics, dashboard = (f"127.0.0.1:{port}" for port in free_ports(2))
    journal = tmp_path / "live.jsonl"

    def start() -> Attachment:
        places: dict[str, Any] = {"metrics": metrics, "dashboard": dashboard}
        return penstock.attach(spark, Hold(), max=2, journal=journal, **places)

    def no_sensor(*_: object, **__: object) -> None:
        raise RuntimeError("no listener")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.spark.scaling.SparkSensor", no_sensor)
        with pytest.raises(RuntimeError, match="no listener"):
            start()
    opened = [each.resolve() for each in Path("/proc/self/fd").iterdir()]
    assert journal not in opened
    with start() as handle:  # nobody holds the addresses, nor the fleet
        turns(handle, 1)


def test_a_fleet_that_may_be_none_is_not_left_without_an_executor(spark: SparkSession) -> None:
    with penstock.attach(spark, Hold(0), min=0, max=2) as handle:
        turns(handle, 3)
        assert handle.status().target == 1
        assert "0 executors measure nothing" in handle.status().last


def test_a_journal_from_the_future_is_continued(spark: SparkSession, tmp_path: Path) -> None:
    """The clock was set back by an hour between the two runs."""
    journal = tmp_path / "live.jsonl"
    ended_s = now_s() + 3600.0
    write_all(journal, [turn(ended_s, executors=1, wanted=2), turn(ended_s + 1.0, executors=1)])
    options: dict[str, Any] = {"limits": {"cooldown_s": 2.0}, "max": 2, "journal": journal}
    with penstock.attach(spark, Hold(1), **options) as handle:
        turns(handle, 2)
    steps = list(read_steps(journal))
    assert all(ended_s < step.at_s < ended_s + 60.0 for step in steps)
    ahead = {round(step.snapshot.clock_ahead_s) for step in steps if step.snapshot is not None}
    assert all(abs(seconds + 3600.0) <= 5.0 for seconds in ahead)
