"""Live admission control: how many records a batch may take, while a backlog is worked off.

After an outage a query without a cap takes the whole backlog as one batch, which may run for an
hour, or out of memory. This keeps each batch to what the job gets through in its budget of time,
and lets the cap follow as the fleet grows. Off by default: it changes a running query through
an interface that is not public, so it is probed first and used for Kafka sources only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model import Batch, Snapshot
from penstock.spark.internals import JVM_ERRORS, SourceFacts, first_line

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

#: The cap moves by this factor at most from one look to the next.
STRIDE = 2.0
#: The cap is lifted when this fraction of it would take in all that waits.
LIFTED_BELOW_FRACTION = 0.5
#: Options of the Kafka source with which the user has chosen a cap.
OWN_CAP = "maxoffsetspertrigger"
OWN_FLOOR = "minoffsetspertrigger"


class QueryDriver(Protocol):
    """What admission control needs of `internals.Driver`."""

    def sources(self, query: StreamingQuery) -> list[SourceFacts]: ...

    def limit_rows_per_trigger(self, query: StreamingQuery, rows: int | None) -> None: ...


class Admission:
    """Caps the batches of the queries of one application.

    Parameters
    ----------
    driver
        The Java side of the driver.
    budget_s
        Seconds that a batch may take; the trigger interval where that is longer.
    """

    def __init__(self, driver: QueryDriver, budget_s: float) -> None:
        self._driver = driver
        self._budget_s = budget_s
        self._cap: int | None = None
        self._capped: dict[str, StreamingQuery] = {}

    @property
    def cap_records(self) -> int | None:
        """Records that a batch may take now; ``None`` for as many as there are."""
        return self._cap

    def tend(self, snapshot: Snapshot, queries: Iterable[StreamingQuery]) -> None:
        """Let the cap follow what was seen."""
        budget_s = max(self._budget_s, snapshot.trigger_interval_s or 0.0)
        cap = next_cap(self._cap, snapshot.batches, snapshot.backlog_records, budget_s)
        if cap == self._cap:
            return
        try:
            for query in queries:
                self._limit(query, cap)
        except JVM_ERRORS as error:
            log.warning("the cap per batch could not be changed: %s", first_line(error))
            return
        words = "as many records as there are" if cap is None else f"at most {cap} records"
        log.info("a batch takes %s now", words)
        self._cap = cap

    def end(self) -> None:
        """Give each query the cap back that its options name."""
        for query in list(self._capped.values()):
            try:
                if query.isActive:
                    self._limit(query, None)
            except JVM_ERRORS as error:
                log.warning("the cap per batch could not be lifted: %s", first_line(error))
        self._cap = None
        self._capped = {}

    def _limit(self, query: StreamingQuery, cap: int | None) -> None:
        sources = self._driver.sources(query)
        if not can_cap(sources):
            return
        rows = own = own_cap(sources)
        if cap is not None:
            share = max(1, cap // len(sources))
            rows = share if own is None else min(own, share)
        self._driver.limit_rows_per_trigger(query, rows)
        self._capped[str(query.runId)] = query


def next_cap(
    cap: int | None, batches: Sequence[Batch], backlog_records: float | None, budget_s: float
) -> int | None:
    """The cap after these batches: what the last full one would have got through in the budget.

    A batch of 80,000 records in 40 s, with 300,000 more waiting, in a budget of 10 s:

    >>> batch = Batch(7, started_at_s=0.0, duration_s=40.0, input_records=80_000)
    >>> next_cap(None, [batch], 300_000.0, 10.0)
    20000

    Twice the fleet gets through 20,000 in 5 s, and the cap follows; then nothing waits any more:

    >>> next_cap(20_000, [Batch(8, 0.0, 5.0, 20_000)], 280_000.0, 10.0)
    40000
    >>> next_cap(40_000, [Batch(9, 0.0, 4.0, 9_000)], 1_000.0, 10.0) is None
    True
    """
    if backlog_records is None:
        return cap
    if cap is not None and backlog_records < LIFTED_BELOW_FRACTION * cap:
        return None
    worked = [each for each in batches if each.input_records > 0 and each.duration_s > 0.0]
    if not worked:
        return cap
    last = worked[-1]
    fits = last.input_records * budget_s / last.duration_s
    if cap is None:
        # Only a backlog that does not fit is worth a cap.
        return max(1, int(fits)) if backlog_records > fits else None
    if last.input_records < LIFTED_BELOW_FRACTION * cap:
        return cap  # a batch that did not fill the cap says little of what would fit
    return max(1, int(min(max(fits, cap / STRIDE), cap * STRIDE)))


def can_cap(sources: Sequence[SourceFacts]) -> bool:
    """Whether all sources are Kafka without a floor: others read limits differently."""
    return bool(sources) and all(
        source.format == "kafka" and OWN_FLOOR not in _lowered(source) for source in sources
    )


def own_cap(sources: Sequence[SourceFacts]) -> int | None:
    """The cap that the user has chosen; the smallest where sources differ."""
    caps = [_lowered(source).get(OWN_CAP, "") for source in sources]
    numbers = [int(cap) for cap in caps if cap.isdigit()]
    return min(numbers) if numbers else None


def _lowered(source: SourceFacts) -> dict[str, str]:
    """Options as Spark reads them: without regard to case."""
    return {key.lower(): value for key, value in source.options.items()}
