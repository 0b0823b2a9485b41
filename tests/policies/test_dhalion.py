"""Dhalion as in Heron, and as Koper adapted it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.core.controller import Controller
from penstock.core.knowledge import Knowledge
from penstock.core.model import (
    Batch,
    Decision,
    ExecutorSample,
    Fleet,
    Limits,
    OperatorSample,
    Receipt,
    Snapshot,
)
from penstock.core.protocols import InstantActuator
from penstock.policies.dhalion import Dhalion, DhalionMemory
from penstock.policies.dhalion_adapted import DhalionAdapted, grown, shrunk
from penstock.settings.policy_spec import PolicySpec, wire


class Job(InstantActuator):
    """A job that shows the pressure it is told to and takes any size."""

    def __init__(self, executors: int = 4) -> None:
        self.executors = executors
        self.blocked_fraction = 0.0
        self.backlog_records = 0.0
        self.throughput_rps = 100.0
        self.obeys = True

    def read(self, now_s: float) -> Snapshot:
        return Snapshot(
            now_s,
            Fleet(self.executors, self.executors, self.executors),
            arrival_rps=100.0,
            throughput_rps=self.throughput_rps,
            backlog_records=self.backlog_records,
            operators=(
                OperatorSample("read", backpressured_fraction=self.blocked_fraction),
                OperatorSample("count", ("read",), backpressured_fraction=0.0),
            ),
        )

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        if self.obeys:
            self.executors = target_executors
        return Receipt(accepted=self.obeys, text=f"at {now_s:.0f} s")


def loop(job: Job, policy: Dhalion | None = None) -> Controller:
    return wire(PolicySpec.of(policy or Dhalion(), Limits(max_executors=1000)), job, job)


def turn(controller: Controller, at_s: float) -> tuple[int, str]:
    decision = controller.turn(at_s).decision
    return decision.target_executors, decision.reasons[0].code


def test_pressure_is_charged_to_the_operator_that_causes_it_and_cured_in_proportion() -> None:
    job = Job()
    job.blocked_fraction = 0.2
    decision = loop(job).turn(60.0).decision
    assert decision.target_executors == 5
    assert "count holds back what feeds it for 200 ms/s" in decision.reasons[0].text


def test_noise_is_no_pressure() -> None:
    job = Job()
    job.blocked_fraction, job.backlog_records = 0.02, 5000.0
    assert turn(loop(job), 60.0) == (4, "healthy")


def test_an_empty_queue_without_pressure_gives_a_fifth_back_down_to_one() -> None:
    job = Job(10)
    controller = loop(job)
    sizes = [turn(controller, 60.0 + 180.0 * i)[0] for i in range(9)]
    assert sizes == [8, 6, 4, 3, 2, 1, 1, 1, 1]


def test_a_cure_is_given_time_before_the_next() -> None:
    job = Job(10)
    controller = loop(job)
    assert turn(controller, 60.0) == (8, "scale_down")
    assert turn(controller, 120.0) == (8, "waiting")
    assert turn(controller, 240.0) == (6, "scale_down")


def test_a_cure_that_fails_twice_is_blacklisted_and_later_forgiven() -> None:
    job = Job(4)
    controller = loop(job, Dhalion(blacklist_s=1000.0))
    codes = []
    for at_s in range(60, 2000, 180):
        # Pressed below four executors, at ease with four and more.
        job.blocked_fraction = 0.5 if job.executors < 4 else 0.0
        codes.append(turn(controller, float(at_s))[1])
    ban = codes.index("blacklisted")
    # 4 -> 3 fails, 3 -> 6 helps, 6 -> 4 helps, 4 -> 3 fails again.
    assert codes[:ban] == ["scale_down", "scale_up", "scale_down", "scale_down", "scale_up"]
    # Banned at 780 s, when the second failure was seen; 1000 s later it may be tried again.
    assert codes[ban:] == ["blacklisted"] * 5 + ["scale_down"]


def test_more_throughput_counts_as_help_even_if_the_pressure_stays() -> None:
    job = Job()
    job.blocked_fraction = 0.5
    controller = loop(job)
    for at_s in (60.0, 240.0, 420.0, 600.0):
        assert turn(controller, at_s)[1] == "scale_up"
        job.throughput_rps *= 1.5


def test_growing_without_any_effect_is_blacklisted() -> None:
    job = Job()
    job.blocked_fraction = 0.5
    controller = loop(job)
    codes = [turn(controller, 60.0 + 180.0 * i)[1] for i in range(3)]
    assert codes == ["scale_up", "scale_up", "blacklisted"]


def test_what_was_never_done_is_not_held_against_a_cure() -> None:
    job = Job()
    job.blocked_fraction, job.obeys = 0.5, False
    controller = loop(job)
    codes = {turn(controller, 60.0 * i)[1] for i in range(1, 20)}
    assert codes == {"scale_up"}


def test_a_queue_that_grows_before_the_source_presses_the_job() -> None:
    job = Job()
    controller = loop(job)
    job.backlog_records = 1000.0
    turn(controller, 60.0)
    job.backlog_records = 7000.0
    # 100/s more than the 100/s that are read: twice the executors.
    assert turn(controller, 120.0) == (8, "scale_up")


def test_what_waits_for_a_long_trigger_is_no_queue_however_steeply_it_grows() -> None:
    knowledge = Knowledge()
    for at_s, backlog in ((60.0, 500.0), (120.0, 9000.0)):
        snapshot = Snapshot(
            at_s,
            Fleet(4, 4, 4),
            trigger_interval_s=60.0,
            batches=(Batch(1, at_s - 50.0, 40.0, 6000),),
            arrival_rps=100.0,
            throughput_rps=100.0,
            backlog_records=backlog,
        )
        knowledge.learn(snapshot, at_s)
    assert Dhalion().decide(snapshot, knowledge).reasons[0].code == "scale_down"


def test_a_skewed_job_is_left_as_it_is() -> None:
    fast, slow = (ExecutorSample(i, 0.0, throughput_rps=r) for i, r in (("1", 90.0), ("2", 30.0)))
    snapshot = Snapshot(
        0.0,
        Fleet(2, 2, 2),
        executors=(fast, slow),
        operators=(
            OperatorSample("read", backpressured_fraction=0.5),
            OperatorSample("count", ("read",), backpressured_fraction=0.0),
        ),
    )
    decision = Dhalion().decide(snapshot, Knowledge())
    assert (decision.target_executors, decision.reasons[0].code) == (2, "skewed")
    assert Dhalion(skew_ratio=4.0).decide(snapshot, Knowledge()).target_executors == 4


def test_batches_that_overrun_their_trigger_are_pressure() -> None:
    batches = (Batch(1, 0.0, 3.0, 100),)
    late = Snapshot(9.0, Fleet(4, 4, 4), trigger_interval_s=2.0, batches=batches)
    assert Dhalion().decide(late, Knowledge()).target_executors == 6
    untold = Snapshot(9.0, Fleet(4, 4, 4), trigger_interval_s=0.0, batches=batches)
    assert Dhalion().decide(untold, Knowledge()).reasons[0].code == "not_measured"


def test_a_job_in_a_long_batch_is_under_pressure() -> None:
    # The last batch took 4 s on a trigger of 2 s; nothing else is known while the next one runs.
    now = Snapshot(0.0, Fleet(2, 2, 2), trigger_interval_s=2.0, latency_s=4.0, delay_s=20.0)
    decision = Dhalion().decide(now, Knowledge())
    assert (decision.target_executors, decision.reasons[0].code) == (4, "scale_up")


def test_memory_survives_the_journal_as_plain_data() -> None:
    job = Job()
    job.blocked_fraction = 0.5
    controller = loop(job)
    for at_s in (60.0, 240.0):
        step = controller.turn(at_s)
    plain = msgspec.json.decode(msgspec.json.encode(step.decision.memory))
    assert msgspec.convert(plain, DhalionMemory) == step.decision.memory


LATE = Snapshot(
    60.0,
    Fleet(4, 4, 4),
    arrival_rps=200.0,
    throughput_rps=100.0,
    backlog_records=900.0,
    delay_s=8.0,
    executors=(ExecutorSample("1", 0.0, cpu_fraction=0.3),),
    operators=(OperatorSample("read", backpressured_fraction=0.05),),
)


def adapted(snapshot: Snapshot, backlog_before: float, **parameters: Any) -> Decision:
    knowledge = Knowledge()
    before = Snapshot(
        snapshot.at_s - 10.0,
        snapshot.fleet,
        arrival_rps=snapshot.arrival_rps,
        throughput_rps=snapshot.throughput_rps,
        backlog_records=backlog_before,
        delay_s=snapshot.delay_s,
    )
    for seen in (before, snapshot):
        knowledge.learn(seen, seen.at_s)
    return replace(DhalionAdapted(), **parameters).decide(snapshot, knowledge)


def changed(**fields: object) -> Snapshot:
    return msgspec.structs.replace(LATE, **fields)


def test_late_and_falling_behind_grows_by_arrivals_over_throughput() -> None:
    decision = adapted(LATE, 400.0)
    assert decision.target_executors == 10
    assert decision.expected_rps == 250.0
    assert adapted(LATE, 400.0, overprovisioning=0.0).target_executors == 8


def _through_a_filter(sink_rps: float | None) -> Snapshot:
    operators = (
        OperatorSample("read", input_rps=100.0, backpressured_fraction=0.05),
        OperatorSample("keep", ("read",), input_rps=100.0),
        OperatorSample("sink", ("keep",), input_rps=sink_rps),
    )
    return changed(operators=operators)


def test_throughput_is_what_comes_in_at_the_sink() -> None:
    # 200/s arrive, 100/s are read, 80/s reach the sink: ceil(4 x 200/80 x 1.2) = 12. The fleet of
    # 12 is expected to read three times as much as that of 4.
    decision = adapted(_through_a_filter(80.0), 400.0)
    assert (decision.target_executors, decision.expected_rps) == (12, 300.0)
    assert "200/s arrive, 80/s reach the sink" in decision.reasons[0].text
    assert decision.reasons[0].evidence["mean_sink_rps"] == 80.0


@pytest.mark.parametrize("sink_rps", [None, 0.0])
def test_what_is_read_counts_where_nothing_is_seen_at_the_sink(sink_rps: float | None) -> None:
    decision = adapted(_through_a_filter(sink_rps), 400.0)
    assert decision.target_executors == 10
    assert "100/s are processed" in decision.reasons[0].text


def test_throughput_may_be_counted_at_the_source() -> None:
    knowledge = Knowledge()
    for seen in (changed(at_s=50.0, backlog_records=400.0), _through_a_filter(80.0)):
        knowledge.learn(seen, seen.at_s)
    policy = DhalionAdapted(throughput_at="source")
    assert policy.decide(_through_a_filter(80.0), knowledge).target_executors == 10


def test_the_lag_is_the_mean_over_partitions() -> None:
    # One partition is 8 s late, the mean over all 4 s: that is in time.
    decision = adapted(changed(mean_delay_s=4.0), 400.0, lag_window_s=0.0)
    assert decision.reasons[0].evidence["lag_s"] == 4.0
    assert decision.reasons[0].code == "scale_down"


def test_the_lag_of_the_moment_counts_alone_if_that_is_asked_for() -> None:
    # 2 s late ten seconds ago and 8 s now: 5 s on average, which is not above 5 s.
    knowledge = Knowledge()
    for seen in (changed(at_s=LATE.at_s - 10.0, delay_s=2.0, backlog_records=400.0), LATE):
        knowledge.learn(seen, seen.at_s)
    assert DhalionAdapted().decide(LATE, knowledge).target_executors <= LATE.fleet.target
    now = DhalionAdapted(lag_window_s=0.0).decide(LATE, knowledge)
    assert (now.target_executors, now.reasons[0].code) == (10, "scale_up")


def test_what_was_measured_within_the_window_is_enough_for_a_late_job() -> None:
    knowledge = Knowledge()
    for seen in (changed(at_s=40.0, backlog_records=200.0), changed(at_s=50.0)):
        knowledge.learn(seen, seen.at_s)
    blind = changed(arrival_rps=None, throughput_rps=None, backlog_records=None, operators=())
    knowledge.learn(blind, blind.at_s)
    assert DhalionAdapted().decide(blind, knowledge).target_executors == 10


def test_late_but_catching_up_holds() -> None:
    assert adapted(LATE, 1400.0).reasons[0].code == "catching_up"


def test_late_with_nothing_processed_holds_instead_of_dividing_by_zero() -> None:
    decision = adapted(changed(throughput_rps=0.0), 400.0)
    assert (decision.target_executors, decision.reasons[0].code) == (4, "no_throughput")


@pytest.mark.parametrize(
    ("fields", "target"),
    [
        ({}, 3),
        ({"executors": (ExecutorSample("1", 0.0, cpu_fraction=0.6),)}, 4),
        ({"operators": (OperatorSample("read", backpressured_fraction=0.1),)}, 4),
        ({"fleet": Fleet(1, 1, 1)}, 1),
    ],
)
def test_in_time_and_at_ease_shrinks_by_a_fifth(fields: dict[str, object], target: int) -> None:
    assert adapted(changed(delay_s=0.5, **fields), 900.0).target_executors == target


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"delay_s": None}, "delay_s"),
        ({"arrival_rps": None}, "arrival_rps"),
        ({"delay_s": 0.0, "executors": ()}, "cpu_fraction"),
        ({"delay_s": 0.0, "operators": ()}, "backpressured_fraction"),
    ],
)
def test_what_the_adapted_one_misses_is_named(fields: dict[str, object], name: str) -> None:
    decision = adapted(changed(**fields), 400.0)
    assert decision.reasons[0].text == f"holding 4 executors: {name} not measured"


def test_the_two_steps_by_themselves() -> None:
    assert grown(4, 200.0, 100.0, 1.2) == 10
    assert [shrunk(n, 0.2) for n in (1, 2, 4, 5, 10, 16)] == [0, 1, 3, 4, 8, 12]
