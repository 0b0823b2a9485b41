"""Daedalus against Kubernetes and a fixed fleet: loads, estimates, claims."""

from __future__ import annotations

import msgspec
import pytest

from penstock.lab.studies.daedalus2024 import (
    PEAK_FRACTION,
    RUN_S,
    DaedalusCell,
    calibrate,
    engine_job,
    load,
    run,
    seconds_waited,
    study,
)
from penstock.lab.studies.daedalus_tables import (
    JOBS,
    MOST,
    PAPER,
    DaedalusResult,
    Recovery,
    claims,
)
from penstock.lab.studies.skeleton import Bench
from penstock.simulation.engines.engine import Curve, Outcome

NAMES = [f"D{i}" for i in range(1, 22)]


def published() -> dict[tuple[str, str], list[DaedalusResult]]:
    return {
        (job, policy): [
            DaedalusResult(
                workers=PAPER[job][policy]["workers"],
                latency_ms=PAPER[job][policy]["latency_ms"],
                p50_ms=0.0,
                p95_ms=0.0,
                capacity_errors=(0.01, 0.02, 0.03, 0.04),
                wapes=(0.01, 0.02, 0.03, 0.04),
                recoveries=(Recovery(100.0, 96.0), Recovery(240.0, 100.0)),
                rescales=30.0 if policy == "Daedalus" else 17.0,
                longest_ms=88_000.0,
                falling_over_rising=0.9 if policy == "Daedalus" else 1.1,
                profiling=9.1 if policy == "Phoebe" else 0.0,
            )
        ]
        for job in PAPER
        for policy in PAPER[job]
    }


def test_the_sine_has_the_shape_of_the_paper() -> None:
    rates = load("WordCount")
    peak = PEAK_FRACTION * engine_job("WordCount").capacity_rps(MOST)
    assert len(rates) == RUN_S
    # int(27500 sin + 32500): 60000 after 2700 s, 5000 after 8100 s, 32500 at the start.
    assert rates[2700] == max(rates) == pytest.approx(peak)
    assert rates[8100] / rates[2700] == pytest.approx(5000 / 60000, rel=1e-3)
    assert rates[0] / rates[2700] == pytest.approx(32500 / 60000, rel=1e-6)


@pytest.mark.parametrize(("job", "share"), [("YSB", 211_334 / 550_000), ("Traffic", 0.3)])
def test_recorded_loads_keep_their_mean_relative_to_their_peak(job: str, share: float) -> None:
    rates = load(job)
    assert len(rates) == RUN_S
    assert max(rates) == pytest.approx(PEAK_FRACTION * engine_job(job).capacity_rps(MOST))
    assert sum(rates) / RUN_S / max(rates) == pytest.approx(share, rel=0.02)


def test_twelve_workers_idle_as_much_as_the_recorded_ones_when_the_busiest_is_full() -> None:
    job = engine_job("WordCount")
    engine = job.start([2.0 * job.capacity_rps(MOST)] * 300, executors=MOST, seed=1)
    engine.read(60.0)
    cpus = [one.cpu_fraction or 0.0 for one in engine.read(300.0).executors]
    assert max(cpus) == pytest.approx(1.0, abs=0.05)
    assert sum(cpus) / MOST == pytest.approx(0.80, abs=0.03)


def test_latency_is_that_of_whatever_leaves_and_a_stopped_job_has_none() -> None:
    arrivals = Curve([0.0, 10.0], [0.0, 10.0])
    # Nothing leaves until second 5, then two a second.
    departures = Curve([0.0, 5.0, 10.0], [0.0, 0.0, 10.0])
    waited = seconds_waited(Outcome(10.0, arrivals, departures, [], []))
    assert waited.tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]


def test_a_run_of_daedalus_compares_its_estimates_with_the_truth() -> None:
    cell = DaedalusCell("Traffic", "Daedalus", 1, 0.9)
    measured = run(cell)
    assert measured == run(cell)
    assert 2.0 < measured.workers < 7.0
    assert len(measured.wapes) > 300
    assert len(measured.recoveries) > 5
    followed = [one for one in measured.recoveries if one.measured_s and one.caught_up_s]
    assert len(followed) > 0.8 * len(measured.recoveries)
    # The instrument no longer sees the slow end of catching up.
    shorter = [one for one in followed if (one.measured_s or 0.0) <= (one.caught_up_s or 0.0) + 10]
    assert len(shorter) > 0.9 * len(followed)


def test_a_fixed_fleet_has_no_estimates_and_no_rescales() -> None:
    measured = run(DaedalusCell("WordCount", "static", 1, 0.9))
    assert (measured.workers, measured.rescales) == (12.0, 0.0)
    assert measured.latency_ms == pytest.approx(961.0, rel=0.01)
    assert measured.capacity_errors == ()
    assert measured.recoveries == ()


def test_the_calibration_lowers_the_request_until_hpa_has_the_workers_of_the_paper() -> None:
    requests = calibrate(Bench(1), [0.5, 0.9])
    assert requests["YSB"] == 0.5  # HPA 80 held 10 of 12 workers on it
    assert requests["WordCount"] == 0.9  # and 7.8 on this


def test_all_claims_hold_on_the_papers_own_numbers() -> None:
    found = claims(published())
    assert [claim.claim for claim in found] == NAMES
    assert [claim.claim for claim in found if claim.holds is not True] == ["D20", "D21"]
    assert found[0].evidence["Traffic, Daedalus, workers"] == 3.5


def test_claims_that_fail_say_why() -> None:
    results = published()
    recoveries = (Recovery(60.0, 100.0),)
    bad = DaedalusResult(19.0, 1e6, 0.0, 0.0, 0.0, (0.2,), (0.3,), recoveries, (), 1e6, 1.2)
    for job in PAPER:
        results[job, "Daedalus"] = [bad]
    found = claims(results)
    # Phoebe has the lower latency still.
    assert [claim.claim for claim in found if claim.holds] == ["D13"]
    assert all(claim.reason for claim in found if not claim.holds)


def test_a_recovery_is_judged_by_the_instrument_of_the_study() -> None:
    results = published()
    slow_end = Recovery(predicted_s=100.0, measured_s=60.0, caught_up_s=140.0)
    unseen = Recovery(predicted_s=100.0, caught_up_s=90.0)
    for job in PAPER:
        results[job, "Daedalus"][0] = msgspec.structs.replace(
            results[job, "Daedalus"][0], recoveries=(slow_end, unseen)
        )
    claim = claims(results)[5]
    assert claim.holds
    assert claim.evidence["rescales"] == 3.0
    assert claim.evidence["part that had nothing waiting by then"] == 0.5


def test_no_rescale_is_no_evidence_for_a_recovery() -> None:
    results = published()
    for job in JOBS:
        results[job, "Daedalus"] = [DaedalusResult(5.0, 1.0, 0.0, 0.0, 0.0)]
    assert claims(results)[5].evidence == {"rescales": 0.0}


def test_the_study_comes_out_as_published() -> None:
    found = study(runs=1, requests=(0.45, 0.7, 0.8, 1.3)).reproduce(Bench(1))
    assert [claim.claim for claim in found.claims] == NAMES
    assert len(found.figures) == 3 + 5 * 3 + 1
    assert {claim.claim for claim in found.claims if claim.holds} >= {"D2", "D4", "D5", "D6"}
    assert all(claim.holds or claim.reason for claim in found.claims)
    assert found.calibrations[0].errors["workers, HPA 85 (not fitted)"] < 0.15
    assert found.calibrations[0].errors["workers, Daedalus (not fitted)"] < 0.2
    assert [table.title.partition(":")[0] for table in found.tables[:5]] == list(PAPER)
