"""A recording shows what another policy would have done, and the same policy decides the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.app import main
from penstock.core.errors import ConfigError
from penstock.core.journal import (
    FileJournal,
    JournalHeader,
    read_header,
    read_last_run,
    read_tail,
    write_all,
)
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Fleet, Limits, Reason, Receipt, Snapshot, Step
from penstock.core.protocols import Policy
from penstock.lab.experiments.scenario import ENGINES, Scenario, run
from penstock.lab.replay import differences, replay
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header, recorded_goal, recorded_spec
from penstock.settings.policy_spec import PolicySpec, read_policy_spec, wire
from penstock.simulation.faults import ExecutorLost, Fault, SensorBlind, SensorLate, SourceSilence
from tests.settings.random_policies import random_limits, random_policies


def recorded(at_s: float, fleet: int, target: int) -> Step:
    decision = Decision.of(target, Reason("test", "because"))
    receipt = Receipt(True) if target != fleet else None
    return Step(at_s, Snapshot(at_s, Fleet(fleet, fleet, fleet)), decision, receipt)


BLIND = Step(30.0, None, Decision.of(5, Reason("sensor_blind", "holding")))
STEPS = [recorded(0.0, 3, 5), recorded(15.0, 5, 5), BLIND]


def static(executors: int) -> PolicySpec:
    return PolicySpec.of(Static(executors))


def test_the_same_policy_decides_the_same() -> None:
    replayed = replay(STEPS, static(5))
    assert differences(STEPS, replayed) == []
    assert [step.at_s for step in replayed] == [0.0, 15.0, 30.0]


def test_another_policy_differs_where_it_would_have_decided_otherwise() -> None:
    replayed = replay(STEPS, static(4))
    assert [
        (d.at_s, d.replayed.decision.target_executors) for d in differences(STEPS, replayed)
    ] == [
        (0.0, 4),
        (15.0, 4),
        (30.0, 4),
    ]


def test_a_blind_turn_stays_blind() -> None:
    assert replay(STEPS, static(5))[-1].decision.reasons[0].code == "sensor_blind"


def test_an_empty_journal_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds no step"):
        replay([], static(5))


def replayed_differences(path: Path) -> int:
    """At how many turns the policy of a journal decides otherwise, with its header alone."""
    past, steps = read_last_run(path)
    return len(differences(steps, replay(steps, recorded_spec(read_header(path)), past)))


def test_the_default_policy_with_bounds_of_its_own_decides_the_same(tmp_path: Path) -> None:
    """In Penstock 0.1 a replay of an hour of this run differed at 110 of 359 turns."""
    path = tmp_path / "run.jsonl"
    spec = read_policy_spec("penstock", {"max_executors": 32})
    result = run(Scenario("sine", duration_s=1500.0), spec.policy, spec.limits, Goal())
    write_all(path, result.steps, journal_header(spec, Goal()))
    assert replayed_differences(path) == 0


FAULTS: list[tuple[Fault, ...]] = [
    (),
    (SensorBlind(at_s=200.0, duration_s=120.0),),
    (SensorLate(at_s=100.0, late_s=20.0),),
    (ExecutorLost(at_s=150.0), SourceSilence(at_s=300.0, duration_s=60.0)),
]


@settings(max_examples=50)
@given(
    policy=random_policies(),
    limits=random_limits(),
    seed=st.integers(1, 1000),
    engine=st.sampled_from(sorted(ENGINES)),
    workload=st.sampled_from(["sine:period=10m", "spikes:every=4m", "square:hold=3m"]),
    faults=st.sampled_from(FAULTS),
)
def test_a_replay_decides_the_same_at_every_turn(
    tmp_path_factory: pytest.TempPathFactory,
    policy: Policy,
    limits: Limits,
    seed: int,
    engine: str,
    workload: str,
    faults: tuple[Fault, ...],
) -> None:
    path = tmp_path_factory.mktemp("replay") / "run.jsonl"
    scenario = Scenario(workload, engine, seed, duration_s=600.0, faults=faults)
    result = run(scenario, policy, limits, Goal(warmup_s=0.0))
    header = journal_header(PolicySpec.of(result.policy, limits), Goal())
    write_all(path, result.steps, header)
    assert recorded_spec(read_header(path)).policy == result.policy
    assert recorded_spec(read_header(path)).limits == limits
    assert replayed_differences(path) == 0


def test_phoebe_is_replayed_with_the_profile_that_it_ran_with(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    spec = read_policy_spec("phoebe:loop=60s")
    result = run(Scenario("sine:period=1h", duration_s=3600.0), spec.policy, spec.limits, Goal())
    assert any(step.receipt for step in result.steps)
    write_all(path, result.steps, journal_header(PolicySpec.of(result.policy), Goal()))
    assert replayed_differences(path) == 0


def test_a_continued_journal_is_replayed_from_its_last_header_with_what_was_known(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.jsonl"
    scenario = Scenario("sine:period=30m", duration_s=3600.0)
    engine = scenario.job.start(scenario.rates(), executors=5, seed=1, faults=())
    at_s = 0.0
    for text in ("hpa", "penstock:slo=5s,max_executors=12"):
        spec = read_policy_spec(text)
        past = list(read_tail(path)) if path.exists() else []
        with FileJournal(path, journal_header(spec, Goal())) as journal:
            controller = wire(spec, engine, engine, journal=journal, past=past)
            for _ in range(60):
                at_s += spec.policy.period_s
                controller.turn(at_s)
    past, steps = read_last_run(path)
    assert (len(past), len(steps)) == (60, 60)
    assert replayed_differences(path) == 0


@dataclass(frozen=True)
class Mine:
    """A policy that is not in the table."""

    period_s: float = 60.0
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        return Decision.of(4, Reason("mine", "four"))


def test_a_policy_of_ones_own_cannot_be_rebuilt_by_name() -> None:
    header = journal_header(PolicySpec.of(Mine()), Goal(slo_s=20.0))
    assert recorded_goal(header) == Goal(slo_s=20.0)
    with pytest.raises(ConfigError, match=r"written by the policy class Mine, .* name another"):
        recorded_spec(header)
    with pytest.raises(ConfigError, match="does not say which policy wrote it"):
        recorded_spec(JournalHeader.of())


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(str(end.value.code or 0))


def test_the_command_takes_policy_limits_and_goal_from_the_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.jsonl")
    made = ["--workload", "sine:period=30m", "--duration", "15m", "--max", "32", "--slo", "3s"]
    assert called("simulate", "--policy", "penstock", *made, "--journal", path) == 0
    assert called("replay", path) == 0
    capsys.readouterr()
    assert called("replay", path, "--max", "2") == 1
    assert "recorded" in capsys.readouterr().out
    assert called("replay", path, "--policy", "static:3") == 1
    assert called("replay", path, "--slo", "300s") == 1
    header: Any = read_header(Path(path))
    assert (header.limits["max_executors"], header.goal["slo_s"]) == (32, 3.0)
    assert header.policy == "penstock:slo=3s"
