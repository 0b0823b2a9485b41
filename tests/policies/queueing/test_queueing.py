"""The fleet that answers in time, by operator and by path."""

from __future__ import annotations

import msgspec
import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Fleet, OperatorSample, Snapshot, Step
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


def test_stages_that_take_turns_are_summed() -> None:
    # 0.6, 3 and 0.3 executors' time: the fewest stable are 1, 4 and 1.
    policy = Queueing(goal="operator")
    decision = policy.decide(seen(*IMAGES, trigger_interval_s=2.0), Knowledge())
    assert decision.target_executors == 6


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
