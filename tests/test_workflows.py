"""The files that GitHub reads: valid, and they call only what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_can_be_read_and_each_field_has_a_label(path: Path) -> None:
    for field in read(path).get("body", []):
        assert field["type"] in {"textarea", "input", "dropdown", "checkboxes", "markdown"}
        assert field["attributes"]["label"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_targets_and_files_that_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = "\n".join(step["run"] for step in steps(path) if "run" in step)
    for target in re.findall(r"\bmake ([a-z-]+)", commands):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"
    for name in re.findall(r"\b(?:tests|docs)/[\w/]+\.py\b", commands):
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_step_runs_or_uses_a_fixed_version_and_rights_are_few(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        assert "uses" not in step or re.fullmatch(r"[\w./-]+@[\w./]+", step["uses"])
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert "needs" not in job or job["needs"] in workflow["jobs"]
