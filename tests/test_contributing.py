"""CONTRIBUTING shows a policy and commands that work."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock.cli.app import main
from penstock.core.protocols import Policy
from penstock.policies.checks import yield_checks

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COMMANDS = [
    line.strip().replace("NAME", "static")
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.strip().splitlines()
]


@pytest.fixture
def example(tmp_path: Path) -> Iterator[ModuleType]:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "patience.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("patience", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["patience"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["patience"]


def test_the_example_keeps_the_contract_and_its_own_example_runs(example: ModuleType) -> None:
    policy: Policy = example.Patience()
    for check in yield_checks(policy):
        check()
    found = doctest.testmod(example, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 3
    assert found.failed == 0


def test_every_make_target_and_every_file_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    mentioned = (
        " ".join(re.findall(r"`make ([a-z -]+)[`&]", TEXT))
        + " "
        + " ".join(
            command.removeprefix("make ") for command in COMMANDS if command.startswith("make ")
        )
    )
    for target in mentioned.split():
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"
    for link in re.findall(r"\]\(([\w./-]+)\)", TEXT):
        assert (ROOT / link).exists(), f"no file {link}"
    for command in COMMANDS:
        if command.startswith("pytest "):
            assert (ROOT / command.split()[1]).exists()


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command.startswith("penstock compare")]
)
def test_the_comparison_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command.split()[1:]
    short = {"2h": "20min", "1..3": "1", "sine": "constant:20k"}
    arguments = [short.get(word, word) for word in arguments]
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--no-regret", "--processes", "1"])
    assert "static" in capsys.readouterr().out


def test_a_journal_is_written_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    simulate, explain = (
        command.replace("static", "ds2").split()[1:]
        for command in COMMANDS
        if command.startswith(("penstock simulate", "penstock explain"))
    )
    for arguments in (simulate, explain):
        with pytest.raises(SystemExit, match="0"):
            main(arguments)
    assert "→" in capsys.readouterr().out
