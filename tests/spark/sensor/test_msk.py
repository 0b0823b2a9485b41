"""Amazon's signer as the source of tokens for our Kafka client; the signer here is a stand-in."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from penstock.core.errors import ConfigError
from penstock.spark.sensor.kafka import Brokers, client_settings

SERVERS = "b-1.jobs.x1.c2.kafka.eu-west-1.amazonaws.com:9098"
MODULE = "aws_msk_iam_sasl_signer"
EXPIRES_MS = 4_102_444_800_000


class Signer:
    """The calls of the signer, and what it was asked for."""

    asked: tuple[str, ...] = ()

    @classmethod
    def generate_auth_token(cls, *asked: str) -> tuple[str, int]:
        cls.asked = ("default", *asked)
        return "dG9rZW4", EXPIRES_MS

    @classmethod
    def generate_auth_token_from_role_arn(cls, *asked: str) -> tuple[str, int]:
        cls.asked = ("role", *asked)
        return "dG9rZW4", EXPIRES_MS

    @classmethod
    def generate_auth_token_from_profile(cls, *asked: str) -> tuple[str, int]:
        cls.asked = ("profile", *asked)
        return "dG9rZW4", EXPIRES_MS


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> type[Signer]:
    module = ModuleType(MODULE)
    module.MSKAuthTokenProvider = Signer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.delenv("AWS_REGION", raising=False)
    Signer.asked = ()
    return Signer


def options(servers: str = SERVERS, jaas: str = "") -> dict[str, str]:
    login = f"software.amazon.msk.auth.iam.IAMLoginModule required {jaas};"
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": login,
    }


@pytest.mark.parametrize(
    ("jaas", "asked"),
    [
        ("", ("default", "eu-west-1")),
        ('awsRoleArn="arn:aws:iam::1:role/r"', ("role", "eu-west-1", "arn:aws:iam::1:role/r")),
        ('awsProfileName="jobs"', ("profile", "eu-west-1", "jobs")),
    ],
)
def test_the_client_asks_the_signer_as_the_java_client_would(
    signer: type[Signer], jaas: str, asked: tuple[str, ...]
) -> None:
    settings = client_settings(options(jaas=jaas))
    assert settings["sasl.mechanism"] == "OAUTHBEARER"
    assert settings["oauth_cb"](None) == ("dG9rZW4", EXPIRES_MS / 1000.0)
    assert signer.asked == asked


def test_the_kafka_client_takes_the_token(signer: type[Signer]) -> None:
    settings = client_settings(options()) | {"bootstrap.servers": "127.0.0.1:1"}
    Brokers(settings)
    assert signer.asked == ("default", "eu-west-1")


def test_behind_other_names_the_region_comes_from_the_environment(
    signer: type[Signer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"^AWS_MSK_IAM needs a region: set AWS_REGION"):
        client_settings(options("kafka.example.org:9098"))
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    client_settings(options("kafka.example.org:9098"))["oauth_cb"](None)
    assert signer.asked == ("default", "us-east-2")


def test_without_the_signer_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    with pytest.raises(ConfigError, match=r"^AWS_MSK_IAM needs Amazon's signer: pip install aws-"):
        client_settings(options())
