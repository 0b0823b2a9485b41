"""A real Prometheus on loopback, with the alert rules of deploy/."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from penstock.testbed import wait_until

DEPLOY = Path(__file__).parents[1] / "deploy"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prometheus:
    """Its HTTP interface."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str) -> Any:
        with urlopen(f"{self._url}/api/v1/{path}") as answer:
            return json.load(answer)["data"]

    def has(self, expression: str) -> bool:
        return bool(self.ask(f"query?query={quote(expression)}")["result"])

    def alerts(self) -> set[str]:
        found = self.ask("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in found if each["state"] == "firing"}

    def is_up(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready"):
                return True
        except OSError:
            return False


@contextmanager
def running_prometheus(metrics_port: int, home: Path) -> Iterator[Prometheus]:
    """One that scrapes the endpoint every second; the test is skipped where there is none."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("there is no prometheus: apt-get install prometheus")
    port, targets = free_port(), [{"targets": [f"127.0.0.1:{metrics_port}"]}]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(DEPLOY / "prometheus" / "penstock-alerts.yaml")],
        "scrape_configs": [{"job_name": "spark", "static_configs": targets}],
    }
    (home / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [
        binary, f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(command) as process:
        try:
            found = Prometheus(port)
            wait_until(found.is_up, 60.0, "prometheus does not start")
            yield found
        finally:
            process.terminate()


def dashboard_queries() -> list[str]:
    """The queries of the panels, with the variables of Grafana replaced."""
    dashboard = json.loads((DEPLOY / "grafana" / "penstock.json").read_text("utf-8"))
    return [
        expr.replace("$instance", ".*").replace("$__rate_interval", "1m")
        for panel in dashboard["panels"]
        for expr in (target["expr"] for target in panel["targets"])
    ]
