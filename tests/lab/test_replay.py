"""A recording shows what another policy would have done."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigError
from penstock.core.guards import chain
from penstock.core.model import Decision, Fleet, Limits, Reason, Receipt, Snapshot, Step
from penstock.lab.replay import differences, replay
from penstock.policies.static import Static


def recorded(at_s: float, fleet: int, target: int) -> Step:
    decision = Decision.of(target, Reason("test", "because"))
    receipt = Receipt(True) if target != fleet else None
    return Step(at_s, Snapshot(at_s, Fleet(fleet, fleet, fleet)), decision, receipt)


BLIND = Step(30.0, None, Decision.of(5, Reason("sensor_blind", "holding")))
STEPS = [recorded(0.0, 3, 5), recorded(15.0, 5, 5), BLIND]


def test_the_same_policy_decides_the_same() -> None:
    replayed = replay(STEPS, Static(executors=5), chain(Limits()))
    assert differences(STEPS, replayed) == []
    assert [step.at_s for step in replayed] == [0.0, 15.0, 30.0]


def test_another_policy_differs_where_it_would_have_decided_otherwise() -> None:
    replayed = replay(STEPS, Static(executors=4), chain(Limits()))
    assert [
        (d.at_s, d.replayed.decision.target_executors) for d in differences(STEPS, replayed)
    ] == [
        (0.0, 4),
        (15.0, 4),
        (30.0, 4),
    ]


def test_a_blind_turn_stays_blind() -> None:
    assert replay(STEPS, Static(5), chain(Limits()))[-1].decision.reasons[0].code == "sensor_blind"


def test_an_empty_journal_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds no step"):
        replay([], Static(), chain(Limits()))
