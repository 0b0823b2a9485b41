"""The image pipeline of Russo Russo et al., and the engine that follows each of its records."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.lab.experiments.statistics import mean
from penstock.lab.studies.russo2021 import (
    GRID,
    RussoCell,
    RussoResult,
    Setting,
    calibrate,
    claims,
    run,
    study,
)
from penstock.lab.studies.skeleton import Bench
from penstock.policies.queueing.formulas import Station, response_time_s
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.records import RecordJob, poisson_instants
from penstock.simulation.workloads.expressions import parse_workload


def one_queue(service_s: float, cv2: float = 1.0) -> RecordJob:
    return RecordJob(
        operators=(Operator("recognise", service_s, service_cv2=cv2),), answer="recognise"
    )


@pytest.mark.parametrize(
    ("servers", "rate_rps", "cv2"), [(1, 5.0, 1.0), (2, 15.0, 1.0), (1, 5.0, 0.2)]
)
def test_records_wait_as_long_as_queueing_theory_says(
    servers: int, rate_rps: float, cv2: float
) -> None:
    # Ten records/s per server, half or three quarters busy: M/M/1, M/M/2 and M/G/1.
    pipeline = one_queue(0.1, cv2).start([rate_rps] * 20_000, executors=servers, seed=3)
    pipeline.finish()
    expected_s = response_time_s(Station(rate_rps, 10.0, 1.0, cv2), servers)
    assert mean(pipeline.responses_s) == pytest.approx(expected_s, rel=0.05)


def test_the_gauges_show_the_load_and_its_variation() -> None:
    pipeline = one_queue(0.1, 0.5).start([5.0] * 4000, executors=1, seed=1)
    (operator,) = pipeline.read(4000.0).operators
    assert operator.busy_fraction == pytest.approx(0.5, abs=0.03)
    assert operator.input_rps == pytest.approx(5.0, rel=0.05)
    assert operator.service_time_s == pytest.approx(0.1, rel=0.05)
    assert operator.service_cv2 == pytest.approx(0.5, rel=0.1)
    assert operator.arrival_cv2 == pytest.approx(1.0, rel=0.1)


def test_an_operator_that_falls_behind_is_busy_all_the_time_and_its_queue_grows() -> None:
    pipeline = one_queue(0.5, 0.0).start([4.0] * 600, executors=1, seed=1)
    snapshot = pipeline.read(600.0)
    assert snapshot.operators[0].busy_fraction == pytest.approx(1.0, abs=0.01)
    # Two a second are done, four come.
    assert snapshot.backlog_records == pytest.approx(1200.0, rel=0.1)
    assert snapshot.delay_s == pytest.approx(300.0, rel=0.1)


def test_a_rescale_stops_nothing_and_new_executors_help_once_they_are_there() -> None:
    job = RecordJob(
        operators=(Operator("recognise", 0.5, service_cv2=0.0),),
        answer="recognise",
        startup=Startup(10.0, 10.0),
    )
    pipeline = job.start([4.0] * 400, executors=1, seed=1)
    pipeline.read(100.0)
    assert pipeline.apply(4, 100.0).accepted
    assert pipeline.read(105.0).fleet.registered == 1
    during = pipeline.read(109.0)
    assert during.operators[0].input_rps == pytest.approx(2.0, abs=0.3)
    assert pipeline.read(111.0).fleet.registered == 4
    assert pipeline.read(160.0).backlog_records == pytest.approx(0.0, abs=20.0)
    assert pipeline.apply(4, 160.0).text == "4 executors were asked for already"


def test_each_resizer_sees_every_image() -> None:
    pipeline = Setting(0.5, 1.4).job().start([4.0] * 1000, executors=3, seed=1)
    rates = [operator.input_rps for operator in pipeline.read(1000.0).operators]
    assert rates == pytest.approx([rates[0]] * 4, rel=0.01)


@given(
    st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60), st.integers(1, 4), st.integers(0, 9)
)
def test_records_are_neither_lost_nor_made(rates: list[float], executors: int, seed: int) -> None:
    pipeline = one_queue(0.2).start(rates, executors=executors, seed=seed)
    outcome = pipeline.finish()
    arrived, answered = outcome.arrivals.records[-1], outcome.departures.records[-1]
    assert arrived == len(poisson_instants(rates, Random(seed + 1)))
    assert 0.0 <= answered <= arrived
    assert all(response_s >= 0.0 for response_s in pipeline.responses_s)
    assert outcome.arrivals.at_s == sorted(outcome.arrivals.at_s)
    assert outcome.departures.at_s == sorted(outcome.departures.at_s)


def test_a_record_job_knows_its_operators() -> None:
    with pytest.raises(ConfigError, match="recognize"):
        RecordJob(operators=(Operator("recognise", 0.1),), answer="recognize")
    with pytest.raises(ConfigError, match="selectivity 1"):
        RecordJob(operators=(Operator("filter", 0.1, selectivity=0.5),), answer="filter")


def test_the_same_seed_gives_the_same_run() -> None:
    cell = RussoCell("queueing", 4, Setting(0.5, 1.4))
    assert run(cell) == run(cell)


def test_the_load_keeps_as_many_recognisers_busy_as_it_says() -> None:
    setting = Setting(0.5, 1.4)
    rates = setting.rates()
    assert len(rates) == 3600
    assert mean(rates) * 0.5 == pytest.approx(1.4)


def test_the_calibration_picks_the_pipeline_nearest_to_the_backlog_threshold_of_the_paper() -> None:
    # Images of 0.4 s wait 17 s at these thresholds, those of 0.55 s about 23 s.
    assert calibrate(Bench(1), [Setting(0.4, 1.4), Setting(0.55, 1.4)]) == Setting(0.55, 1.4)
    assert len(set(GRID)) == len(GRID)


def test_a_claim_that_does_not_hold_says_so() -> None:
    slow = RussoResult(5.0, 2.0, 9.0, 10.0)
    results = {"backlog threshold": [slow], "DS2": [slow], "queueing": [slow]}
    found = claims(results)
    assert [claim.holds for claim in found if claim.holds is not None] == [
        False, False, False, False, False, True, False, False,
    ]  # fmt: skip
    assert all(claim.reason for claim in found if not claim.holds)


def test_the_study_comes_out_as_published() -> None:
    found = study(runs=2).reproduce(Bench(1))
    assert [claim.claim for claim in found.claims] == [f"R{i}" for i in range(1, 10)]
    verdicts = {claim.claim: claim.holds for claim in found.claims}
    assert [verdicts[name] for name in ("R1", "R2", "R3")] == [True] * 3
    assert verdicts["R6"] is None
    assert [figure.title.partition(":")[0] for figure in found.figures] == [
        "Figure 4", "Figure 5", *["Figure 6"] * 2, *["Figure 7"] * 2, *["Figure 8"] * 2,
    ]  # fmt: skip
    assert len(found.rows) == 3 * 2 * 7
    ours = {entry.label: entry.ours for entry in found.tables[0].entries}
    assert ours["queueing"]["response_s"] == pytest.approx(0.9, abs=0.25)
    assert ours["backlog threshold"]["instances"] == pytest.approx(3.5, abs=0.2)
    assert found.calibrations[0].errors["instances"] < 0.2


def test_the_named_load_has_the_shape_of_the_study() -> None:
    rates = Setting(0.5, 1.4).rates()
    named = parse_workload("pulsar").rates(3_600, 0, lambda _: max(rates))
    assert named == pytest.approx(rates)
    assert rates[0] == pytest.approx(0.4 * 1.4 / 0.5)  # images/s
