"""The watch over a real broker with TLS, passwords and ACLs: it works, or one sentence says why."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigError, SensorError
from penstock.spark.sensor.kafka import Brokers, KafkaWatch, client_settings
from penstock.testbed import wait_until
from tests.drivers import java_gateway
from tests.secure_broker import PASSWORD, STORE_PASSWORD, SecureBroker, secure_broker
from tests.spark.sensor.test_kafka_watch import processed, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Its user may read the offsets of `bids`, and nothing of `asks`."""
    with secure_broker(tmp_path_factory.mktemp("secure")) as running:
        for topic in ("bids", "asks"):
            running.plain.create_topic(topic, 1)
        running.allow("bids", "DESCRIBE")
        yield running


@pytest.fixture(scope="module")
def gateway() -> Iterator[Any]:
    with java_gateway() as started:
        yield started


def ends(brokers: Brokers, topic: str = "bids") -> Any:
    """The end offsets, when the first connection is made; an answer that is final ends it too."""
    found: list[Any] = []

    def answered() -> bool:
        try:
            found[:] = [brokers.end_offsets([(topic, 0)])]
        except SensorError as error:
            found[:] = [str(error)]
            return " within " not in found[0] and "timed out" not in found[0].lower()
        return True

    wait_until(answered, PATIENCE_S, f"no answer: {found}")
    return found[0]


def stores(broker: SecureBroker, kind: str, *, key: bool = False) -> dict[str, str]:
    trust = {
        "truststore.location": str(broker.directory / f"trust.{kind}"),
        "truststore.password": STORE_PASSWORD,
    }
    keys = {
        "keystore.type": "PKCS12",
        "keystore.location": str(broker.directory / "valid.p12"),
        "keystore.password": STORE_PASSWORD,
    }
    return trust | (keys if key else {})


def test_certificates_in_pem_and_a_password_with_quotes(broker: SecureBroker) -> None:
    assert ends(Brokers(client_settings(broker.options()))) == {("bids", 0): 0}


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_java_key_stores_are_read_by_java(broker: SecureBroker, gateway: Any, kind: str) -> None:
    settings = client_settings(broker.options(stores(broker, kind, key=True)), gateway)
    assert settings["ssl.ca.pem"].count("BEGIN CERTIFICATE") == 1
    assert settings["ssl.key.pem"].startswith("-----BEGIN PRIVATE KEY-----")
    assert ends(Brokers(settings)) == {("bids", 0): 0}


def test_a_store_with_another_password_or_of_another_kind_is_one_sentence(
    broker: SecureBroker, gateway: Any, tmp_path: Path
) -> None:
    wrong = stores(broker, "jks") | {"truststore.password": "not-the-password"}
    with pytest.raises(ConfigError, match=r"^the trust store .*trust.jks cannot be read: ") as said:
        client_settings(broker.options(wrong), gateway)
    assert "not-the-password" not in str(said.value)
    absent = {"keystore.location": str(tmp_path / "gone.jks"), "keystore.password": "x"}
    with pytest.raises(ConfigError, match=r"^the key store .*gone.jks cannot be read: "):
        client_settings(broker.options(absent), gateway)
    no_key = {**stores(broker, "jks"), "keystore.location": str(broker.directory / "trust.jks")}
    no_key["keystore.password"] = STORE_PASSWORD
    with pytest.raises(ConfigError, match=r"^the key store .*trust.jks has no key$"):
        client_settings(broker.options(no_key), gateway)


def test_a_certificate_that_has_expired_is_named_as_the_cause(broker: SecureBroker) -> None:
    said = ends(Brokers(client_settings(broker.options(expired=True))))
    assert said.startswith("Kafka offsets cannot be read: sasl_ssl://127.0.0.1:")
    assert said.endswith(": its certificate is not valid now, or the trust store lacks its issuer")


def test_a_wrong_password_is_named_as_the_cause_and_not_shown(broker: SecureBroker) -> None:
    said = ends(Brokers(client_settings(broker.options(password="wrong-4711"))))
    assert said.startswith("Kafka offsets cannot be read: ")
    assert "authentication" in said.lower()
    assert "wrong-4711" not in said


def test_a_user_who_may_not_read_offsets_is_a_warning_and_the_watch_goes_on(
    broker: SecureBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka hides topics that a user may not see: they are said to be unknown."""
    caplog.set_level(logging.INFO)
    watch = KafkaWatch(Brokers(client_settings(broker.options())), every_s=0.2)
    try:
        watch.take(*processed({"0": 0}, "asks"))
        wait_until(
            lambda: read(watch).backlog_records is None and "the lag is unknown" in caplog.text,
            PATIENCE_S,
            "nothing was said",
        )
        broker.allow("asks", "DESCRIBE")
        wait_until(lambda: read(watch).backlog_records == 0.0, PATIENCE_S, "it stays unknown")
    finally:
        watch.close()
    said = [each for each in caplog.messages if "the lag is unknown" in each]
    assert said[0].startswith("Kafka offsets cannot be read")
    assert PASSWORD not in caplog.text


def test_a_mechanism_that_our_client_does_not_have_is_one_sentence(broker: SecureBroker) -> None:
    options = broker.options() | {"kafka.sasl.mechanism": "NO-SUCH"}
    with pytest.raises(ConfigError, match=r"^no Kafka client can be made: .*mechanism") as said:
        Brokers(client_settings(options))
    assert PASSWORD not in str(said.value)
