"""Penstock attached on a real cluster of each kind: what it asks for comes, goes and comes back.

The part for CI is marked ``short``. What was measured is printed: ``pytest -s``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from penstock.core.clock import WallClock
from penstock.core.journal import read_steps
from penstock.spark.actuator.actuator import Patience
from penstock.spark.internals import Driver
from penstock.testbed import Testbed, wait_until
from tests.spark.test_attach import (
    Dial,
    attached,
    come_to,
    committed,
    failed_tasks,
    last_batch,
    settled,
)
from tests.testbed.clusters.conftest import UP_S, session_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

#: Kubernetes leaves the pods of a silent node as they are; Spark's own timeout is 120 s.
LOST_S = 240.0
KEYS = 50


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[StreamingQuery]:
    running = start_query(spark, tmp_path / "checkpoint")
    try:
        committed(running, 2)
        yield running
    finally:
        running.stop()


def start_query(spark: SparkSession, checkpoint: Path) -> StreamingQuery:
    """A stateful count, one batch a second. The rate source numbers its records from 0."""
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    keyed = stream.selectExpr(f"value % {KEYS} AS key", "value")
    counts = keyed.groupBy("key").agg({"*": "count", "value": "max"})
    writer = counts.writeStream.format("noop").outputMode("update").queryName(uuid4().hex)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="1 second").start()


def check_each_record_counted_once(spark: SparkSession, checkpoint: Path) -> int:
    """What the state says of each key against the numbers that the source gave; records in all."""
    state = spark.read.format("statestore").load(str(checkpoint))
    rows: list[Any] = state.selectExpr("key.*", "value.*").collect()
    assert len(rows) == KEYS
    for key, count, newest in rows:
        assert newest % KEYS == key
        assert count == newest // KEYS + 1
    return sum(row[1] for row in rows)


@contextmanager
def measured(bed: Testbed, what: str) -> Iterator[None]:
    clock = WallClock()
    begin_s = clock.now()
    yield
    print(f"\n{bed.cluster.master_url}: {what}: {clock.now() - begin_s:.1f} s")


@pytest.mark.short
def test_the_fleet_goes_up_and_down_without_a_failed_task(
    bed: Testbed, spark: SparkSession, query: StreamingQuery
) -> None:
    dial = Dial(1)
    failed = failed_tasks(spark)
    with attached(spark, dial) as handle:
        come_to(spark, 1)
        dial.executors = 3
        with measured(bed, "1 -> 3 executors, active"):
            come_to(spark, 3)
        with measured(bed, "1 -> 3 executors, settled after that"):
            settled(handle)
        assert len({each.node for each in bed.executors()}) == 2
        dial.executors = 1
        with measured(bed, "3 -> 1 executors, decommissioned and gone"):
            wait_until(lambda: len(bed.executors()) == 1, UP_S, "a process stayed behind")
        settled(handle)
        committed(query, 2)
        status = handle.status()
    assert (status.rescales, status.losses, status.error) == (2, 0, "")
    assert failed_tasks(spark) == failed


@pytest.mark.short
def test_a_killed_executor_is_noticed_and_replaced(
    bed: Testbed, spark: SparkSession, query: StreamingQuery
) -> None:
    with attached(spark, Dial(2)) as handle:
        come_to(spark, 2)
        settled(handle)
        with measured(bed, "SIGKILL of an executor, replaced"):
            lost = bed.kill_executor()
            with measured(bed, "SIGKILL of an executor, noticed"):
                wait_until(lambda: handle.status().losses == 1, UP_S, "nobody noticed")
            come_to(spark, 2)
        assert lost.id not in Driver(spark).executor_ids()
        settled(handle)
        committed(query, 2)


def test_a_target_that_somebody_else_changed_is_repaired(
    bed: Testbed, spark: SparkSession, query: StreamingQuery
) -> None:
    with attached(spark, Dial(2)) as handle:
        come_to(spark, 2)
        settled(handle)
        Driver(spark).request_total_executors(4)
        with measured(bed, "foreign target, repaired"):
            wait_until(lambda: handle.status().repairs >= 1, UP_S, "the target was not repaired")
        assert Driver(spark).requested_total_executors() == 2
        with measured(bed, "foreign target, back at the size after that"):
            committed(query, 5)
            come_to(spark, 2)
            wait_until(lambda: len(bed.executors()) == 2, UP_S, "a process stayed behind")


def test_without_room_the_ceiling_is_learned_and_said(
    bed: Testbed, spark: SparkSession, query: StreamingQuery, caplog: pytest.LogCaptureFixture
) -> None:
    dial, patience = Dial(2), Patience(arrive_s=12.0)
    with attached(spark, dial, max=6, patience=patience) as handle:
        dial.executors = 6
        come_to(spark, 4)
        wait_until(lambda: "the fleet is 4 of 6 executors" in caplog.text, UP_S, "no warning")
        if bed.cluster.master_url.startswith("k8s:"):
            assert "Insufficient cpu" in caplog.text
        dial.executors = 2
        with measured(bed, "no room: from 6 wanted to 2 executors, gone"):
            come_to(spark, 2)
            wait_until(lambda: len(bed.executors()) == 2, UP_S, "a process stayed behind")
        settled(handle)
        committed(query, 3)
        assert len(bed.executors()) == 2  # none of the pending ones came after all


def test_a_node_is_lost_with_its_executors_and_another_takes_its_place(
    bed: Testbed, spark: SparkSession, query: StreamingQuery, tmp_path: Path
) -> None:
    with attached(spark, Dial(3)) as handle:
        come_to(spark, 3)
        settled(handle)
        node = bed.executors()[-1].node
        lost = {each.id for each in bed.executors() if each.node == node}
        with measured(bed, f"node lost with {len(lost)} executors, full fleet on a new one"):
            bed.cluster.remove_node(node)
            assert lost.isdisjoint(each.id for each in bed.executors())
            with measured(bed, "node lost, noticed"):
                wait_until(lambda: handle.status().losses >= 1, LOST_S, "nobody noticed")
            with measured(bed, "node added"):
                assert bed.cluster.add_node() != node
            wait_until(
                lambda: len(bed.executors()) == 3 and lost.isdisjoint(Driver(spark).executor_ids()),
                LOST_S,
                "the fleet did not come back",
            )
            come_to(spark, 3)
        settled(handle)
        committed(query, 2)
        assert handle.status().state == "running"
    query.stop()
    assert check_each_record_counted_once(spark, tmp_path / "checkpoint") > 0


@pytest.mark.short
def test_a_killed_driver_goes_on_from_its_journal_and_counts_each_record_once(
    bed: Testbed, tmp_path: Path
) -> None:
    from pyspark import SparkContext

    checkpoint, journal = tmp_path / "checkpoint", tmp_path / "live.jsonl"
    with session_on(bed) as spark, attached(spark, Dial(2), journal=journal) as handle:
        query = start_query(spark, checkpoint)
        come_to(spark, 2)
        settled(handle)
        committed(query, 2)
        bed.kill_executor()
        wait_until(lambda: handle.status().losses == 1, UP_S, "nobody noticed")
        committed(query, 2)
        batch = last_batch(query)
        gateway: Any = SparkContext._gateway
        gateway.proc.kill()
        gateway.proc.wait()
    written = len(list(read_steps(journal)))
    assert written >= 3
    with measured(bed, "driver killed, session up again"):
        again = session_on(bed)
        spark = again.__enter__()
    try:
        dial = Dial(2)
        with attached(spark, dial, journal=journal) as handle:
            query = start_query(spark, checkpoint)
            come_to(spark, 2)
            committed(query, 3)
            assert last_batch(query) > batch
            assert dial.seen[0] == written + 1
            assert handle.status().state == "running"
        query.stop()
        assert check_each_record_counted_once(spark, checkpoint) > 100 * batch / 2
    finally:
        again.__exit__(None, None, None)


def test_where_nothing_decommissions_executors_are_killed_while_idle(
    bed: Testbed, tmp_path: Path
) -> None:
    plain = {
        "spark.decommission.enabled": "false",
        "spark.storage.decommission.enabled": "false",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    }
    with session_on(bed, 3, **plain) as spark:
        query = start_query(spark, tmp_path)
        committed(query, 2)
        come_to(spark, 3)
        failed = failed_tasks(spark)
        dial = Dial(3)
        with attached(spark, dial) as handle:
            wait_until(lambda: handle.status().decisions >= 1, UP_S, "nothing was decided")
            dial.executors = 1
            with measured(bed, "3 -> 1 executors, killed idle and gone"):
                wait_until(lambda: len(bed.executors()) == 1, UP_S, "a process stayed behind")
            settled(handle)
            committed(query, 2)
            assert (handle.status().losses, handle.status().error) == (0, "")
        assert failed_tasks(spark) == failed
        query.stop()
        assert check_each_record_counted_once(spark, tmp_path) > 0
