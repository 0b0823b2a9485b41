"""The scaler of DStreams: batch time against interval, once a minute."""

from __future__ import annotations

import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import Batch, Decision, Fleet, Snapshot, Step
from penstock.policies.dstreams_ratio import DstreamsRatio


def seen(at_s: float, durations_s: list[float], trigger_s: float | None = 10.0) -> Snapshot:
    batches = tuple(Batch(i, at_s, seconds, 100) for i, seconds in enumerate(durations_s))
    return Snapshot(at_s, Fleet(4, 4, 4), trigger_interval_s=trigger_s, batches=batches)


def drive(snapshots: list[Snapshot]) -> list[Decision]:
    knowledge = Knowledge()
    decisions = []
    for snapshot in snapshots:
        decision = DstreamsRatio().decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
        decisions.append(decision)
    return decisions


@pytest.mark.parametrize(
    ("durations_s", "target"),
    [
        ([9.0, 9.0], 5),  # 0.9: round(0.9) = 1 more
        ([8.9], 4),
        ([25.0], 7),  # 2.5 rounds up, as in Java
        ([3.0], 3),
        ([3.1], 4),
        ([1.0, 29.0], 6),  # 1.5
    ],
)
def test_the_ratio_decides(durations_s: list[float], target: int) -> None:
    assert drive([seen(60.0, durations_s)])[0].target_executors == target


def test_it_looks_once_a_minute_at_all_batches_since() -> None:
    run = [seen(0.0, [5.0]), seen(20.0, [20.0]), seen(40.0, [10.0]), seen(60.0, [15.0])]
    decisions = drive(run)
    assert [d.target_executors for d in decisions] == [4, 4, 4, 6]  # (20 + 10 + 15) / 3 / 10 = 1.5
    assert decisions[1].reasons[0].code == "between_looks"
    assert decisions[-1].reasons[0].evidence == {"ratio": 1.5, "batches": 3.0}


def test_the_mean_starts_anew_at_each_look() -> None:
    assert [d.target_executors for d in drive([seen(0.0, [50.0]), seen(60.0, [5.0])])] == [9, 4]


def test_a_tick_a_little_early_is_on_time() -> None:
    assert drive([seen(0.0, [5.0]), seen(59.9, [20.0])])[-1].target_executors == 6


def test_no_batches_or_no_interval_means_hold() -> None:
    for snapshot, name in [
        (seen(0.0, []), "batches"),
        (seen(0.0, [5.0], None), "trigger_interval_s"),
        (seen(0.0, [5.0], 0.0), "trigger_interval_s"),
    ]:
        decision = drive([snapshot])[0]
        assert decision.reasons[0].text == f"holding 4 executors: {name} not measured"


def test_a_clock_set_back_does_not_stop_the_looks() -> None:
    assert drive([seen(5000.0, [5.0]), seen(10.0, [20.0])])[-1].target_executors == 6
