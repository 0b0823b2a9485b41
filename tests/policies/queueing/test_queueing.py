"""The fleet that answers in time, by operator and by path."""

from __future__ import annotations

import re
from math import inf

import msgspec
import pytest

from penstock import simulate
from penstock.core.knowledge import Knowledge
from penstock.core.model import Batch, Decision, Fleet, OperatorSample, Snapshot, Step
from penstock.policies.queueing.formulas import BatchStation
from penstock.policies.queueing.queueing import Queueing, QueueingMemory


def operator(name: str, *upstream: str, work_s: float, rps: float = 30.0) -> OperatorSample:
    return OperatorSample(
        name, upstream, rps, rps, busy_fraction=min(1.0, rps * work_s / 8), service_time_s=work_s
    )


IMAGES = (
    operator("resize", work_s=0.02),
    operator("recognise", "resize", work_s=0.1),
    operator("store", "resize", work_s=0.01),
)


def seen(
    *operators: OperatorSample,
    executors: int = 8,
    arrival_rps: float | None = 30.0,
    trigger_interval_s: float | None = None,
) -> Snapshot:
    return Snapshot(
        0.0,
        Fleet(executors, executors, executors),
        trigger_interval_s=trigger_interval_s,
        arrival_rps=arrival_rps,
        operators=operators,
    )


def settled(policy: Queueing, executors: int, turns: int = 60) -> tuple[int, QueueingMemory]:
    """Let the rule run on a fleet that follows it, until it has had time to come to rest."""
    knowledge = Knowledge()
    memory = QueueingMemory()
    for _ in range(turns):
        decision = policy.decide(seen(*IMAGES, executors=executors), knowledge)
        knowledge.remember(Step(0.0, None, decision))
        executors, memory = decision.target_executors, decision.memory
    return executors, memory


def test_each_operator_gets_the_fewest_instances_that_answer_in_time() -> None:
    # 30/s x 0.1 s: four instances answer within 0.151 s, five within 0.11181 s.
    for goal_s, target in ((0.2, 4), (0.151, 4), (0.15, 5), (0.1119, 5), (0.1118, 6)):
        policy = Queueing(max_response_s=goal_s, goal="operator")
        assert policy.decide(seen(*IMAGES), Knowledge()).target_executors == target


def test_a_path_that_is_too_slow_grows_where_it_is_slowest() -> None:
    decision = Queueing(max_response_s=0.15).decide(seen(*IMAGES, executors=4), Knowledge())
    assert decision.target_executors == 5
    assert decision.memory.instances == {"resize": 4, "recognise": 5, "store": 3}
    assert "one more for recognise" in decision.reasons[0].text


def test_a_path_that_cannot_keep_up_is_said_to_be_so() -> None:
    decision = Queueing().decide(seen(*IMAGES, executors=2), Knowledge())
    assert decision.target_executors == 3
    assert "resize > recognise cannot keep up" in decision.reasons[0].text


@pytest.mark.parametrize("start", [1, 4, 15])
def test_the_path_goal_comes_to_rest_at_the_same_fleet_from_above_and_below(start: int) -> None:
    executors, memory = settled(Queueing(max_response_s=1.0), start)
    assert executors == 4
    again, same = settled(Queueing(max_response_s=1.0), executors)
    assert (again, same.instances["recognise"]) == (executors, memory.instances["recognise"])


def test_what_the_guards_refuse_does_not_pile_up() -> None:
    policy, knowledge = Queueing(), Knowledge()
    for _ in range(50):
        decision = policy.decide(seen(*IMAGES, executors=2), knowledge)
        knowledge.remember(Step(0.0, None, decision))
    assert decision.target_executors == 3


@pytest.mark.parametrize(
    ("goal_s", "target"),
    [
        # 3.9 executors' time: five are busy for 0.78 of theirs. A record waits 1 s for the trigger,
        # 1.56 s for the batch and 0.61 / (0.22 x 30) = 0.09 s for bursts: 2.65 s.
        (3.0, 5),
        (2.66, 5),
        (2.64, 6),
        # No fleet answers within the second that the trigger takes: then within two.
        (1.0, 8),
        (0.01, 8),
    ],
)
def test_a_response_on_micro_batches_holds_trigger_and_batch(goal_s: float, target: int) -> None:
    policy = Queueing(max_response_s=goal_s, goal="operator")
    decision = policy.decide(seen(*IMAGES, trigger_interval_s=2.0), Knowledge())
    assert decision.target_executors == target


@pytest.mark.parametrize(
    ("executors", "target", "words"),
    [
        (4, 5, "4.22 s in all, more than 3 s"),
        (3, 4, "the fleet cannot keep up"),
        (5, 5, "2.65 s in all, of 3 s"),
        (20, 19, "1.39 s in all, of 3 s"),
        (8, 7, "1.99 s in all, of 3 s"),
        (7, 7, "2.14 s in all, of 3 s"),
    ],
)
def test_the_path_goal_moves_by_one_executor_on_micro_batches(
    executors: int, target: int, words: str
) -> None:
    # 1 s of the 3 s is waiting for the trigger. Below half of the other two it gives one back.
    snapshot = seen(*IMAGES, executors=executors, trigger_interval_s=2.0)
    # Busy time is that of eight executors.
    snapshot = msgspec.structs.replace(snapshot, fleet=Fleet(executors, 8, 8))
    decision = Queueing(max_response_s=3.0).decide(snapshot, Knowledge())
    assert decision.target_executors == target
    assert words in decision.reasons[0].text


def test_the_fixed_cost_of_a_batch_is_what_its_tasks_do_not_fill() -> None:
    # In 20 s ten batches of 1.2 s keep the slots busy for 0.4875 x 20 = 9.75 s: 0.225 s each are
    # left. A record waits 1 s, 0.225 s, 3.9 x 2 / 8 = 0.975 s and 0.0155 s.
    knowledge = Knowledge()
    for at_s in (0.0, 20.0):
        batches = tuple(Batch(i, at_s + 2.0 * i, 1.2, 60) for i in range(10))
        now = msgspec.structs.replace(
            seen(*IMAGES, trigger_interval_s=2.0), at_s=at_s, batches=batches
        )
        knowledge.learn(now, at_s)
    text = Queueing(max_response_s=3.0).decide(now, knowledge).reasons[0].text
    assert "1 s for the trigger and 1.2 s for its batch, 2.22 s in all" in text


@pytest.mark.parametrize("executors", [5, 8])
def test_it_reports_what_records_of_a_micro_batch_job_really_wait(executors: int) -> None:
    # Seen before: milliseconds, while half of the records waited for more than 2.9 s.
    fixed = {"min_executors": executors, "max_executors": executors}
    run = simulate(
        "queueing", "constant:50k", duration_s=1800.0, start_executors=executors, limits=fixed
    )
    said = re.search(r"([\d.]+) s in all", run.steps[-1].decision.reasons[0].text)
    assert said is not None
    assert float(said[1]) == pytest.approx(run.score.p50_s, rel=0.05)


def test_records_in_bursts_wait_longer_for_the_same_batches() -> None:
    # Tq = (16 + 4) / 2 x 0.4875^2 / (0.5125 x 30) = 0.155 s instead of 0.0155 s.
    bursty = tuple(msgspec.structs.replace(o, arrival_cv2=16.0, service_cv2=4.0) for o in IMAGES)
    decision = Queueing(max_response_s=2.0).decide(
        seen(*bursty, trigger_interval_s=2.0), Knowledge()
    )
    assert "2.13 s in all, more than 2 s" in decision.reasons[0].text
    assert decision.target_executors == 9


def test_nothing_is_given_back_while_records_are_late() -> None:
    # With twenty executors 1.39 s of 3 s are enough; but a record waits for 9 s, 5 s of them
    # beyond two triggers.
    late = msgspec.structs.replace(
        seen(*IMAGES, trigger_interval_s=2.0), fleet=Fleet(20, 8, 8), delay_s=9.0
    )
    for goal in ("operator", "path"):
        policy = Queueing(max_response_s=3.0, goal="path" if goal == "path" else "operator")
        decision = policy.decide(late, Knowledge())
        assert decision.target_executors == 20
        assert "records that wait now are 5 s late" in decision.reasons[0].text
    calm = msgspec.structs.replace(late, delay_s=6.9)
    assert Queueing(max_response_s=3.0).decide(calm, Knowledge()).target_executors == 19


def test_batches_longer_than_their_trigger_start_one_after_the_other() -> None:
    # Half of the time goes into 2 s of fixed cost: a batch of 4 s reads what came in 4 s.
    station = BatchStation(arrival_rps=1000.0, work_executors=2.0, trigger_s=1.0, fixed_s=2.0)
    assert station.response_time_s(4) == pytest.approx(2.0 + 4.0, abs=0.001)
    assert station.response_time_s(2) == inf
    assert station.shortest_s == 3.0
    assert BatchStation(0.0, 0.0, 2.0).response_time_s(1) == 1.0


def test_a_goal_out_of_reach_asks_for_no_more_waiting_than_work() -> None:
    policy = Queueing(max_response_s=0.05, goal="operator")
    assert policy.decide(seen(*IMAGES), Knowledge()).target_executors == 4
    assert settled(Queueing(max_response_s=0.05), 8)[0] <= 5


def test_regular_records_need_fewer_than_bursty_ones() -> None:
    def target(cv2: float) -> int:
        steady = msgspec.structs.replace(IMAGES[1], upstream=(), arrival_cv2=cv2, service_cv2=cv2)
        policy = Queueing(max_response_s=0.12, goal="operator")
        return policy.decide(seen(steady), Knowledge()).target_executors

    assert [target(cv2) for cv2 in (0.0, 1.0, 9.0)] == [4, 5, 7]


def test_a_silent_source_needs_one_executor() -> None:
    silent = (OperatorSample("a", (), 0.0, 0.0, 0.0), OperatorSample("b", ("a",), 0.0, None, 0.0))
    for policy in (Queueing(goal="operator"), Queueing()):
        decision = policy.decide(seen(*silent, arrival_rps=0.0, executors=2), Knowledge())
        assert decision.target_executors <= 2
    assert isinstance(decision, Decision)


def test_a_missing_metric_holds_and_keeps_the_plan() -> None:
    knowledge = Knowledge()
    plan = QueueingMemory({"resize": 2})
    wish = Queueing().decide(seen(*IMAGES), knowledge)
    knowledge.remember(Step(0.0, None, msgspec.structs.replace(wish, memory=plan)))
    decision = Queueing().decide(seen(*IMAGES, arrival_rps=None), knowledge)
    assert decision.reasons[0].code == "not_measured"
    assert decision.memory == plan
