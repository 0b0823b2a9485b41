"""What [live] refuses: one sentence, before anything runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.core.errors import ConfigError
from penstock.settings.spark_conf import read_spark_conf
from penstock.settings.toml import parse


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('metrics = "9404"', "metrics must be HOST:PORT such as 127.0.0.1:9404, not '9404'"),
        ('metrics = "localhost:99999"', "not 'localhost:99999'"),
        ('metrics = "localhost:http"', "not 'localhost:http'"),
        ("metrics = 9404", "metrics = 9404: expected str, got int"),
        ('dashboard = "4041"', "dashboard must be HOST:PORT such as 127.0.0.1:9404, not '4041'"),
        ('webhook = "hooks.example.org"', "an address that begins with http:// or https://"),
        ('webhook = "file:///etc/passwd"', "an address that begins with http:// or https://"),
        ('log = "xml"', "log = 'xml': invalid enum value 'xml'"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse(f"[live]\n{text}", "penstock.toml")


def test_the_defaults_publish_nothing() -> None:
    live = parse("", "penstock.toml").live
    assert (live.metrics, live.dashboard, live.log, live.webhook) == ("", "", "text", "")
    assert (live.spark_metrics, live.opentelemetry) == (False, False)


def test_the_dashboard_is_a_setting_of_the_file_and_of_the_spark_configuration() -> None:
    assert parse('[live]\ndashboard = "[::1]:4041"', "penstock.toml").live.dashboard == "[::1]:4041"
    conf = {"spark.penstock.dashboard": "127.0.0.1:4041"}
    assert read_spark_conf(conf) == {"live": {"dashboard": "127.0.0.1:4041"}}


@pytest.mark.parametrize(
    ("setting", "what"), [("metrics", "metrics"), ("dashboard", "the dashboard")]
)
def test_a_port_in_use_is_refused_before_the_script_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, what: str
) -> None:
    job, config = tmp_path / "job.py", tmp_path / "penstock.toml"
    job.write_text("raise SystemExit(7)")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(f'[live]\n{setting} = "{where}"')
        with pytest.raises(SystemExit) as end:
            main(["run", "--config", str(config), str(job)])
    assert end.value.code == 2
    said = f"{what} cannot be served at {where}: Address already in use"
    assert said in capsys.readouterr().err
