"""The actuator on a simulated driver: what it requests of Spark, and when."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.core.errors import ActuatorError
from penstock.core.model import ExecutorSample, Fleet, Limits, Snapshot
from penstock.spark.actuator.actuator import Patience, SparkActuator
from penstock.spark.doctor import HOW_TO_GET_MORE, FailureLimit, Manager
from tests.spark.actuator.simulated_driver import SimulatedDriver

EACH_LOOK = Patience(
    look_every_s=1.0, quiet_s=60.0, leave_s=90.0, arrive_s=120.0, ask_again_s=600.0
)

MORE_WORKERS = HOW_TO_GET_MORE["standalone"]


class Bed:
    """An actuator on a simulated driver, with a clock and a query whose batches are counted."""

    def __init__(
        self, executors: int, *, room: int = 16, can_decommission: bool = True, **facts: Any
    ) -> None:
        self.driver = SimulatedDriver(executors, room)
        self.batch = 0
        self.now_s = 1000.0
        self.actuator = SparkActuator(
            self.driver,
            lambda: {"query": self.batch} if self.batch else {},
            can_decommission=can_decommission,
            limits=Limits(max_executors=16),
            patience=EACH_LOOK,
            **facts,
        )
        self.actuator.begin(executors, self.now_s)

    def apply(self, target: int) -> tuple[bool, str]:
        receipt = self.actuator.apply(target, self.now_s)
        return receipt.accepted, receipt.text

    def pass_s(self, seconds: int, *, batches: bool = False) -> None:
        """Let time pass; one batch a second if asked for."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.batch += batches
            self.actuator.reconcile(self.now_s)

    def asked(self, *kinds: str) -> list[tuple[str, ...]]:
        return [call for call in self.driver.calls if call[0] in kinds]


def test_the_present_size_is_asked_for_before_anything_else() -> None:
    bed = Bed(3)
    bed.apply(2)
    bed.pass_s(1)
    assert bed.driver.calls[0] == ("request", "3")
    assert bed.driver.requested == 2


def test_a_fleet_that_was_not_looked_at_yet_is_not_called_settled() -> None:
    bed = Bed(2)
    assert not bed.actuator.is_settled
    bed.pass_s(1)
    assert bed.actuator.is_settled


def test_growing_is_one_request_without_a_locality_wait_and_asking_twice_is_none() -> None:
    bed = Bed(1)
    assert bed.apply(3) == (True, "requested 3 executors instead of 1")
    assert bed.driver.wait == "0s"
    assert bed.apply(3) == (True, "the target is 3 already")
    assert bed.asked("request") == [("request", "1"), ("request", "3")]


@pytest.mark.parametrize("target", [0, 17, -1, 10_000])
def test_a_target_outside_of_the_bounds_is_refused_whoever_asks(target: int) -> None:
    bed = Bed(3)
    for ask in (bed.actuator.apply, bed.actuator.begin):
        with pytest.raises(ActuatorError, match=f"^{target} is outside of 1 to 16 executors"):
            ask(target, bed.now_s)
    bed.pass_s(5)
    assert (bed.actuator.target, bed.driver.requested) == (3, 3)
    bed.actuator.limits = Limits(min_executors=0, max_executors=10_000)
    if target >= 0:
        assert bed.apply(target)[0]


def test_the_wait_comes_back_after_three_clean_batches_on_the_new_fleet() -> None:
    bed = Bed(1)
    bed.apply(3)
    bed.pass_s(10, batches=True)
    assert bed.driver.wait == "0s"  # batches while the fleet moves do not count
    bed.driver.give()
    # One look settles it; the batch that ran then is not counted, three more are.
    bed.pass_s(4, batches=True)
    assert bed.driver.wait == "0s"
    bed.pass_s(1, batches=True)
    assert bed.driver.wait == "3s"
    assert bed.actuator.is_settled


def test_the_wait_comes_back_also_if_the_first_batch_ends_after_the_fleet_has_changed() -> None:
    bed = Bed(1)
    bed.apply(3)
    bed.driver.give()
    bed.pass_s(30)
    assert bed.driver.wait == "0s"
    bed.pass_s(5, batches=True)
    assert bed.driver.wait == "3s"


def test_shrinking_lowers_the_target_first_and_lets_the_least_state_go_between_batches() -> None:
    bed = Bed(4)
    state = {"1": 8, "2": 2, "3": 5, "4": 5}
    samples = tuple(ExecutorSample(i, 0.0, state_partitions=n) for i, n in state.items())
    bed.actuator.observe(Snapshot(bed.now_s, Fleet(4, 4, 4), executors=samples))
    bed.driver.busy = True
    bed.apply(2)
    bed.pass_s(5)
    assert bed.asked("decommission") == []
    assert bed.driver.wait == "0s"
    bed.driver.busy = False
    bed.pass_s(3)
    assert bed.asked("decommission") == [("decommission", "2", "4")]
    assert bed.driver.requested == 2
    bed.driver.let_go()
    bed.pass_s(6, batches=True)
    assert bed.driver.alive == ["1", "3"]
    assert bed.driver.wait == "3s"
    assert bed.actuator.losses == 0


def test_who_leaves_is_chosen_without_the_status_store_which_may_hang_or_lie() -> None:
    bed = Bed(3)
    samples = tuple(ExecutorSample(i, at_s) for i, at_s in {"1": 50.0, "2": 90.0}.items())
    bed.actuator.observe(Snapshot(bed.now_s, Fleet(3, 3, 3), executors=samples))
    bed.actuator.observe(Snapshot(bed.now_s, Fleet(3, 3, 3)))  # the store was not read in time
    bed.apply(1)
    bed.pass_s(1)
    # Nobody knows how old 3 is: it came after the last reading.
    assert bed.asked("decommission") == [("decommission", "3", "2")]


def test_a_batch_that_never_ends_is_waited_for_a_minute_only() -> None:
    bed = Bed(2)
    bed.driver.busy = True
    bed.apply(1)
    bed.pass_s(60)
    assert bed.asked("decommission") == []
    bed.pass_s(1)
    assert bed.asked("decommission") == [("decommission", "2")]


def test_without_decommission_executors_are_killed_idle_and_never_in_a_batch() -> None:
    bed = Bed(2, can_decommission=False)
    bed.driver.busy = True
    bed.apply(1)
    bed.pass_s(300)
    assert bed.asked("kill_idle", "decommission") == []
    bed.driver.busy = False
    bed.pass_s(1)
    assert bed.asked("kill_idle", "decommission") == [("kill_idle", "2")]


def test_a_decommission_that_hangs_is_helped_after_a_while_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(2)
    bed.apply(1)
    bed.pass_s(90)
    assert bed.asked("kill_idle") == []
    bed.pass_s(5)
    assert bed.asked("kill_idle")[0] == ("kill_idle", "2")
    said = [each.message for each in caplog.records if "has been leaving" in each.message]
    assert said == ["executor 2 has been leaving for 90 s: it is killed as soon as it is idle"]
    assert bed.driver.requested == 1


def test_a_target_that_somebody_else_changed_is_repaired() -> None:
    bed = Bed(3)
    bed.pass_s(2)
    bed.driver.requested = 7
    bed.pass_s(1)
    assert bed.driver.requested == 3
    assert bed.actuator.repairs == 1


def test_executors_that_nobody_asked_for_go_again() -> None:
    bed = Bed(2)
    bed.pass_s(2)
    bed.driver.alive += ["8", "9"]
    bed.pass_s(2)
    assert bed.asked("decommission") == [("decommission", "9", "8")]


def test_after_a_loss_tasks_may_go_anywhere_until_the_replacement_has_settled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(3)
    bed.pass_s(2)
    bed.driver.lose("2")
    bed.pass_s(1)
    assert bed.driver.wait == "0s"
    assert bed.actuator.losses == 1
    assert "lost executor 2" in caplog.text
    bed.driver.give()
    bed.pass_s(6, batches=True)
    assert bed.driver.wait == "3s"
    assert bed.driver.requested == 3


def test_an_executor_that_the_cluster_drains_is_a_loss_until_it_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(3)
    bed.pass_s(5, batches=True)
    assert bed.actuator.is_settled
    bed.driver.going = {"2"}  # decommissioned by somebody else: still there, takes no work
    bed.pass_s(2, batches=True)
    assert caplog.messages == ["the cluster takes executor 2 away"]
    assert bed.actuator.losses == 1
    assert (bed.actuator.is_settled, bed.driver.wait) == (False, "0s")
    bed.driver.let_go()
    bed.pass_s(20, batches=True)
    assert (bed.actuator.is_settled, bed.driver.wait) == (False, "0s")
    bed.driver.give()
    bed.pass_s(6, batches=True)
    assert (bed.actuator.is_settled, bed.driver.wait) == (True, "3s")
    assert bed.actuator.losses == 1
    assert bed.asked("decommission", "kill_idle") == []


def test_a_fleet_that_is_short_is_not_settled() -> None:
    bed = Bed(3)
    bed.pass_s(2)
    bed.driver.lose("3")
    bed.pass_s(1)
    assert not bed.actuator.is_settled


def test_failures_are_counted_and_named_before_spark_ends_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(4, failures=FailureLimit(6, within_s=3600.0))
    for lost in ("1", "2", "3"):
        bed.pass_s(10)
        bed.driver.lose(lost)
        bed.driver.give()
    bed.pass_s(10)
    assert caplog.messages[-1] == (
        "3 executors were lost, and Spark ends the application after 6 failures: raise "
        "spark.executor.maxNumFailures, or set spark.executor.failuresValidityInterval"
    )
    assert len(caplog.messages) == 4
    bed.pass_s(3600)
    bed.driver.lose("4")
    bed.pass_s(10)
    assert caplog.messages[4:] == ["lost executor 4"]  # the others no longer count


@pytest.mark.parametrize(
    ("manager", "words"),
    [("standalone", "spark.cores.max"), ("yarn", "queue"), ("kubernetes", "quota")],
)
def test_advice_is_that_for_the_cluster_manager(manager: Manager, words: str) -> None:
    assert words in HOW_TO_GET_MORE[manager]
    bed = Bed(1, room=1, advice=HOW_TO_GET_MORE[manager])
    bed.apply(3)
    bed.pass_s(130)
    assert bed.apply(4) == (False, f"the cluster gave only 1 executor: {HOW_TO_GET_MORE[manager]}")


def test_a_cluster_that_has_no_more_says_so_once_and_more_is_refused_until_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(2, room=3)
    bed.apply(5)
    bed.driver.give()
    bed.pass_s(300)
    said = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert said == [f"the fleet is 3 of 5 executors after 120 s: {MORE_WORKERS}"]
    accepted, text = bed.apply(6)
    assert not accepted
    assert text.startswith("the cluster gave only 3 executors: add workers")
    assert bed.driver.requested == 5  # the request stays open: room may come
    assert bed.apply(4)[0]
    bed.pass_s(700)
    assert bed.apply(6)[0]


def test_what_kubernetes_says_of_pods_that_wait_is_said_soon_and_in_the_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(2, room=3)
    bed.driver.why = "0/2 nodes are available: 2 Insufficient cpu."
    bed.apply(5)
    bed.driver.give()
    bed.pass_s(12)
    assert caplog.messages == [f"2 executors did not come: {bed.driver.why}"]
    bed.pass_s(120)
    assert caplog.messages[1].endswith(f" after 120 s: {bed.driver.why}; {MORE_WORKERS}")
    assert f"only 3 executors: {bed.driver.why}; add workers" in bed.apply(6)[1]


def test_a_cluster_that_still_gives_one_by_one_is_not_held_to_have_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(1, room=2)
    bed.apply(6)
    for room in (2, 3, 4):
        bed.driver.room = room
        bed.driver.give()
        bed.pass_s(100)
    assert caplog.messages == []
    bed.pass_s(100)
    (said,) = caplog.messages
    assert said.startswith("the fleet is 4 of 6 executors after 320 s")


def test_room_that_comes_late_is_taken_and_the_ceiling_forgotten() -> None:
    bed = Bed(2, room=3)
    bed.apply(5)
    bed.driver.give()
    bed.pass_s(150)
    bed.driver.room = 16
    bed.driver.give()
    bed.pass_s(2)
    assert len(bed.driver.alive) == 5
    assert bed.apply(6)[0]


def test_new_executors_that_take_no_state_keep_the_wait_away_for_longer_and_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed(2)
    bed.pass_s(1)
    bed.apply(3)
    bed.driver.give()
    samples = tuple(
        ExecutorSample(i, 0.0, state_partitions=n) for i, n in {"1": 4, "2": 4, "3": 0}.items()
    )
    bed.actuator.observe(Snapshot(bed.now_s, Fleet(3, 3, 3), executors=samples))
    bed.pass_s(6, batches=True)
    assert bed.driver.wait == "0s"
    bed.pass_s(12, batches=True)
    assert bed.driver.wait == "3s"
    assert "new executors 3 took no stateful work in 9 batches" in caplog.text


def test_a_cluster_manager_that_refuses_is_an_actuator_error_and_the_target_stays() -> None:
    bed = Bed(2)
    bed.driver.obeys = False
    with pytest.raises(ActuatorError, match="refused a fleet of 4"):
        bed.apply(4)
    assert bed.actuator.target == 2


def test_the_end_gives_the_wait_back_and_leaves_the_fleet() -> None:
    bed = Bed(2)
    bed.apply(4)
    bed.actuator.end()
    assert bed.driver.wait == "3s"
    assert bed.driver.requested == 4
