"""How much waits in Kafka, asked of the brokers themselves.

What Spark's progress says of it is taken when a batch is planned: a query without a cap per
trigger reports no lag however late it is. So the end offsets are asked for here, once a second, and
remembered as a curve over time. Its slope is the arrival rate, its height above what is processed
the backlog, and the instant at which it passed what is processed the age of the oldest record that
waits.

Read from the top: `OffsetCurve` is arithmetic, `Brokers` asks, `KafkaWatch` does so steadily.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import itemgetter
from threading import Event, Lock, Thread
from typing import Any

from msgspec import Struct

from penstock.core.alarm import RateBaseline
from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError, SensorError
from penstock.spark.sensor.progress import Partition

log = logging.getLogger(__name__)

Offsets = Mapping[Partition, int]

#: More instants than this are not remembered; the older half is then thinned out.
CURVE_INSTANTS = 1024
#: When the curve does not reach back, it is asked for these ages, doubled each time: 12 days.
FIRST_AGE_S = 1.0
DOUBLINGS = 20
#: Then the gap in which the oldest record lies is halved so often.
HALVINGS = 4

#: What a broker answers when asked for a record that young and there is none.
NO_RECORD = -1

_FIRST_S = itemgetter(0)


class SourceReading(Struct, frozen=True):
    """What one look shows. ``None`` is not seen."""

    arrival_rps: float | None = None
    backlog_records: float | None = None
    delay_s: float | None = None


class OffsetCurve:
    """End offsets over time, as far back as anything of it waits.

    >>> curve = OffsetCurve()
    >>> curve.add(100.0, {("bids", 0): 0, ("bids", 1): 0})
    >>> curve.add(110.0, {("bids", 0): 100, ("bids", 1): 50})

    Of partition 0 the first 30 are processed: the 31st came 7 s before the end.

    >>> processed = {("bids", 0): 30, ("bids", 1): 50}
    >>> curve.backlog(processed), curve.oldest_at_s(processed)
    ({('bids', 0): 70, ('bids', 1): 0}, 103.0)
    """

    def __init__(self) -> None:
        self._instants: list[tuple[float, Offsets]] = []

    def __len__(self) -> int:
        return len(self._instants)

    @property
    def last(self) -> tuple[float, Offsets] | None:
        return self._instants[-1] if self._instants else None

    @property
    def first(self) -> tuple[float, Offsets] | None:
        return self._instants[0] if self._instants else None

    def add(self, at_s: float, ends: Offsets) -> None:
        """Remember the end offsets of an instant, whether the newest or an earlier one."""
        place = bisect_right(self._instants, at_s, key=_FIRST_S)
        self._instants.insert(place, (at_s, ends))
        if len(self._instants) > CURVE_INSTANTS:
            half = len(self._instants) // 2
            del self._instants[1:half:2]

    def forget_before(self, processed: Offsets) -> None:
        """Drop instants that nothing unprocessed can be as old as; the newest such one stays."""
        kept = 0
        for place, (_, ends) in enumerate(self._instants[:-1]):
            if any(ends.get(name, 0) > offset for name, offset in processed.items()):
                break
            kept = place
        del self._instants[:kept]

    def backlog(self, processed: Offsets) -> dict[Partition, int]:
        """What waits in each partition."""
        ends = self._instants[-1][1]
        return {
            name: max(0, ends[name] - offset) for name, offset in processed.items() if name in ends
        }

    def reaches(self, processed: Offsets) -> bool:
        """Whether it goes back to before anything came that waits now."""
        ends = self._instants[0][1]
        return all(ends.get(name, 0) <= offset for name, offset in processed.items())

    def oldest_at_s(self, processed: Offsets) -> float | None:
        """When the oldest record that waits came; ``None`` if none waits.

        Where the curve does not reach back far enough this is its beginning.
        """
        oldest_s = None
        for name, waiting in self.backlog(processed).items():
            if waiting:
                came_s = self._passed_at_s(name, processed[name])
                oldest_s = came_s if oldest_s is None else min(oldest_s, came_s)
        return oldest_s

    def _passed_at_s(self, name: Partition, offset: int) -> float:
        """When the end of a partition rose above an offset, evenly between two instants."""
        place = bisect_right(self._instants, offset, key=lambda instant: instant[1].get(name, 0))
        after_s, after = self._instants[place]
        if place == 0:
            return after_s
        before_s, before = self._instants[place - 1]
        low, high = before.get(name, 0), after[name]
        return before_s + (offset - low) / (high - low) * (after_s - before_s)


class Brokers:
    """The brokers behind a Kafka source, asked with a time-out."""

    def __init__(self, settings: Mapping[str, str], *, timeout_s: float = 1.0) -> None:
        self._settings: dict[str, str | int | float | bool] = {
            "log_level": 0,  # else it prints a line for each try while a broker is away
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            **settings,
        }
        self._timeout_s = timeout_s
        self._admin: Any = self._connect()

    def _connect(self) -> Any:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return AdminClient(self._settings)
        except KafkaException as error:
            raise ConfigError(f"no Kafka client can be made: {error.args[0].str()}") from None

    def end_offsets(self, partitions: Iterable[Partition]) -> Offsets:
        """Where each partition ends now, or `SensorError`."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._ask(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def offsets_at(self, partitions: Iterable[Partition], at_s: float) -> Offsets:
        """The first record of each partition that is not older; left out where none is."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        found = self._ask(partitions, OffsetSpec.for_timestamp(int(at_s * 1000)))
        return {name: offset for name, offset in found.items() if offset != NO_RECORD}

    def _ask(self, partitions: Iterable[Partition], what: Any) -> Offsets:
        from confluent_kafka import KafkaException, TopicPartition

        request = {TopicPartition(topic, number): what for topic, number in partitions}
        try:
            answers = self._admin.list_offsets(request, request_timeout=self._timeout_s)
            found = {(at.topic, at.partition): got.result().offset for at, got in answers.items()}
        except KafkaException as error:
            # A client that was long without its brokers may not find them again; a new one does.
            self._admin = self._connect()
            raise SensorError(f"Kafka does not tell its offsets: {error.args[0].str()}") from None
        if any(offset < NO_RECORD for offset in found.values()):
            # What the client answers when the time is up, without calling it an error.
            raise SensorError(f"Kafka does not tell its offsets within {self._timeout_s:g} s")
        return found


class KafkaWatch:
    """Follows the end offsets of one source in a thread of its own, until closed.

    `look` is for the sensor: at most one question to the brokers, and none while they are known
    not to answer. `has_surged` says that the load has jumped since; the next look then tells the
    rate after the jump, not a mean of before and after.
    """

    def __init__(
        self,
        brokers: Brokers,
        *,
        every_s: float = 1.0,
        clock: WallClock | None = None,
    ) -> None:
        self._brokers = brokers
        self._every_s = every_s
        self._now = (clock or WallClock()).now
        self._curve = OffsetCurve()
        self._partitions: tuple[Partition, ...] = ()
        self._answers = True
        self._looked: tuple[float, Offsets] | None = None
        self._steady: tuple[float, Offsets] | None = None
        self._usual = RateBaseline()
        self.has_surged = False
        self._lock = Lock()
        self._closed = Event()
        self._thread = Thread(target=self._follow, name="penstock-kafka", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def look(self, processed: Offsets) -> SourceReading:
        """What waits beyond the offsets that are processed.

        The rate is the mean since the last look that saw something.
        """
        with self._lock:
            self.has_surged = False
            self._partitions = tuple(processed)
            if self._answers:
                self._sample()
            if not self._answers or (last := self._curve.last) is None:
                return SourceReading()
            if not self._curve.reaches(processed):
                self._reach_back(processed)
            now_s = last[0]
            before, self._looked = self._looked, last
            oldest_s = self._curve.oldest_at_s(processed)
            backlog = sum(self._curve.backlog(processed).values())
            self._curve.forget_before(processed)
            return SourceReading(
                arrival_rps=None if before is None else _rate_rps(before, last),
                backlog_records=float(backlog),
                delay_s=0.0 if oldest_s is None else max(0.0, now_s - oldest_s),
            )

    def _follow(self) -> None:
        for _ in WallClock(self._now, self._closed.wait).ticks(self._every_s):
            if self._closed.is_set():
                return
            with self._lock:
                self._sample()
                self._watch_for_surge()

    def _watch_for_surge(self) -> None:
        """From one of the steady samples to the next, whatever looks came in between."""
        before, self._steady = self._steady, self._curve.last
        if before is None or self._steady is None:
            return
        rate_rps = _rate_rps(before, self._steady)
        if rate_rps is None:
            return
        if not self._usual.is_surge(rate_rps):
            self._usual = self._usual.updated(rate_rps)
        elif not self.has_surged:
            # What is usual begins anew: a load that stays there is no second surge.
            self._usual = RateBaseline()
            self._looked = before
            self.has_surged = True

    def _sample(self) -> None:
        if not self._partitions:
            return
        try:
            ends = self._brokers.end_offsets(self._partitions)
        except SensorError as error:
            if self._answers:
                log.warning("%s; its lag is unknown until they answer again", error)
            self._answers = False
            return
        if not self._answers:
            log.info("Kafka tells its offsets again")
        self._answers = True
        self._curve.add(self._now(), ends)

    def _reach_back(self, processed: Offsets) -> None:
        """Ask by time for what came before we began to look, and put it into the curve."""
        first = self._curve.first
        assert first is not None
        known_s, known = first
        try:
            for doubling in range(DOUBLINGS):
                at_s = known_s - FIRST_AGE_S * 2.0**doubling
                self._add_past(at_s, known)
                if self._curve.reaches(processed):
                    break
            for _ in range(HALVINGS):
                oldest_s = self._curve.oldest_at_s(processed)
                if oldest_s is None or oldest_s >= known_s:
                    return
                self._add_past(oldest_s, known)
        except SensorError:
            return  # what is known so far has to do; the next question says what is wrong

    def _add_past(self, at_s: float, known: Offsets) -> None:
        found = self._brokers.offsets_at(self._partitions, at_s)
        # Where no record is that young, all that were known then had come before.
        ends = {name: min(found.get(name, offset), offset) for name, offset in known.items()}
        self._curve.add(at_s, ends)


def _rate_rps(before: tuple[float, Offsets], after: tuple[float, Offsets]) -> float | None:
    """Records per second between two instants, over the partitions known at both."""
    seconds = after[0] - before[0]
    if seconds <= 0.0:
        return None
    came = sum(end - before[1].get(name, end) for name, end in after[1].items())
    return max(0.0, came / seconds)
