"""Sends a stream of events to Kafka, each when it is due, and says so when it cannot keep up.

A process of its own::

    python -m penstock.testbed.jobs.producer --bootstrap HOST:PORT --topic T \\
        --workload constant:rate=5k --seconds 60

It ends when all events are out, or on SIGTERM or SIGINT, and then writes its `Report` as one line
of JSON. With ``--on spark`` the tasks of a Spark application make and send the same events.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError, PenstockError, unknown
from penstock.core.files import file_errors
from penstock.simulation.workloads.expressions import parse_workload
from penstock.testbed.jobs.image_records import require_packages
from penstock.testbed.jobs.playback import TICK_S, Report, follow, play
from penstock.testbed.jobs.streams import STREAMS, open_stream
from penstock.testbed.jobs.timeline import Timeline

QUEUE_RECORDS = 200_000
CLOSE_PATIENCE_S = 30.0  #: For what was sent last to arrive.
#: The first event is due this long after the start, when its stream is prepared.
LEAD_S = 0.5
PLACES = ("local", "spark")

log = logging.getLogger(__name__)


class KafkaSender:
    """Puts event n on partition n modulo their number, so that all fill evenly.

    `bootstrap` is broker addresses, `host:port`, with commas between; the topic must exist.
    `settings` are further ones of librdkafka, such as those of SASL and TLS.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        settings: dict[str, Any] | None = None,
        *,
        patience_s: float = 10.0,
    ) -> None:
        try:
            from confluent_kafka import KafkaException, Producer
        except ImportError:
            sentence = "the producer needs confluent-kafka: install penstock[spark]"
            raise ConfigError(sentence) from None
        self.failed_records = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                # Two ticks: half as many requests, each twice as large, spare the broker.
                "linger.ms": 20,
                "queue.buffering.max.messages": QUEUE_RECORDS,
                # A report per event would cost more than the event; only failures are reported.
                "delivery.report.only.error": True,
                # librdkafka writes a line per failed connection, twenty a second.
                "log_level": 0,
                "reconnect.backoff.max.ms": 2000,
                "error_cb": lambda error: log.info("kafka: %s", error),
                **(settings or {}),
            }
        )
        try:
            found = self._producer.list_topics(topic, timeout=patience_s).topics[topic]
        except KafkaException as error:
            problem = f"no broker answered at {bootstrap} within {patience_s:.0f} s"
            raise ConfigError(f"{problem}: {error.args[0].str()}") from error
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

    def close(self) -> int:
        return self.failed_records + self._producer.flush(CLOSE_PATIENCE_S)

    def _on_failure(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed_records += 1


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
        report = _produce(options)
    except PenstockError as error:
        print(f"producer: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(msgspec.json.encode(report).decode())  # noqa: T201
    print(f"producer: {report.sentence()}", file=sys.stderr)  # noqa: T201
    return 0


def _produce(options: argparse.Namespace) -> Report:
    if options.on not in PLACES:
        raise unknown("place for --on", options.on, PLACES)
    if options.master is not None and options.on != "spark":
        raise ConfigError("--master goes with --on spark")
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: signals.append(number))

    run = _produce_on_spark if options.on == "spark" else _produce_here
    return run(options, _rates(options), lambda: bool(signals))


def _produce_here(
    options: argparse.Namespace, rates_rps: Sequence[float], stopped: Callable[[], bool]
) -> Report:
    timeline = Timeline(rates_rps)
    sender = KafkaSender(options.bootstrap, options.topic, dict(options.setting))
    start_s, base_ms = _start(options, LEAD_S)
    stream = open_stream(options.stream, options.seed, timeline, base_ms)
    return play(timeline, stream, sender, WallClock(), start_s=start_s, stopped=stopped)


def _produce_on_spark(
    options: argparse.Namespace, rates_rps: Sequence[float], stopped: Callable[[], bool]
) -> Report:
    from penstock.testbed.jobs import spark_sender
    from penstock.testbed.sessions import open_session

    require_packages("--on spark", ["pandas", "pyarrow"])
    timeline = Timeline(rates_rps)
    plan = spark_sender.EventPlan(options.stream, options.seed, tuple(rates_rps), base_ms=0)
    spark_sender.open_plan(plan)  # what is wrong with it is said before Spark starts
    settings = spark_sender.connector_settings() | {"spark.ui.enabled": "false"}
    with open_session("penstock-producer", options.master, settings) as spark:
        sender = spark_sender.SparkSender(
            spark, options.bootstrap, options.topic, dict(options.setting)
        )
        sender.warm_up(plan)
        start_s, base_ms = _start(options, spark_sender.LEAD_S)
        plan = replace(plan, base_ms=base_ms)
        sender.warm_up(plan)
        send = partial(sender.send, plan)
        return follow(timeline, send, WallClock(), spark_sender.TICK_S, start_s, stopped=stopped)


def _start(options: argparse.Namespace, lead_s: float) -> tuple[float, int]:
    """When the first event is due, and which time it bears."""
    start_s = next(WallClock().ticks(TICK_S)) + lead_s
    return start_s, int(start_s * 1000) if options.base_ms is None else options.base_ms


def _rates(options: argparse.Namespace) -> list[float]:
    if options.rates is not None:
        with file_errors(f"cannot read the rates in {options.rates}"):
            text = sys.stdin.read() if options.rates == "-" else Path(options.rates).read_text()
        rates = read_rates(text, options.rates)
        return rates if options.seconds is None else rates[: options.seconds]
    workload = parse_workload(options.workload)
    seconds = options.seconds or workload.natural_duration_s()
    if seconds is None:
        raise ConfigError(f"the workload '{options.workload}' has no end: give --seconds")

    def capacity_rps(executors: int) -> float:
        if options.capacity_rps is None:
            raise ConfigError("a workload that is measured in executors needs --capacity-rps")
        return executors * float(options.capacity_rps)

    return workload.rates(ceil(seconds), options.seed, capacity_rps)


def _pair(text: str) -> tuple[str, str]:
    """A setting as it stands on a command line.

    >>> _pair("sasl.password=a=b")
    ('sasl.password', 'a=b')
    """
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not '{text}'")
    return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testbed.jobs.producer",
        description="Sends events to Kafka at a rate that is given for each second.",
    )
    add = parser.add_argument
    add("--bootstrap", required=True, help="broker addresses, host:port,...")
    add("--topic", required=True, help="a topic that exists")
    add("--stream", default="nexmark", help=f"{', '.join(STREAMS)} (default nexmark)")
    add("--seed", type=int, default=1, help="same seed, same events (default 1)")
    rate = parser.add_mutually_exclusive_group(required=True)
    rate.add_argument("--workload", metavar="TEXT", help='such as "sine:mean=5k,amplitude=3k"')
    rate.add_argument("--rates", metavar="FILE", help="a rate for each second; - for stdin")
    add("--seconds", type=int, help="how long; by default as long as the rates")
    capacity = "what one executor can carry, for a workload that is measured in executors"
    add("--capacity-rps", type=float, help=capacity)
    setting = "a setting of librdkafka, or with --on spark of Kafka's Java client"
    add("--setting", type=_pair, action="append", default=[], metavar="KEY=VALUE", help=setting)
    base = "the time of the first second in the events, in ms since the epoch; by default now"
    add("--base-ms", type=int, help=base)
    place = "local (default) or spark: who makes the events and sends them"
    add("--on", default="local", metavar="PLACE", help=place)
    add("--master", metavar="URL", help="a Spark master, with --on spark")
    return parser


if __name__ == "__main__":
    sys.exit(main())
