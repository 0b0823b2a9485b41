"""Numbers of ours in Spark's own metrics system."""

from collections.abc import Callable
from typing import Any

from penstock.spark.internals.java_side import JavaSide


class MetricsSystem(JavaSide):
    """Registers gauges that Spark's sinks report."""

    def register_metrics(self, name: str) -> tuple[Any, Callable[[], None]]:
        """A registry in Spark's metrics system, and a function that removes it.

        Gauges that are added to it later reach the sinks too. They are read inside the Java
        process: no sink calls back.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self.gateway)  # type: ignore[no-untyped-call]
        registry: Any = self.jvm.com.codahale.metrics.MetricRegistry()
        source = MetricsSource(name, registry)
        system = self.jvm.org.apache.spark.SparkEnv.get().metricsSystem()
        system.registerSource(source)
        return registry, lambda: system.removeSource(source)

    def new_gauge(self, registry: Any, name: str) -> Any:
        """A gauge of that registry; it has ``setValue``."""
        gauge = self.jvm.com.codahale.metrics.DefaultSettableGauge()
        registry.register(name, gauge)
        return gauge


class MetricsSource:
    """A ``Source`` of Spark's metrics system; Java calls it back when it is registered."""

    def __init__(self, name: str, registry: Any) -> None:
        self._name, self._registry = name, registry

    def sourceName(self) -> str:  # noqa: N802
        return self._name

    def metricRegistry(self) -> Any:  # noqa: N802
        return self._registry

    def equals(self, other: Any) -> bool:
        """Asked for when it is removed."""
        return str(other.sourceName()) == self._name

    class Java:
        implements = ("org.apache.spark.metrics.source.Source",)
