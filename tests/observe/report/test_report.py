"""The figures of a report, each counted by hand: lines, forecasts, costs, delays, decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Decision, ExecutorSample, Fleet, Reason, Receipt, Snapshot, Step
from penstock.observe.formatting import EPOCH_BEGINS_S
from penstock.observe.report.account import cost, delays, rows, weightiest
from penstock.observe.report.page import summary
from penstock.observe.report.series import (
    foresight,
    levels,
    lines,
    peaks_ahead,
    promises,
    thin,
)
from tests.observe.report.example_steps import HOLD, blind, seen, turn

# Lines -------------------------------------------------------------------------------------------


def test_a_line_carries_what_was_measured_and_gaps_where_nothing_was() -> None:
    steps = [turn(0.0, arrival_rps=900.0), blind(10.0), turn(20.0), turn(30.0, arrival_rps=950.0)]
    load = lines(steps).load
    assert load.at_s == [0.0, 10.0, 20.0, 30.0]
    assert load.values == [900, None, None, 950]


def test_the_fleet_is_kept_only_where_it_moves() -> None:
    steps = [turn(0.0, 4), turn(10.0, 4), turn(20.0, 6), turn(30.0, 6), turn(40.0, 6)]
    requested = lines(steps).requested
    assert (requested.at_s, requested.values) == ([0.0, 20.0, 40.0], [4, 6, 6])


def test_a_live_run_begins_at_zero_and_a_simulated_one_keeps_its_time() -> None:
    live = [turn(EPOCH_BEGINS_S + 50.0), turn(EPOCH_BEGINS_S + 60.0)]
    assert lines(live).load.at_s == [0.0, 10.0]
    assert lines([turn(50.0), turn(60.0)]).load.at_s == [50.0, 60.0]


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 10**6)), min_size=1, max_size=400),
    st.integers(2, 60),
)
def test_thinning_keeps_both_ends_every_extreme_and_that_there_was_a_gap(
    values: list[int | None], most: int
) -> None:
    thinned = thin([float(at) for at in range(len(values))], values, most)
    measured = [value for value in values if value is not None]
    kept = [value for value in thinned.values if value is not None]
    assert len(thinned.values) <= max(most, 3 * (most // 2) + 2)
    assert thinned.at_s == sorted(set(thinned.at_s))
    assert (thinned.values[0], thinned.values[-1]) == (values[0], values[-1])
    assert (max(kept, default=None), min(kept, default=None)) == (
        max(measured, default=None),
        min(measured, default=None),
    )
    assert (None in thinned.values) == (None in values)


def test_levels_that_never_stand_still_are_thinned_too() -> None:
    flapping = levels([float(at) for at in range(10_000)], [at % 7 for at in range(10_000)], 100)
    assert len(flapping.values) <= 152
    assert max(value or 0 for value in flapping.values) == 6


def test_a_promise_stands_while_its_size_does() -> None:
    def promise(at_s: float, executors: int, target: int, rps: float | None) -> Step:
        decision = Decision.of(target, HOLD, expected_rps=rps)
        return Step(at_s, seen(at_s, executors), decision, Receipt(True))

    grown, held = promise(0.0, 4, 5, 50.0), promise(10.0, 5, 5, None)
    moved = promise(20.0, 5, 3, None)
    assert promises([grown, held, blind(15.0, 5), moved]) == [50.0, 50.0, 50.0, None]


def test_a_promise_for_a_fleet_that_never_was_is_not_drawn() -> None:
    wanted = Decision.of(9, HOLD, expected_rps=90.0)
    overridden = Step(
        0.0, seen(0.0), wanted.limited_to(6, Reason("max_executors", "6 is the most"))
    )
    refused = Step(10.0, seen(10.0), wanted, Receipt(False, "no answer"))
    assert promises([overridden, refused]) == [None, None]


# Forecasts ---------------------------------------------------------------------------------------


def test_what_came_is_the_highest_load_after_the_decision_within_the_horizon() -> None:
    loads = [5.0, 1.0, 7.0, 2.0, 3.0, 1.0]
    steps = [turn(10.0 * index, arrival_rps=load) for index, load in enumerate(loads)]
    origins = [step.at_s for step in steps]
    assert peaks_ahead(steps, origins, 20.0) == [7.0, 7.0, 3.0, 3.0, None, None]


def test_a_forecast_is_read_from_the_evidence_with_its_fan_and_its_error() -> None:
    def foresees(at_s: float, load: float, peak: float) -> Step:
        evidence = {
            "forecast_peak_rps": peak,
            "peak_low_rps": peak - 5.0,
            "peak_high_rps": peak + 5.0,
            "horizon_s": 20.0,
        }
        decision = Decision.of(4, Reason("scale_up", "more is to come", evidence))
        return Step(at_s, seen(at_s, arrival_rps=load), decision)

    steps = [
        foresees(10.0 * index, load, peak)
        for index, (load, peak) in enumerate([(50.0, 90.0), (80.0, 110.0), (100.0, 120.0), (60, 9)])
    ]
    found = foresight(steps)
    assert found is not None
    assert found.horizon_s == 20.0
    assert found.foreseen.values == [90, 110, 120, 9]
    assert found.came.values == [100, 100, None, None]
    assert (found.low.values, found.high.values) == ([85, 105, 115, 4], [95, 115, 125, 14])
    assert found.error_fraction == pytest.approx(0.1)


def test_both_edges_of_a_long_fan_stand_at_the_same_instants() -> None:
    def foresees(index: int) -> Step:
        evidence = {"peak_rps": index % 7.0, "peak_low_rps": index % 5.0, "peak_high_rps": 9.0}
        return Step(10.0 * index, seen(10.0 * index), Decision.of(4, Reason("a", "b", evidence)))

    found = foresight([foresees(index) for index in range(5000)])
    assert found is not None
    assert len(found.low.at_s) <= 2402
    assert found.low.at_s == found.high.at_s == found.foreseen.at_s


def test_a_policy_that_foresees_nothing_has_no_forecast_to_draw() -> None:
    assert foresight([turn(0.0, arrival_rps=5.0)]) is None


# Cost and delay ----------------------------------------------------------------------------------


def test_executor_seconds_split_into_working_idle_and_on_the_way() -> None:
    busy = tuple(ExecutorSample(str(i), 0.0, busy_fraction=0.75) for i in range(4))
    steady = Snapshot(0.0, Fleet(4, 4, 4), executors=busy)
    growing = Snapshot(10.0, Fleet(6, 5, 4), executors=busy)
    steps = [
        Step(0.0, steady, Decision.of(4, HOLD)),
        Step(10.0, growing, Decision.of(6, HOLD)),
        blind(30.0, 6),
        turn(40.0, 6),
    ]
    paid = cost(steps)
    # 10 s with 4, then 20 s and a blind 10 s with 6 paid of which 4 work.
    assert paid.executor_s == 4 * 10 + 6 * 30
    assert paid.working_s == 3.0 * 40
    assert paid.idle_s == 1.0 * 40
    assert paid.starting_or_leaving_s == 2 * 30
    assert (paid.peak_executors, paid.peak_fleet_s) == (6, 240.0)


def test_executors_that_leave_are_paid_for_until_they_are_gone() -> None:
    leaving = Step(0.0, Snapshot(0.0, Fleet(2, 5, 2)), Decision.of(2, HOLD))
    paid = cost([leaving, turn(10.0, 2)])
    assert (paid.executor_s, paid.starting_or_leaving_s, paid.working_s) == (50.0, 30.0, None)


def test_delays_weigh_by_the_records_that_each_turn_processed() -> None:
    steps = [
        turn(0.0, throughput_rps=5.0, delay_s=2.0),
        turn(10.0, throughput_rps=70.0, delay_s=2.0),
        turn(20.0, throughput_rps=20.0, delay_s=30.0),
        turn(30.0, throughput_rps=10.0, delay_s=30.0),
    ]
    found = delays(steps)
    # 700 records at 2 s, 200 between 2 s and 30 s, 100 at 30 s.
    assert (found.quantile(0.5), found.quantile(0.7), found.quantile(0.95)) == (2.0, 2.0, 30.0)
    assert found.quantile(0.8) == pytest.approx(16.0, abs=0.1)
    assert (found.within(1.0), found.within(2.0)) == (0.0, 0.7)
    assert found.within(9.0) == pytest.approx(0.75, abs=0.001)


def test_records_that_still_wait_at_the_end_count_with_their_age() -> None:
    steps = [
        turn(0.0, delay_s=1.0),
        turn(10.0, throughput_rps=30.0, delay_s=1.0),
        turn(20.0, throughput_rps=0.0, delay_s=10.0, backlog_records=300.0),
    ]
    found = delays(steps)
    # 300 records waited 1 s; of the 300 that wait, half have waited longer than 5 s.
    assert found.within(5.0) == pytest.approx(0.75, abs=0.001)
    assert found.quantile(1.0) == pytest.approx(10.0, abs=0.01)


def test_where_no_rate_was_measured_each_turn_counts_alike() -> None:
    found = delays([turn(10.0 * i, delay_s=float(i)) for i in range(4)])
    assert found.fraction == [0.25, 0.5, 0.75, 1.0]


def test_a_delay_curve_of_many_points_is_drawn_with_few_and_keeps_its_ends() -> None:
    full = delays([turn(10.0 * i, throughput_rps=1.0, delay_s=i / 7.0) for i in range(20_000)])
    drawn = full.drawn()
    assert len(drawn.delay_s) <= 402
    assert (drawn.delay_s[0], drawn.delay_s[-1], drawn.fraction[-1]) == (
        0.0,
        full.delay_s[-1],
        full.fraction[-1],
    )
    for share in (0.1, 0.5, 0.9, 0.99, 0.999):
        assert drawn.quantile(share) == pytest.approx(full.quantile(share) or 0.0, rel=0.01)


def test_the_summary_is_that_of_a_run_counted_by_hand() -> None:
    steps = [
        turn(0.0, 4, throughput_rps=60.0, delay_s=1.0),
        turn(1800.0, 4, 6, throughput_rps=90.0, delay_s=20.0),
        turn(3600.0, 6, throughput_rps=90.0, delay_s=2.0),
        blind(5400.0, 6),
        turn(7200.0, 6, throughput_rps=60.0, delay_s=2.0),
    ]
    # Of 540 k records 162 k waited between 1 s and 20 s, as many between 20 s and 2 s.
    found = summary([("run", steps)], slo_s=10.0)[0].account
    assert (found.turns, found.span_s, found.blind_turns, found.refused) == (5, 7200.0, 1, 0)
    assert (found.executor_hours, found.mean_executors) == (10.0, 5.0)
    assert found.saved_fraction == pytest.approx(2.0 / 12.0)
    assert found.late_fraction == pytest.approx(0.3 * (10 / 19 + 10 / 18), abs=0.001)
    assert found.max_s == pytest.approx(20.0, abs=0.1)
    assert (found.rescales, found.moved_executors) == (1, 2)


# Decisions ---------------------------------------------------------------------------------------


def test_turns_in_a_row_that_decide_the_same_are_one_row() -> None:
    steps = [turn(0.0), turn(10.0), turn(20.0, 4, 6), turn(30.0, 6), blind(40.0, 6), turn(50.0, 6)]
    found = rows(steps)
    assert [(row.kind, row.at_s, row.until_s, row.turns) for row in found] == [
        ("hold", 0.0, 10.0, 2),
        ("up", 20.0, 20.0, 1),
        ("hold", 30.0, 30.0, 1),
        ("blind", 40.0, 40.0, 1),
        ("hold", 50.0, 50.0, 1),
    ]


def test_a_refusal_tells_what_the_actuator_answered() -> None:
    decision = Decision.of(6, Reason("load_rises", "load rises")).limited_to(
        5, Reason("max_executors", "5 is the most")
    )
    row = rows([Step(0.0, seen(0.0), decision, Receipt(False, "the cluster is full"))])[0]
    assert (row.kind, row.before, row.after, row.wanted) == ("refused", 4, 5, 6)
    assert row.text == "load rises; 5 is the most; refused: the cluster is full"


def test_holds_give_way_before_moves_when_there_are_too_many_rows() -> None:
    found = rows([step for i in range(4) for step in (turn(20.0 * i), turn(20.0 * i + 10, 4, 5))])
    assert [row.kind for row in weightiest(found, 5)] == ["hold", "up", "up", "up", "up"]
