"""Koper's study: what was published, how it measured, and what its claims are checked on."""

from __future__ import annotations

from math import cos, pi

import msgspec
import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Fleet, Snapshot
from penstock.lab.studies import koper2022
from penstock.lab.studies.claims import judge
from penstock.lab.studies.koper2022 import KoperCell, KoperResult, measure, policy_text, run
from penstock.lab.studies.koper_recordings import (
    QUERIES,
    TEXT,
    busiest_to_mean,
    recordings,
    rows_of,
    sink_records,
    template,
)
from penstock.lab.studies.koper_sensors import StudyGauges
from penstock.lab.studies.study import Claim
from penstock.policies.algorithms.dataflow import measure as dataflow_of
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation.calibration.fit_continuous import replay
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Dataflow, Operator
from penstock.simulation.engines.engine import Curve, Level, Outcome
from penstock.simulation.engines.fleet import Startup


def test_all_54_published_rows_are_there_and_their_runs_recompute_to_them() -> None:
    for query in QUERIES:
        rows = {(row.scaler, row.setting): row for row in recordings().tables[query]}
        assert len(rows) == 18
        assert {scaler for scaler, _ in rows} == set(recordings().scalers)
        for one in recordings().runs:
            if one.query != query:
                continue
            published = rows[one.scaler, one.setting]
            latency_s = sum(row[5] for row in one.rows) / len(one.rows)
            workers = sum(row[2] for row in one.rows) / len(one.rows)
            assert latency_s == pytest.approx(published.latency_s, abs=0.01)
            assert workers == pytest.approx(published.workers, abs=0.01)


def test_each_query_has_a_recorded_run_of_every_scaler_at_its_middle_setting() -> None:
    for query in QUERIES:
        middle: dict[str, list[int]] = {}
        for row in recordings().tables[query]:
            middle.setdefault(row.scaler, []).append(row.setting)
        recorded = {run.scaler: run.setting for run in recordings().runs if run.query == query}
        assert recorded == {scaler: sorted(all_)[1] for scaler, all_ in middle.items()}


@pytest.mark.parametrize(("query", "mean", "amplitude"), [
    ("q1", 150e3, 100e3), ("q3", 50e3, 25e3), ("q11", 100e3, 50e3),
])  # fmt: skip
def test_the_load_is_the_cosine_of_table_4_1_and_the_one_of_all_recorded_runs(
    query: str, mean: float, amplitude: float
) -> None:
    load_rps = recordings().loads_rps[query]
    assert len(load_rps) == 140
    for minute, rps in enumerate(load_rps):
        assert abs(rps - mean - amplitude * cos(2 * pi * minute / 60)) <= 10_100
    for one in recordings().runs:
        if one.query == query:
            # A recorded rate is the mean of the minute before it, which may begin a little early.
            off = [abs(one.rows[4 * i + 4][1] - rps) for i, rps in enumerate(load_rps)]
            assert sum(off) < 0.05 * sum(load_rps)


def test_what_is_joined_while_records_wait_is_no_throughput() -> None:
    ds2 = next(run for run in recordings().runs if (run.query, run.scaler) == ("q3", "ds2"))
    rows = rows_of(ds2)
    for row in rows:
        assert row.delay_s is not None
        assert (row.throughput_rps is None) == (row.delay_s > 1.0)


def test_what_reaches_the_sink_is_all_of_it_or_half_of_it() -> None:
    assert sink_records("q1") == pytest.approx(1.0, abs=0.02)
    assert sink_records("q3") == pytest.approx(0.48, abs=0.03)
    assert sink_records("q11") == pytest.approx(1.0, abs=0.02)


def test_the_decisions_of_ds2_tell_how_busy_the_busiest_operator_was() -> None:
    # Of 32 rescales on query 1, 29 agree with 1.27, and of 33 on query 11, 24 with 1.16.
    assert busiest_to_mean("q1") == pytest.approx(1.27, abs=0.01)
    assert busiest_to_mean("q3") == pytest.approx(2.03, abs=0.01)
    assert busiest_to_mean("q11") == pytest.approx(1.16, abs=0.01)


@pytest.mark.parametrize("query", QUERIES)
def test_a_template_divides_the_work_as_the_gauges_say(query: str) -> None:
    flow = Dataflow(template(query).operators)
    busy = flow.regime([1.0]).busy
    ratio = busiest_to_mean(query)
    assert max(busy) / (sum(busy) / len(busy)) == pytest.approx(ratio, rel=0.01)
    assert flow.inputs[-1] == pytest.approx(1.0 if query == "q1" else sink_records(query))


def test_a_recorded_run_is_replayed_row_by_row() -> None:
    run = next(run for run in recordings().runs if run.query == "q11")
    rows = rows_of(run)[:60]
    shown = replay(template("q11"), rows, 60.0)
    assert [row.at_s for row in shown] == [row.at_s for row in rows]
    assert [row.workers for row in shown[5:]] == [row.workers for row in rows[5:]]


STEADY = ContinuousJob(
    operators=(
        Operator("source", 50e-6),
        Operator("sink", 50e-6, upstream=("source",)),
    ),
    speed_spread=0.0,
    capacity_noise=0.0,
    measurement_noise=0.0,
    restart_spread=0.0,
    restart_s=20.0,
    state_bytes=0.0,
    startup=Startup(0.0, 0.0),
    wait_for_workers_s=0.0,
)


def test_flink_tells_nothing_of_a_job_that_is_down() -> None:
    engine = StudyGauges(STEADY.start([5e3] * 200, executors=2, seed=1), minute_cpu=False)
    engine.read(15.0)
    engine.apply(1, 15.0)
    down = engine.read(30.0)
    assert (down.throughput_rps, down.delay_s, down.backlog_records, down.operators) == (
        None, None, None, (),
    )  # fmt: skip
    assert down.arrival_rps == pytest.approx(5e3)
    assert engine.read(60.0).throughput_rps is not None


def test_operators_that_start_up_are_not_idle() -> None:
    engine = StudyGauges(STEADY.start([5e3] * 200, executors=2, seed=1))
    idle = []
    for at_s in (15.0, 30.0, 45.0, 60.0, 75.0):
        seen = engine.read(at_s)
        idle.append([one.idle_fraction or 0.0 for one in seen.operators])
        if at_s == 15.0:
            engine.apply(1, at_s)
    assert idle[1] == []  # down until second 35
    assert idle[2] == [0.0, 0.0]
    assert min(idle[0][0], idle[4][0]) > 0.2


def test_cpu_is_a_mean_over_a_minute_and_unknown_before_the_first() -> None:
    rates = [2e3] * 60 + [8e3] * 60
    run = STEADY.start(rates, executors=1, seed=1)
    engine = StudyGauges(run, minute_cpu=True)
    plain = STEADY.start(rates, executors=1, seed=1)
    seen = {at_s: engine.read(float(at_s)).executors[0].cpu_fraction for at_s in range(15, 121, 15)}
    raw = {at_s: plain.read(float(at_s)).executors[0].cpu_fraction for at_s in range(15, 121, 15)}
    assert seen[45] is None
    assert seen[60] == seen[75] == seen[105] == pytest.approx(raw[30])
    assert seen[120] == pytest.approx(raw[90])


def test_a_worker_that_came_in_the_middle_of_a_minute_is_not_measured_yet() -> None:
    run = STEADY.start([5e3] * 200, executors=1, seed=1)
    engine = StudyGauges(run, minute_cpu=True)
    for at_s in range(15, 91, 15):
        engine.read(float(at_s))
    engine.apply(2, 90.0)
    engine.read(105.0)
    old, new = engine.read(120.0).executors
    assert old.cpu_fraction is not None
    assert new.cpu_fraction is None


def test_the_lag_is_the_largest_of_the_last_45_s() -> None:
    # Two workers do 20 k records/s: 10 s of 40 k leave 200 k, nearly worked off by second 30.
    rates = [40e3] * 10 + [10e3] * 200
    run = STEADY.start(rates, executors=2, seed=1)
    engine = StudyGauges(run)
    lags = [engine.read(float(at_s)).backlog_records for at_s in range(10, 71, 10)]
    assert lags[0] == pytest.approx(200e3, rel=0.05)
    assert lags[1:5] == [lags[0]] * 4
    assert lags[6] == pytest.approx(0.0, abs=10e3)


def test_varga_is_shown_the_lag_and_the_throughput_of_one_worker() -> None:
    # Two workers do 20 k records/s of the 30 k that arrive.
    runs = [STEADY.start([30e3] * 60, executors=2, seed=1) for _ in range(2)]
    whole = StudyGauges(runs[0]).read(30.0)
    shared = StudyGauges(runs[1], lag_per_worker=True).read(30.0)
    assert whole.backlog_records is not None
    assert whole.throughput_rps is not None
    assert shared.backlog_records == pytest.approx(whole.backlog_records / 2)
    assert shared.throughput_rps == pytest.approx(whole.throughput_rps / 2)


def test_ds2_takes_an_instance_of_two_chained_operators_for_two() -> None:
    needed = []
    for counted in (1, 2):
        run = STEADY.start([5e3] * 60, executors=4, seed=1)
        seen = StudyGauges(run, counted=counted).read(30.0)
        flow = dataflow_of(seen, [seen])
        assert not isinstance(flow, Decision)
        needed.append(flow.executors)
    assert needed[1] == pytest.approx(2.0 * needed[0])


def test_the_hpa_at_90_percent_grows_at_99_percent_as_kubernetes_did_then() -> None:
    busy = tuple(ExecutorSample(str(i), 0.0, cpu_fraction=0.99) for i in range(2))
    now = Snapshot(600.0, Fleet(2, 2, 2), executors=busy)
    study = read_policy_spec(policy_text("hpa", 90)).policy
    assert study.decide(now, Knowledge()).target_executors == 3
    assert (
        read_policy_spec("hpa:cpu_target=0.9").policy.decide(now, Knowledge()).target_executors == 2
    )


def test_lag_workers_and_rescales_are_sampled_every_15_s() -> None:
    # Ten records/s; nothing departs in the first 30 s, then all at 20/s until second 60.
    outcome = Outcome(
        60.0,
        Curve([0.0, 60.0], [0.0, 600.0]),
        Curve([0.0, 30.0, 60.0], [0.0, 0.0, 600.0]),
        [Level(0.0, 8), Level(20.0, 4), Level(40.0, 5), Level(44.0, 4)],
        [Level(0.0, 8), Level(20.0, 4), Level(40.0, 5), Level(57.0, 4)],
    )
    found = measure(outcome, 0.5, is_drawn=True)
    # Lags at 15, 30, 45, 60 s: 15, 30, 15, 0. Workers 8, 4, 4, 4.
    assert found.latency_s == pytest.approx(15.0 + 0.5)
    assert found.workers == pytest.approx(5.0)
    assert found.rescales == 1.0
    assert found.most_workers == 8.0
    # Fewer were asked for at 20 s, with a lag of 20 s, and at 57 s, with one of 3 s.
    assert found.late_shrinks == 1.0
    assert found.samples["latency"] == [15.5, 30.5, 15.5, 0.5]
    assert found.samples["workers"] == [8.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("scaler", recordings().scalers)
def test_every_scaler_runs_for_140_minutes_inside_the_bounds(scaler: str) -> None:
    setting = recordings().tables["q1"][0].setting if scaler == "hpa" else 50
    job = ContinuousJob(operators=(Operator("source", 6e-6), Operator("sink", 6e-6, ("source",))))
    found = run(KoperCell("q1", job, scaler, setting, seed=1))
    assert 1.0 <= found.workers <= 16.0
    assert found.latency_s >= job.pipeline_latency_s
    assert run(KoperCell("q1", job, scaler, setting, seed=1)) == found


#: The loops of growing that the thesis tells of.
LOOPS = ("hpa 70", "dhalion-adapted 1", "dhalion-adapted 10", "ds2-adapted 0")


def _published() -> dict[tuple[str, str], list[KoperResult]]:
    """The paper's own tables as if they were ours."""
    found = {}
    for query in QUERIES:
        for row in recordings().tables[query]:
            most = 16.0 if query == "q11" and row.label in LOOPS else 9.0
            late_shrinks = float(row.scaler == "ds2")
            numbers = row.latency_s, row.workers, float(row.rescales), most, late_shrinks
            found[query, row.label] = [KoperResult(*numbers)]
    return found


def _changed(query: str, label: str, metric: str, value: float) -> dict[str, Claim]:
    results = _published()
    before = results[query, label][0]
    results[query, label] = [msgspec.structs.replace(before, **{metric: value})]
    return {claim.claim: claim for claim in judge(TEXT, results)}


def test_all_claims_that_can_be_tested_hold_on_the_thesis_own_numbers() -> None:
    found = judge(TEXT, _published())
    assert [claim.claim for claim in found] == [f"K{i}" for i in range(1, 31)]
    assert [claim.claim for claim in found if claim.holds is not True] == ["K30"]
    assert all(claim.evidence for claim in found[:-1])
    assert [claim.claim for claim in found if claim.is_given] == ["K29", "K30"]


@pytest.mark.parametrize(
    ("claim", "query", "label", "metric", "value", "reason"),
    [
        ("K1", "q3", "varga-v1 50", "workers", 9.5, "q3: varga-v1 50 (9.5) > 10"),
        ("K2", "q1", "varga-v2 30", "workers", 12.0, "varga-v2 30 (12) < 0.55 * varga-v1 30"),
        ("K3", "q3", "hpa 90", "latency_s", 2e3, "q3: ds2 0 (971) > hpa 90 (2e+03)"),
        ("K4", "q1", "ds2-adapted 0", "rescales", 15.0, "q1: ds2-adapted 0 (15) <= ds2 0 (13)"),
        ("K5", "q1", "ds2-adapted 33", "latency_s", 35.2, "ds2-adapted 33 (35.2) < ds2 33 (17.6)"),
        ("K6", "q11", "hpa 70", "workers", 12.0, "q11: hpa 50 (10.7) > hpa 70 (12)"),
        ("K7", "q11", "ds2 0", "latency_s", 1e3, "hpa 90 (428) > ds2 0 (1e+03)"),
        ("K8", "q1", "varga-v1 30", "latency_s", 0.1, "hpa 50 (0.793) < varga-v1 30 (0.1)"),
        ("K9", "q3", "hpa 50", "latency_s", -9.0, "< hpa 50 (0.711)"),
        ("K10", "q1", "dhalion-adapted 1", "workers", 4.0, "< 1.15 * dhalion-adapted 5 (3.32)"),
        ("K11", "q11", "hpa 50", "latency_s", -9.0, "< hpa 50 (1.74)"),
        ("K14", "q1", "varga-v2 50", "latency_s", 1.0, "varga-v2 50 (1) > varga-v1 50 (1.95)"),
        ("K16", "q3", "ds2-adapted 33", "late_shrinks", 2.0, "q3: ds2-adapted 33 (2) < 0.5"),
        ("K17", "q11", "hpa 70", "most_workers", 9.0, "q11: hpa 70 (0) > 0.5"),
        ("K25", "q3", "dhalion-adapted 5", "latency_s", 99.0, "dhalion-adapted 5 (103) < median"),
    ],
)
def test_a_claim_that_does_not_hold_says_where(
    claim: str, query: str, label: str, metric: str, value: float, reason: str
) -> None:
    found = _changed(query, label, metric, value)
    assert not found[claim].holds
    assert reason in found[claim].reason


def test_twelve_settings_of_a_query_were_never_recorded() -> None:
    found = {
        ("q11", row.label): [KoperResult(row.latency_s, row.workers, row.rescales)]
        for row in recordings().tables["q11"]
    }
    rest = koper2022._never_recorded("q11", koper2022._table("q11", found))
    assert len(rest.entries) == 12
    assert not {"hpa 70", "ds2 33"} & {entry.label for entry in rest.entries}
    assert [metric.name for metric in rest.metrics] == ["latency", "workers"]
