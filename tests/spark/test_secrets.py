"""Passwords, keys and tokens of a real job appear in nothing that Penstock writes or says."""

from __future__ import annotations

import logging
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.core.journal import read_steps
from penstock.testbed import wait_until
from penstock.testbed.jars import connector, fetch
from penstock.testbed.java import find_java, pyspark_version
from penstock.testbed.servers import free_ports
from tests.drivers import end_driver
from tests.secure_broker import PASSWORD, STORE_PASSWORD, SecureBroker, secure_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

HOOK_LOGIN, HOOK_TOKEN = "hook-login-55d1", "hook-token-8e20"
SECRETS = (PASSWORD, PASSWORD[-6:], STORE_PASSWORD, HOOK_LOGIN, HOOK_TOKEN, "BEGIN PRIVATE KEY")
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure")) as running:
        running.plain.create_topic("bids", 1)
        running.allow("bids", "DESCRIBE", "READ")
        yield running


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Without a cluster: there is nothing to move, but all is read."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    end_driver()
    conf = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false")
    conf.set("spark.driver.extraClassPath", f"{fetch(connector(pyspark_version()), find_java())}/*")
    conf.set("spark.pyspark.python", sys.executable)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    end_driver()


def command_lines() -> str:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_a_job_with_secrets_is_measured_and_no_output_has_one(
    broker: SecureBroker,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Trust and keys are in Java stores, so the lag shows that both were opened."""
    # Not that of py4j: at this level it writes down every call into Java, those of the job too.
    caplog.set_level(logging.DEBUG, "penstock")
    stores = {
        "truststore.location": str(broker.directory / "trust.jks"),
        "truststore.password": STORE_PASSWORD,
        "keystore.location": str(broker.directory / "valid.p12"),
        "keystore.password": STORE_PASSWORD,
    }
    options = {**broker.options(stores), "subscribe": "bids", "startingOffsets": "earliest"}
    writer = spark.readStream.format("kafka").options(**options).load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "state")).queryName("secret")
    metrics_port, nobody = free_ports(2)
    journal, where = tmp_path / "live.jsonl", f"127.0.0.1:{metrics_port}"
    live: dict[str, Any] = {
        "webhook": f"http://{HOOK_LOGIN}:{HOOK_TOKEN}@127.0.0.1:{nobody}/{HOOK_TOKEN}",
        "metrics": where,
        "log": "json",
        "every_s": 1.0,
    }
    query = writer.trigger(processingTime="1 second").start()
    try:
        produce(broker, 5)
        with penstock.attach(spark, max=2, mode="recommend", journal=journal, **live) as handle:
            wait_until(lambda: lag_is_known(journal), PATIENCE_S, "the lag is not measured")
            with urllib.request.urlopen(f"http://{where}/metrics", timeout=30.0) as answer:
                page = answer.read().decode()
            said = [repr(handle), repr(handle.status()), str(handle.explain(50)), command_lines()]
    finally:
        query.stop()
    assert "penstock_lag" in page
    printed = capfd.readouterr()
    outputs = {
        "the journal": journal.read_text(),
        "the log": caplog.text,
        "standard output": printed.out,
        "standard error": printed.err,
        "the metrics": page,
        "status and process list": "\n".join(said),
    }
    for name, text in outputs.items():
        for secret in SECRETS:
            assert secret not in text, f"{name} has a secret"


def produce(broker: SecureBroker, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(broker.plain.client_settings)
    for number in range(records):
        producer.produce("bids", value=str(number))
    assert producer.flush(60.0) == 0


def lag_is_known(journal: Path) -> bool:
    found = (step.snapshot for step in read_steps(journal))
    return any(each is not None and each.backlog_records is not None for each in found)
