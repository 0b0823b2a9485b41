"""Live admission control: a batch takes no more records than the fleet gets through in time.

After an outage a query without a cap takes the whole backlog as one batch, which may run for an
hour, or out of memory. Off by default: it uses an interface of Spark that is not public, so it is
probed first and used for Kafka sources only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.core.model import Snapshot
from penstock.spark.internals import JVM_ERRORS, Driver, SourceFacts, first_line

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

RECENT_BATCHES = 10  #: The throughput of an executor is judged by this many of the last batches.
STEADY_FRACTION = 0.2  #: A cap that would fall by less than this stays.
#: It rises sooner: a cap that is too low holds the throughput down, since what a batch costs
#: besides its records is shared by fewer of them, and so it would prove itself right.
RISE_FRACTION = 0.02
#: Options of the Kafka source with which the user has chosen a cap.
OWN_CAP = "maxoffsetspertrigger"
OWN_MINIMUM = "minoffsetspertrigger"


class Admission:
    """Caps the batches of the queries of one application.

    The cap is always set, so that it is there when a backlog comes. Batches that reach it show
    what the fleet can do, and adjust it. A batch may take `budget_s` seconds, or the trigger
    interval where that is longer.
    """

    def __init__(self, driver: Driver, budget_s: float) -> None:
        self._driver = driver
        self._budget_s = budget_s
        self._rates_rps: deque[float] = deque(maxlen=RECENT_BATCHES)
        self._cap: int | None = None
        self._capped: dict[str, StreamingQuery] = {}

    def reconcile(self, snapshot: Snapshot, queries: Sequence[StreamingQuery]) -> None:
        """Adjust the cap to the batches of the snapshot."""
        executors = max(1, snapshot.fleet.active)
        for batch in snapshot.batches:
            if batch.input_records > 0 and batch.duration_s > 0.0:
                self._rates_rps.append(batch.input_records / batch.duration_s / executors)
        budget_s = max(self._budget_s, snapshot.trigger_interval_s or 0.0)
        cap = cap_for(self._rates_rps, executors, budget_s)
        running = {str(query.runId) for query in queries}
        self._capped = {run: each for run, each in self._capped.items() if run in running}
        new = running - self._capped.keys()
        if cap is None or (_is_near(cap, self._cap) and not new):
            return
        try:
            for query in queries:
                self._limit(query, cap)
        except JVM_ERRORS as error:
            log.warning("the cap per batch could not be changed: %s", first_line(error))
            return
        log.info("a batch takes at most %d records now", cap)
        self._cap = cap

    def end(self) -> None:
        """Give each query back the cap of its options."""
        for query in list(self._capped.values()):
            try:
                if query.isActive:
                    self._limit(query, None)
            except JVM_ERRORS as error:
                log.warning("the cap per batch could not be removed: %s", first_line(error))
        self._cap = None
        self._capped = {}

    def _limit(self, query: StreamingQuery, cap: int | None) -> None:
        sources = self._driver.sources(query)
        self._capped[str(query.runId)] = query
        if not can_cap(sources):
            return
        rows = own = own_cap(sources)
        if cap is not None:
            share = max(1, cap // len(sources))
            rows = share if own is None else min(own, share)
        self._driver.limit_rows_per_trigger(query, rows)


def cap_for(rates_rps: Iterable[float], executors: int, budget_s: float) -> int | None:
    """The records that a fleet processes in the budget; ``None`` without any batch.

    One executor did 450 and 500 records/s in its last batches, so two of them do 10,000 in 10 s:

    >>> cap_for([450.0, 500.0], executors=2, budget_s=10.0)
    10000

    The best batch counts, not the mean: a small batch is slow per record because of its fixed
    cost.
    """
    best_rps = max(rates_rps, default=0.0)
    return max(1, int(best_rps * executors * budget_s)) if best_rps > 0.0 else None


def _is_near(cap: int, present: int | None) -> bool:
    return present is not None and (
        (1 - STEADY_FRACTION) * present <= cap <= (1 + RISE_FRACTION) * present
    )


def can_cap(sources: Sequence[SourceFacts]) -> bool:
    """Whether all sources are Kafka without a minimum: others treat limits differently."""
    return bool(sources) and all(
        source.format == "kafka" and OWN_MINIMUM not in _lowered(source) for source in sources
    )


def own_cap(sources: Sequence[SourceFacts]) -> int | None:
    """The cap that the user has chosen; the smallest where sources differ."""
    caps = [_lowered(source).get(OWN_CAP, "") for source in sources]
    return min((int(cap) for cap in caps if cap.isdigit()), default=None)


def _lowered(source: SourceFacts) -> dict[str, str]:
    """Options in lower case: Spark ignores their case."""
    return {key.lower(): value for key, value in source.options.items()}
