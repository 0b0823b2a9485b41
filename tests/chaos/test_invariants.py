"""What the invariants find in a scene that broke; without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.core.journal import FileJournal
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Fleet, Reason, Snapshot, Step
from tests.chaos import invariants
from tests.chaos.faults import FAULTS
from tests.chaos.policy import MAX, MIN, FollowLoad
from tests.survival.scene import truth

FAULT, KILLED = FAULTS["clock_back"], FAULTS["executor_killed"]


def found(check: invariants.Invariant, **scene: Any) -> list[str]:
    made: Any = SimpleNamespace(**scene)
    return list(check(made, FAULT))


def test_a_record_that_is_lost_or_counted_twice_is_found() -> None:
    def counted(**changes: tuple[int, int]) -> list[str]:
        totals = truth(1000) | {int(key[1:]): total for key, total in changes.items()}
        feed = SimpleNamespace(rate_rps=15.0, sent=1000, runs=True, flush=lambda _: 0)
        found_now = found(
            invariants.counts_once,
            feed=feed,
            job=lambda: {"offsets": {"0": 600, "1": 400}},
            wait=lambda condition, *_: condition(),
            results=SimpleNamespace(read=lambda: totals),
        )
        assert feed.rate_rps == 15.0
        return found_now

    count, total = truth(1000)[7]
    assert counted() == []
    (lost,) = counted(k7=(count - 1, total - 7))
    assert lost == f"1 keys are counted wrong, such as 7: {(9, total - 7)} instead of (10, {total})"
    assert counted(k7=(count + 1, total + 7)) != []


def seen(*fleets: tuple[float, int, int]) -> list[dict[str, Any]]:
    return [{"at_s": at_s, "target": target, "active": active} for at_s, target, active in fleets]


def test_a_fleet_outside_of_its_bounds_is_found() -> None:
    def outside(*fleets: tuple[float, int, int]) -> list[str]:
        return found(invariants.stays_within_bounds, statuses=seen(*fleets))

    assert outside((0.0, MIN, MIN), (1.0, MAX, MIN), (9.0, MAX, MAX)) == []
    assert outside((0.0, 0, MIN)) == ["the target was {0}"]
    assert outside((0.0, MAX, MAX + 1)) == [f"the fleet was {MAX + 1}"]
    assert outside((0.0, MIN, 1), (59.0, MIN, 1), (60.0, MIN, MIN), (99.0, MIN, 1)) == []
    assert outside((0.0, MIN, 1), (61.0, MIN, 1)) == ["the fleet was 1 for over 60 s"]


def test_tasks_may_fail_only_with_their_executors() -> None:
    scene: Any = SimpleNamespace(failed_tasks=2, kills=0, job=lambda: {"failed_tasks": 5})
    assert list(invariants.fails_no_task(scene, FAULT)) == ["3 tasks failed"]
    assert list(invariants.fails_no_task(scene, FAULT)) == []
    scene.failed_tasks, scene.kills = 2, 1
    assert list(invariants.fails_no_task(scene, KILLED)) == []


def test_a_decision_that_does_not_follow_from_the_journal_is_found(tmp_path: Path) -> None:
    def decided(*forgets: bool) -> list[str]:
        path, knowledge = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", Knowledge()
        with FileJournal(path) as journal:
            for turn, forgot in enumerate(forgets):
                one = (ExecutorSample("1", 0.0),)
                rate_rps = 35.0 if turn > 3 else 15.0
                snapshot = Snapshot(
                    100.0 + turn, Fleet(2, 2, 2), arrival_rps=rate_rps, executors=one
                )
                policy, past = FollowLoad(), Knowledge() if forgot else knowledge
                step = Step(snapshot.at_s, snapshot, policy.decide(snapshot, past))
                knowledge.remember(step)
                journal.write(step)
        return found(invariants.decides_the_same, journal=path, began_at_s=100.0)

    assert decided(*[False] * 6) == []
    (text,) = decided(*[False] * 4, True, False)  # with what it knew, one high rate moves nothing
    assert text == "4 were wanted at 104.0, and not 2"


def test_a_journal_that_is_not_written_or_not_readable_is_found(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    step = Step(1.0, None, Decision.of(2, Reason("sensor_blind", "holding")))

    def wait(condition: Any, message: str, _: float) -> None:
        if not condition():
            raise TimeoutError(message)

    with FileJournal(path) as journal:
        journal.write(step)
        assert found(invariants.writes_journal, journal=path, wait=wait) == ["no step is written"]

        def write(*_: Any) -> None:
            journal.write(step)

        assert found(invariants.writes_journal, journal=path, wait=write) == []
