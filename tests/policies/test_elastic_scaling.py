"""The Amadeus listener: how full the trigger is."""

from __future__ import annotations

import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import Batch, Decision, Fleet, Snapshot, Step
from penstock.policies.elastic_scaling import ElasticScaling


def seen(
    durations_s: list[float],
    *,
    trigger_s: float | None = 10.0,
    fleet: Fleet | None = None,
    records: int = 100,
) -> Snapshot:
    batches = tuple(Batch(i, 0.0, seconds, records) for i, seconds in enumerate(durations_s))
    return Snapshot(0.0, fleet or Fleet(4, 4, 4), trigger_interval_s=trigger_s, batches=batches)


def drive(*snapshots: Snapshot) -> Decision:
    knowledge = Knowledge()
    for snapshot in snapshots:
        decision = ElasticScaling().decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
    return decision


@pytest.mark.parametrize(
    ("duration_s", "usage", "target"),
    [
        (20.0, 2.6 / 1.6, 7),  # ceil(4 x 1.625)
        (10.0, 1.0, 4),
        (7.0, 1.3 / 1.6, 4),  # 0.8125 is inside
        (2.0, 0.5, 2),  # (0.6 + 0.2) / 1.6
    ],
)
def test_outside_its_band_the_fleet_is_scaled_by_the_mean_usage(
    duration_s: float, usage: float, target: int
) -> None:
    decision = drive(seen([duration_s]))
    assert decision.reasons[0].evidence["usage"] == pytest.approx(usage)
    assert decision.target_executors == target


def test_batches_of_one_turn_and_of_several_turns_weigh_the_same() -> None:
    together = drive(seen([20.0, 5.0]))
    apart = drive(seen([20.0]), seen([5.0]))
    assert together.memory == apart.memory
    # ((0.6 + 2) x 0.6 + 0.5) / ((0.6 + 1) x 0.6 + 1)
    assert together.reasons[0].evidence["usage"] == pytest.approx(2.06 / 1.96)


def test_a_fleet_that_is_still_on_its_way_is_left_alone() -> None:
    decision = drive(seen([30.0], fleet=Fleet(8, 5, 5)))
    assert decision.target_executors == 8
    assert decision.reasons[0].code == "scaling_in_progress"


def test_batches_without_data_do_not_count() -> None:
    decision = drive(seen([0.1], records=0))
    assert decision.reasons[0].text == "holding 4 executors: batches not measured"


def test_an_unknown_trigger_means_hold() -> None:
    decision = drive(seen([20.0], trigger_s=None))
    assert decision.reasons[0].text == "holding 4 executors: trigger_interval_s not measured"
