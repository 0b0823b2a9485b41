"""Engines fitted to recorded runs: they find again what made the record, and predict the rest."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.core.errors import ConfigError
from penstock.core.journal import MemoryJournal
from penstock.core.model import Decision, Fleet, Reason, Snapshot, Step
from penstock.lab.experiments.scenario import Scenario, simulate
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation.calibration import fit_batches
from penstock.simulation.calibration.calibrate import calibrated
from penstock.simulation.calibration.fit_continuous import fit, replay
from penstock.simulation.calibration.rows import (
    RecordedSample,
    averaged,
    errors,
    rates,
    row_of,
    rows_of,
)
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.stages import Stage

#: 10,000 records/s per worker, 6 % lost per further worker, 7 s down, 5 s more if one joins.
TRUE_JOB = ContinuousJob(
    operators=(Operator("source", 40e-6), Operator("map", 60e-6, upstream=("source",))),
    contention=0.06,
    speed_spread=0.0,
    capacity_noise=0.0,
    measurement_noise=0.0,
    restart_s=7.0,
    restart_spread=0.0,
    join_s=5.0,
    state_bytes=0.0,
    startup=Startup(0.0, 0.0),
    wait_for_workers_s=0.0,
    busy_at_saturation=0.8,
    idle_cpu_fraction=0.1,
    full_cpu_fraction=0.9,
)


def recorded(job: ContinuousJob, minutes: int = 40) -> list[RecordedSample]:
    """Three workers, for a while two, with a peak every ten minutes that is too much for them."""
    seconds = 60 * minutes
    load = [36_000.0 if 300 <= second % 600 < 360 else 16_000.0 for second in range(seconds)]
    fleets = {540: 2, 840: 3, 1080: 4, 1140: 3, 1740: 2, 2040: 3}
    run = job.start(load, executors=3, seed=1)
    rows = []
    for at_s in range(15, seconds, 15):
        for when, fleet in fleets.items():
            if at_s - 15 < when <= at_s:
                run.apply(fleet, float(when))
        snapshot = run.read(float(at_s))
        rows.append(row_of(snapshot, snapshot.arrival_rps or 0.0))
    return rows


def test_a_fit_finds_again_what_made_the_record() -> None:
    found = fit(TRUE_JOB, [recorded(TRUE_JOB)], rounds=0)
    for workers in (2, 3):
        true_rps = TRUE_JOB.capacity_rps(workers)
        assert found.capacity_rps(workers) == pytest.approx(true_rps, rel=0.05)
    assert found.restart_s + found.join_s == pytest.approx(12.0, abs=4.0)
    assert found.busy_at_saturation == pytest.approx(0.8, abs=0.05)
    assert found.full_cpu_fraction == pytest.approx(0.9, abs=0.08)


def test_what_was_fitted_on_one_part_predicts_the_other() -> None:
    rows = recorded(TRUE_JOB)
    found = fit(TRUE_JOB, [rows[:80]], rounds=0)
    off = errors(rows[80:], replay(found, rows)[80:])
    assert off.throughput is not None
    assert off.throughput < 0.05
    assert off.delay is not None
    assert off.delay < 0.3
    assert off.busy is not None
    assert off.busy < 0.05
    assert off.cpu is not None
    assert off.cpu < 0.05


def test_a_replay_of_what_the_job_itself_did_shows_the_same() -> None:
    rows = recorded(TRUE_JOB)
    off = errors(rows, replay(TRUE_JOB, rows))
    # When exactly workers changed is known to within a sample.
    assert off.throughput is not None
    assert off.throughput < 0.06
    assert off.delay is not None
    assert off.delay < 0.2


def test_errors_are_those_of_sums_of_means_and_of_fractions() -> None:
    theirs = [
        RecordedSample(0.0, 1.0, 1, 100.0, delay_s=1.0, cpu_fraction=0.5),
        RecordedSample(1.0, 1.0, 1, 300.0),
    ]
    mine = [
        RecordedSample(0.0, 1.0, 1, 120.0, delay_s=1.5, cpu_fraction=0.4),
        RecordedSample(1.0, 1.0, 1, 280.0),
    ]
    off = errors(theirs, mine)
    assert off.throughput == pytest.approx(40.0 / 400.0)
    assert off.delay == pytest.approx(0.5)
    assert off.cpu == pytest.approx(0.1)
    assert off.busy is None


def test_a_rate_since_the_last_sample_holds_for_all_of_that_time() -> None:
    rows = [RecordedSample(0.0, 5.0, 1), RecordedSample(2.0, 10.0, 1), RecordedSample(4.0, 20.0, 1)]
    assert rates(rows, 0.0) == [10.0, 10.0, 20.0, 20.0, 20.0]


def test_a_mean_over_a_minute_is_led_by_half_of_it() -> None:
    rows = [RecordedSample(15.0 * i, 100.0 * i, 1) for i in range(10)]
    led = rates(rows, 60.0)
    # The middle of the first second lies 23 s before 23 s, at which 100 x 23/15 is read.
    assert led[0] == pytest.approx(100.0 * 23.0 / 15.0)


def test_throughput_is_averaged_over_the_trailing_window() -> None:
    rows = [RecordedSample(15.0 * i, 1.0, 1, 10.0 * i, busy_fraction=0.0) for i in range(6)]
    shown = [row.throughput_rps for row in averaged(rows, 60.0)]
    assert shown == [0.0, 5.0, 10.0, 15.0, 25.0, 35.0]


def journal(
    engine: str, workload: str, policy: str = "hpa", duration_s: float = 5400.0
) -> list[Step]:
    kept = MemoryJournal()
    entry = read_policy_spec(policy, {"max_executors": 12})
    simulate(Scenario(workload, engine, 1, duration_s), entry.policy, entry.limits, kept)
    return kept.steps


def test_a_continuous_run_is_predicted_from_its_first_half() -> None:
    load = "sine:mean=40k,amplitude=25k,period=8min"
    fitted = calibrated(journal("continuous", load, duration_s=960.0))
    assert fitted.engine == "continuous"
    assert fitted.judged_rows >= 30
    assert fitted.errors.throughput is not None
    assert fitted.errors.throughput < 0.1


def test_a_micro_batch_run_is_predicted_from_its_first_half() -> None:
    fitted = calibrated(journal("micro-batch", "sine:mean=40k,amplitude=25k,period=45min"))
    assert fitted.engine == "micro-batch"
    assert fitted.errors.throughput is not None
    assert fitted.errors.throughput < 0.05
    assert fitted.errors.delay is not None
    assert fitted.errors.delay < 0.3
    assert fitted.capacity_rps[4] == pytest.approx(MicroBatchJob().capacity_rps(4), rel=0.15)


def test_the_cost_of_a_batch_is_a_line_over_its_records() -> None:
    job = MicroBatchJob(
        planning_s=0.2,
        commit_s=0.3,
        stages=(Stage("all", tasks=96, core_s_per_record=100e-6, task_overhead_s=0.0),),
        contention=0.02,
        speed_spread=0.0,
        noise_fraction=0.0,
        straggler_probability=0.0,
        state_bytes=0.0,
    )
    found = fit_batches.fit(_batches(job))
    assert found.fixed_s == pytest.approx(0.5, abs=0.03)
    assert found.stages[0].core_s_per_record == pytest.approx(100e-6, rel=0.05)
    assert found.contention == pytest.approx(0.02, abs=0.01)


def _batches(job: MicroBatchJob) -> list[Step]:
    load = [10_000.0 + 20.0 * (second % 900) for second in range(1800)]
    run = job.start(load, executors=4, seed=1)
    steps = []
    for at_s in range(10, 1800, 10):
        if at_s == 900:
            run.apply(8, 900.0)
        snapshot = run.read(float(at_s))
        steps.append(Step(float(at_s), snapshot, _held(snapshot.fleet.target)))
    return steps


def _held(executors: int) -> Decision:
    return Decision.of(executors, Reason("held", "as it was"))


def test_too_short_a_journal_is_refused() -> None:
    steps = [
        Step(float(at_s), Snapshot(float(at_s), Fleet(1, 1, 1), arrival_rps=1.0), _held(1))
        for at_s in range(30)
    ]
    with pytest.raises(ConfigError, match="on each side of the split, not 15 and 15"):
        calibrated(steps)


def test_a_journal_without_throughput_is_refused() -> None:
    steps = [
        Step(float(at_s), Snapshot(float(at_s), Fleet(1, 1, 1), arrival_rps=1.0), _held(1))
        for at_s in range(100)
    ]
    with pytest.raises(ConfigError, match="needs rows with a throughput"):
        calibrated(steps)


def test_rows_leave_out_what_says_nothing() -> None:
    blind = Step(0.0, None, _held(1))
    idle = Step(1.0, Snapshot(1.0, Fleet(1, 0, 0), arrival_rps=5.0), _held(1))
    dark = Step(2.0, Snapshot(2.0, Fleet(1, 1, 1)), _held(1))
    good = Step(3.0, Snapshot(3.0, Fleet(1, 1, 1), arrival_rps=5.0), _held(1))
    assert [row.at_s for row in rows_of([blind, idle, dark, good])] == [3.0]


def test_rows_come_in_order() -> None:
    rows = rows_of(journal("continuous", "constant:20k", policy="static:4"))
    assert all(a.at_s < b.at_s for a, b in pairwise(rows))
