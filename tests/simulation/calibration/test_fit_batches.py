"""A micro-batch job fitted to a journal: joining executors, admission control, and what follows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from penstock.core.model import Decision, Fleet, Reason, Snapshot, Step
from penstock.simulation.calibration import fit_batches
from penstock.simulation.calibration.calibrate import calibrated
from penstock.simulation.calibration.rows import errors, rows_of
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.stages import Stage

#: A batch costs 0.5 s and 1 ms per record; an executor carries 750 records/s.
JOB = MicroBatchJob(
    planning_s=0.2,
    commit_s=0.3,
    stages=(Stage("all", tasks=12, core_s_per_record=1e-3, task_overhead_s=0.0),),
    cores_per_executor=1,
    contention=0.0,
    speed_spread=0.0,
    startup=Startup(4.0, 4.0),
    cold_s=0.0,
    noise_fraction=0.0,
    straggler_probability=0.0,
    state_bytes=0.0,
)


def journal(
    job: MicroBatchJob,
    load: list[float],
    fleets: Mapping[int, int],
    executors: int = 1,
    every_s: int = 5,
) -> list[Step]:
    """A run whose fleet is asked for at given seconds."""
    run = job.start(load, executors=executors, seed=1)
    steps = []
    for at_s in range(every_s, len(load), every_s):
        if at_s in fleets:
            run.apply(fleets[at_s], float(at_s))
        seen = run.read(float(at_s))
        held = Decision.of(seen.fleet.target, Reason("held", "as it was"))
        steps.append(Step(float(at_s), seen, held))
    return steps


def wave(seconds: int, low: float, high: float) -> list[float]:
    half = seconds / 2
    return [low + (high - low) * (1.0 - abs(at_s - half) / half) for at_s in range(seconds)]


def test_each_executor_that_joins_holds_up_one_batch() -> None:
    job = msgspec.structs.replace(JOB, join_s=3.0)
    run = job.start([400.0] * 60, executors=1, seed=1)
    run.apply(3, 10.0)
    batches = run.read(59.0).batches
    # 800 records: 0.5 + 0.8 s on one executor, 0.5 + 0.27 s on three; the first pays 2 x 3 s.
    took_s = {round(batch.started_at_s): batch.duration_s for batch in batches}
    assert took_s[12] == pytest.approx(1.3)
    assert took_s[14] == pytest.approx(0.5 + 0.8 / 3 + 6.0)
    assert took_s[30] == pytest.approx(0.5 + 0.8 / 3)


def test_admission_control_keeps_batches_short_whatever_waits() -> None:
    job = msgspec.structs.replace(JOB, max_batch_s=5.0)
    batches = job.start([2_000.0] * 60, executors=1, seed=1).read(59.0).batches
    late = [batch for batch in batches if batch.started_at_s > 10.0]
    # What one executor does in 5 s, of which 0.5 s are the batch's own.
    assert all(batch.duration_s == pytest.approx(5.0) for batch in late)
    assert all(batch.input_records == pytest.approx(4_500) for batch in late)


def test_tasks_that_are_set_up_keep_executors_busy_but_batches_no_longer() -> None:
    """800 records on two executors: 0.4 s each, and half of 0.6 s more; of 2 s that is 0.35."""
    job = msgspec.structs.replace(JOB, batch_core_s=0.6)
    run, plain = (each.start([400.0] * 60, executors=2, seed=1) for each in (job, JOB))
    run.read(20.0)
    seen = run.read(40.0)
    assert [one.busy_fraction for one in seen.executors] == [pytest.approx(0.35)] * 2
    assert seen.operators[0].busy_fraction == pytest.approx(0.35)
    assert seen.batches[-1].duration_s == plain.read(40.0).batches[-1].duration_s
    found = fit_batches.fit(journal(job, wave(300, 300.0, 900.0), {}, executors=2))
    assert found.batch_core_s == pytest.approx(0.6, rel=0.05)


def test_a_fit_finds_what_joining_costs_and_leaves_it_out_of_the_line() -> None:
    job = msgspec.structs.replace(JOB, join_s=3.0)
    steps = journal(job, wave(300, 300.0, 900.0), {60: 2, 120: 3, 200: 1, 250: 2})
    found = fit_batches.fit(steps)
    assert found.join_s == pytest.approx(3.0, rel=0.1)
    assert found.planning_s + found.commit_s == pytest.approx(0.5, abs=0.02)
    assert found.stages[0].core_s_per_record == pytest.approx(1e-3, rel=0.02)
    assert found.max_batch_s is None


def test_a_fit_tells_what_lies_inside_of_the_stages_from_what_lies_around_them() -> None:
    job = msgspec.structs.replace(JOB, launch_s=0.7)
    found = fit_batches.fit(journal(job, wave(400, 100.0, 600.0), {}))
    assert found.launch_s == pytest.approx(0.7, abs=0.02)
    assert found.planning_s + found.commit_s == pytest.approx(0.5, abs=0.02)


def test_a_fit_finds_how_long_batches_are_let_become() -> None:
    job = msgspec.structs.replace(JOB, max_batch_s=5.0)
    steps = journal(job, [400.0] * 60 + [1_500.0] * 60 + [300.0] * 120, {})
    assert fit_batches.fit(steps).max_batch_s == pytest.approx(5.0, abs=0.05)


def test_without_samples_of_executors_joins_are_read_off_the_fleet() -> None:
    job = msgspec.structs.replace(JOB, join_s=3.0)
    steps = journal(job, wave(300, 300.0, 900.0), {60: 2, 120: 3})
    blind = [
        msgspec.structs.replace(
            step, snapshot=msgspec.structs.replace(step.snapshot, executors=(), operators=())
        )
        for step in steps
        if step.snapshot is not None
    ]
    assert fit_batches.fit(blind).join_s == pytest.approx(3.0, rel=0.3)


def test_what_waits_at_the_split_waits_in_the_prediction() -> None:
    """One executor is given a load that it cannot carry, and then a second: the backlog stays."""
    load = [400.0] * 100 + [1_600.0] * 100 + [500.0] * 200
    steps = journal(JOB, load, {180: 4})
    rows = rows_of(steps)
    middle = next(place for place, row in enumerate(rows) if row.at_s == 170.0)
    shown = fit_batches.predicted(JOB, rows, middle, steps[: middle + 1])
    assert len(shown) == len(rows) - middle
    assert (rows[middle].delay_s or 0.0) > 15.0
    assert shown[0].delay_s == pytest.approx(rows[middle].delay_s, abs=1.5)
    off = errors(rows[middle:], shown)
    assert off.delay is not None
    assert off.delay < 0.1


def test_a_capped_run_with_rescales_is_predicted_from_its_first_half() -> None:
    job = msgspec.structs.replace(JOB, join_s=2.0, max_batch_s=5.0, noise_fraction=0.05)
    load = wave(300, 400.0, 3_000.0)
    fleets = {60: 2, 100: 3, 130: 5, 190: 4, 220: 2, 260: 1}
    fitted = calibrated(journal(job, load, fleets))
    assert fitted.found["join_s"] == pytest.approx(2.0, rel=0.25)
    assert fitted.errors.throughput is not None
    assert fitted.errors.throughput < 0.05
    assert fitted.errors.delay is not None
    assert fitted.errors.delay < 0.3
    assert fitted.errors.cpu is not None
    assert fitted.errors.cpu < 0.1


def test_a_snapshot_without_delay_is_not_held_back() -> None:
    seen = Snapshot(10.0, Fleet(1, 1, 1), trigger_interval_s=2.0)
    assert fit_batches.batches_of([Step(10.0, seen, Decision.of(1, Reason("a", "b")))]) == []
