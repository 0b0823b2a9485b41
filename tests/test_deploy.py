"""What is ready to deploy: alert rules, dashboard and manifests speak of metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from penstock.observe.metrics import METRICS, PREFIX

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES = DEPLOY / "prometheus" / "penstock-alerts.yaml"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    binary = shutil.which("promtool")
    if binary is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    return subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_metric_that_a_file_names_is_in_the_table_with_its_labels(path: Path) -> None:
    text = path.read_text("utf-8")
    for name, labels in re.findall(rf"\b{PREFIX}(\w+)(?:\{{([^}}]*)\}})?", text):
        assert name in METRICS, name
        own = set(re.findall(r"(\w+)=", labels)) - {"app", "instance"}
        assert own <= set(METRICS[name].labels)


def test_the_dashboard_shows_every_metric_that_changes_and_is_importable() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "penstock.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    shown = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(rf"{PREFIX}(\w+)", target["expr"])
    }
    settings = {"max_cost_per_day", "forecast_horizon_seconds", "last_turn_timestamp_seconds"}
    details = {"partitions", "state_bytes", "acting", "saved_cost_total", "recommended_cost_total"}
    assert set(METRICS) - shown == settings | details


def test_the_rules_are_valid_and_each_alert_fires_and_resolves_as_its_cases_say() -> None:
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stderr
    tested = promtool("test", "rules", str(RULES.with_name("penstock-alerts-test.yaml")))
    assert tested.returncode == 0, tested.stdout + tested.stderr
    cases = RULES.with_name("penstock-alerts-test.yaml").read_text("utf-8")
    for alert in re.findall(r"- alert: (\w+)", RULES.read_text("utf-8")):
        assert f"alertname: {alert}\n        exp_alerts:\n          - exp_labels" in cases
        assert f"alertname: {alert}, exp_alerts: []" in cases


def test_a_rule_with_another_threshold_fails_its_case(tmp_path: Path) -> None:
    """The cases can fail."""
    text = RULES.read_text("utf-8")
    for old, new in (
        ("> 0.1\n", "> 0.9\n"),
        ("for: 15m", "for: 25m"),
        ("_failed == 1", "_failed > 1"),
    ):
        (tmp_path / RULES.name).write_text(text.replace(old, new))
        cases = tmp_path / "penstock-alerts-test.yaml"
        shutil.copy(RULES.with_name(cases.name), cases)
        assert promtool("test", "rules", str(cases)).returncode == 1, old


def test_the_rules_of_the_operator_are_the_same() -> None:
    manifest = (DEPLOY / "kubernetes" / "prometheusrule.yaml").read_text("utf-8")
    rules = RULES.read_text("utf-8").partition("groups:\n")[2]
    assert dedent(manifest.partition("groups:\n")[2]) == dedent(rules)
    assert "- alert: PenstockFailed" in rules
