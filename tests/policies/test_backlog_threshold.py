"""One more when a queue is long, one fewer when all are short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.knowledge import Knowledge
from penstock.core.model import Fleet, OperatorSample, Snapshot
from penstock.policies.backlog_threshold import BacklogThreshold, stepped


def target(*queues: float | None, job: float | None = None, executors: int = 3) -> tuple[int, str]:
    operators = tuple(
        OperatorSample(f"op{number}", backlog_records=queue) for number, queue in enumerate(queues)
    )
    fleet = Fleet(executors, executors, executors)
    snapshot = Snapshot(0.0, fleet, backlog_records=job, operators=operators)
    decision = BacklogThreshold().decide(snapshot, Knowledge())
    return decision.target_executors, decision.reasons[0].code


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (0.0, (2, "scale_down")),
        (50.0, (2, "scale_down")),
        (51.0, (3, "right_size")),
        (150.0, (3, "right_size")),
        (151.0, (4, "scale_up")),
    ],
)
def test_the_lower_threshold_is_included_and_the_upper_is_not(
    queue: float, expected: tuple[int, str]
) -> None:
    assert target(queue) == expected


def test_any_long_queue_grows_the_fleet_and_only_short_ones_shrink_it() -> None:
    assert target(10.0, 200.0) == (4, "scale_up")
    assert target(10.0, 100.0) == (3, "right_size")
    assert target(10.0, 20.0) == (2, "scale_down")


def test_the_last_executor_stays() -> None:
    assert target(0.0, executors=1) == (1, "right_size")


def test_operators_without_queues_of_their_own_are_one_job() -> None:
    assert target(None, None, job=500.0) == (4, "scale_up")
    assert target(None) == (3, "not_measured")


@pytest.mark.parametrize(
    ("backlog", "expected"),
    [(40_000.0, 2), (40_050.0, 2), (40_100.0, 3), (40_151.0, 4)],
)
def test_records_of_two_triggers_are_no_queue(backlog: float, expected: int) -> None:
    # 10,000 records/s on a trigger of 2 s: 40,000 wait while the job keeps up.
    stage = OperatorSample("source", busy_fraction=0.5)
    snapshot = Snapshot(
        0.0,
        Fleet(3, 3, 3),
        trigger_interval_s=2.0,
        arrival_rps=10_000.0,
        backlog_records=backlog,
        operators=(stage,),
    )
    assert BacklogThreshold().decide(snapshot, Knowledge()).target_executors == expected


@given(st.integers(1, 99), st.lists(st.floats(0, 1000), min_size=1, max_size=8))
def test_the_fleet_is_the_largest_wish_of_the_operators(n: int, queues: list[float]) -> None:
    wishes = [stepped(n, queue, low_records=50, high_records=150) for queue in queues]
    assert target(*queues, executors=n)[0] == max(wishes)


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be below"):
        BacklogThreshold(low_records=200.0, high_records=100.0)
