"""The budget of a day: what is paid, what is left, and how the fleet shrinks as it runs out."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.guards import Guards
from penstock.core.knowledge import DAY_S, LONGEST_GAP_S, Knowledge
from penstock.core.model import Decision, Fleet, Limits, Reason, Snapshot, Step
from penstock.lab.api import simulate
from penstock.observe.report.account import cost
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header, recorded_spec
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.toml import parse

WANTED = Reason("load_rises", "load rises")


def known(*readings: tuple[float, int]) -> Knowledge:
    knowledge = Knowledge()
    for at_s, fleet in readings:
        knowledge.learn(Snapshot(at_s, Fleet(fleet, fleet, fleet)), at_s)
    return knowledge


def test_a_fleet_is_paid_from_reading_to_reading_and_each_day_begins_at_zero() -> None:
    assert known((0.0, 4), (100.0, 2), (300.0, 9)).paid_today_s == 800.0
    assert known((DAY_S - 100.0, 4), (DAY_S - 50.0, 4), (DAY_S + 30.0, 4)).paid_today_s == 120.0
    # A driver that was down for hours had no fleet.
    assert known((0.0, 4), (9 * 3600.0, 4)).paid_today_s == 4 * LONGEST_GAP_S


def test_a_restarted_controller_knows_what_was_spent() -> None:
    steps = [
        Step(at_s, Snapshot(at_s, Fleet(3, 3, 3)), Decision.of(3, WANTED))
        for at_s in (0.0, 60.0, 120.0)
    ]
    assert Knowledge.from_steps(steps).paid_today_s == 360.0


def test_what_is_left_is_spent_within_an_hour_and_the_least_fleet_always_stays() -> None:
    limits = Limits(min_executors=2, max_executors=100, max_executor_hours_per_day=96.0)
    guards = Guards(limits)
    knowledge = Knowledge()
    sizes = []
    for hour, spent_h in ((0, 0), (12, 60), (20, 80), (22, 92), (23.5, 96)):
        knowledge.now_s, knowledge.paid_today_s = hour * 3600.0, spent_h * 3600.0
        seen = Snapshot(hour * 3600.0, Fleet(40, 40, 40))
        sizes.append(guards.check(Decision.of(90, WANTED), seen, knowledge).target_executors)
    # 96 - 23 x 2, 36 - 11 x 2, 16 - 3 x 2, 4 - 1 x 2, nothing
    assert sizes == [50, 14, 10, 2, 2]


def test_a_decision_to_hold_is_limited_too() -> None:
    limits = Limits(max_executors=16, max_executor_hours_per_day=24.0)
    knowledge = Knowledge(limits)
    knowledge.now_s, knowledge.paid_today_s = 12 * 3600.0, 11.5 * 3600.0
    decision = Decision.of(5, WANTED)
    snapshot = Snapshot(knowledge.now_s, Fleet(5, 5, 5))
    decision = Guards(limits).check(decision, snapshot, knowledge)
    assert (decision.target_executors, decision.wanted_executors) == (1, 5)
    assert decision.reasons[-1].code == "budget"


@given(st.floats(1.0, 200.0), st.lists(st.integers(0, 30), min_size=144, max_size=144))
def test_no_day_costs_more_than_its_budget_or_the_least_fleet(
    budget: float, wanted: list[int]
) -> None:
    """A turn every ten minutes; a fleet is paid for as it was decided."""
    limits = Limits(max_executors=30, max_executor_hours_per_day=budget)
    knowledge, size = Knowledge(limits), 1
    for turn, want in enumerate([*wanted, 1]):
        at_s = min(turn * 600.0, DAY_S - 1e-6)
        snapshot = Snapshot(at_s, Fleet(size, size, size))
        knowledge.learn(snapshot, at_s)
        decision = Decision.of(want, WANTED)
        size = Guards(limits).check(decision, snapshot, knowledge).target_executors
    assert knowledge.paid_today_s / 3600.0 <= max(budget, 24.0) + 1e-6


def test_a_simulated_day_keeps_its_budget_and_says_what_it_withholds() -> None:
    limits = {"max_executors": 8, "max_executor_hours_per_day": 60.0}
    run = simulate("static:8", "constant:20k", duration_s=DAY_S, limits=limits)
    assert 55.0 < cost(run.steps).executor_s / 3600.0 <= 60.0
    sizes = [size for size, _ in groupby(step.decision.target_executors for step in run.steps)]
    assert sizes == [8, 7, 6, 5, 4, 3, 2, 1, 2, 3]  # what is left at 23:00 is used up
    texts = [reason.text for step in run.steps for reason in step.decision.reasons]
    said = next(text for text in texts if "executor-hours of today are used" in text)
    assert said.startswith("8 executors wanted, but 33.2 of the 60.0 executor-hours of today")
    assert said.endswith("are used: the rest lasts for 7 executors")


def test_the_budget_comes_from_the_goal_and_stands_in_the_header_of_a_journal() -> None:
    text = '[goal]\nprice = 0.12\ncurrency = "EUR"\nmax_cost_per_day = 6.0'
    settings = parse(text, "penstock.toml")
    assert settings.spec.limits.max_executor_hours_per_day == pytest.approx(50.0)
    header = journal_header(settings.spec, settings.goal)
    assert recorded_spec(header).limits == settings.spec.limits
    spec = read_policy_spec("ds2:max_executor_hours_per_day=9", None, settings.goal)
    assert spec.limits.max_executor_hours_per_day == 9.0  # what the text sets itself wins
    assert journal_header(settings.spec, Goal()).goal.keys() == {
        "slo_s", "price", "late_price", "move_price", "warmup_s",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("price = -1.0", "price must be finite and not negative, not -1.0"),
        ("max_cost_per_day = 0.0", "max_cost_per_day and price must be positive, not 0.0 and 1.0"),
        ("price = 0.0\nmax_cost_per_day = 5", "must be positive, not 5.0 and 0.0"),
        ("currency = 3", "currency = 3: expected str, got int"),
    ],
)
def test_prices_that_make_no_sense_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse(f"[goal]\n{text}", "penstock.toml")
