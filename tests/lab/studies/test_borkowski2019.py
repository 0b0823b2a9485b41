"""Filters before thresholds (Borkowski et al.): the simulated testbed, the claims, break-even."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from penstock.lab.experiments.statistics import mean
from penstock.lab.studies import borkowski2019
from penstock.lab.studies.borkowski2019 import (
    FILTERS,
    PAPER,
    SCENARIOS,
    BorkowskiCell,
    BorkowskiRun,
    Results,
    box_plots,
    break_even,
    calibrate,
    claims,
    kalman,
    load,
    nearest,
    result_table,
    run,
    size_rules,
    study,
    warm_start,
)
from penstock.lab.studies.borkowski_testbed import Cloud
from penstock.lab.studies.skeleton import Bench
from penstock.lab.studies.study import Claim, Comparison, Entry
from penstock.policies.thresholds.thresholds import Thresholds

TESTBED = Cloud(work_s=0.2, gauge_noise=0.05, swing=0.03, transfer_s=0.05)


def published(scatter: float = 0.001) -> Results:
    """Runs that scatter a little around the means of the paper."""
    return {
        (scenario, rule): [
            msgspec.convert(
                {n: value * (1.0 + scatter * z) for n, value in PAPER[scenario][rule].items()},
                BorkowskiRun,
            )
            for z in (-1.0, 0.0, 1.0)
        ]
        for scenario in SCENARIOS
        for rule in FILTERS
    }  # fmt: skip


def published_claims(results: Results) -> list[Claim]:
    entries = tuple(
        Entry(label, {}, {"violations": value}) for label, value in borkowski2019.TABLE_2.items()
    )
    return claims(results, Comparison("", (), entries))


def test_the_loads_are_those_of_the_paper() -> None:
    pyramid, square = load("Pyramid"), load("Square")
    assert len(pyramid) == len(square) == len(load("Lab")) == 2700
    assert [pyramid[130 * step] for step in range(9)] == [0, 15, 30, 45, 60, 45, 30, 15, 0]
    assert (square[369], square[370], square[740]) == (1.0, 65.0, 1.0)
    assert mean(load("Lab")) == pytest.approx(37.0, rel=0.03)
    assert load("Lab") == load("Lab")


@pytest.fixture(scope="module")
def policy() -> Thresholds:
    return kalman(TESTBED)


@pytest.fixture(scope="module")
def pure_on_square() -> BorkowskiRun:
    return run(BorkowskiCell("Square", Thresholds(filter="pure"), 1, TESTBED))


def test_the_kalman_filter_learns_what_an_image_costs(policy: Thresholds) -> None:
    # 0.2 s of a core per image: one image/s more is 0.2 cpu more, less 3 % when idle.
    assert policy.rate_effects[0] == pytest.approx(0.194, rel=0.1)
    assert policy.noise == pytest.approx(0.05**2)


def test_a_run_starts_with_the_mean_fleet_of_the_papers_runs_with_that_filter() -> None:
    # 8.0, 8.4 and 8.9 h in 45 min on Pyramid.
    assert [warm_start("Pyramid", name) for name in ("pure", "gauss", "ekf")] == [11, 11, 12]


def test_a_run_reports_what_the_study_does(pure_on_square: BorkowskiRun) -> None:
    measured = pure_on_square
    assert measured.image_s == pytest.approx(measured.query_s + 0.2, abs=0.03)
    assert 7.0 < measured.vm_hours < 10.0
    assert 150 < measured.events < 400


def test_the_same_seed_gives_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borkowski2019, "RUN_S", 500)
    cell = BorkowskiCell("Square", Thresholds(filter="pure"), 1, TESTBED)
    assert run(cell) == run(cell)


def test_the_kalman_filter_rescales_least_and_keeps_images_from_waiting(
    policy: Thresholds, pure_on_square: BorkowskiRun
) -> None:
    gauss = run(BorkowskiCell("Square", Thresholds(filter="gauss"), 1, TESTBED))
    sized = dataclasses.replace(policy, sized_for_fraction=0.45)
    ekf = run(BorkowskiCell("Square", sized, 1, TESTBED))
    for other in (pure_on_square, gauss):
        assert ekf.events < 0.3 * other.events
        assert ekf.image_s < 0.7 * other.image_s


def test_the_calibration_prefers_the_testbed_whose_runs_look_like_the_papers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(borkowski2019, "FITTED_LOADS", ("Square",))
    stages = [([51], 1)]
    best, error = calibrate(Bench(1), 0.45, [Cloud(work_s=0.1), TESTBED], stages)
    assert best == TESTBED
    assert error < 0.2


def test_all_claims_hold_on_the_papers_own_numbers() -> None:
    found = published_claims(published())
    assert [claim.claim for claim in found] == [f"B{i}" for i in range(1, 16)]
    assert [claim.claim for claim in found if claim.holds is not True] == ["B15"]
    assert found[0].evidence["Pyramid, EKF, events"] == pytest.approx(58.5)
    assert found[9].evidence == {"50% and 80%": 60.056, "40% and 80%": 61.16}
    # A VM hour of $0.0612 and a margin of 1.05.
    assert found[13].evidence["least penalty ($)"] == pytest.approx(0.0583, abs=0.0003)


def test_what_scatters_too_much_is_not_significant() -> None:
    significant = published_claims(published(scatter=0.5))[3]
    assert not significant.holds
    assert significant.reason
    assert significant.evidence["significant"] < significant.evidence["pairs"] == 36.0


def test_claims_fail_where_the_filters_do_not_differ() -> None:
    alike = {
        (scenario, rule): published()[scenario, "PURE"]
        for scenario in SCENARIOS
        for rule in FILTERS
    }
    holding = [claim.claim for claim in published_claims(alike) if claim.holds]
    assert holding == ["B10", "B14"]


def test_the_break_even_of_the_paper_comes_out_of_its_tables() -> None:
    (entry,) = break_even(published()).entries
    assert entry.paper["VM hour / penalty"] == pytest.approx(1.05, abs=0.005)
    assert entry.paper["VM hour / revenue"] == pytest.approx(1.6475, abs=0.005)
    assert entry.ours == pytest.approx(entry.paper)


def test_tables_stand_beside_those_of_the_paper() -> None:
    table = result_table("Lab", published())
    assert table.title == "Table 5: Lab"
    for paper, ours in table.pairs("violations"):
        assert ours == pytest.approx(paper)


def test_boxes_show_how_runs_scatter_around_the_mean_of_the_paper() -> None:
    events = box_plots(published())[1].boxes[0]
    assert (events.name, events.group, events.paper) == ("PURE", "Pyramid", 420.6)
    least, _, median, _, most = events.five
    assert (least, median, most) == pytest.approx((420.1794, 420.6, 421.0206))
    violations = box_plots(published())[4].boxes[0]
    assert violations.five[2] == pytest.approx(violations.paper)  # thousands over 20 runs


def test_sizing_for_less_load_takes_more_vms_and_the_lower_threshold_comes_nearest(
    policy: Thresholds,
) -> None:
    readings = size_rules(Bench(1), policy, TESTBED, 1)
    hours = [entry.ours["vm_hours"] or 0.0 for entry in readings.entries]
    assert hours == sorted(hours)
    assert nearest(readings) == 0.45


def test_the_study_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borkowski2019, "RUN_S", 400)
    monkeypatch.setattr(borkowski2019, "SENSITIVITY_S", 140)
    heard: list[str] = []
    found = study(runs=2, grid=[TESTBED]).reproduce(Bench(1, heard.append))
    assert "calibrating on 1 testbeds" in heard
    assert heard[-1] == "18 runs: 18 of 18"
    assert [claim.claim for claim in found.claims] == [f"B{i}" for i in range(1, 16)]
    assert [table.title[:7] for table in found.tables[:4]] == [f"Table {i}" for i in range(2, 6)]
    assert len(found.tables[0].entries) == 21
    vms, cpu = found.figures[:2]
    assert [line.name for line in vms.lines] == list(FILTERS)  # type: ignore[union-attr]
    assert len(cpu.lines[1].y) == 80  # type: ignore[union-attr]  # every 5 s
    assert found.calibrations[0].fitted["work_s"] == 0.2
    assert all(claim.holds or claim.reason for claim in found.claims)
