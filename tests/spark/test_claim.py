"""Who sizes the fleet: one attachment at a time, and what others do to it is seen."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.core.errors import ConfigError
from penstock.spark.attach import CONFIGURED, Attachment
from penstock.spark.internals import Driver
from penstock.spark.launch import attach_configured
from penstock.testbed.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow

#: Another process attaches to the same application through the gateway of its driver.
OTHER_PROCESS = """
import sys
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
import penstock

gateway = launch_gateway()
java = SparkSession._get_j_spark_session_class(gateway.jvm).getDefaultSession().get()
context = gateway.jvm.JavaSparkContext.fromSparkContext(java.sparkContext())
conf = SparkConf(_jconf=context.getConf())
spark = SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf), java)
for _ in sys.stdin:
    try:
        penstock.attach(spark, "static:2", max=2)
        print("it acts", flush=True)
    except penstock.ConfigError as error:
        print(error, flush=True)
"""
UP_S = 200.0
REFUSAL = "another attachment of Penstock .process {}. already sizes the fleet of app-.*: stop that"


@pytest.fixture
def query(spark: SparkSession) -> Iterator[StreamingQuery]:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    counts = stream.selectExpr("value % 50 AS key").groupBy("key").count()
    writer = counts.writeStream.format("noop").outputMode("update")
    running = writer.trigger(processingTime="1 second").start()
    yield running
    running.stop()


def other_process(spark: SparkSession) -> subprocess.Popen[str]:
    gateway: Any = spark.sparkContext._gateway
    environment = {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    return subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def answer(process: subprocess.Popen[str]) -> str:
    """What the other process says when it is asked to attach."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("attach\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def attached(spark: SparkSession, **options: Any) -> Attachment:
    return penstock.attach(spark, "static:2", max=2, **options)


def test_a_second_attachment_that_acts_is_refused_until_the_first_has_stopped(
    spark: SparkSession,
) -> None:
    with attached(spark):
        with pytest.raises(ConfigError, match=REFUSAL.format(r"\d+")) as refusal:
            attached(spark)
        assert "\n" not in str(refusal.value)
        with attached(spark, mode="recommend") as watching:
            assert watching.status().mode == "recommend"
    with attached(spark) as handle:
        assert handle.status().mode == "act"
    # One that could not begin leaves nothing behind.
    with pytest.raises(ConfigError, match=r"min is 9 executors and spark\.cores\.max=4 gives 4"):
        penstock.attach(spark, "static:9", min=9, max=9)
    attached(spark).stop()


@pytest.mark.usefixtures("query")
def test_an_attachment_that_only_recommends_any_more_lets_another_one_act(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with penstock.attach(spark, "static:2", max=2, every_s=0.5) as first:
        first.update(mode="recommend")
        wait_until(lambda: first.status().mode == "recommend", 30.0, "it still acts")
        with attached(spark):
            first.update(mode="act")
            wait_until(lambda: "mode act is not possible" in caplog.text, 30.0, "not refused")
            assert first.status().mode == "recommend"


def test_arguments_win_over_the_spark_configuration(spark: SparkSession) -> None:
    keys = {"policy": "static:1", "maxExecutors": "3", "mode": "recommend"}
    for key, value in keys.items():
        spark.conf.set(f"spark.penstock.{key}", value)
    try:
        with penstock.attach(spark) as handle:
            status, limits = handle.status(), handle._loop.spec.limits
            assert (status.policy, status.mode) == ("static:executors=1", "recommend")
            assert limits.max_executors == 3
        with penstock.attach(spark, "ds2", max=2) as handle:
            assert handle.status().policy == "ds2"
            assert handle._loop.spec.limits.max_executors == 2
        spark.conf.set("spark.penstock.enabled", "true")
        attach_configured(spark)
        attach_configured(spark)  # once to an application
        (by_conf,) = CONFIGURED.values()
        assert by_conf.status().mode == "recommend"
        with penstock.attach(spark, mode="act"):
            assert by_conf.status().state == "stopped"
    finally:
        for key in (*keys, "enabled"):
            spark.conf.unset(f"spark.penstock.{key}")


@pytest.mark.usefixtures("query")
def test_an_executor_that_somebody_else_decommissions_is_a_loss_until_it_is_replaced(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(spark)
    wait_until(lambda: len(driver.executor_ids()) == 2, 60.0, "the fleet is not there")
    with attached(spark, every_s=1.0) as handle:
        wait_until(lambda: handle.status().decisions >= 1, UP_S, "nothing was decided")
        wait_until(lambda: handle.status().is_settled, UP_S, "the fleet did not settle")
        assert driver.locality_wait() == "3s"
        (drained, *_) = sorted(driver.executor_ids())
        assert driver.decommission([drained]) == [drained]
        wait_until(lambda: handle.status().losses == 1, 30.0, "no loss was counted")
        assert f"the cluster takes executor {drained} away" in caplog.text
        unsettled = []

        def is_replaced() -> bool:
            unsettled.append((handle.status().is_settled, driver.locality_wait()))
            ids = driver.executor_ids()
            return drained not in ids and len(ids) == 2

        wait_until(is_replaced, 90.0, "it was not replaced")
        assert set(unsettled) == {(False, "0s")}
        wait_until(lambda: handle.status().is_settled, UP_S, "the fleet did not settle")
        assert driver.locality_wait() == "3s"
        assert handle.status().losses == 1


def test_an_attachment_of_another_process_is_seen_also_after_its_death(
    spark: SparkSession,
) -> None:
    # The last one here: the other process takes the callbacks of the gateway with it.
    with other_process(spark) as process:
        with attached(spark):
            said = answer(process)
            assert "already sizes the fleet" in said, said
        assert answer(process) == "it acts"
        with pytest.raises(ConfigError, match=REFUSAL.format(process.pid)):
            attached(spark)
        process.kill()
    attached(spark).stop()
