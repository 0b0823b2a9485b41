"""One streaming query: its batches since the last reading, and what waits at its sources.

A Kafka source is measured at its brokers (`kafka`), others only by the query's progress. Without a
cap per trigger a batch takes all that there is: what batches read is what arrived, and what waits
now came since the last finished one began. With a cap, what is left behind is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from operator import mul
from typing import TYPE_CHECKING, TypeAlias

from penstock.core.errors import ConfigError
from penstock.core.model import Batch
from penstock.spark.internals import Driver, SourceFacts
from penstock.spark.sensor.kafka import Brokers, KafkaWatch, client_settings
from penstock.spark.sensor.offsets import SourceReading
from penstock.spark.sensor.progress import (
    Progress,
    SourceProgress,
    parse_progress,
    partition_offsets,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

Combine: TypeAlias = Callable[[list[float]], float]

#: Options by which a source holds records back, in lower case.
_CAPS = frozenset(
    f"max{unit}pertrigger" for unit in ("offsets", "files", "bytes", "rows", "records")
) | {"rowsperbatch"}


class PlainSource:
    """A source other than Kafka, known only by the query's progress.

    >>> source = PlainSource(capped=False)
    >>> read = SourceProgress(input_records=100)
    >>> source.take(Batch(0, 10.0, 1.0, 100), read)
    >>> source.read(12.0, lambda: None)
    SourceReading(delay_s=2.0)

    The next batch, two seconds later, found 100 records: 50 arrive each second. At 13.5 s those of
    the last 1.5 s wait.

    >>> source.take(Batch(1, 12.0, 1.0, 100), read)
    >>> source.read(13.5, lambda: None)
    SourceReading(arrival_rps=50.0, backlog_records=75.0, delay_s=1.5)
    """

    has_surged = False

    def __init__(self, *, capped: bool) -> None:
        self._capped = capped
        self._held_back = False
        self._taken_to_s: float | None = None  # everything up to there is processed
        self._counted_from_s: float | None = None  # the records below came since then
        self._records = 0

    def take(self, batch: Batch, progress: SourceProgress) -> None:
        self._held_back = not progress.is_drained
        if self._counted_from_s is None:
            # The first batch may hold the past of years.
            self._counted_from_s = batch.started_at_s
        else:
            self._records += progress.input_records
        self._taken_to_s = batch.started_at_s

    def read(self, now_s: float, idle_at_s: Callable[[], float | None]) -> SourceReading:
        """What waits now; `idle_at_s` says when the query last found nothing, if it is idle."""
        counted_from_s, taken_to_s = self._counted_from_s, self._taken_to_s
        if self._capped or self._held_back or counted_from_s is None or taken_to_s is None:
            return SourceReading()
        records, seconds = self._records, taken_to_s - counted_from_s
        if not records and (idle_since_s := idle_at_s()) is not None:
            self._counted_from_s = self._taken_to_s = max(taken_to_s, idle_since_s)
            return SourceReading(0.0, 0.0, 0.0)
        delay_s = max(0.0, now_s - taken_to_s)
        if seconds <= 0.0:
            return SourceReading(delay_s=delay_s)
        self._counted_from_s, self._records = taken_to_s, 0
        arrival_rps = records / seconds
        return SourceReading(arrival_rps, arrival_rps * delay_s, delay_s)

    def forget_times(self) -> None:
        self._counted_from_s = self._taken_to_s = None

    def close(self) -> None:
        pass


SourceProbe: TypeAlias = KafkaWatch | PlainSource


def query_name(query: StreamingQuery) -> str:
    """The name of a query; the begin of its id where it has none."""
    return query.name or str(query.id)[:8]


class QueryView:
    """One run of one query; its offsets are committed to `group` if there is one."""

    def __init__(self, driver: Driver, query: StreamingQuery, run_id: str, group: str = "") -> None:
        self._driver = driver
        self._query = query
        self.run_id = run_id
        self.name = query_name(query)
        self.trigger = driver.trigger(query)
        self.trigger_interval_s = driver.trigger_interval_s(query)
        self._group = group.replace("{query}", self.name)
        self._facts = driver.sources(query)
        self._sources: list[SourceProbe] = []  # known once the first batch is
        self._newest_s = -1.0  # when the trigger of the newest report was
        self._idle_report_at_s: float | None = None
        self.last: Progress | None = None  # of the last batch
        self.latency_s: float | None = None
        self.batch_s = 0.0  # mean duration of the last batches
        self._batches: list[Batch] = []
        # Of what was committed before, only the offsets of the sources count.
        for progress in map(parse_progress, driver.recent_progress(query)):
            if progress.batch is not None:
                self.take(progress)
                self._batches.clear()
                break

    def take(self, progress: Progress) -> None:
        """Take in a progress report; one that is known already changes nothing."""
        batch = progress.batch
        self._newest_s = max(self._newest_s, progress.started_at_s)
        if self.last is not None and progress.batch_id <= self.last.batch_id:
            return
        if batch is None:
            self._idle_report_at_s = progress.started_at_s
            return
        self._idle_report_at_s = None
        self.last = progress
        self.latency_s = batch.duration_s
        self._batches.append(batch)
        if not self._sources:
            facts = match(self._facts, progress.sources)
            self._sources = [_source(each, self._driver, self._group) for each in facts]
        for source, report in zip(self._sources, progress.sources, strict=True):
            source.take(batch, report)

    def missed(self) -> list[Progress]:
        """Reports that the listener did not hand over, oldest first."""
        found: list[Progress] = []
        for progress in map(parse_progress, self._driver.recent_progress(self._query)):
            if progress.started_at_s <= self._newest_s:
                break
            found.append(progress)
        return found[::-1]

    def forget_times(self) -> None:
        """The wall clock was set to another time: those of earlier reports mean nothing now."""
        self._newest_s = -1.0
        for source in self._sources:
            if isinstance(source, PlainSource):
                source.forget_times()

    def batches(self) -> tuple[Batch, ...]:
        batches, self._batches = tuple(self._batches), []
        if batches:
            self.batch_s = sum(batch.duration_s for batch in batches) / len(batches)
        return batches

    def read(self, now_s: float) -> SourceReading:
        """What waits at all its sources; unknown if one of them is."""
        if not self._sources:
            return SourceReading()
        return combine_sources([source.read(now_s, self._idle_at_s) for source in self._sources])

    @property
    def has_surged(self) -> bool:
        """Whether the load of a source has jumped since the last reading."""
        return any(source.has_surged for source in self._sources)

    def _idle_at_s(self) -> float | None:
        """When it reported that there was nothing to read, if it has not read since."""
        if self._idle_report_at_s is None or self._query.status["isTriggerActive"]:
            return None
        return self._idle_report_at_s

    @property
    def state_bytes(self) -> float | None:
        return None if self.last is None else self.last.state_bytes

    @property
    def state_partitions(self) -> int:
        return 0 if self.last is None else self.last.state_partitions

    def waits_s(self, delay_s: float | None) -> float:
        """How long records wait for two batches, or for more; not for the trigger.

        More executors do not shorten a trigger, so what it takes does not count.
        """
        pause_s = max(self.trigger_interval_s or 0.0, self.batch_s)
        return 2.0 * max(self.batch_s, (delay_s or 0.0) - pause_s)

    def close(self) -> None:
        for source in self._sources:
            source.close()


def match(facts: list[SourceFacts], listed: tuple[SourceProgress, ...]) -> list[SourceFacts]:
    """The options of each source that progress lists.

    Both lists have the same order, but a source that is read twice, as in a join with itself, is
    twice in the plan and once in progress. If the lengths still differ, a source is taken to be the
    first of its kind.

    >>> bids, rate = SourceFacts("kafka", {"subscribe": "bids"}), SourceFacts("rate", {})
    >>> two = (SourceProgress({"bids": {"0": 7}}), SourceProgress())
    >>> match([bids, bids, rate], two) == match([bids, rate], two) == [bids, rate]
    True
    >>> fast = SourceFacts("rate", {"rowsPerSecond": "9"})
    >>> [each.format for each in match([rate, bids, fast], two)]
    ['kafka', 'rate']
    """
    once = [each for number, each in enumerate(facts) if each not in facts[:number]]
    for candidates in (facts, once):
        if len(candidates) == len(listed):
            return candidates
    first = {each.format.lower() == "kafka": each for each in reversed(facts)}
    are_kafka = [partition_offsets(source.end_offset) is not None for source in listed]
    return [first.get(is_kafka, SourceFacts("unknown", {})) for is_kafka in are_kafka]


def _source(facts: SourceFacts, driver: Driver, group: str) -> SourceProbe:
    if facts.format.lower() == "kafka":
        try:
            settings = client_settings(facts.options, driver.gateway)
            return KafkaWatch(Brokers(settings, group=group))
        except ConfigError as error:
            log.warning("the lag of a Kafka source stays unknown: %s", error)
            return PlainSource(capped=True)
    return PlainSource(capped=any(key.lower() in _CAPS for key in facts.options))


def combine_sources(readings: list[SourceReading]) -> SourceReading:
    """Several sources or queries as one: rates and backlogs are sums, the oldest record counts.

    >>> combine_sources([SourceReading(10.0, 5.0, 2.0), SourceReading(20.0, None, 3.0)])
    SourceReading(arrival_rps=30.0, delay_s=3.0)

    The mean delay is that over all partitions; how much arrivals vary is weighted by their rates.

    >>> bids = SourceReading(30.0, 9.0, 4.0, 2.0, (9, 0), arrival_cv2=1.0)
    >>> both = combine_sources([bids, SourceReading(10.0, 1.0, 5.0, 5.0, (1,), arrival_cv2=3.0)])
    >>> both.mean_delay_s, both.partition_backlog, both.arrival_cv2
    (3.0, (9, 0, 1), 1.5)
    """
    backlogs = [each.partition_backlog for each in readings]
    partitions = [float(len(backlog)) for backlog in backlogs]
    rates = [each.arrival_rps or 0.0 for each in readings]
    return SourceReading(
        arrival_rps=if_all_known([each.arrival_rps for each in readings], sum),
        backlog_records=if_all_known([each.backlog_records for each in readings], sum),
        delay_s=if_all_known([each.delay_s for each in readings], max),
        mean_delay_s=_weighted([each.mean_delay_s for each in readings], partitions),
        partition_backlog=tuple(chain.from_iterable(backlogs)) if all(backlogs) else (),
        arrival_cv2=_weighted([each.arrival_cv2 for each in readings], rates),
        topics=tuple(chain.from_iterable(each.topics for each in readings)),
    )


def _weighted(values: list[float | None], weights: list[float]) -> float | None:
    """The weighted mean, if all values are known and any weighs."""
    total = sum(weights)
    if not total:
        return None
    return if_all_known(values, lambda known: sum(map(mul, known, weights)) / total)


def if_all_known(values: list[float | None], combine: Combine) -> float | None:
    """The combined value, if all are known and there are any."""
    known = [value for value in values if value is not None]
    return combine(known) if known and len(known) == len(values) else None
