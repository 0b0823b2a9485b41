"""Phoebe: its profile, its choice, and what it does while neither is there."""

from __future__ import annotations

from math import inf
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Fleet, Reason, Snapshot, Step
from penstock.policies.algorithms.profile import Profile, ProfilingResult
from penstock.policies.checks import Check, yield_checks
from penstock.policies.phoebe import Phoebe, PhoebeMemory, SizeCandidate
from penstock.settings.policy_spec import policy_text, read_policy_spec, spec_of

#: 10,000 records/s per executor; latency is 0.1 s when a tenth of that comes, and 0.9 s at 90 %.
SIZES = (2, 4, 8)
PHOEBE = Phoebe(
    capacity=tuple((n, 10e3 * n) for n in SIZES),
    latency=tuple((n, 1e3 * n * share, 0.1 * share) for n in SIZES for share in (1, 5, 9)),
    downtime_s=20.0,
)


def look(arrival_rps: float | None, executors: int, at_s: float = 0.0) -> Snapshot:
    return Snapshot(at_s, Fleet(executors, executors, executors), arrival_rps=arrival_rps)


def test_without_a_profile_it_holds_and_says_what_it_lacks() -> None:
    decision = Phoebe().decide(look(1000.0, 3), Knowledge())
    assert decision.target_executors == 3
    assert decision.reasons[0].text == "holding 3 executors: profile not measured"


def test_the_profile_interpolates_capacity_between_sizes() -> None:
    profile = Profile.of([(4, 36e3), (2, 20e3)], [])
    assert [profile.capacity_rps(n) for n in (0, 1, 2, 3, 4, 6)] == [
        0.0, 10e3, 20e3, 28e3, 36e3, 52e3,
    ]  # fmt: skip
    assert profile.largest == 4


def test_latency_is_read_at_the_same_share_of_capacity() -> None:
    profile = Profile.of(
        [(2, 20e3), (4, 40e3)],
        [(2, 10e3, 0.2), (2, 18e3, 0.6), (4, 20e3, 0.1), (4, 36e3, 0.3)],
    )
    assert profile.latency_s(2, 14e3) == pytest.approx(0.4)
    assert profile.latency_s(4, 28e3) == pytest.approx(0.2)
    assert profile.latency_s(3, 21e3) == pytest.approx(0.3)
    assert profile.latency_s(2, 1e3) == 0.2  # nothing was measured below
    assert profile.latency_s(2, 18.1e3) == inf  # nothing was fit to run above
    assert profile.latency_s(1, 7e3) == pytest.approx(0.4)
    assert profile.latency_s(8, 56e3) == pytest.approx(0.2)


def test_a_profile_without_latencies_fits_nothing() -> None:
    assert Profile.of([(2, 20e3)], []).latency_s(2, 1.0) == inf


@given(st.integers(1, 12), st.floats(0.0, 2e5))
def test_the_profile_answers_for_every_size_and_rate(executors: int, rate_rps: float) -> None:
    profile = Profile.of(PHOEBE.capacity, PHOEBE.latency)
    assert profile.capacity_rps(executors) == pytest.approx(10e3 * executors)
    assert profile.latency_s(executors, rate_rps) > 0.0


def choice(*candidates: tuple[int, float, float]) -> int:
    return PHOEBE.choice([SizeCandidate(*one) for one in candidates]).executors


def test_the_lowest_latency_in_time_wins() -> None:
    assert choice((1, 300.0, 0.1), (2, 150.0, 0.4), (3, 100.0, 0.3)) == 3


def test_within_five_percent_the_smallest_wins() -> None:
    assert choice((2, 150.0, 0.419), (3, 100.0, 0.41), (4, 90.0, 0.40)) == 2
    assert choice((2, 150.0, 0.421), (3, 100.0, 0.41), (4, 90.0, 0.40)) == 3


def test_if_none_is_in_time_the_larger_of_both_wins() -> None:
    assert choice((1, 900.0, 0.1), (2, 500.0, 0.3), (3, 490.0, 0.3)) == 2
    assert choice((1, 500.0, 0.3), (2, 490.0, 0.1)) == 2
    assert choice((1, inf, inf), (2, inf, inf)) == 2


def test_an_overloaded_size_is_not_in_time() -> None:
    assert choice((1, 100.0, inf), (2, 300.0, 0.5)) == 2


def test_a_downtime_that_takes_all_the_time_leaves_the_largest() -> None:
    slow = Phoebe(PHOEBE.capacity, PHOEBE.latency, downtime_s=300.0)
    decision = slow.decide(look(30e3, 4), Knowledge())
    assert decision.target_executors == 8


def test_small_shrinks_are_not_worth_a_rescale() -> None:
    # Below a tenth of the capacity latency is level: of one executor already.
    calm = 900.0
    for executors, code in ((1, "right_size"), (2, "small_shrink"), (3, "small_shrink")):
        decision = PHOEBE.decide(look(calm, executors), Knowledge())
        assert (decision.reasons[0].code, decision.target_executors) == (code, executors)
    assert PHOEBE.decide(look(calm, 4), Knowledge()).target_executors == 1


def test_load_beyond_every_size_asks_for_the_largest() -> None:
    decision = PHOEBE.decide(look(500e3, 4), Knowledge())
    assert decision.target_executors == 8
    assert "overloaded at 500.0 k/s" in decision.reasons[0].text


def test_it_looks_ten_minutes_ahead_and_plans_every_ten_minutes() -> None:
    knowledge, codes = Knowledge(), []
    for minute in range(31):
        now = look(20e3 + 500.0 * minute, 8, at_s=60.0 * minute)
        knowledge.learn(now, now.at_s)
        decision = PHOEBE.decide(now, knowledge)
        knowledge.remember(Step(now.at_s, now, decision))
        codes.append(decision.reasons[0].code)
        last = decision
    assert [minute for minute, code in enumerate(codes) if code != "between_plans"] == [
        0, 10, 20, 30,
    ]  # fmt: skip
    # The mean of the last two minutes is 34,500; ten minutes on 500 more arrive each minute.
    assert last.reasons[0].evidence["forecast_peak_rps"] == pytest.approx(40e3, rel=0.01)


def test_a_clock_that_was_set_back_does_not_stop_planning() -> None:
    knowledge, now = Knowledge(), look(900.0, 1, at_s=100.0)
    tomorrow = Decision.of(1, Reason("past", "before"), memory=PhoebeMemory(planned_at_s=5000.0))
    knowledge.remember(Step(90.0, now, tomorrow))
    knowledge.learn(now, 100.0)
    assert PHOEBE.decide(now, knowledge).reasons[0].code == "right_size"


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{name}-{check.__name__}")
        for name, policy in (("bare", Phoebe()), ("profiled", PHOEBE))
        for check in yield_checks(policy)
    ],
)
def test_it_keeps_the_contract(check: Check) -> None:
    check()


PROFILE = """{
  "capacity": [[2, 20000.0], [4, 40000.0], [8, 80000.0]],
  "latency": [[2, 18000.0, 0.9], [4, 36000.0, 0.5], [8, 72000.0, 0.49]],
  "downtime_s": 5.0
}"""


def test_a_profile_in_a_file_is_read_when_the_policy_is_set_up(tmp_path: Path) -> None:
    # At 15,000 records/s two executors take 0.9 s and four 0.5 s; eight are within 5 % of that.
    path = tmp_path / "q1.json"
    path.write_text(PROFILE)
    spec = read_policy_spec(f"phoebe:profile={path}")
    assert spec.policy == Phoebe(
        capacity=((2, 20e3), (4, 40e3), (8, 80e3)),
        latency=((2, 18e3, 0.9), (4, 36e3, 0.5), (8, 72e3, 0.49)),
        downtime_s=5.0,
    )
    assert spec_of(Phoebe(profile=str(path))).policy == spec.policy
    decision = spec.policy.decide(look(15e3, 2), Knowledge())
    assert (decision.target_executors, decision.reasons[0].code) == (4, "scale_up")
    # The text that the header of a journal keeps needs no file any more.
    path.unlink()
    assert read_policy_spec(policy_text(spec.policy)).policy == spec.policy


def test_the_result_of_profiling_goes_through_a_file() -> None:
    found = ProfilingResult(((1, 950.0),), ((1, 300.0, 1.6),), 0.0)
    assert ProfilingResult.from_json(msgspec.json.encode(found)) == found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read profile .*: No such file"),
        ("{", "not a profile: "),
        ('{"capacity": [[1]], "latency": []}', "not a profile: "),
        ('{"capacity": [], "latency": []}', "needs points of capacity and of latency"),
        ('{"capacity": [[0, 9.0]], "latency": [[1, 5.0, 1.0]]}', r"sizes from 1 .*not \[0, 9"),
        ('{"capacity": [[1, -9.0]], "latency": [[1, 5.0, 1.0]]}', "finite numbers, not"),
        ('{"capacity": [[1, 9.0]], "latency": [[1, 5.0, 1.0]], "extra": 1}', "unknown field"),
    ],
)
def test_a_file_that_is_no_profile_is_one_sentence(
    tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "q1.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=words):
        read_policy_spec(f"phoebe:profile={path}")
