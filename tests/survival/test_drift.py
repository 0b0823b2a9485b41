"""The fleet stays at the size that was decided, whoever else moves it and whoever dies."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.core.journal import read_steps
from penstock.spark.actuator.actuator import Patience
from penstock.spark.internals import Driver
from penstock.testbed import Testbed, wait_until
from tests.survival.scene import (
    PATIENCE_S,
    Dial,
    active,
    come_to,
    commit,
    passes_s,
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


def test_executors_that_somebody_else_asked_for_go_again(
    bed: Testbed, spark: SparkSession, query: StreamingQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """The strangers are asked for so fast that some are on their way before it is noticed."""
    with (
        caplog.at_level(logging.INFO, "penstock"),
        penstock.attach(spark, Dial(1), min=1, max=4) as handle,
    ):
        come_to(spark, 1)
        Driver(spark).request_total_executors(3)
        wait_until(lambda: handle.status().repairs == 1, PATIENCE_S, "nobody noticed")
        assert Driver(spark).requested_total_executors() == 1
        wait_until(
            lambda: len(bed.executors()) == len(active(spark)) == 1, PATIENCE_S, "a stranger stays"
        )
        commit(query, 2)
        assert handle.status().rescales == 0  # it was put right, nothing was decided
    assert "the target was changed to 3, back to 1" in caplog.messages


def test_a_target_that_fell_with_a_killed_executor_is_raised_again(
    spark: SparkSession, query: StreamingQuery
) -> None:
    """``SparkContext.killExecutors`` lowers the target for good."""
    with penstock.attach(spark, Dial(2), min=1, max=4) as handle:
        come_to(spark, 2)
        commit(query, 1)
        victim = sorted(active(spark))[-1]
        # Only an executor without a task can be ended so, and between two batches none has one.
        wait_until(lambda: Driver(spark).kill_idle([victim]), PATIENCE_S, "the victim never rests")
        wait_until(
            lambda: handle.status().repairs + handle.status().losses >= 1,
            PATIENCE_S,
            "nobody noticed",
        )
        wait_until(lambda: victim not in active(spark), PATIENCE_S, "the victim stays")
        come_to(spark, 2)
        assert Driver(spark).requested_total_executors() == 2
        commit(query, 2)
        # To two at the start, and again if the policy saw it before it was repaired.
        assert handle.status().rescales <= 2


def test_a_lost_executor_is_replaced_and_the_loss_is_said_once(
    bed: Testbed, spark: SparkSession, query: StreamingQuery, caplog: pytest.LogCaptureFixture
) -> None:
    with penstock.attach(spark, Dial(2), min=1, max=4) as handle:
        come_to(spark, 2)
        commit(query, 2)
        lost = bed.kill_executor()
        wait_until(lambda: handle.status().losses == 1, PATIENCE_S, "the loss was not noticed")
        come_to(spark, 2)
        commit(query, 3)
        assert lost.id not in active(spark)
        assert handle.status().losses == 1
    said = [text for text in caplog.messages if text.startswith("lost executor")]
    assert said == [f"lost executor {lost.id}"]


def test_a_cluster_that_cannot_give_more_says_so_once_and_more_is_refused(
    bed: Testbed,
    spark: SparkSession,
    query: StreamingQuery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The application may have 16 executors, the cluster has room for four."""
    caplog.set_level(logging.INFO, "penstock")
    dial, journal = Dial(bed.slots), tmp_path / "live.jsonl"
    patience = Patience(arrive_s=20.0)
    with penstock.attach(spark, dial, min=1, max=8, journal=journal, patience=patience) as handle:
        come_to(spark, bed.slots)
        caplog.clear()  # on a busy machine these may have taken longer, too
        dial.executors = 6

        def complaints() -> list[str]:
            return [text for text in caplog.messages if text.startswith("the fleet is ")]

        wait_until(complaints, PATIENCE_S, "it was not said")
        dial.executors = 8
        wait_until(
            lambda: "the cluster gave only 4" in handle.status().last,
            PATIENCE_S,
            "more was not refused",
        )
        passes_s(5.0)
        assert len(complaints()) == 1
        assert len([text for text in caplog.messages if "8 are wanted" in text]) == 1
        assert complaints()[0].startswith("the fleet is 4 of 6 executors after ")
        assert " s: add workers, raise spark.cores.max" in complaints()[0]
        assert Driver(spark).requested_total_executors() == 6  # room may come
        dial.executors = 1
        come_to(spark, 1)
        commit(query, 2)
        assert handle.status().state == "running"
    refused = [
        step
        for step in read_steps(journal)
        if step.receipt is not None and not step.receipt.accepted
    ]
    assert {step.decision.target_executors for step in refused} == {8}
    told = [step.snapshot.fleet for step in read_steps(journal) if step.snapshot is not None]
    assert max(fleet.active for fleet in told) == 4
