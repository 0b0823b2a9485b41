"""Metrics by OpenTelemetry's protocol (OTLP over HTTP). Needs the extra ``otel``.

Where they go, how often and with which headers is set by the variables of the environment that
every OpenTelemetry SDK reads, such as ``OTEL_EXPORTER_OTLP_ENDPOINT``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError
from penstock.observe.metrics import METRICS, PREFIX, Values

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricReader

log = logging.getLogger(__name__)

#: Sending the last values may take this long; whoever closes waits no longer for it.
LAST_SEND_S = 2.0


class OtelMetrics:
    """Sends what `read` returns, every minute by default, in a thread of the SDK.

    `source` says who sends it, where the environment does not. A `reader` takes the place of the
    sender.
    """

    def __init__(
        self,
        read: Callable[[], Values],
        source: Mapping[str, str],
        reader: "MetricReader | None" = None,
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        except ModuleNotFoundError:
            raise ConfigError("opentelemetry needs its SDK: pip install 'penstock[otel]'") from None
        self._read, self._has_failed = read, False
        try:
            reader = reader or PeriodicExportingMetricReader(OTLPMetricExporter())
        except (ValueError, OSError) as error:  # what the environment says
            why = " ".join(str(error).split())
            raise ConfigError(f"opentelemetry cannot send metrics: {why}") from None
        resource = Resource.create(dict(source)).merge(OTELResourceDetector().detect())
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("penstock")
        for name, spec in METRICS.items():
            is_gauge = spec.type == "gauge"
            create = meter.create_observable_gauge if is_gauge else meter.create_observable_counter
            create(PREFIX + name, [partial(self._observe, name)], description=spec.help)

    def _observe(self, name: str, _: "CallbackOptions") -> "Iterable[Observation]":
        """The values of one metric that are measured now."""
        from opentelemetry.metrics import Observation

        try:
            found = self._read()
        except Exception as error:
            if not self._has_failed:
                log.warning("the metrics cannot be read: %s", error)
            self._has_failed = True
            return
        labels = METRICS[name].labels
        for (own, *values), value in found.items():
            if own == name:
                yield Observation(value, dict(zip(labels, values, strict=True)))

    def close(self) -> None:
        """Send the last values; a collector that does not answer is not waited for."""
        thread = Thread(target=self._provider.shutdown, name="penstock-otel", daemon=True)
        thread.start()
        thread.join(LAST_SEND_S)
