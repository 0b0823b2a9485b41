"""Profiling runs find what the job on paper was made of, without looking it up."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigError
from penstock.lab.experiments.profiling import (
    capacity_rps,
    downtime_s,
    findings,
    profiled,
)
from penstock.lab.experiments.scenario import ENGINES, Scenario, run
from penstock.policies.algorithms.profile import ProfilingResult
from penstock.policies.phoebe import Phoebe
from penstock.settings.goal import Goal
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.engine import SimulatedJob
from penstock.simulation.engines.microbatch import MicroBatchJob


@pytest.fixture(scope="module")
def found() -> ProfilingResult:
    return findings(ContinuousJob(), most_executors=16)


def test_a_saturated_run_shows_the_capacity(found: ProfilingResult) -> None:
    job = ContinuousJob()
    assert [executors for executors, _ in found.capacity] == [1, 3, 5, 7, 10, 12, 14, 16]
    for executors, rps in found.capacity:
        assert rps == pytest.approx(job.capacity_rps(executors), rel=0.03)


def test_a_micro_batch_job_that_is_late_carries_more_than_one_in_time() -> None:
    # It takes one fixed cost per batch, however many records have piled up.
    job = MicroBatchJob()
    for executors in (1, 4, 12):
        ratio = capacity_rps(job, executors) / job.capacity_rps(executors)
        assert 1.1 < ratio < 1.5


def test_latency_is_measured_up_to_where_it_is_normal(found: ProfilingResult) -> None:
    largest = dict(found.capacity)
    for executors, rate_rps, latency_s in found.latency:
        assert rate_rps < largest[executors]
        assert 0.04 < latency_s < 0.15
    assert {executors for executors, _, _ in found.latency} == set(largest)


def test_latency_of_a_micro_batch_job_grows_with_its_load() -> None:
    curve = [point for point in findings(MicroBatchJob(), 4).latency if point[0] == 4]
    latencies = [latency_s for _, _, latency_s in curve]
    assert len(latencies) >= 3
    assert latencies == sorted(latencies)
    assert 1.0 < latencies[0] < latencies[-1] <= 2.0 * latencies[0]


def test_downtime_is_what_a_rescale_stops() -> None:
    job = ContinuousJob(restart_s=20.0, restart_spread=0.0, state_bytes=0.0,
                        checkpoint_interval_s=0.0)  # fmt: skip
    assert downtime_s(job, 4, 20e3) == pytest.approx(20.0, abs=1.5)
    assert downtime_s(MicroBatchJob(), 4, 20e3) < 2.0


def test_a_job_without_a_limit_cannot_be_profiled() -> None:
    free = ContinuousJob(operators=(Operator("source", 1e-30),))
    with pytest.raises(ConfigError, match="carry any rate"):
        capacity_rps(free, 1)


def test_a_profile_that_is_there_is_kept() -> None:
    known = Phoebe(capacity=((1, 5.0),), latency=((1, 5.0, 1.0),))
    assert profiled(known, ContinuousJob()) is known


def test_the_same_job_gives_the_same_profile() -> None:
    assert profiled(Phoebe(), ContinuousJob(), 3) == profiled(Phoebe(), ContinuousJob(), 3)
    assert findings(ContinuousJob(), 2, seed=1) == findings(ContinuousJob(), 2, seed=1)


@pytest.mark.parametrize("job", ENGINES.values(), ids=lambda job: job.engine_name)
def test_profiled_it_carries_a_sine_in_time(job: SimulatedJob) -> None:
    policy = profiled(Phoebe(), job)
    scenario = Scenario("daedalus-wordcount", job.engine_name, 1)
    score = run(scenario, policy, policy.default_limits, Goal()).score
    assert score.late_fraction < 0.005
    assert score.mean_executors < 14.0  # it buys latency
    assert score.rescales > 5
