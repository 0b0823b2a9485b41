"""What the page shows of a job, from its steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.model import (
    Decision,
    ExecutorSample,
    Fleet,
    Limits,
    OperatorSample,
    Outlook,
    Reason,
    Receipt,
    Snapshot,
    Step,
)
from penstock.observe.dashboard.limit import CODES, LIMITS, limit_now
from penstock.observe.dashboard.state import KEPT_TURNS, WatchedJob
from penstock.observe.metrics import RECOMMENDED
from penstock.settings.goal import Goal
from tests.observe.dashboard.played import recorded_run

AHEAD = Outlook(
    (450.0, 900.0), (50.0, 60.0), (40.0, 45.0), (60.0, 75.0), (3, 4), (2, 4), (0.2, 0.0)
)


def turn(
    at_s: float,
    *codes: str,
    fleet: Fleet | None = None,
    target: int = 2,
    outlook: Outlook | None = None,
    receipt: Receipt | None = None,
    **seen: Any,
) -> Step:
    reasons = [Reason(code, f"because of {code}") for code in codes or ("plan_holds",)]
    snapshot = Snapshot(at_s, fleet or Fleet(2, 2, 2), **seen)
    return Step(at_s, snapshot, Decision.of(target, *reasons, outlook=outlook), receipt)


def shown(*steps: Step, goal: Goal | None = None) -> Any:
    job = WatchedJob("orders", "orders")
    job.limits, job.goal = Limits(max_executors=4), goal or Goal()
    for step in steps:
        job.take(step)
    return json.loads(job.drawn())


def test_the_outlook_begins_now_and_at_what_is_seen_now() -> None:
    # Two hours after the epoch the run is simulated time: instants stay as they are.
    view = shown(turn(7_200.0, arrival_rps=48.0, outlook=AHEAD, target=3))
    assert view["outlook"] == {
        "at_s": [7_200.0, 7_650.0, 8_100.0],
        "load": [48.0, 50.0, 60.0],
        "low": [48.0, 40.0, 45.0],
        "high": [48.0, 60.0, 75.0],
        "executors": [3, 3, 4],
    }
    assert view["now_s"] == 7_200.0
    assert view["horizon_s"] == 900.0


def test_other_sizes_cost_executor_hours_and_money_up_to_the_horizon() -> None:
    # 2 and 4 executors for 900 s are 0.5 and 1 executor-hours.
    view = shown(turn(0.0, outlook=AHEAD), goal=Goal(price=0.3, currency="EUR"))
    assert [tuple(row.values()) for row in view["sizes"]] == [
        (2, 0.5, "0.150 EUR", 0.2),
        (4, 1.0, "0.300 EUR", 0.0),
    ]


def test_the_account_is_what_was_paid_saved_and_late() -> None:
    # 2 of at most 4 executors for half an hour: 1 executor-hour paid and 1 saved. Half of the
    # records wait between 0 and 10 s, half between 10 and 20 s; the SLO is 10 s.
    steps = [
        turn(900.0 * number, delay_s=delay_s, throughput_rps=10.0)
        for number, delay_s in enumerate((0.0, 10.0, 20.0))
    ]
    account = shown(*steps, goal=Goal(price=0.5, currency="EUR"))["account"]
    assert (account["paid_executor_hours"], account["saved_executor_hours"]) == (1.0, 1.0)
    assert (account["paid"], account["saved"]) == ("0.500 EUR", "0.500 EUR")
    assert account["late_fraction"] == pytest.approx(0.5)


def test_in_mode_recommend_the_account_says_what_acting_would_have_saved() -> None:
    # A fleet of 2 for two hours where 1 is recommended: 2 executor-hours instead of 4. The last
    # turn holds; that the mode is recommend was seen before.
    recommended = Receipt(False, RECOMMENDED)
    steps = [turn(3600.0 * hour, target=1, receipt=recommended) for hour in range(2)]
    account = shown(*steps, turn(7200.0))["account"]
    assert account["recommended"].startswith(
        "acting would have taken 2 executor-hours instead of 4, 50 % fewer;"
    )
    moved = [turn(3600.0 * hour, target=1, receipt=Receipt(True, "done")) for hour in range(2)]
    assert shown(*moved)["account"]["recommended"] == ""


def test_heat_has_a_value_per_turn_and_a_gap_before_an_executor_came() -> None:
    first = ExecutorSample("9", 0.0, busy_fraction=0.5)
    second = ExecutorSample("10", 5.0, cpu_fraction=0.25, memory_fraction=0.4)
    stage = OperatorSample("source", busy_fraction=0.7, tasks=4, input_rps=120.0)
    view = shown(
        turn(0.0, executors=(first,), operators=(stage,)),
        turn(10.0, executors=(second, first)),
    )
    assert [(row["name"], row["values"]) for row in view["executors"]] == [
        ("9", [0.5, 0.5]),
        ("10", [None, 0.25]),
    ]
    assert view["executors"][1]["text"] == "cpu 25%, heap 40%"
    assert view["stages"] == [{"name": "source", "values": [0.7, None], "text": "4 tasks, 120/s"}]


def test_only_the_last_turns_are_kept_and_a_known_one_is_ignored() -> None:
    job = WatchedJob("orders", "orders")
    for number in range(KEPT_TURNS + 5):
        job.take(turn(float(number), arrival_rps=5.0))
    job.take(turn(3.0, arrival_rps=5.0))
    assert job.version == KEPT_TURNS + 5
    lines = json.loads(job.drawn())["lines"]
    assert lines["load"]["at_s"][0] == 5.0
    assert len(lines["load"]["at_s"]) < 1300


@pytest.mark.parametrize(
    ("codes", "name"),
    [
        (("plan_holds",), "load"),
        (("plan_grows", "max_executors"), "max"),
        (("at_maximum",), "max"),
        (("late", "parallelism_cap"), "partitions"),
        (("plan_grows", "budget"), "budget"),
        (("plan_shrinks", "stabilization"), "guard"),
        (("not_measured",), "unknown"),
        (("a_code_of_somebody_else",), "load"),
    ],
)
def test_the_last_reason_that_limits_is_named(codes: tuple[str, ...], name: str) -> None:
    found = limit_now([turn(0.0, *codes)], 8)
    assert (found.name, found.text) == (name, LIMITS[name])


def test_a_job_that_is_bound_is_not_limited_by_a_guard() -> None:
    assert limit_now([turn(0.0, "skew_bound", "cooldown")], 8).name == "skew"


def test_catching_up_with_the_largest_fleet_is_limited_by_the_maximum() -> None:
    assert limit_now([turn(0.0, "far_behind", target=8)], 8).name == "max"
    assert limit_now([turn(0.0, "far_behind", target=6)], 8).name == "load"


def test_executors_that_do_not_come_for_two_minutes_have_no_room() -> None:
    short, full = Fleet(5, 3, 3), Fleet(3, 3, 3)
    steps = [turn(0.0, fleet=full), *(turn(at_s, fleet=short) for at_s in (30.0, 140.0))]
    assert limit_now(steps, 8).name == "load"  # 110 s
    assert limit_now([*steps, turn(150.0, fleet=short)], 8).name == "no room"
    assert limit_now([*steps, turn(150.0, fleet=Fleet(5, 4, 4))], 8).name == "load"
    refused = Receipt(False, "the cluster gave only 3 executors: add workers")
    assert limit_now([turn(0.0, target=5, receipt=refused)], 8).name == "no room"


def test_every_limit_that_a_code_stands_for_has_its_words() -> None:
    assert set(CODES.values()) <= set(LIMITS)


def test_a_recorded_run_fills_every_part_of_the_page() -> None:
    _, steps = recorded_run()
    view = shown(*steps)
    assert len(view["lines"]["load"]["at_s"]) == len(steps)
    assert view["outlook"]["executors"]
    assert view["sizes"]
    assert view["executors"]
    assert view["stages"]
    assert view["account"]["paid_executor_hours"] > 0.0
    assert view["rows"]
