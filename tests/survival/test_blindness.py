"""Senses fail one by one: the fleet holds, it is said once, and work resumes by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

import penstock
from penstock.core.journal import read_steps
from penstock.core.model import Step
from penstock.spark.attach import Attachment
from penstock.testbed import Testbed, wait_until
from tests.survival.scene import (
    PATIENCE_S,
    Dial,
    broker_away,
    come_to,
    commit,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

#: Turns without sight after which a fleet that did not move is held to hold.
BLIND_TURNS = 6


class Scaled:
    """A fleet of one that wants to be two while it is blind, and is two once it sees again."""

    def __init__(self, spark: SparkSession, handle: Attachment, dial: Dial, journal: Path) -> None:
        self.handle = handle
        self._spark = spark
        self._dial = dial
        self._journal = journal
        come_to(spark, 1)
        self.wait_for("dial")
        self._rescales = handle.status().rescales  # it may have had to come to one

    def steps(self) -> list[Step]:
        return list(read_steps(self._journal))

    def wait_for(self, code: str, turns: int = 1) -> list[Step]:
        """The turns since now that gave this reason, when there are so many."""
        before = len(self.steps())

        def found() -> list[Step]:
            fresh = self.steps()[before:]
            wanted = [step for step in fresh if step.decision.reasons[0].code == code]
            return wanted if len(wanted) >= turns else []

        return wait_until(found, PATIENCE_S, f"no {code} in the journal", every_s=0.5)

    def holds(self, code: str) -> None:
        """Nothing moves while it is blind, although the policy would grow the fleet."""
        self.wait_for(code)
        self._dial.executors = 2
        blind = self.wait_for(code, BLIND_TURNS)
        assert {step.decision.target_executors for step in blind} == {1}
        assert not any(step.receipt for step in blind)
        assert self.handle.status().rescales == self._rescales

    def resumes(self) -> None:
        come_to(self._spark, 2)
        assert self.handle.status().rescales == self._rescales + 1
        assert self.handle.status().error == ""


@contextmanager
def scaled(spark: SparkSession, tmp_path: Path, needs: str) -> Iterator[Scaled]:
    dial, journal = Dial(1, needs=needs), tmp_path / "live.jsonl"
    with penstock.attach(spark, dial, min=1, max=4, journal=journal) as handle:
        yield Scaled(spark, handle, dial, journal)


def said(caplog: pytest.LogCaptureFixture, sentence: str) -> int:
    return sum(sentence in text for text in caplog.messages)


class Sick:
    """Something in the Java process that is slow or fails until it is cured, and then itself."""

    def __init__(self, healthy: Any, suffer: Callable[[], None]) -> None:
        self._healthy = healthy
        self._suffer = suffer

    def __getattr__(self, name: str) -> Any:
        self._suffer()
        return getattr(self._healthy, name)


@contextmanager
def sick(handle: Attachment, organ: str, suffer: Callable[[], None]) -> Iterator[None]:
    """Make the scheduler or the status store of a running attachment sick."""
    driver = handle._loop._driver
    healthy = getattr(driver, organ)
    setattr(driver, organ, Sick(healthy, suffer))
    try:
        yield
    finally:
        setattr(driver, organ, healthy)


def fail() -> None:
    raise Py4JError("java.lang.IllegalStateException: out of order")


def test_a_silent_broker_holds_the_fleet(
    bed: Testbed,
    spark: SparkSession,
    query: StreamingQuery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with scaled(spark, tmp_path, needs="backlog_records") as scene:
        with broker_away(bed):
            scene.holds("not_measured")
        scene.resumes()
        commit(query, 2)
    assert said(caplog, "Kafka offsets cannot be read") == 1
    assert said(caplog, "Kafka offsets can be read again") == 1


def test_a_status_store_that_is_slow_holds_the_fleet(
    spark: SparkSession,
    query: StreamingQuery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    cured = threading.Event()
    with scaled(spark, tmp_path, needs="executors") as scene:
        try:
            with sick(scene.handle, "store", lambda: _ignore(cured.wait(PATIENCE_S))):
                scene.holds("not_measured")
                commit(query, 1)
        finally:
            cured.set()
        scene.resumes()
    assert said(caplog, "the status store takes over 1 s") == 1
    assert said(caplog, "the status store can be read again") == 1


def _ignore(_: object) -> None:
    pass


def test_a_status_store_that_fails_holds_the_fleet(
    spark: SparkSession,
    query: StreamingQuery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with scaled(spark, tmp_path, needs="executors") as scene:
        with sick(scene.handle, "store", fail):
            scene.holds("not_measured")
            commit(query, 1)
        scene.resumes()
    assert said(caplog, "the status store cannot be read: java.lang.IllegalState") == 1
    assert said(caplog, "the status store can be read again") == 1


def test_a_scheduler_that_does_not_answer_holds_the_fleet(
    spark: SparkSession,
    query: StreamingQuery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without it not even the size of the fleet is known, and nothing can be changed."""
    caplog.set_level(logging.INFO, "penstock")
    with scaled(spark, tmp_path, needs="") as scene:
        with sick(scene.handle, "backend", fail):
            scene.holds("sensor_blind")
            commit(query, 1)
        scene.resumes()
        assert scene.handle.status().losses == 0
    assert said(caplog, "the fleet cannot be read: java.lang.IllegalState") == 1
    assert said(caplog, "the fleet cannot be checked now") == 1
    assert said(caplog, "the job can be seen again") == 1


def test_a_listener_that_stops_costs_no_sight(
    spark: SparkSession,
    query: StreamingQuery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A listener of the user that hangs delays all reports: the queries are asked instead."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    caplog.set_level(logging.INFO, "penstock")
    stuck, freed = threading.Event(), threading.Event()

    class Hanging(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            stuck.set()
            freed.wait(PATIENCE_S)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    hanging = Hanging()
    with scaled(spark, tmp_path, needs="") as scene:
        spark.streams.addListener(hanging)
        try:
            assert stuck.wait(PATIENCE_S)
            first = len(scene.steps())
            commit(query, 5)
            late = "the listener is delayed by another listener"
            wait_until(lambda: said(caplog, late), PATIENCE_S, "nothing was said")
            scene.wait_for("dial", 4)
            assert said(caplog, late) == 1
            last = len(scene.steps())
        finally:
            freed.set()
            spark.streams.removeListener(hanging)
        back = "the listener can be read again"
        wait_until(lambda: said(caplog, back), PATIENCE_S, "it stays delayed")
        commit(query, 3)
        scene.wait_for("dial", 2)
        steps = scene.steps()
    batches = [
        batch.id for step in steps if step.snapshot is not None for batch in step.snapshot.batches
    ]
    assert batches == list(range(batches[0], batches[-1] + 1))  # none missed, none twice
    hidden = [step.snapshot.batches for step in steps[first:last] if step.snapshot is not None]
    assert sum(map(len, hidden)) >= 5
