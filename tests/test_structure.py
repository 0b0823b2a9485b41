"""Rules about the source as a whole."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from docs import generate
from tools import duplicates

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MAX_LINES = 500


def test_every_class_name_stands_once_in_src() -> None:
    names = Counter(
        node.name
        for path in SOURCES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_package_says_what_lives_there() -> None:
    packages = [path for path in SOURCES if path.name == "__init__.py"]
    silent = [
        str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_no_file_is_too_long_to_read() -> None:
    lengths = {str(path): len(path.read_text("utf-8").splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_a_copied_block_is_found_and_named_with_both_places() -> None:
    block = "\n".join(f"value_{n} = compute({n})" for n in range(10))
    found = list(
        duplicates.duplicates({"a.py": f"import os\n\n{block}", "b.py": f"x = 1\n{block}"})
    )
    assert found == [("a.py:3", "b.py:2", 10)]
    shorter = block.rpartition("\n")[0]
    assert list(duplicates.duplicates({"a.py": block, "b.py": shorter})) == []


def test_the_figure_of_the_layers_is_that_of_the_contracts_and_names_every_package() -> None:
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    figure = generate.layers(contracts)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert figure in page
    named = [line.split()[0] for line in figure.splitlines()[1:-1]]
    packages = [path.parent.name for path in (ROOT / "src" / "penstock").glob("*/__init__.py")]
    assert sorted(named) == sorted(packages)
    other = contracts.replace(
        '"penstock.cli",\n  "penstock.lab",', '"penstock.lab",\n  "penstock.cli",'
    )
    assert generate.layers(other) != figure


def test_the_folders_of_the_tests_mirror_those_of_the_source() -> None:
    source = ROOT / "src" / "penstock"
    packages = {path.parent.relative_to(source) for path in source.rglob("__init__.py")}
    tested = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/**/test_*.py")}
    whole = ("chaos", "conformance", "fuzz", "recorded", "survival", "versions")
    of_the_whole = {Path(each) for each in whole}
    assert sorted(map(str, tested - packages - of_the_whole)) == []
    assert {path.parts[0] for path in packages if path.parts} <= {
        path.parts[0] for path in tested if path.parts
    }
