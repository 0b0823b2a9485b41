"""Metrics over HTTP, in the format of Prometheus. Needs the extra ``metrics``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ConfigError
from penstock.observe.metrics import METRICS, PREFIX, Values
from penstock.settings.notation import address

if TYPE_CHECKING:
    from prometheus_client import Metric

log = logging.getLogger(__name__)

#: A client that says nothing for this long is hung up on; it holds a thread.
IDLE_S = 10.0


class Endpoint:
    """Serves what `read` returns at ``http://HOST:PORT/metrics``, in threads of its own."""

    def __init__(self, where: str, read: Callable[[], Values]) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError:
            raise ConfigError(
                "metrics needs prometheus_client: pip install 'penstock[metrics]'"
            ) from None
        self._read, self._has_failed = read, False
        registry, (host, port) = CollectorRegistry(), address(where, "metrics")
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(f"metrics cannot be served at {where}: {error.strerror}") from None
        served: Any = self._server.RequestHandlerClass
        self._server.RequestHandlerClass = type("Handler", (served,), {"timeout": IDLE_S})
        # A client that hangs up is no reason to print a traceback into the log of the driver.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics that have a value now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        try:
            found = sorted(self._read().items())
        except Exception as error:
            if not self._has_failed:
                log.warning("the metrics cannot be read: %s", error)
            self._has_failed = True
            return
        for name, spec in METRICS.items():
            kind = GaugeMetricFamily if spec.type == "gauge" else CounterMetricFamily
            family = kind(PREFIX + name, spec.help, labels=spec.labels)
            for (own, *labels), value in found:
                if own == name:
                    family.add_metric(labels, value)
            if family.samples:
                yield family

    def close(self) -> None:
        """Free the port; may be repeated."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)
