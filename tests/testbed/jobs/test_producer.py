"""The player on a clock of its own, and the producer on the broker that librdkafka carries."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import ClassVar

import msgspec
import pytest

from penstock.core.clock import SimulatedClock, WallClock
from penstock.core.errors import ConfigError
from penstock.testbed import wait_until
from penstock.testbed.jobs.playback import Report, play
from penstock.testbed.jobs.producer import KafkaSender, main, read_rates
from penstock.testbed.jobs.streams import STREAMS, open_stream
from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.jobs.wordcount import TextLines

MOCK = {"test.mock.num.brokers": 1}


class Numbers:
    """Each event is its own number."""

    block_size: ClassVar[int] = 70

    def block(self, number: int) -> list[bytes]:
        return [b"%d" % (number * 70 + i) for i in range(70)]


@dataclass
class World:
    """A clock that moves on when something is sent: each event takes `cost_s`."""

    cost_s: float = 0.0
    room: int = 10**9
    now_s: float = 1000.0
    sent: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def clock(self) -> WallClock:
        return WallClock(now=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def send(self, values: list[bytes], first: int) -> int:
        assert values[0] == b"%d" % first
        taken = values[: self.room]
        self.sent += [(self.now_s, value) for value in taken]
        self.now_s += self.cost_s * len(taken)
        return len(taken)

    def close(self) -> int:
        return 0


def test_every_event_is_sent_once_in_order_and_on_time() -> None:
    timeline, world = Timeline([100.0, 0.0, 300.0]), World()
    report = play(timeline, Numbers(), world, world.clock)
    assert [value for _, value in world.sent] == [b"%d" % i for i in range(400)]
    assert report.kept_up
    assert report.shortfall_records == 0
    assert report.behind_max_s <= 0.02
    late_s = [at_s - 1000.0 for at_s, _ in world.sent[100:]]
    assert min(late_s) >= 2.0


def test_a_timeline_that_starts_later_is_waited_for() -> None:
    world = World()
    play(Timeline([50.0]), Numbers(), world, world.clock, start_s=1005.0)
    assert world.sent[0][0] >= 1005.0


def test_a_player_that_is_too_slow_says_so_once_and_by_how_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # 20 us per event is 50,000/s where 100,000/s are asked: after 5 s of it half are left, and
    # the last comes 5 s late. It looks at the clock each 0.4 s, so it may miss as much.
    world = World(cost_s=20e-6)
    with caplog.at_level(logging.WARNING):
        report = play(Timeline([100_000.0] * 5), Numbers(), world, world.clock)
    assert report.sent_records == 500_000
    assert report.behind_max_records == pytest.approx(250_000, rel=0.1)
    assert report.behind_max_s == pytest.approx(5.0, abs=0.5)
    assert not report.kept_up
    assert [record.message.split(":")[0] for record in caplog.records] == ["cannot keep up"]
    assert "could not keep up" in report.sentence()


def test_a_player_that_catches_up_says_that_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World(cost_s=0.004)
    with caplog.at_level(logging.WARNING):
        play(Timeline([500.0] * 3 + [50.0] * 10), Numbers(), world, world.clock)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "cannot keep up",
        "keeps up again",
    ]


def test_what_does_not_fit_is_sent_later_and_never_skipped() -> None:
    world = World(room=3)  # of what is due, 100 times a second: 300/s at most
    report = play(Timeline([600.0]), Numbers(), world, world.clock)
    assert [value for _, value in world.sent] == [b"%d" % i for i in range(600)]
    assert report.behind_max_records > 250


def test_a_player_gives_up_what_nobody_takes() -> None:
    world = World(room=0)
    report = play(Timeline([10.0]), Numbers(), world, world.clock, give_up_after_s=2.0)
    assert (report.sent_records, report.shortfall_records) == (0, 10)
    assert report.elapsed_s == pytest.approx(3.0, abs=0.05)


def test_a_player_that_is_stopped_reports_what_was_due_until_then() -> None:
    world = World()
    stop: Callable[[], bool] = lambda: world.now_s >= 1002.0  # noqa: E731
    report = play(Timeline([100.0] * 60), Numbers(), world, world.clock, stopped=stop)
    assert report.sent_records == report.planned_records == pytest.approx(200, abs=2)
    assert report.kept_up


def test_a_report_survives_json() -> None:
    report = Report(10, 9, 1, 1.5, 3, 0.5)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert report.shortfall_records == 2


def test_the_partitions_of_a_topic_fill_evenly_and_in_order() -> None:
    from confluent_kafka import Consumer, TopicPartition

    sender = KafkaSender("ignored", "events", MOCK)
    # The broker lives in the producer, which tells others where.
    broker = next(iter(sender._producer.list_topics(timeout=5).brokers.values()))
    report = play(
        Timeline([1000.0, 3000.0]), Numbers(), sender, SimulatedClock(end_s=5.0, start_s=1.0)
    )
    assert report.sent_records == 4000
    assert report.kept_up
    consumer = Consumer(
        {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "t", "log_level": 0}
    )
    try:
        partitions = [TopicPartition("events", p, 0) for p in range(sender.partitions)]
        consumer.assign(partitions)
        found: dict[int, list[int]] = {p: [] for p in range(sender.partitions)}
        while sum(map(len, found.values())) < 4000:
            messages = consumer.consume(1000, timeout=10)
            assert messages, "the broker gave fewer events than were sent"
            for message in messages:
                assert message.error() is None
                value, place = message.value(), message.partition()
                assert value is not None
                assert place is not None
                found[place].append(int(value))
    finally:
        consumer.close()
    assert found == {p: list(range(p, 4000, sender.partitions)) for p in found}


@pytest.mark.slow
def test_an_event_costs_less_than_ten_microseconds_of_one_core() -> None:
    # 100,000 events/s on one core, with the mock broker's own work counted in. Processor time,
    # so that it does not matter what else the machine does.
    timeline = Timeline([100_000.0] * 5)
    sender = KafkaSender("ignored", "events", MOCK)
    stream = open_stream("nexmark", 1, timeline, base_ms=1_700_000_000_000)
    before_s = process_time()
    report = play(timeline, stream, sender, SimulatedClock(end_s=600.0))
    used_s = process_time() - before_s
    assert report.sent_records == 500_000
    assert report.failed_records == 0
    assert used_s / report.sent_records < 10e-6


def test_a_broker_that_does_not_answer_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no broker answered at 127\.0\.0\.1:1 within 1 s"):
        KafkaSender("127.0.0.1:1", "events", patience_s=1.0)


@pytest.mark.parametrize("name", STREAMS)
def test_a_negative_seed_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the seed must not be negative, not -1"):
        open_stream(name, -1, Timeline([1.0]), 0)


@pytest.mark.parametrize("text", ["[1, 2", "1\ntwo", '["a"]'])
def test_rates_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"load.json must hold one rate for each second"):
        read_rates(text, "load.json")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workload", "sine:mean=5k"], "has no end: give --seconds"),
        (["--workload", "sin:mean=5k", "--seconds", "2"], "did you mean"),
        (
            ["--workload", "sine:peak_executors=4", "--seconds", "2"],
            "a workload that is measured in executors needs --capacity-rps",
        ),
        (["--rates", "no/such/file"], "cannot read the rates in no/such/file"),
        (["--workload", "constant", "--on", "sprak"], "unknown place for --on 'sprak'"),
        (["--workload", "constant", "--master", "local[2]"], "--master goes with --on spark"),
    ],
)
def test_what_cannot_be_produced_ends_with_one_sentence_and_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = main(["--bootstrap", "127.0.0.1:1", "--topic", "events", *arguments])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    error = capsys.readouterr().err
    assert code == 2
    assert sentence in error
    assert error.count("\n") == 1


def command(*arguments: str) -> list[str]:
    module = [
        sys.executable,
        "-m",
        "penstock.testbed.jobs.producer",
        "--setting",
        "test.mock.num.brokers=1",
    ]
    return [*module, "--bootstrap", "ignored", "--topic", "events", *arguments]


@pytest.mark.slow
def test_the_process_follows_a_file_of_rates_and_reports(tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    rates.write_text("[200, 0, 800]")
    done = subprocess.run(
        command("--rates", str(rates)), capture_output=True, text=True, check=True, timeout=60
    )
    report = json.loads(done.stdout)
    assert report["planned_records"] == report["sent_records"] == 1000
    assert report["elapsed_s"] >= 2.9


def handles_signals(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM, which it sets last."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_in_order_when_it_is_told_to(number: signal.Signals) -> None:
    arguments = command("--workload", "constant:rate=1k", "--seconds", "600")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        wait_until(
            lambda: handles_signals(process.pid), 30.0, "the producer does not handle signals"
        )
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(output)["failed_records"] == 0


def test_lines_are_the_same_for_the_same_seed_and_common_words_are_common() -> None:
    lines = TextLines(seed=5).block(2)
    assert lines == TextLines(seed=5).block(2)
    assert lines != TextLines(seed=6).block(2)
    words = b" ".join(lines).split()
    commonest = max(words.count(word) for word in set(words[:200]))
    # Weight 1/1 of the harmonic number of 10,000, which is 9.79.
    assert commonest / len(words) == pytest.approx(1 / 9.79, rel=0.1)
