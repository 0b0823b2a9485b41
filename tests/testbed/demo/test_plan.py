"""What the demo plays."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.lab.live_comparison.plan import LivePlan
from penstock.policies import POLICIES
from penstock.policies.kubernetes.hpa import Hpa
from penstock.policies.penstock.penstock import Penstock
from penstock.testbed.demo.plan import (
    MAX_EXECUTORS,
    SLO_S,
    DemoPlan,
    make_plan,
    with_scaled_time,
)
from penstock.testbed.jobs.benchmark_jobs import JOBS


@given(st.integers(30, 86_400), st.sampled_from(sorted(JOBS)))
def test_the_load_rises_once_and_falls_once_between_its_bounds(load_s: int, job: str) -> None:
    plan = DemoPlan(job, load_s)
    demo = JOBS[job].demo
    rates = plan.rates_rps()
    top = rates.index(max(rates))
    assert len(rates) == load_s
    assert rates[0] == rates[-1] == plan.low_rps <= demo.low_rps
    assert 0.97 * plan.peak_rps < max(rates) <= plan.peak_rps <= demo.peak_rps
    assert all(now <= later + 1e-6 for now, later in pairwise(rates[: top + 1]))
    assert all(now >= later - 1e-6 for now, later in pairwise(rates[top:]))


def test_a_demo_of_five_minutes_passes_six_times_faster_and_decides_every_five_seconds() -> None:
    plan = make_plan("q11", None, fast=False)
    assert (plan.load_s, plan.speed, plan.every_s) == (300, 6.0, 5.0)


def test_a_fast_demo_leaves_half_a_minute_of_two_for_the_start() -> None:
    assert 75 <= make_plan("q11", None, fast=True).load_s <= 90


def test_q3_reads_its_source_twice_so_it_pays_half_the_pace_each_time() -> None:
    assert DemoPlan("q3").pace_s == DemoPlan("q11").pace_s / 2


@pytest.mark.parametrize(
    ("job", "share", "low_rps", "peak_rps"),
    [
        # A record computes 10 ms: 50 ms with 0.2 of a core, as long as it waits and computes else.
        # A third of the work is that of tasks.
        ("images-recognise", 0.2, 8.0 * 2 / 3, 60.0 * 2 / 3),
        ("images-recognise", 0.15, 6.0 * 2 / 3, 45.0 * 2 / 3),
        # It waits 40 ms and computes 4 ms; with 0.2 of a core it computes 20 ms.
        ("images-store", 0.2, 8.0 * 44 / 20 * 2 / 3, 60.0 * 44 / 20 * 2 / 3),
    ],
)
def test_with_a_share_of_a_core_records_compute_and_need_as_large_a_fleet(
    job: str, share: float, low_rps: float, peak_rps: float
) -> None:
    plan = DemoPlan(job, 180, cpu_share=share)
    assert (plan.pace_s, plan.waiting_together) == (0.0, 1)
    assert (plan.partitions, plan.start_executors, plan.trigger_s) == (8, 3, 4.0)
    assert plan.low_rps == pytest.approx(low_rps, abs=0.05)
    assert plan.peak_rps == pytest.approx(peak_rps, abs=0.5)


def test_a_peak_that_is_given_is_taken_as_it_is() -> None:
    assert DemoPlan("images-store", 180, 30.0, cpu_share=0.2).peak_rps == pytest.approx(30.0, abs=1)


def test_a_light_job_cannot_compute_instead_of_waiting() -> None:
    with pytest.raises(ConfigError, match="records of q1 cost next to nothing, so they wait"):
        make_plan("q1", None, fast=False, cpu_share=0.05)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_can_run_in_a_demo(name: str) -> None:
    entry = with_scaled_time(name, DemoPlan("q11", 300))
    assert entry.label == name
    assert entry.limits.max_executors == MAX_EXECUTORS


def test_waits_are_divided_and_the_goal_is_not() -> None:
    plan = DemoPlan("q11", 300)
    hpa = with_scaled_time("hpa", plan).policy
    assert isinstance(hpa, Hpa)
    assert hpa.stabilize_down_s == 300.0 / 6
    ours = with_scaled_time("penstock", plan).policy
    assert isinstance(ours, Penstock)
    assert ours.slo_s == SLO_S
    assert ours.move_price == pytest.approx(1 / 60 / 6)


def test_no_window_becomes_shorter_than_the_time_between_two_looks() -> None:
    hpa = with_scaled_time("hpa", DemoPlan("q11", 60)).policy
    assert isinstance(hpa, Hpa)
    assert hpa.metric_window_s == 3.0  # not 15 / 10


def test_new_executors_have_time_to_start_before_more_are_asked_for() -> None:
    limits = with_scaled_time("penstock", DemoPlan("q11", 300)).limits
    assert (limits.cooldown_s, limits.max_step) == (8.0, 2)
    assert with_scaled_time("penstock:cooldown=1s", DemoPlan("q11", 300)).limits.cooldown_s == 1.0


def test_what_is_given_is_taken_as_it_is() -> None:
    ours = with_scaled_time("penstock:move_price=0.5", DemoPlan("q11", 300)).policy
    assert isinstance(ours, Penstock)
    assert ours.move_price == 0.5
    assert with_scaled_time("ds2:max_step=4", DemoPlan("q11", 300)).limits.max_step == 4


@pytest.mark.parametrize(
    ("job", "minutes", "fast", "sentence"),
    [
        ("qq11", None, False, "unknown job 'qq11': did you mean 'q11'"),
        ("q11", 0.1, False, "--minutes must be between 0.5 and 1440, not 0.1"),
        ("q11", float("nan"), False, "--minutes must be between 0.5 and 1440, not nan"),
        ("q11", 2.0, True, "--fast is a length: give it or --minutes, not both"),
    ],
)
def test_a_plan_that_cannot_be_played_is_refused(
    job: str, minutes: float | None, fast: bool, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        make_plan(job, minutes, fast)
    assert str(refusal.value).startswith(sentence)


def test_a_job_with_heavy_tasks_has_longer_batches_and_two_executors_at_least() -> None:
    plan = DemoPlan("q16", 300)
    assert (plan.trigger_s, plan.start_executors, plan.partitions) == (4.0, 2, 12)
    assert (plan.low_rps, plan.peak_rps) == (180.0, 1580.0)
    assert with_scaled_time("penstock", plan).limits.min_executors == 2


def test_live_runs_of_such_a_job_stay_comparable_with_those_that_are_kept() -> None:
    plan = LivePlan("q3", load_s=240)
    assert (plan.trigger_s, plan.start_executors, plan.partitions) == (2.0, 1, 12)
    assert plan.peak_rps == JOBS["q3"].demo.peak_rps
