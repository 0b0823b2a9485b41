"""Filters before thresholds (Borkowski et al.): the testbed on paper, the claims, break-even."""

from __future__ import annotations

import pytest

from penstock.lab.papers import borkowski2019
from penstock.lab.papers.borkowski2019 import (
    Cell,
    Measured,
    Setting,
    calibrate,
    kalman,
    load,
    reproduce,
    run,
    size_rules,
)
from penstock.lab.papers.borkowski_tables import (
    FILTERS,
    PAPER,
    SCENARIOS,
    Results,
    box_plots,
    break_even,
    claims,
    result_table,
)
from penstock.lab.papers.study import Comparison
from penstock.lab.statistics import mean
from penstock.policies.thresholds import Thresholds
from penstock.simulation.continuous import ContinuousJob
from penstock.simulation.dataflow import Operator
from penstock.simulation.fleet import Startup

TESTBED = Setting(0.2, 0.05)
NO_SIZES = Comparison("none", (), ())


def published(scatter: float = 0.001) -> Results:
    """Runs that scatter a little around the means of the paper."""
    return {
        (scenario, rule): [
            Measured(**{
                name: value * (1000.0 / 20.0 if name == "violations" else 1.0) * (1.0 + scatter * z)
                for name, value in PAPER[scenario][rule].items()
            })
            for z in (-1.0, 0.0, 1.0)
        ]
        for scenario in SCENARIOS
        for rule in FILTERS
    }  # fmt: skip


def test_the_loads_are_those_of_the_paper() -> None:
    pyramid, square = load("Pyramid"), load("Square")
    assert len(pyramid) == len(square) == len(load("Lab")) == 2700
    assert [pyramid[130 * step] for step in range(9)] == [0, 15, 30, 45, 60, 45, 30, 15, 0]
    assert (square[369], square[370], square[740]) == (1.0, 65.0, 1.0)
    assert mean(load("Lab")) == pytest.approx(37.0, rel=0.03)
    assert load("Lab") == load("Lab")


def test_a_fleet_that_takes_from_one_queue_grows_and_shrinks_without_a_stop() -> None:
    job = ContinuousJob(
        operators=(Operator("images", 0.2),),
        contention=0.0,
        speed_spread=0.0,
        capacity_noise=0.0,
        startup=Startup(10.0, 10.0),
        stops_to_rescale=False,
    )
    engine = job.start([20.0] * 300, executors=2, seed=1)
    engine.read(60.0)
    engine.apply(8, 60.0)
    assert engine.read(69.0).throughput_rps == pytest.approx(10.0)  # two of them, five each
    assert engine.read(80.0).throughput_rps == pytest.approx((10.0 + 10 * 40.0) / 11.0)
    assert engine.capacity_rps == pytest.approx(40.0)
    engine.apply(3, 80.0)
    assert engine.read(90.0).throughput_rps == pytest.approx(15.0)


def test_the_kalman_filter_learns_what_an_image_costs_and_how_noisy_the_gauge_is() -> None:
    policy = kalman(TESTBED)
    # 0.2 s of a core per image: one image/s more is 0.2 cpu more, less 2 % when idle.
    assert policy.rate_effects[0] == pytest.approx(0.2, rel=0.05)
    assert policy.rate_effects[1] == pytest.approx(0.06, rel=0.1)
    # At 40 images/s on 16 VMs cpu is 0.5: 5 % of it is 0.025.
    assert policy.noise == pytest.approx(0.025**2, rel=0.3)


def test_a_run_reports_what_the_study_does_and_repeats() -> None:
    cell = Cell("Square", Thresholds(filter="pure"), 1, TESTBED)
    measured = run(cell)
    assert measured == run(cell)
    assert measured.image_s == pytest.approx(measured.query_s + 0.2)
    assert 7.0 < measured.vm_hours < 10.0
    assert 150 < measured.events < 400


def test_the_kalman_filter_rescales_least() -> None:
    events = {
        rule.filter: run(Cell("Square", rule, 1, TESTBED)).events
        for rule in (Thresholds(filter="pure"), Thresholds(filter="gauss"), kalman(TESTBED))
    }
    assert events["ekf"] < 0.2 * events["pure"]
    assert events["ekf"] < 0.25 * events["gauss"]


def test_the_calibration_prefers_the_testbed_whose_pure_runs_look_like_the_papers() -> None:
    best, error = calibrate(1, [Setting(0.1, 0.05), TESTBED])
    assert best == TESTBED
    assert error < 0.2


def test_all_claims_hold_on_the_papers_own_numbers() -> None:
    found = claims(published(), NO_SIZES)
    assert [claim.claim for claim in found] == ["B1", "B2", "B3", "B4"]
    assert all(claim.holds for claim in found)
    assert found[0].evidence["Pyramid, against GW"] == pytest.approx(0.808, abs=0.001)


def test_what_scatters_too_much_is_not_significant() -> None:
    significant = claims(published(scatter=0.5), NO_SIZES)[3]
    assert not significant.holds
    assert significant.reason
    assert significant.evidence["significant"] < significant.evidence["pairs"] == 36.0


def test_claims_fail_where_the_filters_do_not_differ() -> None:
    alike = {
        (scenario, rule): published()[scenario, "PURE"]
        for scenario in SCENARIOS
        for rule in FILTERS
    }
    assert [claim.holds for claim in claims(alike, NO_SIZES)] == [False, False, True, False]


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


def test_sizing_for_less_load_takes_more_vms() -> None:
    entries = size_rules(kalman(TESTBED), TESTBED, 1, 1).entries
    pyramid = [e.ours["vm_hours"] or 0.0 for e in entries if e.label.startswith("Pyramid")]
    assert pyramid == sorted(pyramid)


def test_the_study_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borkowski2019, "RUN_S", 400)
    heard: list[str] = []
    study = reproduce(1, heard.append, runs=2, grid=[TESTBED])
    assert heard[0] == "calibrating on 1 testbeds"
    assert [claim.claim for claim in study.claims] == ["B1", "B2", "B3", "B4"]
    assert [table.title[:7] for table in study.tables[:3]] == ["Table 3", "Table 4", "Table 5"]
    assert study.calibrations[0].fitted["service_s"] == 0.2
    assert all(claim.holds or claim.reason for claim in study.claims)
