"""Metrics of a real job in a real Prometheus and in Spark's metrics system; alerts, a webhook."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import nan
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import penstock
from penstock.core.errors import ConfigError
from penstock.observe.metrics import METRICS, PREFIX
from penstock.testbed import Testbed, wait_until
from tests.drivers import end_driver
from tests.prometheus import Prometheus, dashboard_queries, free_port, running_prometheus
from tests.spark.sensor.test_kafka_watch import committed
from tests.spark.test_attach import Broken, Dial, come_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

WITH_KAFKA = True
TOPIC = "clicks"
#: Spark serves its metrics at its own UI with this sink, as a cluster may have it.
SINK = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.metrics.conf.*.sink.prometheusServlet.class": (
        "org.apache.spark.metrics.sink.PrometheusServlet"
    ),
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
}


@pytest.fixture(scope="module")
def spark(bed: Testbed) -> Iterator[SparkSession]:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    end_driver()
    own = {"spark.sql.shuffle.partitions": "4", **SINK}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bed.driver_environment.items():
            patch.setenv(name, value)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf().setAll(list(bed.spark_conf(initial_executors=1, **own).items()))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        end_driver()


@pytest.fixture(scope="module")
def query(bed: Testbed, spark: SparkSession, tmp_path_factory: Any) -> Iterator[None]:
    """A stateful count of a topic that some hundred records per second come to."""
    from confluent_kafka import Producer

    bed.create_topic(TOPIC, 4)
    over = threading.Event()

    def produce() -> None:
        producer, number = Producer(bed.broker.client_settings), 0
        while not over.wait(0.1):
            for _ in range(30):
                number += 1
                producer.produce(TOPIC, key=str(number % 97), value=str(number))
            producer.poll(0)
        producer.flush(10.0)

    thread = threading.Thread(target=produce)
    thread.start()
    options = {"kafka.bootstrap.servers": bed.bootstrap_servers, "subscribe": TOPIC}
    counts = spark.readStream.format("kafka").options(**options).load().groupBy("key").count()
    writer = counts.writeStream.format("noop").outputMode("update").queryName("counts")
    writer = writer.option("checkpointLocation", str(tmp_path_factory.mktemp("checkpoint")))
    running = writer.trigger(processingTime="1 second").start()
    try:
        wait_until(lambda: running.lastProgress is not None, 120.0, "the query does not start")
        yield
    finally:
        running.stop()
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def prometheus(metrics_port: int, tmp_path_factory: Any) -> Iterator[Prometheus]:
    with running_prometheus(metrics_port, tmp_path_factory.mktemp("prometheus")) as found:
        yield found


@pytest.mark.usefixtures("query")
def test_every_metric_of_the_page_has_samples_and_every_panel_has_data(
    bed: Testbed, spark: SparkSession, metrics_port: int, prometheus: Prometheus
) -> None:
    where = f"127.0.0.1:{metrics_port}"
    money: dict[str, Any] = {"price": 0.36, "currency": "EUR", "max_cost_per_day": 100.0}
    options: dict[str, Any] = {"every_s": 1.0, "metrics": where, "spark_metrics": True}
    options["commit_offsets_to"] = "lag of {query}"
    policy = "penstock:executor_warmup=0s,assumed_startup=5s"
    with penstock.attach(spark, policy, max=3, **options, **money) as handle:
        with pytest.raises(ConfigError, match=f"metrics cannot be served at {where}: Address"):
            penstock.attach(spark, policy, max=3, mode="recommend", **options)
        missing = set(METRICS)

        def all_there() -> bool:
            missing.intersection_update(
                name for name in METRICS if not prometheus.has(PREFIX + name)
            )
            return not missing

        try:
            wait_until(all_there, 150.0, "metrics are missing")
        finally:
            print("without samples:", sorted(missing), handle.explain(2))
        expected = [
            f'{PREFIX}lag_seconds{{query="counts",topic="{TOPIC}"}}',
            f"{PREFIX}executor_seconds_total > 0",
            f'{PREFIX}cost_total{{currency="EUR"}} > 0',
            *dashboard_queries(),
        ]
        for query in expected:  # what is not measured for a moment has a gap
            wait_until(partial(prometheus.has, query), 60.0, f"no data: {query}")
        gauges = {"max_executors": 3.0, f"lag_records_counts_{TOPIC}": 0.0, "turns_total": 10.0}

        def gauges_are_there() -> bool:
            page = spark_metrics(spark)
            return all(page.get(name, nan) >= least for name, least in gauges.items())

        wait_until(gauges_are_there, 120.0, f"Spark's metrics system lacks one of {gauges}")
        assert spark_metrics(spark)["max_executors"] == 3.0
        wait_until(
            lambda: len(committed(bed, "lag of counts")) == 4, 60.0, "no offsets are committed"
        )
        assert handle.status().error == ""
    assert spark_metrics(spark) == {}
    with pytest.raises(OSError, match="refused"), urlopen(f"http://{where}/metrics"):
        pass


def spark_metrics(spark: SparkSession) -> dict[str, float]:
    """Our gauges as Spark's own sink serves them."""
    port = urlsplit(spark.sparkContext.uiWebUrl or "").port
    with urlopen(f"http://127.0.0.1:{port}/metrics/prometheus/") as answer:
        text = answer.read().decode()
    found = re.findall(r"_driver_penstock_(\w+)_Value\{[^}]*\} (\S+)", text)
    return {name: float(value) for name, value in found}


@pytest.mark.usefixtures("query")
def test_an_alert_fires_when_the_scaler_fails_and_resolves_when_it_is_started_again(
    spark: SparkSession, metrics_port: int, prometheus: Prometheus
) -> None:
    where = f"127.0.0.1:{metrics_port}"
    with penstock.attach(spark, Broken(2), max=3, metrics=where) as handle:
        wait_until(lambda: handle.status().state == "failed", 60.0, "it did not fail")
        wait_until(lambda: "PenstockFailed" in prometheus.alerts(), 60.0, "no alert")
    with penstock.attach(spark, Dial(1), max=3, metrics=where):
        wait_until(lambda: prometheus.has("penstock_failed == 0"), 60.0, "no samples")
        wait_until(lambda: "PenstockFailed" not in prometheus.alerts(), 60.0, "it fires on")


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    events: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", events
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.usefixtures("query")
def test_a_rescale_is_posted_to_the_webhook(spark: SparkSession) -> None:
    dial = Dial(1)
    with receiver() as (url, events), penstock.attach(spark, dial, max=3, webhook=url):
        come_to(spark, 1)
        dial.executors = 2
        wait_until(lambda: any(map(is_growth, events)), 60.0, "no event came")
        come_to(spark, 2)
    (event,) = {each["id"]: each for each in events if is_growth(each)}.values()  # may be resent
    assert event["type"] == "penstock.rescale"
    assert event["source"] == f"/penstock/{spark.sparkContext.applicationId}"
    assert event["data"]["reasons"][0] == "dial"  # a busy machine may add heap_pressure


def is_growth(event: dict[str, Any]) -> bool:
    return (event["data"].get("before"), event["data"]["target"]) == (1, 2)
