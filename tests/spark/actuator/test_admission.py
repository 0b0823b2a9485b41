"""How many records a batch may take while a backlog is worked off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Batch, Fleet, Snapshot
from penstock.spark.actuator.admission import Admission, can_cap, cap_for, own_cap
from penstock.spark.internals import Driver, SourceFacts

KAFKA = SourceFacts("kafka", {"subscribe": "bids"})


def batch(records: int, duration_s: float) -> Batch:
    return Batch(1, 0.0, duration_s, records)


class SimulatedQueries(Driver):
    """Queries that remember the last cap that they were given."""

    def __init__(self, *sources: SourceFacts) -> None:
        self.facts = list(sources)
        self.caps: list[int | None] = []
        self.runId = "run"
        self.isActive = True

    def sources(self, query: Any) -> list[SourceFacts]:
        return self.facts

    def limit_rows_per_trigger(self, query: Any, rows: int | None) -> None:
        self.caps.append(rows)


def seen(*batches: Batch, executors: int = 2) -> Snapshot:
    fleet = Fleet(executors, executors, executors)
    return Snapshot(0.0, fleet, trigger_interval_s=1.0, batches=batches)


def test_the_cap_is_what_the_best_recent_batch_would_do_in_the_budget() -> None:
    """800 records/s on 2 executors: 400 each, 8000 in 10 s; on 3 executors 12,000."""
    queries = SimulatedQueries(KAFKA)
    query: Any = queries
    admission = Admission(queries, budget_s=10.0)
    admission.reconcile(seen(batch(80, 0.5), batch(1_600, 2.0)), [query])
    admission.reconcile(seen(batch(100, 0.5), executors=3), [query])
    assert queries.caps == [8_000, 12_000]


def test_a_cap_that_would_hardly_move_stays_and_a_new_query_gets_it() -> None:
    queries, other = SimulatedQueries(KAFKA), SimulatedQueries(KAFKA)
    query: Any = queries
    new_query: Any = other
    other.runId = "another"
    admission = Admission(queries, budget_s=10.0)
    admission.reconcile(seen(batch(1_600, 2.0)), [query])
    admission.reconcile(seen(batch(1_620, 2.0)), [query])
    assert queries.caps == [8_000]
    admission.reconcile(seen(), [query, new_query])
    assert queries.caps == [8_000, 8_100, 8_100]


def capped() -> tuple[SimulatedQueries, Callable[[int, float], None]]:
    """A query with a budget of 10 s, and what shows a batch of it to the admission control."""
    queries = SimulatedQueries(KAFKA)
    query: Any = queries
    admission = Admission(queries, budget_s=10.0)
    return queries, lambda *one: admission.reconcile(seen(batch(*one)), [query])


def test_a_cap_that_is_too_low_rises_until_batches_fill_the_budget() -> None:
    """A batch takes 2 s and 0.1 ms a record: 80,000 of them fill 10 s."""
    queries, show = capped()
    show(20_000, 4.0)
    for _ in range(20):
        cap = queries.caps[-1] or 0
        show(cap, 2.0 + 1e-4 * cap)
    assert queries.caps == sorted(queries.caps, key=lambda each: each or 0)
    assert 78_000 < (queries.caps[-1] or 0) <= 80_000


def test_a_cap_falls_only_when_batches_take_much_longer() -> None:
    queries, show = capped()
    show(1_600, 2.0)
    for _ in range(10):
        show(1_600, 2.3)
    assert queries.caps == [8_000]
    for _ in range(10):
        show(1_600, 4.0)
    assert queries.caps == [8_000, 4_000]


def test_without_a_batch_there_is_no_cap_and_a_longer_trigger_is_a_longer_budget() -> None:
    queries = SimulatedQueries(KAFKA)
    query: Any = queries
    admission = Admission(queries, budget_s=0.5)
    admission.reconcile(seen(batch(0, 1.0)), [query])
    assert queries.caps == []
    admission.reconcile(seen(batch(1_600, 2.0)), [query])
    assert queries.caps == [800]


@given(st.lists(st.floats(0, 1e9), max_size=10), st.integers(1, 100), st.floats(0.001, 1e4))
def test_a_cap_is_always_at_least_one_record(
    rates_rps: list[float], executors: int, budget_s: float
) -> None:
    cap = cap_for(rates_rps, executors, budget_s)
    assert cap is None or cap >= 1


def test_the_cap_is_shared_by_the_sources_and_given_back_at_the_end() -> None:
    queries = SimulatedQueries(KAFKA, KAFKA)
    query: Any = queries
    admission = Admission(queries, budget_s=10.0)
    admission.reconcile(seen(batch(80_000, 40.0)), [query])
    assert queries.caps == [10_000]  # half of 20,000 for each source
    admission.end()
    assert queries.caps == [10_000, None]


def test_the_users_own_cap_is_never_exceeded_and_comes_back() -> None:
    queries = SimulatedQueries(SourceFacts("kafka", {"maxOffsetsPerTrigger": "5000"}))
    query: Any = queries
    admission = Admission(queries, budget_s=10.0)
    admission.reconcile(seen(batch(80_000, 40.0)), [query])
    admission.reconcile(seen(batch(5_000, 50.0), executors=1), [query])
    admission.end()
    assert queries.caps == [5_000, 5_000, 5_000]


def test_sources_that_read_limits_differently_are_left_alone() -> None:
    floor = SourceFacts("kafka", {"minOffsetsPerTrigger": "10"})
    for sources in ([SourceFacts("file", {})], [KAFKA, floor], []):
        assert not can_cap(sources)
    assert own_cap([KAFKA]) is None
    queries = SimulatedQueries(SourceFacts("rate", {}))
    query: Any = queries
    Admission(queries, 10.0).reconcile(seen(batch(80_000, 40.0)), [query])
    assert queries.caps == []
