"""Every policy of the table, played through journals of real runs.

A replay is open loop: the job does not react. So what is asked of a policy is only what nobody
would dispute. Where each journal comes from: README.md beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock.core.journal import read_header, read_last_run
from penstock.core.model import Limits, Snapshot, Step
from penstock.lab.replay import replay
from penstock.policies import POLICIES
from penstock.settings.goal import Goal
from penstock.settings.header import recorded_goal, recorded_limits
from penstock.settings.policy_spec import PolicySpec, read_policy_spec

DIRECTORY = Path(__file__).parent
#: In paced jobs records wait where they would compute: busy time stands for cpu there.
PACED = "paced/"
#: The one of Penstock 0.1 is for `tests/core`, and simulated.
JOURNALS = sorted(
    str(path.relative_to(DIRECTORY).with_suffix(""))
    for path in DIRECTORY.rglob("*.jsonl")
    if path.stem != "journal-0.1"
)
#: A job is late or idle once it has been so for this long.
LATE_FOR_S, IDLE_FOR_S = 30.0, 60.0
#: The fields of a snapshot that are one number.
MEASUREMENTS = {field.name for field in structs.fields(Snapshot) if field.default is None}

_CPU_ONLY = (
    "decides by cpu, which did not count Python workers when this was recorded, and which is low "
    "while a late join waits for its driver and its last tasks"
)
_OVERLOAD = "udf-overload"
#: What fails today: invariant and policy, with the journals and the reason.
FINDINGS: dict[tuple[str, str], tuple[set[str], str]] = {
    ("late", "hpa"): ({_OVERLOAD, "paced/q3-late"}, _CPU_ONLY),
    ("late", "thresholds"): ({_OVERLOAD, "paced/q3-late"}, _CPU_ONLY),
    ("late", "varga"): (
        {_OVERLOAD, "paced/q11-late", "paced/q3-late"},
        "never asked for what the recorded policy grew to, and cools down",
    ),
    ("late", "ds2"): (
        {_OVERLOAD, "paced/q1-wave", "paced/q11-late", "paced/q3-late"},
        "sizes for what arrives, not for the backlog",
    ),
}


def subjects(invariant: str) -> list[Any]:
    """Each policy with each journal; what is known to fail is expected to."""
    found = []
    for policy in POLICIES:
        failing, reason = FINDINGS.get((invariant, policy), (set(), ""))
        for journal in JOURNALS:
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if journal in failing else []
            found.append(pytest.param(policy, journal, marks=marks, id=f"{policy}-{journal}"))
    return found


@cache
def goal_of(journal: str) -> Goal:
    return recorded_goal(read_header(DIRECTORY / f"{journal}.jsonl")) or Goal()


@cache
def spec_of(policy: str, journal: str) -> PolicySpec:
    """The policy, with the bounds and the goal of the journal."""
    limits = recorded_limits(read_header(DIRECTORY / f"{journal}.jsonl")) or Limits()
    bounds = {name: getattr(limits, name) for name in ("min_executors", "max_executors")}
    # A fixed fleet is given its size by the user; all others come as published.
    text = f"static:{limits.max_executors}" if policy == "static" else policy
    return read_policy_spec(text, bounds, goal_of(journal))


@cache
def recorded(journal: str) -> list[Step]:
    past, steps = read_last_run(DIRECTORY / f"{journal}.jsonl")
    found = [*past, *steps]
    return list(map(with_busy_as_cpu, found)) if journal.startswith(PACED) else found


def with_busy_as_cpu(step: Step) -> Step:
    if step.snapshot is None:
        return step
    executors = tuple(
        structs.replace(one, cpu_fraction=one.busy_fraction) for one in step.snapshot.executors
    )
    return structs.replace(step, snapshot=structs.replace(step.snapshot, executors=executors))


@cache
def replayed(policy: str, journal: str) -> list[Step]:
    return replay(recorded(journal), spec_of(policy, journal))


def spells(
    steps: Sequence[Step], holds: Callable[[Snapshot], bool], least_s: float
) -> Iterator[list[Step]]:
    """Runs of steps of which all snapshots are so, that last for `least_s` and more."""
    run: list[Step] = []
    for step in [*steps, None]:
        if step is not None and step.snapshot is not None and holds(step.snapshot):
            run.append(step)
            continue
        if run and run[-1].at_s - run[0].at_s >= least_s:
            yield run
        run = []


def is_late(snapshot: Snapshot, slo_s: float) -> bool:
    """Records wait longer than allowed, and batches take longer than their trigger."""
    known = (snapshot.delay_s, snapshot.latency_s, snapshot.trigger_interval_s)
    if None in known:
        return False
    delay_s, latency_s, trigger_s = known
    return delay_s > slo_s and latency_s > trigger_s  # type: ignore[operator]


def is_idle(snapshot: Snapshot) -> bool:
    """Half of the slots are free, and no record waits longer than for the next batch."""
    busy = [one.busy_fraction for one in snapshot.executors if one.busy_fraction is not None]
    if not busy or snapshot.delay_s is None or not snapshot.trigger_interval_s:
        return False
    return sum(busy) / len(busy) < 0.5 and snapshot.delay_s < 1.5 * snapshot.trigger_interval_s


def late_spells(steps: Sequence[Step], slo_s: float) -> list[list[Step]]:
    return list(spells(steps, lambda snapshot: is_late(snapshot, slo_s), LATE_FOR_S))


def idle_spells(steps: Sequence[Step]) -> list[list[Step]]:
    return list(spells(steps, is_idle, IDLE_FOR_S))


def sentence(step: Step) -> str:
    """A turn as it is reported: when, the fleet, what was wanted and why."""
    fleet = 0 if step.snapshot is None else step.snapshot.fleet.target
    reasons = "; ".join(f"{reason.code}: {reason.text}" for reason in step.decision.reasons)
    return f"at {step.at_s:.0f}: {fleet} -> {step.decision.wanted_executors} ({reasons})"


def measured(snapshot: Snapshot | None, name: str) -> float | None:
    return None if snapshot is None else getattr(snapshot, name)


@pytest.mark.parametrize(("policy", "journal"), subjects("late"))
def test_a_job_that_is_late_is_not_made_smaller(policy: str, journal: str) -> None:
    wrong = []
    for spell in late_spells(replayed(policy, journal), goal_of(journal).slo_s):
        for step in spell:
            assert step.snapshot is not None
            since_s = step.at_s - spell[0].at_s
            smaller = step.decision.wanted_executors < step.snapshot.fleet.target
            if smaller and since_s >= LATE_FOR_S:
                wrong.append(sentence(step))
    assert wrong == []


@pytest.mark.parametrize(("policy", "journal"), subjects("idle"))
def test_a_job_that_idles_is_in_the_end_not_larger(policy: str, journal: str) -> None:
    wrong = []
    for spell in idle_spells(replayed(policy, journal)):
        assert spell[0].snapshot is not None
        if spell[-1].decision.wanted_executors > spell[0].snapshot.fleet.target:
            wrong.append(sentence(spell[-1]))
    assert wrong == []


@pytest.mark.parametrize(("policy", "journal"), subjects("limits"))
def test_no_target_is_outside_of_the_limits(policy: str, journal: str) -> None:
    limits = spec_of(policy, journal).limits
    for step in replayed(policy, journal):
        if (snapshot := step.snapshot) is None:
            continue
        target, fleet = step.decision.target_executors, snapshot.fleet
        assert limits.min_executors <= target <= limits.max_executors, sentence(step)
        if limits.max_step is not None and limits.min_executors < target < limits.max_executors:
            assert abs(target - fleet.target) <= limits.max_step, sentence(step)
        if snapshot.partitions is not None and target > limits.min_executors:
            tasks = snapshot.partitions + fleet.cores_per_executor - 1
            assert target * fleet.cores_per_executor <= tasks, sentence(step)


@pytest.mark.parametrize(("policy", "journal"), subjects("evidence"))
def test_evidence_with_the_name_of_a_measurement_is_that_measurement(
    policy: str, journal: str
) -> None:
    wrong = []
    for step in replayed(policy, journal):
        for reason in step.decision.reasons:
            for name, number in reason.evidence.items():
                if name in MEASUREMENTS and measured(step.snapshot, name) != pytest.approx(number):
                    seen = measured(step.snapshot, name)
                    wrong.append(f"{name} {number:g} is {seen} in the snapshot; {sentence(step)}")
    assert wrong == []


def test_the_journals_show_what_is_asked_about() -> None:
    """Late for half a minute, idle for a minute, rising and falling: no test is vacuous."""
    late = {name for name in JOURNALS if late_spells(recorded(name), goal_of(name).slo_s)}
    idle = {name for name in JOURNALS if idle_spells(recorded(name))}
    assert late >= {"udf-drowning", "udf-overload"}
    assert idle >= {"windows-surge"}
    rates = [step.snapshot.arrival_rps for step in recorded("sessions-wave") if step.snapshot]
    known = [rate for rate in rates if rate is not None]
    assert max(known) > 5 * known[0]
    assert max(known) > 5 * known[-1]


def test_findings_name_policies_and_journals_that_exist() -> None:
    assert {policy for _, policy in FINDINGS} <= POLICIES.keys()
    assert set().union(*(journals for journals, _ in FINDINGS.values())) <= set(JOURNALS)
