"""How much of the past is kept."""

from __future__ import annotations

from penstock.core.knowledge import HISTORY_SNAPSHOTS, Knowledge
from penstock.core.model import ExecutorSample, Fleet, Snapshot


def test_the_samples_of_a_thousand_executors_are_forgotten_before_the_load_is() -> None:
    knowledge, turns = Knowledge(), 400
    executors = tuple(ExecutorSample(str(number), 0.0) for number in range(1000))
    for number in range(turns):
        fleet = Fleet(1000, 1000, 1000)
        seen = Snapshot(float(number), fleet, arrival_rps=5.0, executors=executors)
        knowledge.learn(seen, seen.at_s)
    assert [one.at_s for one in knowledge.history] == [float(number) for number in range(turns)]
    assert {one.arrival_rps for one in knowledge.history} == {5.0}
    kept = [len(one.executors) for one in knowledge.history]
    assert kept == [0] * (turns - 200) + [1000] * 200
    assert knowledge.history[-1] is seen


def test_a_history_that_is_full_counts_only_the_samples_that_it_still_has() -> None:
    knowledge = Knowledge()
    few = tuple(ExecutorSample(str(number), 0.0) for number in range(40))
    for number in range(2 * HISTORY_SNAPSHOTS):
        seen = Snapshot(float(number), Fleet(40, 40, 40), executors=few)
        knowledge.learn(seen, seen.at_s)
    assert len(knowledge.history) == HISTORY_SNAPSHOTS
    assert {len(one.executors) for one in knowledge.history} == {40}
