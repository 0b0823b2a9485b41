"""How many records a batch may take while a backlog is worked off."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Batch, Fleet, Snapshot
from penstock.spark.admission import Admission, can_cap, next_cap, own_cap
from penstock.spark.internals import SourceFacts

KAFKA = SourceFacts("kafka", {"subscribe": "bids"})


def batch(records: int, duration_s: float) -> Batch:
    return Batch(1, 0.0, duration_s, records)


class PaperQueries:
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


def seen(records: int, duration_s: float, backlog: float | None) -> Snapshot:
    return Snapshot(
        0.0, Fleet(2, 2, 2), 1.0, (batch(records, duration_s),), backlog_records=backlog
    )


def test_a_backlog_that_fits_the_budget_needs_no_cap() -> None:
    """1000 records took 1 s: 10,000 fit into 10 s."""
    assert next_cap(None, [batch(1_000, 1.0)], 9_000.0, 10.0) is None
    assert next_cap(None, [batch(1_000, 1.0)], 11_000.0, 10.0) == 10_000


def test_the_cap_follows_a_slower_and_a_faster_job_by_a_factor_of_two_at_most() -> None:
    assert next_cap(10_000, [batch(10_000, 15.0)], 1e6, 10.0) == 6_666
    assert next_cap(10_000, [batch(10_000, 60.0)], 1e6, 10.0) == 5_000
    assert next_cap(10_000, [batch(10_000, 1.0)], 1e6, 10.0) == 20_000


def test_without_sight_of_the_backlog_or_a_full_batch_the_cap_stays() -> None:
    assert next_cap(10_000, [batch(10_000, 60.0)], None, 10.0) == 10_000
    assert next_cap(10_000, [], 1e6, 10.0) == 10_000
    assert next_cap(10_000, [batch(3_000, 9.0)], 1e6, 10.0) == 10_000


@given(
    st.one_of(st.none(), st.integers(1, 10**7)),
    st.integers(0, 10**8),
    st.floats(0, 1e4),
    st.one_of(st.none(), st.floats(0, 1e9)),
)
def test_a_cap_is_always_at_least_one_record(
    cap: int | None, records: int, duration_s: float, backlog: float | None
) -> None:
    after = next_cap(cap, [batch(records, duration_s)], backlog, 10.0)
    assert after is None or after >= 1


def test_the_cap_is_shared_by_the_sources_and_given_back_at_the_end() -> None:
    queries = PaperQueries(KAFKA, KAFKA)
    query: Any = queries
    admission = Admission(queries, budget_s=10.0)
    admission.tend(seen(80_000, 40.0, 300_000.0), [query])
    assert queries.caps == [10_000]
    assert admission.cap_records == 20_000
    admission.end()
    assert queries.caps == [10_000, None]


def test_the_users_own_cap_is_never_exceeded_and_comes_back() -> None:
    queries = PaperQueries(SourceFacts("kafka", {"maxOffsetsPerTrigger": "5000"}))
    query: Any = queries
    admission = Admission(queries, budget_s=10.0)
    admission.tend(seen(80_000, 40.0, 300_000.0), [query])
    admission.tend(seen(5_000, 1.0, 0.0), [query])
    assert queries.caps == [5_000, 5_000]
    assert admission.cap_records is None


def test_sources_that_read_limits_differently_are_left_alone() -> None:
    floor = SourceFacts("kafka", {"minOffsetsPerTrigger": "10"})
    for sources in ([SourceFacts("file", {})], [KAFKA, floor], []):
        assert not can_cap(sources)
    assert own_cap([KAFKA]) is None
    queries = PaperQueries(SourceFacts("rate", {}))
    query: Any = queries
    Admission(queries, 10.0).tend(seen(80_000, 40.0, 300_000.0), [query])
    assert queries.caps == []
