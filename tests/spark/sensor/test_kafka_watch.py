"""The watch over a Kafka source: it survives its files, its brokers and the clock."""

from __future__ import annotations

import logging
import subprocess
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import enumerate as threads

import pytest

from penstock.core.clock import LoopTime
from penstock.core.errors import SensorError
from penstock.core.model import Batch
from penstock.spark.sensor.kafka import Brokers, KafkaWatch
from penstock.spark.sensor.offsets import Offsets, SourceReading
from penstock.spark.sensor.progress import Partition, SourceProgress
from penstock.testbed import Testbed, wait_until
from penstock.testbed.servers import free_ports

WITH_KAFKA = True
PLACE = ("bids", 0)


def read(watch: KafkaWatch) -> SourceReading:
    return watch.read(0.0, lambda: None)


def processed(ends: dict[str, int], topic: str = "bids") -> tuple[Batch, SourceProgress]:
    return Batch(0, 0.0, 1.0, 1), SourceProgress({topic: ends})


@contextmanager
def watching(brokers: Brokers, time: LoopTime | None = None) -> Iterator[KafkaWatch]:
    watch = KafkaWatch(brokers, every_s=0.05, time=time)
    try:
        yield watch
    finally:
        watch.close()


def followers() -> int:
    return sum(thread.name == "penstock-kafka" for thread in threads())


def test_a_certificate_that_is_gone_for_a_while_does_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The brokers are away, so a new client is made, which reads the file again."""
    caplog.set_level(logging.INFO)
    authority = tmp_path / "ca.pem"
    authority.write_text(certificate())
    (port,) = free_ports(1)
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority),
    }
    before = followers()
    brokers = Brokers(settings, timeout_s=0.05)
    with watching(brokers) as watch:
        watch.take(*processed({"0": 5}))
        authority.rename(tmp_path / "away.pem")
        assert read(watch) == SourceReading()
        for _ in range(3):
            with pytest.raises(SensorError, match=r"no Kafka client can be made|cannot be read"):
                brokers.end_offsets([PLACE])
        with pytest.raises(SensorError, match=r"no Kafka client can be made: .*ssl.ca.location"):
            brokers.end_offsets([PLACE])
        assert followers() == before + 1
        (tmp_path / "away.pem").rename(authority)
        with pytest.raises(SensorError, match=r"^Kafka offsets.* cannot be read"):
            brokers.end_offsets([PLACE])
        assert followers() == before + 1


def test_two_threads_may_ask_at_once_while_nobody_answers() -> None:
    """Each failure makes a new client; the other thread still waits for the answer of the old."""
    (port,) = free_ports(1)
    brokers = Brokers({"bootstrap.servers": f"127.0.0.1:{port}"}, timeout_s=0.02)

    def ask(_: int) -> str:
        with pytest.raises(SensorError) as found:
            brokers.end_offsets([PLACE])
        return str(found.value)

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(ask, range(40)))
    assert {sentence.partition(":")[0] for sentence in said} == {"Kafka offsets cannot be read"}


def certificate() -> str:
    """A certificate of our own, valid for a day."""
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null",
         "-subj", "/CN=test", "-days", "1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return made.stdout


class CountedBrokers(Brokers):
    """100 records a second by the time that has passed; breaks down when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.asked_at_s: list[float] = []
        self.is_broken = False

    def end_offsets(self, partitions: Iterable[Partition]) -> Offsets:
        if self.is_broken:
            raise ZeroDivisionError("a bug")
        return {place: round(100 * (self.now_s - 1000.0)) for place in partitions}

    def offsets_at(self, partitions: Iterable[Partition], at_s: float) -> Offsets:
        self.asked_at_s.append(at_s)
        return {}


def test_a_bug_in_the_watch_is_logged_once_and_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    brokers = CountedBrokers()
    time = LoopTime(wall=lambda: brokers.now_s, steady=lambda: brokers.now_s)
    with watching(brokers, time) as watch:
        watch.take(*processed({"0": 0}))
        read(watch)
        brokers.is_broken = True
        wait_until(lambda: "a bug; the lag is unknown" in caplog.text, 10.0, "nothing was logged")
        brokers.is_broken = False
        brokers.now_s += 10.0
        wait_until(lambda: read(watch).backlog_records == 1000.0, 10.0, "it stopped")
    assert caplog.text.count("a bug") == 1


@pytest.mark.parametrize("by_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_to_another_time_makes_no_delay(by_s: float) -> None:
    """All but the last second is processed, before and after."""
    brokers, jumped_s = CountedBrokers(), 0.0
    time = LoopTime(wall=lambda: brokers.now_s + jumped_s, steady=lambda: brokers.now_s)
    watch = KafkaWatch(brokers, every_s=3600.0, time=time)
    try:
        for second in range(1, 30):
            brokers.now_s += 1.0
            jumped_s = by_s if second > 15 else 0.0
            watch.take(*processed({"0": 100 * (second - 1)}))
            seen = read(watch)
            if second > 2:
                assert seen.delay_s == pytest.approx(1.0)
                assert seen.arrival_rps == pytest.approx(100.0)
        # Brokers are asked by the clock on the wall.
        brokers.asked_at_s.clear()
        watch._curve = type(watch._curve)()
        watch.take(*processed({"0": 0}))
        read(watch)
        assert brokers.asked_at_s[0] == pytest.approx(brokers.now_s + by_s - 1.0)
    finally:
        watch.close()


class DatedBrokers(Brokers):
    """One partition whose records have these ages; counts the questions about the past."""

    def __init__(self, *ages_s: float) -> None:
        self.now_s, self.questions = 1_000_000_000.0, 0
        self._came_at_s = [self.now_s - age_s for age_s in ages_s]

    def end_offsets(self, partitions: Iterable[Partition]) -> Offsets:
        return {place: len(self._came_at_s) for place in partitions}

    def offsets_at(self, partitions: Iterable[Partition], at_s: float) -> Offsets:
        self.questions += 1
        first = bisect_left(self._came_at_s, at_s)
        return {place: first for place in partitions if first < len(self._came_at_s)}


@contextmanager
def watching_past(brokers: DatedBrokers, done: int) -> Iterator[KafkaWatch]:
    time = LoopTime(wall=lambda: brokers.now_s, steady=lambda: brokers.now_s)
    watch = KafkaWatch(brokers, every_s=3600.0, time=time)
    try:
        watch.take(*processed({"0": done}))
        yield watch
    finally:
        watch.close()


@pytest.mark.parametrize("done", [10, 100, 1000, 3990])
def test_the_age_of_many_records_that_came_at_once_is_found(done: int) -> None:
    """Of 8,000 records half came an hour ago, the others ten minutes ago.

    Their number says nothing about when they came, so the interval has to be halved: between 2,048
    and 4,096 s ago, six times, which leaves 32 s.
    """
    with watching_past(DatedBrokers(*[3600.0] * 4000, *[600.0] * 4000), done) as watch:
        seen = read(watch)
    assert seen.backlog_records == 8000 - done
    assert seen.delay_s == pytest.approx(3600.0, abs=32.0)


def test_records_that_are_older_than_can_be_asked_for_are_asked_for_once() -> None:
    """They came 100 days ago; the age is then the oldest that was asked for, six days."""
    brokers = DatedBrokers(*[100 * 86_400.0] * 50)
    with watching_past(brokers, 10) as watch:
        for _ in range(3):
            assert read(watch).delay_s == pytest.approx(6.07 * 86_400.0, rel=0.01)
    assert brokers.questions <= 20


@pytest.mark.slow
def test_a_topic_that_comes_back_with_fewer_partitions_is_unknown_until_the_query_knows_it(
    bed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka.admin import AdminClient

    caplog.set_level(logging.INFO)
    bed.create_topic("shrunk", 8)
    admin = AdminClient(bed.broker.client_settings)
    with watching(Brokers({"bootstrap.servers": bed.bootstrap_servers})) as watch:
        watch.take(*processed(dict.fromkeys(map(str, range(8)), 0), "shrunk"))
        wait_until(lambda: read(watch).backlog_records == 0.0, 30.0, "the lag is not known")
        admin.delete_topics(["shrunk"])["shrunk"].result(30.0)
        wait_until(lambda: read(watch).backlog_records is None, 30.0, "it is gone and has a lag")
        bed.create_topic("shrunk", 4)
        assert read(watch) == SourceReading()
        watch.take(*processed(dict.fromkeys(map(str, range(4)), 0), "shrunk"))
        wait_until(lambda: _asks_again(watch), 30.0, "the lag stays unknown")
    warnings = [each for each in caplog.messages if "the lag is unknown until" in each]
    assert warnings  # leaders come and go for a moment


def committed(bed: Testbed, group: str) -> dict[Partition, int]:
    """What a tool for Kafka sees of a group; nothing while its coordinator loads."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(bed.broker.client_settings)
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    try:
        found = answer.result(10.0).topic_partitions
    except KafkaException:
        return {}
    return {(at.topic, at.partition): at.offset for at in found}


@pytest.mark.slow
def test_processed_offsets_are_committed_to_a_group_also_the_last_ones(bed: Testbed) -> None:
    bed.create_topic("seen", 2)
    settings = {"bootstrap.servers": bed.bootstrap_servers}
    with watching(Brokers(settings, group="lag of q")) as watch:
        watch.take(*processed({"0": 0, "1": 0}, "seen"))
        first = {("seen", 0): 0, ("seen", 1): 0}
        wait_until(lambda: committed(bed, "lag of q") == first, 30.0, "nothing is committed")
        watch.take(*processed({"0": 7, "1": 3}, "seen"))
        watch.close()  # at once: the thread commits once more
    last = {("seen", 0): 7, ("seen", 1): 3}
    wait_until(lambda: committed(bed, "lag of q") == last, 30.0, "the last offsets are missing")


@pytest.mark.slow
def test_a_group_that_others_use_is_a_warning_and_the_lag_is_still_measured(
    bed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka import Consumer

    bed.create_topic("shared", 1)
    others = Consumer(bed.broker.client_settings | {"group.id": "others"})
    others.subscribe(["shared"])
    try:

        def has_joined() -> bool:
            others.poll(0.1)
            return bool(others.assignment())

        wait_until(has_joined, 60.0, "the consumer does not join its group")
        settings = {"bootstrap.servers": bed.bootstrap_servers}
        with watching(Brokers(settings, group="others")) as watch:
            watch.take(*processed({"0": 0}, "shared"))
            wait_until(lambda: "not committed to the group others" in caplog.text, 30.0, "silent")
            wait_until(lambda: read(watch).backlog_records == 0.0, 30.0, "the lag is not known")
        assert caplog.text.count("not committed") == 1
    finally:
        others.close()


def _asks_again(watch: KafkaWatch) -> bool:
    return read(watch).backlog_records == 0.0
