"""How much waits in Kafka, asked from the brokers.

Spark's progress gives the lag at the moment a batch is planned: a query without a cap per trigger
reports none, however late it is. So the end offsets are read here once a second and kept as a
curve over time. Its slope is the arrival rate, its height above the processed offsets the backlog,
and the instant at which it passed them the arrival of the oldest waiting record.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any

from penstock.core.alarm import RateBaseline
from penstock.core.clock import LoopTime, WallClock
from penstock.core.errors import ConfigError, SensorError
from penstock.core.model import Batch
from penstock.spark.sensor.group_offsets import GroupOffsets
from penstock.spark.sensor.key_stores import key_and_chain, trusted_certificates
from penstock.spark.sensor.msk import MECHANISM, msk_settings
from penstock.spark.sensor.offsets import (
    ArrivalCounts,
    OffsetCurve,
    Offsets,
    SourceReading,
    by_topic,
)
from penstock.spark.sensor.progress import Partition, SourceProgress, partition_offsets

log = logging.getLogger(__name__)

#: If the curve does not reach back far enough, offsets at these ages are asked for: up to 6 days.
AGES_S = tuple(2.0**doubling for doubling in range(20))
#: Then the interval in which the oldest record came is halved this often.
HALVINGS = 6

NO_RECORD = -1  #: The answer of a broker if no record is that young.

# Options of the Java client that librdkafka calls the same, or otherwise. Of others it has no need.
_SAME = (
    "bootstrap.servers client.dns.lookup sasl.mechanism sasl.kerberos.service.name "
    "sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope security.protocol "
    "ssl.cipher.suites ssl.key.password"
)
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_JAAS_LOGIN = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "principal": "sasl.kerberos.principal",
    "keyTab": "sasl.kerberos.keytab",
}
_JAAS_PAIR = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


class Brokers:
    """The brokers of a Kafka source, asked with a timeout; offsets are committed to `group`."""

    group = ""

    def __init__(
        self, settings: Mapping[str, Any], *, timeout_s: float = 1.0, group: str = ""
    ) -> None:
        self.group = group
        self._settings: dict[str, Any] = {
            "log_level": 0,  # otherwise it prints a line for each retry
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            **settings,
        }
        self._timeout_s = timeout_s
        self._problem = ""  # why there is no connection; the answer to a question says only when
        self._admin: Any = self._connect()
        self._committing: Any = None

    def _connect(self) -> Any:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return AdminClient(self._settings | {"error_cb": self._take_problem})
        except KafkaException as error:
            raise ConfigError(f"no Kafka client can be made: {error.args[0].str()}") from None

    def _take_problem(self, error: Any) -> None:
        if error.name() in ("_AUTHENTICATION", "_SSL"):
            broker, _, text = error.str().partition(": ")
            if "verify failed" in text:
                text = "its certificate is not valid now, or the trust store lacks its issuer"
            self._problem = f": {broker}: {text.partition(' (after ')[0]}"

    def end_offsets(self, partitions: Iterable[Partition]) -> Offsets:
        """The end offset of each partition now, or `SensorError`."""
        return self._ask(partitions, None)

    def offsets_at(self, partitions: Iterable[Partition], at_s: float) -> Offsets:
        """The first offset of each partition at or after `at_s`; left out where there is none."""
        found = self._ask(partitions, at_s)
        return {name: offset for name, offset in found.items() if offset != NO_RECORD}

    def commit(self, offsets: Offsets) -> Future[Any]:
        """Commit offsets to the group; the answer comes later."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        ends = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        # A client that nobody refers to any more never answers.
        self._committing = admin = self._admin if self._admin is not None else self._connect()
        request = [ConsumerGroupTopicPartitions(self.group, ends)]
        answers: dict[str, Future[Any]] = admin.alter_consumer_group_offsets(
            request, request_timeout=10 * self._timeout_s
        )
        return answers[self.group]

    def _ask(self, partitions: Iterable[Partition], at_s: float | None) -> Offsets:
        from confluent_kafka import KafkaException, TopicPartition, admin

        spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]
        what = spec.latest() if at_s is None else spec.for_timestamp(int(at_s * 1000))
        request = {TopicPartition(topic, number): what for topic, number in partitions}
        try:
            if (client := self._admin) is None:  # an idle client is false
                self._admin = client = self._connect()
            # The name keeps this client: one that another thread replaced would never answer.
            answers = client.list_offsets(request, request_timeout=self._timeout_s)
            found = {(at.topic, at.partition): got.result().offset for at, got in answers.items()}
        except KafkaException as error:
            # A client that lost its brokers for long may not find them again; a new one does.
            problem = self._problem_of(client) or f": {error.args[0].str()}"
            self._admin = None
            with suppress(ConfigError):
                self._admin = self._connect()
            raise SensorError(f"Kafka offsets cannot be read{problem}") from None
        except ConfigError as error:  # a file of its settings is gone since the last one was made
            raise SensorError(f"Kafka offsets cannot be read: {error}") from None
        if any(offset < NO_RECORD for offset in found.values()):
            # The client answers this on a timeout, without an error.
            problem = self._problem_of(client) or f" within {self._timeout_s:g} s"
            raise SensorError(f"Kafka offsets cannot be read{problem}")
        return found

    def _problem_of(self, client: Any) -> str:
        self._problem = ""
        client.poll(0)  # has the client call `_take_problem`
        return self._problem


class KafkaWatch:
    """Follows the end offsets of one source in a thread of its own, until closed.

    `read` asks the brokers at most once, and not at all while they are known not to answer.
    `has_surged` says that the load has jumped since; the next reading then has the rate after the
    jump, not a mean of before and after.
    """

    def __init__(
        self, brokers: Brokers, *, every_s: float = 1.0, time: LoopTime | None = None
    ) -> None:
        self._brokers = brokers
        self._commits = GroupOffsets(brokers.group, brokers.commit)
        self._every_s = every_s
        self._time = time or LoopTime()  # ages are differences
        self._curve = OffsetCurve()
        self._processed: Offsets | None = None
        self._partitions: tuple[Partition, ...] = ()
        self._answers = True
        self._last_read: tuple[float, Offsets] | None = None
        self._last_sample: tuple[float, Offsets] | None = None
        self._baseline = RateBaseline()
        self._counts = ArrivalCounts()
        self.has_surged = False
        self._lock = Lock()
        self._closed = Event()
        self._thread = Thread(target=self._follow, name="penstock-kafka", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def take(self, batch: Batch, progress: SourceProgress) -> None:
        """Take over the offsets that a batch has processed."""
        if (offsets := partition_offsets(progress.end_offset)) is not None:
            self._processed = offsets

    def read(self, now_s: float, idle_at_s: Callable[[], float | None]) -> SourceReading:
        """What waits beyond the processed offsets; the rate is the mean since the last reading."""
        if (processed := self._processed) is None:
            return SourceReading()
        with self._lock:
            self.has_surged = False
            self._partitions = tuple(processed)
            if self._answers:
                self._sample()
            if not self._answers or (last := self._curve.last) is None:
                return SourceReading()
            if not self._curve.reaches(processed):
                self._reach_back(processed)
            before, self._last_read = self._last_read, last
            since_s = self._curve.waiting_since_s(processed)
            delays_s = {name: max(0.0, last[0] - at_s) for name, at_s in since_s.items()}
            backlog = self._curve.backlog(processed)
            self._curve.forget_before(processed)
            return SourceReading(
                arrival_rps=None if before is None else _rate_rps(before, last),
                backlog_records=float(sum(backlog.values())),
                delay_s=max(delays_s.values(), default=0.0),
                mean_delay_s=sum(delays_s.values()) / len(backlog) if backlog else None,
                partition_backlog=tuple(backlog[name] for name in sorted(backlog)),
                arrival_cv2=self._counts.cv2,
                topics=by_topic(backlog, delays_s),
            )

    def _follow(self) -> None:
        for _ in WallClock(self._time.now, self._closed.wait).ticks(self._every_s):
            if self._closed.is_set():
                self._commits.close(self._processed)
                return
            with self._lock:
                self._sample()
                self._watch_for_surge()
            self._commits.send(self._processed)

    def _watch_for_surge(self) -> None:
        """Compare the samples of the thread, whatever readings came in between."""
        before, self._last_sample = self._last_sample, self._curve.last
        if before is None or self._last_sample is None:
            return
        rate_rps = _rate_rps(before, self._last_sample)
        if rate_rps is None:
            return
        at_s = self._last_sample[0]
        self._counts.add(at_s, at_s - before[0], rate_rps * (at_s - before[0]))
        if not self._baseline.is_surge(rate_rps):
            self._baseline = self._baseline.updated(rate_rps)
        elif not self.has_surged:
            # A new baseline: a load that stays at the new level is no second surge.
            self._baseline = RateBaseline()
            self._last_read = before
            self.has_surged = True

    def _sample(self) -> None:
        if not self._partitions:
            return
        try:
            ends = self._brokers.end_offsets(self._partitions)
        except Exception as error:  # also a bug: nobody else would ask again
            if self._answers:
                log.warning("%s; the lag is unknown until the brokers answer again", error)
            self._answers = False
            return
        if not self._answers:
            log.info("Kafka offsets can be read again")
        self._answers = True
        self._curve.add(self._time.now(), ends)

    def _reach_back(self, processed: Offsets) -> None:
        """Extend the curve into the past: ask for offsets by time."""
        (known_s, known), now_s = self._curve.first, self._time.now()
        try:
            for at_s in (now_s - age_s for age_s in AGES_S if now_s - age_s < known_s):
                self._add_past(at_s, known)
                if self._curve.reaches(processed):
                    for _ in range(HALVINGS):
                        self._add_past(self._curve.halfway_s(processed), known)
                    return
        except SensorError:
            return  # what is known so far is used; the next sample warns

    def _add_past(self, at_s: float, known: Offsets) -> None:
        found = self._brokers.offsets_at(self._partitions, at_s + self._time.ahead_s())
        # Where no record is that young, all known records had come before.
        ends = {name: min(found.get(name, offset), offset) for name, offset in known.items()}
        self._curve.add(at_s, ends)


def _rate_rps(before: tuple[float, Offsets], after: tuple[float, Offsets]) -> float | None:
    """Records per second between two instants, over the partitions known at both."""
    seconds = after[0] - before[0]
    if seconds <= 0.0:
        return None
    came = sum(end - before[1].get(name, end) for name, end in after[1].items())
    return max(0.0, came / seconds)


def client_settings(options: Mapping[str, str], gateway: Any = None) -> dict[str, Any]:
    """Settings for Penstock's client from the options of a Kafka source, security included.

    The Java process behind the `gateway` reads key stores that are not PEM.

    >>> settings = client_settings({
    ...     "subscribe": "bids",
    ...     "kafka.bootstrap.servers": "b1:9092,b2:9092",
    ...     "kafka.security.protocol": "SASL_SSL",
    ...     "kafka.sasl.mechanism": "SCRAM-SHA-512",
    ...     "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule '
    ...                               'required username="reader" password="a\\\\"b";',
    ... })
    >>> settings["sasl.username"], settings["sasl.password"], settings["security.protocol"]
    ('reader', 'a"b', 'SASL_SSL')
    """
    prefix = "kafka."
    given = {
        key.lower().removeprefix(prefix): value
        for key, value in options.items()
        if key.lower().startswith(prefix)
    }
    if not given.get("bootstrap.servers"):
        raise ConfigError("the Kafka source has no option kafka.bootstrap.servers")
    settings: dict[str, Any] = {key: given[key] for key in _SAME.split() if key in given}
    settings |= {ours: given[theirs] for theirs, ours in _RENAMED.items() if theirs in given}
    if "ssl.endpoint.identification.algorithm" in given:
        algorithm = given["ssl.endpoint.identification.algorithm"]
        settings["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    if "sasl.oauthbearer.token.endpoint.url" in settings:
        settings["sasl.oauthbearer.method"] = "oidc"
    pairs = _JAAS_PAIR.findall(given.get("sasl.jaas.config", ""))
    jaas = {key: re.sub(r"\\(.)", r"\1", quoted) or bare for key, quoted, bare in pairs}
    settings |= {_JAAS_LOGIN[key]: value for key, value in jaas.items() if key in _JAAS_LOGIN}
    if settings.get("sasl.mechanism") == MECHANISM:
        settings |= msk_settings(given["bootstrap.servers"], jaas)
    return settings | _store_settings(given, gateway)


def _store_settings(given: Mapping[str, str], gateway: Any) -> dict[str, str]:
    """Certificates and keys: files in PEM as they are, what Java key stores hold as text."""
    settings = {}
    if trusted := given.get("ssl.truststore.location"):
        if given.get("ssl.truststore.type", "JKS").upper() == "PEM":
            settings["ssl.ca.location"] = trusted
        else:
            password = given.get("ssl.truststore.password")
            settings["ssl.ca.pem"] = trusted_certificates(gateway, trusted, password)
    if keys := given.get("ssl.keystore.location"):
        if given.get("ssl.keystore.type", "JKS").upper() == "PEM":
            settings |= {"ssl.certificate.location": keys, "ssl.key.location": keys}
        else:
            passwords = given.get("ssl.keystore.password"), given.get("ssl.key.password")
            pem, chain = key_and_chain(gateway, keys, *passwords)
            settings |= {"ssl.key.pem": pem, "ssl.certificate.pem": chain}
    return settings
