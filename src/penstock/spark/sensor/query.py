"""One streaming query: its batches since the last reading, and what waits at its sources.

A Kafka source is measured at its brokers (`kafka`). Of other sources only what progress tells is
known. A source without a cap gives each batch all that there is, so what its batches read is what
arrived, and what waits now came since the last finished batch began. With a cap per trigger nothing
can be told of what is left behind, and nothing is made up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.core.errors import ConfigError
from penstock.core.model import Batch
from penstock.spark.internals import Driver, Mode, SourceFacts
from penstock.spark.sensor.kafka import Brokers, KafkaWatch, SourceReading
from penstock.spark.sensor.kafka_settings import client_settings
from penstock.spark.sensor.progress import (
    Progress,
    SourceProgress,
    parse_progress,
    partition_offsets,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

#: Options by which a source holds records back, in lower case.
_CAPS = frozenset(
    {
        "maxoffsetspertrigger",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "maxrowspertrigger",
        "maxrecordspertrigger",
        "rowsperbatch",
    }
)


class SourceProbe(Protocol):
    """Something that knows what waits at one source of a query."""

    def take(self, batch: Batch, progress: SourceProgress) -> None:
        """A batch was committed."""
        ...

    def look(self, now_s: float, idle_at_s: Callable[[], float | None]) -> SourceReading:
        """What waits now; `idle_at_s` says when the query last found nothing, if it is idle."""
        ...

    @property
    def has_surged(self) -> bool:
        """Whether the load has jumped since the last look."""
        ...

    def close(self) -> None: ...


class KafkaSource:
    """A Kafka source; before its first batch is committed nobody knows what is processed."""

    def __init__(self, watch: KafkaWatch) -> None:
        self._watch = watch
        self._processed: dict[tuple[str, int], int] | None = None

    def take(self, batch: Batch, progress: SourceProgress) -> None:
        offsets = partition_offsets(progress.end_offset)
        if offsets is not None:
            self._processed = offsets

    def look(self, now_s: float, idle_at_s: Callable[[], float | None]) -> SourceReading:
        return SourceReading() if self._processed is None else self._watch.look(self._processed)

    @property
    def has_surged(self) -> bool:
        return self._watch.has_surged

    def close(self) -> None:
        self._watch.close()


class PlainSource:
    """Any other source, seen through the query's progress alone.

    >>> source = PlainSource(capped=False)
    >>> read = SourceProgress("rate", input_records=100)
    >>> source.take(Batch(0, 10.0, 1.0, 100), read)
    >>> source.look(12.0, lambda: None)
    SourceReading(arrival_rps=None, backlog_records=None, delay_s=2.0)

    The next batch, two seconds later, found 100 records: 50 arrive each second. At 13.5 s those of
    the last 1.5 s wait.

    >>> source.take(Batch(1, 12.0, 1.0, 100), read)
    >>> source.look(13.5, lambda: None)
    SourceReading(arrival_rps=50.0, backlog_records=75.0, delay_s=1.5)
    """

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

    def look(self, now_s: float, idle_at_s: Callable[[], float | None]) -> SourceReading:
        counted_from_s, taken_to_s = self._counted_from_s, self._taken_to_s
        if self._capped or self._held_back or counted_from_s is None or taken_to_s is None:
            return SourceReading()
        records, seconds = self._records, taken_to_s - counted_from_s
        if not records and (looked_at_s := idle_at_s()) is not None:
            self._counted_from_s = self._taken_to_s = max(taken_to_s, looked_at_s)
            return SourceReading(0.0, 0.0, 0.0)
        delay_s = max(0.0, now_s - taken_to_s)
        if seconds <= 0.0:
            return SourceReading(delay_s=delay_s)
        self._counted_from_s, self._records = taken_to_s, 0
        arrival_rps = records / seconds
        return SourceReading(arrival_rps, arrival_rps * delay_s, delay_s)

    @property
    def has_surged(self) -> bool:
        return False

    def close(self) -> None:
        pass


class QueryView:
    """What is known of one run of one query."""

    def __init__(
        self, driver: Driver, query: StreamingQuery, run_id: str, kafka: Mapping[str, str]
    ) -> None:
        self._driver = driver
        self._query = query
        self.run_id = run_id
        self.name = query.name or str(query.id)[:8]
        self.mode: Mode = driver.mode(query)
        self.trigger_interval_s = driver.trigger_interval_s(query)
        self._kafka = kafka
        self._facts = driver.sources(query)
        self._sources: list[SourceProbe] = []  # known once the first batch is
        self._newest_s = -1.0  # when the trigger of the newest report was
        self._looked_at_s: float | None = None
        self.last: Progress | None = None  # of the last batch
        self.latency_s: float | None = None
        self.demand = 0.0  # mean duration of its batches, in trigger intervals
        self._batches: list[Batch] = []
        # What was committed before we came counts for nothing but how far the sources are.
        for progress in map(parse_progress, driver.recent_progress(query)):
            if progress.batch is not None:
                self.take(progress)
                self._batches.clear()
                break

    @property
    def last_batch_id(self) -> int:
        return -1 if self.last is None else self.last.batch_id

    def take(self, progress: Progress) -> None:
        """A report came, maybe not for the first time."""
        batch = progress.batch
        self._newest_s = max(self._newest_s, progress.started_at_s)
        if progress.batch_id <= self.last_batch_id:
            return
        if batch is None:
            self._looked_at_s = progress.started_at_s
            return
        self._looked_at_s = None
        self.last = progress
        self.latency_s = batch.duration_s
        self._batches.append(batch)
        if not self._sources:
            facts = match(self._facts, progress.sources)
            self._sources = [_source(each, self._kafka) for each in facts]
        for source, told in zip(self._sources, progress.sources, strict=True):
            source.take(batch, told)

    def missed(self) -> list[Progress]:
        """Reports that no listener handed over, oldest first."""
        found: list[Progress] = []
        for progress in map(parse_progress, self._driver.recent_progress(self._query)):
            if progress.started_at_s <= self._newest_s:
                break
            found.append(progress)
        return found[::-1]

    def batches(self) -> tuple[Batch, ...]:
        """Those committed since this was last asked."""
        batches, self._batches = tuple(self._batches), []
        if batches and self.trigger_interval_s:
            mean_s = sum(batch.duration_s for batch in batches) / len(batches)
            self.demand = mean_s / self.trigger_interval_s
        elif batches:
            self.demand = 1.0  # it runs without a pause
        return batches

    def look(self, now_s: float) -> SourceReading:
        """What waits at all its sources together; one that cannot be seen hides the sum."""
        if not self._sources:
            return SourceReading()
        return combine_sources([source.look(now_s, self._idle_at_s) for source in self._sources])

    @property
    def has_surged(self) -> bool:
        """Whether the load of a source has jumped since the last look."""
        return any(source.has_surged for source in self._sources)

    def _idle_at_s(self) -> float | None:
        """When it found nothing to read, if it has reported that and has not read since."""
        if self._looked_at_s is None or self._query.status["isTriggerActive"]:
            return None
        return self._looked_at_s

    @property
    def state_partitions(self) -> int:
        return 0 if self.last is None else self.last.state_partitions

    @property
    def fewest_tasks(self) -> int | None:
        """The tasks of its widest stage as far as progress tells them."""
        if self.last is None:
            return None
        offsets = [partition_offsets(source.end_offset) or () for source in self.last.sources]
        return max([self.last.state_partitions, *map(len, offsets)]) or None

    def close(self) -> None:
        for source in self._sources:
            source.close()


def match(facts: list[SourceFacts], told: tuple[SourceProgress, ...]) -> list[SourceFacts]:
    """What the user wrote of each source that progress tells of.

    They come in the same order, but a source that is read twice, as in a join with itself, is
    written twice in the plan and told once. If that does not explain it either, a source is taken
    for the first of its kind.

    >>> bids, rate = SourceFacts("kafka", {"subscribe": "bids"}), SourceFacts("rate", {})
    >>> two = (SourceProgress("KafkaV2", end_offset={"bids": {"0": 7}}), SourceProgress("Rate"))
    >>> match([bids, bids, rate], two) == match([bids, rate], two) == [bids, rate]
    True
    >>> fast = SourceFacts("rate", {"rowsPerSecond": "9"})
    >>> [each.format for each in match([rate, bids, fast], two)]
    ['kafka', 'rate']
    """
    once = [each for number, each in enumerate(facts) if each not in facts[:number]]
    for candidates in (facts, once):
        if len(candidates) == len(told):
            return candidates
    return [_first_like(facts, source) for source in told]


def _first_like(facts: list[SourceFacts], source: SourceProgress) -> SourceFacts:
    is_kafka = partition_offsets(source.end_offset) is not None
    alike = [each for each in facts if (each.format.lower() == "kafka") == is_kafka]
    return alike[0] if alike else SourceFacts("unknown", {})


def _source(facts: SourceFacts, kafka: Mapping[str, str]) -> SourceProbe:
    if facts.format.lower() == "kafka":
        try:
            return KafkaSource(KafkaWatch(Brokers(client_settings(facts.options) | dict(kafka))))
        except ConfigError as error:
            log.warning("the lag of a Kafka source stays unknown: %s", error)
            return PlainSource(capped=True)
    return PlainSource(capped=any(key.lower() in _CAPS for key in facts.options))


def combine_sources(sights: list[SourceReading]) -> SourceReading:
    """Several sources or queries as one: rates and backlogs add up, the oldest record counts.

    >>> combine_sources([SourceReading(10.0, 5.0, 2.0), SourceReading(20.0, None, 3.0)])
    SourceReading(arrival_rps=30.0, backlog_records=None, delay_s=3.0)
    """
    return SourceReading(
        arrival_rps=total([sight.arrival_rps for sight in sights]),
        backlog_records=total([sight.backlog_records for sight in sights]),
        delay_s=largest([sight.delay_s for sight in sights]),
    )


def total(values: list[float | None]) -> float | None:
    """The sum, if all are known and there are any."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def largest(values: list[float | None]) -> float | None:
    """The largest, if all are known and there are any."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None
