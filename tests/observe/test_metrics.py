"""Steps as metrics: worked numbers, and what the table promises."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.errors import ConfigError
from penstock.core.journal import read_steps
from penstock.core.model import (
    Decision,
    Fleet,
    Limits,
    QuerySample,
    Reason,
    Receipt,
    Snapshot,
    Step,
    TopicSample,
)
from penstock.observe.endpoint import Endpoint
from penstock.observe.metrics import (
    METRICS,
    MOST_COUNTERS,
    MOST_TOPICS,
    OTHER,
    PREFIX,
    MetricTotals,
    Values,
    fold,
    recommended_account,
)
from penstock.observe.report.account import cost, delays, figures, rows
from penstock.settings.goal import Goal

RECORDED = sorted((Path(__file__).parents[1] / "recorded").glob("*.jsonl"))
LIMITS, GOAL = Limits(max_executors=4), Goal(price=0.36, currency="EUR", max_cost_per_day=9.0)
#: What only the live loop knows.
OUTSIDE = {"failed", "paused", "acting"}


def turn(
    at_s: float,
    target: int,
    *,
    fleet: int = 2,
    accepted: bool | None = None,
    codes: tuple[str, ...] = ("plan_holds",),
    **seen: float,
) -> Step:
    reasons = [Reason(code, code) for code in codes]
    receipt = None if accepted is None else Receipt(accepted)
    snapshot = Snapshot(at_s, Fleet(fleet, fleet, fleet), **seen)  # type: ignore[arg-type]
    return Step(at_s, snapshot, Decision.of(target, *reasons), receipt)


def blind(at_s: float) -> Step:
    return Step(at_s, None, Decision.of(2, Reason("sensor_blind", "holding")))


def folded(*steps: Step, goal: Goal = GOAL, acts: bool = True) -> Values:
    totals = MetricTotals()
    for step in steps:
        totals = fold(totals, step, LIMITS, goal, acts=acts, turn_s=0.25)
    return totals.values


def test_moves_refusals_and_reasons_are_counted() -> None:
    steps = (
        turn(0.0, 4, accepted=True, codes=("plan_grows",)),
        turn(10.0, 2, fleet=4, accepted=True, codes=("plan_shrinks", "step_limit")),
        turn(20.0, 4, accepted=False, codes=("plan_grows",)),
    )
    found = folded(*steps)
    assert (found["rescales_total", "up"], found["rescales_total", "down"]) == (1.0, 1.0)
    assert (found["refusals_total",], found["turns_total",]) == (1.0, 3.0)
    assert found["decisions_total", "plan_grows"] == 2.0
    assert found["decisions_total", "step_limit"] == 1.0
    assert found["turn_seconds_total",] == 0.75
    assert (found["target_executors",], found["decided_executors",]) == (2.0, 4.0)
    assert folded(*steps, acts=False)["refusals_total",] == 0.0


def test_what_was_seen_holds_until_the_next_turn_also_through_blind_ones() -> None:
    found = folded(turn(0.0, 2), blind(10.0), blind(20.0), turn(30.0, 2), turn(40.0, 4, fleet=4))
    assert found["blind_seconds_total",] == 20.0
    assert found["executor_seconds_total",] == 80.0
    assert found["saved_executor_seconds_total",] == 80.0
    assert found["cost_total", "EUR"] == pytest.approx(0.008)
    assert found["at_max_seconds_total",] == 0.0
    assert "delay_seconds" not in {name for name, *_ in found}


def test_in_mode_recommend_what_acting_would_have_taken_is_counted() -> None:
    # Four executors for 30 s are 120 paid; 2, then 2, then 3 are recommended for 10 s each: 70.
    # Blind turns keep the last target, as the loop does: here 2 for the second ten seconds.
    steps = (turn(0.0, 2, fleet=4), blind(10.0), turn(20.0, 3, fleet=4), turn(30.0, 3, fleet=4))
    found = folded(*steps, acts=False)
    assert found["executor_seconds_total",] == 120.0
    assert found["recommended_executor_seconds_total",] == 70.0
    assert found["recommended_cost_total", "EUR"] == pytest.approx(0.007)
    acted = folded(*steps)  # what was paid is what acting takes
    assert acted["recommended_executor_seconds_total",] == 120.0


def test_the_account_of_mode_recommend_says_what_is_not_known() -> None:
    paid: Values = {("executor_seconds_total",): 43_200.0}
    fewer = paid | {("recommended_executor_seconds_total",): 32_400.0}
    assert recommended_account(fewer, Goal(price=0.5, currency="EUR")) == (
        "acting would have taken 9 executor-hours instead of 12, 25 % fewer (saved 1.50 EUR); "
        "how late records would have been then is not known"
    )
    more = paid | {("recommended_executor_seconds_total",): 45_360.0}
    assert recommended_account(more, Goal()) == (
        "acting would have taken 12.6 executor-hours instead of 12, 5 % more; "
        "how late records would have been then is not known"
    )
    assert recommended_account({}, Goal()) == ""


def test_without_a_price_nothing_is_money() -> None:
    found = folded(turn(0.0, 2), turn(10.0, 2), goal=Goal())
    assert not [name for name, *_ in found if "cost" in name]


def test_a_user_with_many_reasons_or_topics_has_a_bounded_number_of_series() -> None:
    found = folded(*(turn(float(n), 2, codes=(f"reason_{n}",)) for n in range(300)))
    counters = [series for series in found if METRICS[series[0]].type == "counter"]
    assert len(counters) == MOST_COUNTERS + 1
    assert sum(found[series] for series in found if series[0] == "decisions_total") == 300.0
    assert found["decisions_total", OTHER] > 100.0
    topics = tuple(TopicSample("q", f"t{n}", 1.0, 1.0) for n in range(1000))
    seen = Snapshot(0.0, Fleet(2, 2, 2), topics=topics)
    found = folded(Step(0.0, seen, Decision.of(2, Reason("plan_holds", "holding"))))
    assert sum(name == "lag_seconds" for name, *_ in found) == MOST_TOPICS


TURNS = st.tuples(
    st.floats(0.0, 100.0), st.integers(0, 6), st.floats(0.0, 50.0), st.booleans(), st.floats(0, 1e4)
)


@given(st.lists(TURNS, min_size=1, max_size=20))
def test_counters_never_fall_and_no_more_records_are_late_than_processed(
    turns: list[tuple[float, int, float, bool, float]],
) -> None:
    totals, at_s = MetricTotals(), 0.0
    for gap_s, fleet, delay_s, is_blind, rps in turns:
        at_s += gap_s
        seen = turn(at_s, fleet, fleet=fleet, delay_s=delay_s, throughput_rps=rps)
        before = totals.counters
        totals = fold(totals, blind(at_s) if is_blind else seen, LIMITS, GOAL)
        assert all(totals.counters[series] >= value for series, value in before.items())
    values = totals.values
    assert values["late_records_total",] <= values["records_total",] * (1 + 1e-9)
    known_s = values["executor_seconds_total",] + values["saved_executor_seconds_total",]
    assert known_s >= values["at_max_seconds_total",] * LIMITS.max_executors - 1e-6


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_metrics_of_a_recorded_run_agree_with_its_report(path: Path) -> None:
    steps = list(read_steps(path))
    found = folded(*steps)
    paid, waited = cost(steps), delays(steps)
    account = figures(steps, rows(steps), paid, waited, GOAL.slo_s)
    assert found["executor_seconds_total",] == pytest.approx(paid.executor_s)
    moves = found["rescales_total", "up"] + found["rescales_total", "down"]
    assert (moves, found["refusals_total",]) == (account.rescales, account.refused)


def test_every_series_is_in_the_table_and_follows_the_conventions() -> None:
    topics = (TopicSample("clicks", "web", 3.0, 1.0),)
    evidence = {"ahead_rps": 1.0, "ahead_low_rps": 0.0, "ahead_high_rps": 2.0, "horizon_s": 900.0}
    decision = Decision.of(2, Reason("plan_holds", "holding", evidence), expected_rps=9.0)
    seen = Snapshot(
        0.0, Fleet(2, 2, 2), topics=topics, arrival_rps=1.0, throughput_rps=1.0, delay_s=1.0,
        backlog_records=1.0, latency_s=1.0, partitions=4, state_bytes=1.0,
    )  # fmt: skip
    found = folded(Step(0.0, seen, decision), Step(10.0, seen, decision))
    assert {name: len(labels) for name, *labels in found} == {
        name: len(spec.labels) for name, spec in METRICS.items() if name not in OUTSIDE
    }
    for name, spec in METRICS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        assert (spec.type == "counter") == name.endswith("_total")
        assert not re.search(r"_(ms|minutes|hours|kb|mb|percent)\b", name)
        assert spec.help.endswith(".")
        assert spec.action


def test_the_endpoint_serves_what_a_prometheus_reads(free_port: int) -> None:
    values = folded(turn(0.0, 2, delay_s=3.0), turn(10.0, 2, delay_s=4.0))
    endpoint = Endpoint(f"127.0.0.1:{free_port}", lambda: values)
    try:
        with urlopen(f"http://127.0.0.1:{free_port}/metrics") as answer:
            text = answer.read().decode()
        with pytest.raises(ConfigError, match=rf"at 127.0.0.1:{free_port}: Address already in use"):
            Endpoint(f"127.0.0.1:{free_port}", lambda: values)
    finally:
        endpoint.close()
    read = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read == values
    Endpoint(f"127.0.0.1:{free_port}", lambda: values).close()  # the port is free again


def test_metrics_that_cannot_be_read_are_a_warning_and_an_empty_page(
    free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Values:
        raise ZeroDivisionError("a bug")

    endpoint = Endpoint(f"127.0.0.1:{free_port}", broken)
    try:
        for _ in range(2):
            with urlopen(f"http://127.0.0.1:{free_port}/metrics") as answer:
                assert answer.read() == b""
        with (
            pytest.raises(HTTPError) as refused,
            urlopen(f"http://127.0.0.1:{free_port}/metrics", data=b"x"),
        ):
            pass
        refused.value.close()
    finally:
        endpoint.close()
    assert [each.message for each in caplog.records] == ["the metrics cannot be read: a bug"]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_records_are_late_against_the_slo_of_their_query() -> None:
    """Delays of clicks go from 4 to 8 s, of views from 8 to 12 s; what audit does is not counted.

    With SLOs of 5 s and 10 s: 3/4 of 100 clicks and 1/2 of 300 views are late.
    """

    def seen(at_s: float, clicks_s: float) -> Step:
        queries = (
            QuerySample("clicks", slo_s=5.0, throughput_rps=10.0, delay_s=clicks_s),
            QuerySample("views", throughput_rps=30.0, delay_s=clicks_s + 4.0),
            QuerySample("audit", excluded=True, throughput_rps=1e6, delay_s=999.0),
        )
        return turn(at_s, 2, delay_s=clicks_s, throughput_rps=40.0, queries=queries)  # type: ignore[arg-type]

    steps = [seen(0.0, 4.0), seen(10.0, 8.0)]
    totals = MetricTotals()
    for step in steps:
        totals = fold(totals, step, LIMITS, GOAL)
    values = totals.values
    assert values["records_total",] == 400.0
    assert values["late_records_total",] == 75.0 + 150.0
    assert (values["slo_seconds",], values["delay_seconds",]) == (5.0, 8.0)
    reported = figures(steps, rows(steps), cost(steps), delays(steps), GOAL.slo_s)
    assert reported.late_fraction == (75.0 + 150.0) / 400.0
