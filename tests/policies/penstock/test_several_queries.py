"""Several queries on one fleet: the one nearest to missing its SLO is planned for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.knowledge import Knowledge
from penstock.core.model import (
    Batch,
    BatchStage,
    Decision,
    ExecutorSample,
    Fleet,
    QuerySample,
    Snapshot,
    Step,
)
from penstock.policies.penstock.capacity import Capacity, learn
from penstock.policies.penstock.estimate import CapacityEstimate
from penstock.policies.penstock.penstock import Penstock, PenstockMemory


def shared(at_s: float, queries: tuple[QuerySample, ...] = ()) -> Snapshot:
    """Four slots, of which another query uses two.

    A batch of 2,000 records at 1 ms each is 8 tasks of 0.25 s: on the two slots that are left, 1 s.
    """
    stage = BatchStage(8, 2.0, 0.0, 1.0)
    batch = Batch(int(at_s), at_s - 1.0, 1.0, 2_000, stages=(stage,))
    return Snapshot(
        at_s, Fleet(4, 4, 4), trigger_interval_s=2.0, batches=(batch,), arrival_rps=4_000.0,
        delay_s=2.0, executors=tuple(ExecutorSample(str(n), 0.0) for n in range(4)),
        queries=queries,
    )  # fmt: skip


CLICKS = QuerySample("clicks", slo_s=5.0, arrival_rps=1_000.0, delay_s=2.0, busy_slots=1.0)
VIEWS = QuerySample("views", arrival_rps=3_000.0, delay_s=2.0, busy_slots=2.0)


def learned(*queries: QuerySample) -> CapacityEstimate:
    known = CapacityEstimate()
    for turn in range(20):
        known = learn(known, shared(1000.0 + 10.0 * turn, queries), None)
    return known


def test_more_executors_help_a_query_that_shares_its_slots() -> None:
    known = learned(CLICKS, VIEWS)
    assert known.part == pytest.approx(0.25)
    assert known.others == pytest.approx(2.0)
    capacity = Capacity(known, 1)
    assert capacity.rps(4) == pytest.approx(2_000.0, rel=0.01)
    # Six executors leave four slots: 8 tasks in 2.17 rounds instead of 4.33, with a little more
    # contention. Of all records, clicks are a quarter.
    expected_rps = 2_000.0 * 4.33 / 2.17 * 1.03 / 1.05
    assert capacity.rps(6) == pytest.approx(expected_rps, rel=0.01)
    assert replace(capacity, of_all=True).rps(6) == pytest.approx(4.0 * expected_rps, rel=0.01)


def test_an_excluded_query_counts_by_the_slots_that_it_uses() -> None:
    excluded = replace(VIEWS, excluded=True, arrival_rps=None)
    assert learned(CLICKS, excluded).others == pytest.approx(2.0)
    # Without that, waiting for slots looks like a slow task, which no executor speeds up.
    blind = Capacity(learned(), 1)
    assert blind.rps(6) < 1.4 * blind.rps(4)
    assert Capacity(learned(CLICKS, excluded), 1).rps(6) > 1.9 * blind.rps(4)


def slow(at_s: float, *queries: QuerySample) -> Snapshot:
    """Two executors whose batches take 4 s, of which 0.4 s in the driver: records wait up to 8 s.

    A record takes 1.8 core-ms, so two carry 1,111/s, and at 1,000/s a batch takes 0.4 / (1 - 0.9).
    """
    stage = BatchStage(16, 7.2, 0.4, 4.0)
    batch = Batch(int(at_s), at_s - 4.0, 4.0, 4_000, stages=(stage,))
    return Snapshot(
        at_s, Fleet(2, 2, 2), trigger_interval_s=1.0, batches=(batch,), arrival_rps=1_000.0,
        delay_s=6.0, executors=(ExecutorSample("1", 0.0), ExecutorSample("2", 0.0)),
        queries=queries,
    )  # fmt: skip


def decide(*queries: QuerySample) -> Decision:
    knowledge, policy = Knowledge(), Penstock(slo_s=20.0)
    for turn in range(30):
        snapshot = slow(1000.0 + 10.0 * turn, *queries)
        knowledge.learn(snapshot, snapshot.at_s)
        decision = policy.decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
    return decision


def test_the_slo_of_the_query_that_is_planned_for_decides() -> None:
    patient, strict = QuerySample("clicks", slo_s=60.0), QuerySample("clicks", slo_s=5.0)
    assert decide(patient).target_executors == decide().target_executors == 2
    assert decide(strict).target_executors > 2
    both = decide(strict, QuerySample("views", arrival_rps=10.0))
    assert both.reasons[0].text.startswith("clicks is the nearest to its SLO of 5.0 s: load is ")
    assert decide(strict).reasons[0].text.startswith("load is ")


def test_the_weight_of_a_query_scales_what_its_late_records_cost() -> None:
    """One executor costs 900 executor-seconds over the horizon, all late 10 x 16 x 900 x weight."""
    cheap = QuerySample("clicks", slo_s=5.0, weight=0.0005)
    assert decide(cheap).target_executors == 2
    assert decide(replace(cheap, weight=1.0)).target_executors > 2


def test_what_is_known_of_a_query_is_kept_while_another_one_is_planned_for() -> None:
    known = CapacityEstimate(work_s=1e-3, samples=9.0)
    memory = PenstockMemory(track=known, query="clicks")
    views = memory.of_query(shared(5.0, (VIEWS, CLICKS)))
    assert (views.query, views.track, views.others) == (
        "views", CapacityEstimate(), {"clicks": known},
    )  # fmt: skip
    assert views.of_query(shared(9.0, (CLICKS, VIEWS))).track == known
    # One that has ended is forgotten.
    assert views.of_query(shared(9.0)).others == {}


def test_with_all_queries_excluded_nothing_is_planned_for() -> None:
    alone = replace(VIEWS, excluded=True)
    assert decide(alone).reasons == decide().reasons
