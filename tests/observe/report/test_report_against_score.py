"""What a report says of a run against its exact score: a journal is enough to tell a collapse."""

from __future__ import annotations

import pytest

from penstock.core.model import Limits
from penstock.lab.experiments.scenario import Scenario, run
from penstock.observe.report.page import page, summary
from penstock.policies.static import Static
from penstock.settings.goal import Goal

COLLAPSES = {
    "records still wait at the end": ("constant:6k for 1h then constant:40k", 2 * 3600.0),
    "one long batch commits them": (
        "constant:6k for 1h then constant:40k for 30min then constant:1k",
        4 * 3600.0,
    ),
    "nothing is late": ("constant:12k", 3600.0),
}


@pytest.mark.parametrize("engine", ["micro-batch", "continuous"])
@pytest.mark.parametrize("name", COLLAPSES)
def test_the_report_and_the_score_agree_on_lateness_and_delays(name: str, engine: str) -> None:
    workload, duration_s = COLLAPSES[name]
    scenario = Scenario(workload, engine, duration_s=duration_s, start_executors=2)
    result = run(scenario, Static(2), Limits(max_executors=2), Goal(warmup_s=0.0))
    found = summary([("static", result.steps)], slo_s=10.0)[0].account
    score = result.score
    assert found.late_fraction == pytest.approx(score.late_fraction, abs=0.02)
    # A journal has one turn per minute: between two turns the delay is interpolated.
    assert found.p50_s == pytest.approx(score.p50_s, rel=0.15, abs=1.5)
    assert found.p95_s == pytest.approx(score.p95_s, rel=0.15, abs=1.5)


def test_the_page_says_how_many_records_still_wait_and_since_when() -> None:
    scenario = Scenario("constant:40k", duration_s=3600.0, start_executors=2)
    result = run(scenario, Static(2), Limits(max_executors=2), Goal(warmup_s=0.0))
    found = summary([("static", result.steps)], slo_s=10.0)[0].account
    last = result.steps[-1].snapshot
    assert last is not None
    assert last.backlog_records is not None
    assert found.waiting_records == last.backlog_records > 10e6
    html = page([("static", result.steps)], title="A collapse", slo_s=10.0)
    assert "<dt>still waiting</dt><dd>52.7 M records <small>the oldest for" in html
