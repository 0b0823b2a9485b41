"""What users may import, and that it costs nothing until it is used."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

PUBLIC = {
    "__version__", "attach", "Attachment", "simulate", "compare", "read_journal", "read_journals",
    "checks",
    "Policy", "Snapshot", "Fleet", "Batch", "ExecutorSample", "OperatorSample",
    "Knowledge", "Decision", "Reason", "Limits", "Goal", "Step",
    "not_measured", "read_policy_spec",
    "PenstockError", "ConfigError", "SensorError", "ActuatorError",
}  # fmt: skip


def test_the_public_names_are_exactly_these() -> None:
    assert set(penstock.__all__) == PUBLIC
    assert set(dir(penstock)) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(penstock, name)
    text = inspect.getdoc(value)
    assert text, f"{name} has no docstring"
    assert not text.startswith(f"{name}("), f"{name} has only the docstring that its class made up"
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page or f"`{name}(" in page, f"docs/api.md does not name {name}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(penstock, "nothing")  # noqa: B009


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh Python has after the statement and had not before."""
    code = (
        "import sys, json; before = set(sys.modules)\n"
        f"{statement}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


def test_importing_the_package_loads_nothing_else() -> None:
    assert loaded_by("import penstock") == {"penstock"}


@pytest.mark.parametrize(
    "name", ["Policy", "Snapshot", "Decision", "Limits", "Knowledge", "ConfigError", "Goal"]
)
def test_values_and_errors_load_neither_numpy_nor_pyspark(name: str) -> None:
    loaded = loaded_by(f"from penstock import {name}")
    assert not loaded & {"numpy", "pyspark", "rich", "cyclopts"}


def test_the_lab_loads_no_pyspark() -> None:
    loaded = loaded_by("from penstock import simulate, compare, read_journal, checks")
    assert "pyspark" not in loaded


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each import of the package: the local name, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield each.asname or each.name, each.name
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def uses(tree: ast.AST) -> Iterator[str]:
    """Each dotted name of the package that a program imports or reaches through an import."""
    names = {name: dotted for name, dotted in imported(tree) if dotted.startswith("penstock")}
    yield from (dotted for dotted in names.values() if dotted != "penstock")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if names.get(first) in {"penstock", "penstock.checks"}:
                yield f"{names[first]}.{rest}"


def not_public(source: str) -> list[str]:
    allowed = {f"penstock.{name}" for name in PUBLIC}
    allowed |= {f"penstock.checks.{name}" for name in penstock.checks.__all__}
    return [name for name in uses(ast.parse(source)) if name not in allowed]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_use_only_public_names(path: Path) -> None:
    assert not_public(path.read_text(encoding="utf-8")) == []


def python_of(page: str) -> str:
    """The Python of a Markdown page: fenced blocks and doctests."""
    fenced = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    prompts = re.compile(r"^(?:>>>|\.\.\.) ?(.*)$", re.MULTILINE)
    blocks = [block for block in fenced if ">>>" not in block]
    return "\n".join([*blocks, *prompts.findall(page)])


@pytest.mark.parametrize("name", ["README.md", "docs/api.md"])
def test_the_pages_use_only_public_names(name: str) -> None:
    source = python_of((ROOT / name).read_text(encoding="utf-8"))
    assert "penstock" in source
    assert not_public(source) == []


def test_private_names_are_found() -> None:
    source = "import penstock\nfrom penstock.core.model import Step\npenstock.lab.api.simulate"
    assert not_public(source) == [
        "penstock.core.model.Step",
        "penstock.lab.api.simulate",
        "penstock.lab.api",
        "penstock.lab",
    ]
