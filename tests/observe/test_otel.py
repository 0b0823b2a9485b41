"""Metrics by OpenTelemetry: through the SDK into memory, and by OTLP to a receiver on loopback."""

from __future__ import annotations

import gzip
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from penstock.core.errors import ConfigError
from penstock.observe.metrics import METRICS, PREFIX, Values
from penstock.observe.otel import OtelMetrics
from penstock.testbed import wait_until
from tests.observe.test_metrics import folded, turn

VALUES = folded(turn(0.0, 2, delay_s=3.0), turn(10.0, 2, delay_s=4.0))
SOURCE = {"service.name": "orders", "service.instance.id": "app-1"}


def test_the_sdk_collects_the_same_names_and_values_as_prometheus_does() -> None:
    reader = InMemoryMetricReader()
    with closing(OtelMetrics(lambda: VALUES, SOURCE, reader)):
        data: Any = reader.get_metrics_data()
    (resource,) = data.resource_metrics
    assert resource.resource.attributes.items() >= SOURCE.items()
    found, kinds = {}, {}
    for metric in resource.scope_metrics[0].metrics:
        name = metric.name.removeprefix(PREFIX)
        kinds[name] = "counter" if getattr(metric.data, "is_monotonic", False) else "gauge"
        for point in metric.data.data_points:
            labels = [point.attributes[label] for label in METRICS[name].labels]
            found[name, *labels] = point.value
    assert found == VALUES
    assert kinds == {name: METRICS[name].type for name in kinds}


def test_values_that_cannot_be_read_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Values:
        raise ZeroDivisionError("a bug")

    reader = InMemoryMetricReader()
    with closing(OtelMetrics(broken, SOURCE, reader)):
        reader.collect()
        assert reader.get_metrics_data() is None
    assert [each.message for each in caplog.records] == ["the metrics cannot be read: a bug"]


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
    """A collector of metrics by OTLP over HTTP."""
    requests: list[ExportMetricsServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/metrics"
            requests.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


def test_a_collector_gets_them_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine")
    with receiver() as (url, requests):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with closing(OtelMetrics(lambda: VALUES, SOURCE)):
            wait_until(lambda: len(requests) > 1, 60.0, "nothing is sent")
        sent = requests[-1].resource_metrics[0]
    about = {each.key: each.value.string_value for each in sent.resource.attributes}
    assert (about["service.name"], about["service.instance.id"]) == ("mine", "app-1")
    target = next(m for m in sent.scope_metrics[0].metrics if m.name == f"{PREFIX}target_executors")
    assert target.gauge.data_points[0].as_double == VALUES["target_executors",]
    turns = next(m for m in sent.scope_metrics[0].metrics if m.name == f"{PREFIX}turns_total")
    assert turns.sum.is_monotonic
    assert turns.sum.data_points[0].as_double == 2.0


def test_a_collector_that_takes_and_never_answers_delays_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="opentelemetry")
    monkeypatch.setattr("penstock.observe.otel.LAST_SEND_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        sender = OtelMetrics(lambda: VALUES, SOURCE)
        client, _ = silent.accept()  # it is sending, and nobody will answer
        sender.close()
        stopping = [each for each in threading.enumerate() if each.name == "penstock-otel"]
        assert stopping, "closing has waited for an answer"
        client.close()
    for each in stopping:
        each.join(60.0)


def test_what_the_environment_says_wrong_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "-1")
    with pytest.raises(ConfigError, match="opentelemetry cannot send metrics: interval value -1"):
        OtelMetrics(dict, SOURCE)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[otel\]'"):
        OtelMetrics(dict, SOURCE)
