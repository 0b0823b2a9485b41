"""What each size of a job can carry is read from its batches, and Phoebe decides from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.cli.app import main
from penstock.core.errors import ConfigError
from penstock.core.journal import read_steps
from penstock.core.knowledge import Knowledge
from penstock.core.model import Batch, Decision, Fleet, Reason, Snapshot, Step
from penstock.lab.profile import (
    ProfilePlan,
    ProfileRun,
    RateFinding,
    profile_of,
    rate_findings,
)
from penstock.policies.algorithms.profile import ProfilingResult
from penstock.settings.policy_spec import read_policy_spec

BEGAN_S = 1000.0
RUN = ProfileRun("q1", load_s=90, executors=2, held_rps=(500.0, 3000.0), hold_s=45)


def steps_of(*batches: Batch) -> list[Step]:
    hold = Decision.of(2, Reason("static", "a fixed fleet of 2 executors"))
    return [
        Step(one.started_at_s, Snapshot(one.started_at_s, Fleet(2, 2, 2), batches=(one,)), hold)
        for one in batches
    ]


def batches_of_a_run() -> Iterator[Batch]:
    """At 500 records/s each batch of 2 s takes 1 s; at 3,000 records/s 1,600/s get through."""
    for number in range(22):
        # The first, while the job settles, take longer; they must not count.
        duration_s = 1.9 if number < 7 else 1.0
        yield Batch(number, BEGAN_S + 2.0 * number, duration_s, 1000)
    yield Batch(22, BEGAN_S + 61.0, 5.0, 8000)
    yield Batch(23, BEGAN_S + 66.0, 10.0, 16000)


def test_each_rate_is_measured_after_it_has_settled() -> None:
    low, high = rate_findings(RUN, BEGAN_S, steps_of(*batches_of_a_run()))
    # A batch of 1,000 records takes 1 s, and its records waited half of the 2 s before it.
    assert low == RateFinding(2, 500.0, 1000.0, 2.0, is_saturated=False, is_steady=True)
    # 24,000 records in 15 s. Batches start when the one before ends: 7.5 / 2 + 7.5 s.
    assert high == RateFinding(2, 3000.0, 1600.0, 11.25, is_saturated=True, is_steady=False)


def test_a_fleet_whose_batches_are_long_but_do_all_that_arrives_is_not_saturated() -> None:
    # One batch after the other, 2.5 s each, 1,250 records in each: 500/s.
    long = [Batch(number, BEGAN_S + 2.5 * number, 2.5, 1250) for number in range(18)]
    (found,) = rate_findings(RUN, BEGAN_S, steps_of(*long))
    assert found == RateFinding(2, 500.0, 500.0, 3.75, is_saturated=False, is_steady=True)


def test_a_rate_without_a_batch_is_left_out() -> None:
    early = [one for one in batches_of_a_run() if one.started_at_s < BEGAN_S + 45.0]
    assert [one.offered_rps for one in rate_findings(RUN, BEGAN_S, steps_of(*early))] == [500.0]


def finding(size: int, rps: float, latency_s: float, processed_rps: float = 0.0) -> RateFinding:
    return RateFinding(size, rps, processed_rps, latency_s, processed_rps > 0.0, is_steady=True)


def test_capacity_is_what_a_saturated_fleet_processed() -> None:
    found = profile_of(
        [finding(1, 300.0, 1.5), finding(1, 600.0, 2.0), finding(1, 1500.0, 30.0, 800.0)]
    )
    assert found.capacity == ((1, 800.0),)
    assert found.latency == ((1, 300.0, 1.5), (1, 600.0, 2.0))
    assert found.downtime_s == 0.0


def test_a_fleet_that_no_rate_saturated_can_carry_the_highest() -> None:
    assert profile_of([finding(4, 1200.0, 1.5), finding(4, 2400.0, 2.0)]).capacity == ((4, 2400.0),)


def test_a_rate_with_far_higher_latency_than_others_is_left_out() -> None:
    found = profile_of(
        [finding(1, 300.0, 1.2), finding(1, 600.0, 2.5), finding(1, 1500.0, 30.0, 800.0)]
    )
    assert found.latency == ((1, 300.0, 1.2),)


def test_nothing_measured_is_no_profile() -> None:
    with pytest.raises(ConfigError, match="no batch was committed at any rate"):
        profile_of([])


def test_phoebe_reads_such_a_profile_from_a_file_and_grows_by_it(tmp_path: Path) -> None:
    found = profile_of(
        [
            *(finding(1, 300.0, 1.5), finding(1, 1500.0, 30.0, 800.0)),
            *(finding(4, 1200.0, 1.6), finding(4, 2400.0, 1.9), finding(4, 6000.0, 30.0, 3000.0)),
        ]
    )
    path = tmp_path / "q1.json"
    path.write_bytes(msgspec.json.encode(found))
    phoebe = read_policy_spec(f"phoebe:profile={path}").policy
    now = Snapshot(0.0, Fleet(1, 1, 1), arrival_rps=2000.0)
    assert phoebe.decide(now, Knowledge()).target_executors == 4


def test_a_profile_in_which_every_rate_was_too_much_is_refused() -> None:
    with pytest.raises(ConfigError, match="no size carried any of its rates: give lower shares"):
        profile_of([finding(1, 1500.0, 30.0, 800.0)])


def test_rates_rise_and_sizes_are_run_once() -> None:
    plan = ProfilePlan("q1", (2, 1, 2), (1.5, 0.5), 30.0)
    assert [(run.executors, run.held_rps) for run in plan.runs()] == [
        (1, (500.0, 1500.0)),
        (2, (1000.0, 3000.0)),
    ]
    assert plan.lasts_s == 120.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["q111"], "unknown job 'q111': did you mean 'q11'?"),
        (["q1", "--sizes", "0"], "sizes must be whole numbers from 1 to 8"),
        (["q1", "--sizes", "two"], "--sizes must be whole numbers, not 'two'"),
        (["q1", "--shares", "0.5", "9"], "shares must be greater than 0 and at most 5"),
        (["q1", "--hold", "2s"], "each rate must be held between 20 s and 3600 s, not 2 s"),
        (["q1", "--out", "nowhere/q1.json"], "cannot write nowhere/q1.json"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_in_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["profile", *arguments])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_an_existing_journal_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q1-4.jsonl").write_text("mine")
    with pytest.raises(SystemExit) as end:
        main(["profile", "q1", "--out", str(tmp_path / "q1.json")])
    assert end.value.code == 2
    assert "q1-4.jsonl exists already: name another file with --out" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_a_real_job_is_profiled(tmp_path: Path) -> None:
    """One executor that waits 1 ms for each record carries at most 1,000 of them per second."""
    out = tmp_path / "q1.json"
    options = ["--sizes", "1", "--shares", "0.3", "1.5", "--hold", "20s", "--out", str(out)]
    with pytest.raises(SystemExit) as end:
        main(["profile", "q1", *options])
    assert not end.value.code
    found = ProfilingResult.from_json(out.read_bytes())
    ((size, capacity_rps),) = found.capacity
    assert size == 1
    assert 0.0 < capacity_rps <= 1050.0
    steps = list(read_steps(tmp_path / "q1-1.jsonl"))
    assert {step.decision.target_executors for step in steps} == {1}
