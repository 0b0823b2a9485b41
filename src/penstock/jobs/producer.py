"""Sends a stream of events to Kafka, each when it is due, and says so when it cannot keep up.

A process of its own::

    python -m penstock.jobs.producer --bootstrap HOST:PORT --topic T --rate-rps 5000 --seconds 60

It takes a rate per second from a file, from a workload of the simulation, or a constant one. It
ends when all events are out, on SIGTERM or SIGINT, or when the process that is to outlive it is
gone, and then writes its `Report` as one line of JSON.

Nothing is skipped: a producer that is late sends late, and an event always says when it was due.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec import Struct, structs

from penstock.clock import WallClock
from penstock.errors import ConfigError, PenstockError, unknown
from penstock.jobs.nexmark_events import NexmarkEvents
from penstock.jobs.timeline import Timeline
from penstock.jobs.wordcount import Lines
from penstock.protocols import Clock

TICK_S = 0.01
#: Later than this is not keeping up.
TOLERANCE_S = 1.0
QUEUE_RECORDS = 200_000
#: So that a producer that is late still looks at the clock, and at what stops it.
RECORDS_PER_TICK = 20_000

log = logging.getLogger(__name__)


class Stream(Protocol):
    """Events in blocks of one size."""

    @property
    def block_size(self) -> int: ...

    def block(self, number: int) -> list[bytes]:
        """The events of one block."""
        ...


class Sender(Protocol):
    """Takes events that are due."""

    def send(self, values: list[bytes], first: int) -> int:
        """Take as many of the values as there is room for; the first bears that number."""
        ...


class Report(Struct, frozen=True):
    """What became of a plan."""

    planned_records: int
    sent_records: int
    failed_records: int
    elapsed_s: float
    behind_max_records: int
    behind_max_s: float

    @property
    def shortfall_records(self) -> int:
        """What was planned and never arrived."""
        return self.planned_records - self.sent_records + self.failed_records

    @property
    def kept_up(self) -> bool:
        """Whether all of it arrived, and never more than a second late."""
        return self.shortfall_records == 0 and self.behind_max_s <= TOLERANCE_S

    def sentence(self) -> str:
        """The report for people.

        >>> print(Report(1000, 900, 0, 10.0, 300, 3.5).sentence())
        900 of 1000 events sent in 10.0 s, at most 3.5 s late: could not keep up, 100 are missing
        """
        text = (
            f"{self.sent_records - self.failed_records} of {self.planned_records} events sent "
            f"in {self.elapsed_s:.1f} s, at most {self.behind_max_s:.1f} s late"
        )
        if self.kept_up:
            return text
        missing = self.shortfall_records
        return f"{text}: could not keep up" + (f", {missing} are missing" if missing else "")


def play(
    timeline: Timeline,
    stream: Stream,
    sender: Sender,
    clock: Clock,
    *,
    give_up_after_s: float = 60.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Send each event when it is due, until all are out or it is told to stop.

    Parameters
    ----------
    timeline
        When each event is due.
    stream
        The events.
    sender
        Where they go.
    clock
        Its first instant is the start of the timeline.
    give_up_after_s
        How long after the end of the timeline to go on with what is late.
    stopped
        Asked at each turn.
    """
    sent = behind_max = 0
    behind_max_s = elapsed_s = 0.0
    late = False
    start_s: float | None = None
    blocks = _Blocks(stream)
    for now_s in clock.ticks(TICK_S):
        start_s = now_s if start_s is None else start_s
        elapsed_s = now_s - start_s
        due = timeline.due_by(elapsed_s)
        if sent < due:
            behind_s = elapsed_s - float(timeline.due_s(np.array([sent]))[0])
            behind_max_s = max(behind_max_s, behind_s)
            behind_max = max(behind_max, due - sent)
            late = _say_if_late(late, behind_s, due - sent)
        for values in blocks.between(sent, min(due, sent + RECORDS_PER_TICK)):
            taken = sender.send(values, sent)
            sent += taken
            if taken < len(values) or stopped():
                break
        gave_up = elapsed_s > timeline.duration_s + give_up_after_s
        if sent == timeline.events or stopped() or gave_up:
            break
    return Report(timeline.events, sent, 0, elapsed_s, behind_max, behind_max_s)


def _say_if_late(late: bool, behind_s: float, behind: int) -> bool:
    """Say once that the producer is late, and once that it is not any more."""
    if not late and behind_s > TOLERANCE_S:
        log.warning("cannot keep up: %d events are due, the oldest for %.1f s", behind, behind_s)
        return True
    if late and behind_s <= TOLERANCE_S / 2:
        log.warning("keeps up again")
        return False
    return late


class _Blocks:
    """The stream by event number, with the block that is being sent at hand."""

    __slots__ = ("_events", "_number", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._number = -1
        self._events: list[bytes] = []

    def between(self, first: int, stop: int) -> Iterator[list[bytes]]:
        size = self._stream.block_size
        while first < stop:
            number, place = divmod(first, size)
            if number != self._number:
                self._number, self._events = number, self._stream.block(number)
            values = self._events[place : place + stop - first]
            yield values
            first += len(values)


class KafkaSender:
    """Puts event n on partition n modulo their number, so that all fill evenly.

    Parameters
    ----------
    bootstrap
        Broker addresses, `host:port`, with commas between.
    topic
        It must exist.
    settings
        Further settings of librdkafka, such as those of SASL and TLS.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        settings: dict[str, Any] | None = None,
        *,
        patience_s: float = 10.0,
    ) -> None:
        from confluent_kafka import KafkaException, Producer

        self.failed_records = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "queue.buffering.max.messages": QUEUE_RECORDS,
                # A report per event would cost more than the event; only failures are reported.
                "delivery.report.only.error": True,
                # librdkafka writes a line per failed connection, twenty a second.
                "log_level": 0,
                "reconnect.backoff.max.ms": 2000,
                "error_cb": self._on_error,
                **(settings or {}),
            }
        )
        try:
            found = self._producer.list_topics(topic, timeout=patience_s).topics[topic]
        except KafkaException as error:
            why = error.args[0].str()
            raise ConfigError(
                f"no broker answered at {bootstrap} within {patience_s:.0f} s: {why}"
            ) from error
        if not found.partitions:
            raise ConfigError(f"there is no topic '{topic}' at {bootstrap}: create it first")
        self.partitions = len(found.partitions)

    def send(self, values: list[bytes], first: int) -> int:
        room = QUEUE_RECORDS - len(self._producer)
        if room < len(values):
            self._producer.poll(TICK_S)
            values = values[: max(room, 0)]
        for start in range(min(self.partitions, len(values))):
            self._producer.produce_batch(
                self._topic,
                [{"value": value} for value in values[start :: self.partitions]],
                partition=(first + start) % self.partitions,
                on_delivery=self._on_failure,
            )
        self._producer.poll(0)
        return len(values)

    def close(self, patience_s: float = 30.0) -> int:
        """Wait until what was taken has arrived; how many events did not."""
        waiting = self._producer.flush(patience_s)
        return self.failed_records + waiting

    def _on_failure(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed_records += 1

    def _on_error(self, error: Any) -> None:
        log.info("kafka: %s", error)


def produce(
    timeline: Timeline,
    stream: Stream,
    sender: KafkaSender,
    clock: Clock,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Play the stream into Kafka and wait until it has arrived."""
    report = play(timeline, stream, sender, clock, stopped=stopped)
    return structs.replace(report, failed_records=sender.close())


def open_stream(name: str, seed: int, timeline: Timeline, base_ms: int) -> Stream:
    """The stream of that name: `nexmark` events or `words`.

    >>> open_stream("nexmrk", 1, Timeline([1.0]), 0)
    Traceback (most recent call last):
    penstock.errors.ConfigError: unknown stream 'nexmrk': did you mean 'nexmark'? Known: ...
    """
    match name:
        case "nexmark":
            return NexmarkEvents(seed, lambda events: timeline.due_ms(events, base_ms))
        case "words":
            return Lines(seed)
    raise unknown("stream", name, ["nexmark", "words"])


def read_rates(text: str, where: str) -> list[float]:
    """Rates as a JSON list, or one on each line.

    >>> read_rates("[10, 20.5]", "-"), read_rates("10\\n20.5\\n", "-")
    ([10.0, 20.5], [10.0, 20.5])
    """
    try:
        if text.lstrip().startswith("["):
            return msgspec.json.decode(text, type=list[float])
        return [float(line) for line in text.split()]
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{where} must hold one rate for each second: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="producer: %(message)s")
    try:
        report = _produce_as_told(options)
    except PenstockError as error:
        print(f"producer: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(msgspec.json.encode(report).decode())  # noqa: T201
    print(f"producer: {report.sentence()}", file=sys.stderr)  # noqa: T201
    return 0


def _produce_as_told(options: argparse.Namespace) -> Report:
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: signals.append(number))

    def stopped() -> bool:
        orphaned = options.parent is not None and os.getppid() != options.parent
        return bool(signals) or orphaned

    timeline = Timeline(_rates_as_told(options))
    settings = dict(_setting(text) for text in options.setting)
    sender = KafkaSender(options.bootstrap, options.topic, settings)
    clock = WallClock()
    base_ms = int(next(clock.ticks(TICK_S)) * 1000)
    stream = open_stream(options.stream, options.seed, timeline, base_ms)
    return produce(timeline, stream, sender, clock, stopped=stopped)


def _rates_as_told(options: argparse.Namespace) -> list[float]:
    if options.rates is not None:
        text = sys.stdin.read() if options.rates == "-" else _file(options.rates)
        rates = read_rates(text, options.rates)
        return rates if options.seconds is None else rates[: options.seconds]
    if options.seconds is None:
        raise ConfigError("--rate-rps needs --seconds: for how long?")
    return [options.rate_rps] * options.seconds


def _file(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"cannot read the rates in {path}: {error.strerror}") from error


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--setting takes KEY=VALUE, not '{text}'")
    return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.jobs.producer",
        description="Sends events to Kafka at a rate that is given for each second.",
    )
    parser.add_argument("--bootstrap", required=True, help="broker addresses, host:port,...")
    parser.add_argument("--topic", required=True, help="a topic that exists")
    parser.add_argument("--stream", default="nexmark", help="nexmark (default) or words")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same events (default 1)")
    rate = parser.add_mutually_exclusive_group(required=True)
    rate.add_argument("--rates", metavar="FILE", help="a rate for each second; - for stdin")
    rate.add_argument("--rate-rps", type=float, help="the same rate all the time")
    parser.add_argument("--seconds", type=int, help="how long; by default as long as the rates")
    parser.add_argument("--setting", action="append", default=[], help="KEY=VALUE for librdkafka")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this parent has ended")
    return parser


if __name__ == "__main__":
    sys.exit(main())
