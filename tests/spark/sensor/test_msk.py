"""Amazon's signer as the source of tokens for our Kafka client; its cloud is a server in here."""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.spark.sensor.kafka import Brokers, client_settings

SERVERS = "b-1.jobs.x1.c2.kafka.eu-west-1.amazonaws.com:9098"
ROLE = "arn:aws:iam::123456789012:role/reader"
ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>ROLEKEY</AccessKeyId>
<SecretAccessKey>role-secret</SecretAccessKey><SessionToken>role-session</SessionToken>
<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>
</AssumeRoleResponse>"""


class TokenService(BaseHTTPRequestHandler):
    """Gives the credentials of a role, and keeps what it was asked for."""

    asked: list[dict[str, list[str]]]

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.asked.append(parse_qs(self.rfile.read(length).decode()))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ANSWER.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, list[str]]]]:
    """What a token service on the loopback interface is asked; nothing else is reachable."""
    TokenService.asked = []
    (tmp_path / "credentials").write_text(
        "[jobs]\naws_access_key_id = PROFILEKEY\naws_secret_access_key = profile-secret\n"
    )
    with HTTPServer(("127.0.0.1", 0), TokenService) as server:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "DEFAULTKEY")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "default-secret")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        answering = threading.Thread(target=server.serve_forever, args=(0.05,))
        answering.start()
        yield TokenService.asked
        server.shutdown()
        answering.join()


def options(servers: str = SERVERS, jaas: str = "") -> dict[str, str]:
    login = f"software.amazon.msk.auth.iam.IAMLoginModule required {jaas};"
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": login,
    }


def signed(settings: dict[str, object]) -> tuple[str, dict[str, list[str]], float]:
    """The host and the query of the URL that is a token, and when it expires."""
    callback = settings["oauth_cb"]
    assert callable(callback)
    token, expires_s = callback(None)
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return url.netloc, parse_qs(url.query), expires_s


@pytest.mark.parametrize(
    ("jaas", "key"),
    [
        ("", "DEFAULTKEY"),
        (f'awsRoleArn="{ROLE}"', "ROLEKEY"),
        ('awsProfileName="jobs"', "PROFILEKEY"),
    ],
)
def test_tokens_are_those_that_the_java_client_would_get(
    cloud: list[dict[str, list[str]]], jaas: str, key: str
) -> None:
    settings = client_settings(options(jaas=jaas))
    assert settings["sasl.mechanism"] == "OAUTHBEARER"
    host, query, expires_s = signed(settings)
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith(f"{key}/")
    assert 60.0 < expires_s - WallClock().now() <= 900.0
    assert [asked["RoleArn"] for asked in cloud] == ([[ROLE]] if key == "ROLEKEY" else [])


def test_the_kafka_client_asks_for_a_token(cloud: list[dict[str, list[str]]]) -> None:
    role = client_settings(options(jaas=f'awsRoleArn="{ROLE}"'))
    Brokers(role | {"bootstrap.servers": "127.0.0.1:1"})
    assert cloud


@pytest.mark.usefixtures("cloud")
def test_behind_other_names_the_region_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match=r"^AWS_MSK_IAM needs a region: set AWS_REGION"):
        client_settings(options("kafka.example.org:9098"))
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    host, _, _ = signed(client_settings(options("kafka.example.org:9098")))
    assert host == "kafka.us-east-2.amazonaws.com"


def test_without_the_signer_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"^AWS_MSK_IAM needs Amazon's signer: pip install "):
        client_settings(options())
