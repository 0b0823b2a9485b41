"""A real Prometheus reads the metrics of a simulated day, one turn of it with each scrape."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from pathlib import Path

import msgspec
import pytest

from penstock.core.model import Limits, Snapshot, TopicSample
from penstock.lab.api import simulate
from penstock.observe.endpoint import Endpoint
from penstock.observe.metrics import METRICS, PREFIX, MetricTotals, Values, fold
from penstock.settings.goal import Goal
from penstock.testbed import wait_until
from tests.prometheus import dashboard_queries, free_port, running_prometheus

pytestmark = pytest.mark.slow

GOAL = Goal(price=0.36, currency="EUR", max_cost_per_day=9.0)


def with_topics(seen: Snapshot) -> Snapshot:
    """As the sensor of a live job reads it; a simulated one has no topics, and no state here."""
    topics = (TopicSample("counts", "clicks", seen.backlog_records, seen.delay_s),)
    return msgspec.structs.replace(seen, topics=topics, state_bytes=1e6, partitions=8)


def test_every_metric_has_samples_every_panel_has_data_and_an_alert_fires_and_resolves(
    tmp_path: Path,
) -> None:
    run = simulate("penstock", "constant:20k", duration_s=1800.0)
    steps = cycle(step for step in run.steps[60:] if step.snapshot is not None)
    outside = {("failed",): 0.0, ("paused",): 0.0, ("acting",): 1.0}
    totals, at_s = MetricTotals(), 1_700_000_000.0

    def read() -> Values:
        nonlocal totals, at_s
        step, at_s = next(steps), at_s + 10.0
        assert step.snapshot is not None
        seen = msgspec.structs.replace(with_topics(step.snapshot), at_s=at_s)
        step = msgspec.structs.replace(step, at_s=at_s, snapshot=seen)
        totals = fold(totals, step, Limits(), GOAL, turn_s=0.1)
        return totals.values | outside

    port = free_port()
    endpoint = Endpoint(f"127.0.0.1:{port}", read)
    try:
        with running_prometheus(port, tmp_path) as prometheus:
            for name in METRICS:
                wait_until(partial(prometheus.has, PREFIX + name), 60.0, f"no {name}")
            for query in dashboard_queries():
                wait_until(partial(prometheus.has, query), 60.0, f"no data: {query}")
            assert "PenstockFailed" not in prometheus.alerts()
            outside["failed",] = 1.0
            wait_until(lambda: "PenstockFailed" in prometheus.alerts(), 60.0, "no alert")
            outside["failed",] = 0.0
            wait_until(lambda: "PenstockFailed" not in prometheus.alerts(), 60.0, "it fires on")
    finally:
        endpoint.close()
