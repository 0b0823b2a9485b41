"""Where the metrics and notices of a live scaler go. Whatever fails here, the loop goes on."""

import logging
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import nan

from penstock.core.model import Limits, Step
from penstock.observe.dashboard.live import LiveDashboard
from penstock.observe.endpoint import Endpoint
from penstock.observe.metrics import MetricTotals, Series, Values, fold
from penstock.observe.notices import Notice
from penstock.observe.otel import OtelMetrics
from penstock.observe.webhook import NoticeSender, Webhook
from penstock.settings.goal import Goal
from penstock.settings.toml import LiveSettings
from penstock.spark.internals import JVM_ERRORS, Driver, first_line
from penstock.spark.pod_events import driver_pod_events

log = logging.getLogger(__name__)

#: More gauges than this are not registered: labels may have many values.
MOST_GAUGES = 300


class SparkGauges:
    """Metrics as gauges of Spark's metrics system, which every sink of the cluster gets.

    Dropwizard has no labels: their values become a part of the name.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._registry, self._remove = driver.register_metrics("penstock")
        self._gauges: dict[Series, object] = {}
        self._values: Values = {}

    def set(self, values: Values) -> None:
        """Take over the values that have changed; what is no longer measured is not a number."""
        for series in {**self._values, **values}:
            value = values.get(series, nan)
            if value == self._values.get(series):
                continue
            if series not in self._gauges and len(self._gauges) < MOST_GAUGES:
                self._gauges[series] = self._driver.new_gauge(self._registry, gauge_name(series))
            if (gauge := self._gauges.get(series)) is not None:
                gauge.setValue(value)  # type: ignore[attr-defined]
        self._values = values

    def close(self) -> None:
        self._remove()


def gauge_name(series: Series) -> str:
    """The name of a gauge that every sink takes.

    >>> gauge_name(("lag_seconds", "clicks per user", "web.clicks"))
    'lag_seconds.clicks_per_user.web_clicks'
    """
    return ".".join(re.sub(r"\W", "_", part) for part in series if part)


class Outlets:
    """Everything that a live scaler publishes; `now` adds what no step says."""

    def __init__(self, driver: Driver, live: LiveSettings, now: Callable[[], Values]) -> None:
        self._now, self._totals, self._has_failed = now, MetricTotals(), False
        self._gauges: SparkGauges | None = None
        self._senders: list[NoticeSender] = []
        self._servers: list[Endpoint | OtelMetrics] = []
        self.dashboard: LiveDashboard | None = None
        name = driver.conf("spark.app.name", "a Spark job")
        job = {"service.name": name, "service.instance.id": str(driver.context.applicationId())}
        try:
            if live.metrics:
                self._servers.append(Endpoint(live.metrics, self.values))
            if live.opentelemetry:
                self._servers.append(OtelMetrics(self.values, job))
            if live.dashboard:
                self.dashboard = LiveDashboard(live.dashboard, name, now)
        except Exception:
            self.close()
            raise
        if live.webhook:
            self._senders.append(Webhook(live.webhook, job["service.instance.id"]))
        try:
            self._gauges = SparkGauges(driver) if live.spark_metrics else None
        except JVM_ERRORS as error:
            log.warning("Spark's metrics system does not take the metrics: %s", first_line(error))
        try:
            if live.kubernetes_events and (events := driver_pod_events(driver)) is not None:
                self._senders.append(events)
        except JVM_ERRORS as error:
            log.warning("there are no events on the driver's pod: %s", first_line(error))

    def values(self) -> Values:
        return self._totals.values | self._now()

    def take(
        self,
        step: Step,
        new: Iterable[Notice],
        limits: Limits,
        goal: Goal,
        acts: bool,
        turn_s: float,
    ) -> None:
        """Publish one turn."""
        if self.dashboard is not None:
            self.dashboard.take([step], limits, goal)
        try:
            self._totals = fold(self._totals, step, limits, goal, acts=acts, turn_s=turn_s)
            if self._gauges is not None:
                self._gauges.set(self.values())
            for notice in new:
                for sender in self._senders:
                    sender.send(notice)
        except Exception as error:
            # A broken sink is no reason to stop scaling.
            if not self._has_failed:
                log.warning("metrics and notices are incomplete: %s", error)
            self._has_failed = True

    def close(self) -> None:
        """May be repeated."""
        for each in (self.dashboard, self._gauges, *self._servers, *self._senders):
            with suppress(Exception):  # the application may be gone already
                if each is not None:
                    each.close()
        self.dashboard = self._gauges = None
        self._servers, self._senders = [], []
