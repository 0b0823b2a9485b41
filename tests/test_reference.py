"""The generated reference says everything that the code can do."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from tools.reason_codes import find_codes

import penstock
from penstock.core.journal import JournalHeader
from penstock.core.model import Step
from penstock.observe.recording import read_journal
from penstock.policies import POLICIES
from penstock.settings.spark_conf import KEYS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CODES = tomllib.loads((DOCS / "reason_codes.toml").read_text(encoding="utf-8"))
#: What older journals have; docs/reason-codes.md says what became of it.
FORMER = {"more_will_not_help"}
PACKAGED = ROOT / "src" / "penstock"


def test_every_reason_code_of_the_source_has_an_entry_and_no_other() -> None:
    assert set(CODES) == set(find_codes())


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_code_that_a_policy_gives_has_an_entry(name: str) -> None:
    run = penstock.simulate(name, "flash_crowd", duration_s=4000)
    given = {reason.code for step in run.steps for reason in step.decision.reasons}
    assert given <= set(CODES)


@pytest.mark.parametrize("path", sorted((ROOT / "tests/recorded").glob("*.jsonl")), ids=str)
def test_every_code_in_a_journal_of_a_real_run_has_an_entry(path: Path) -> None:
    steps = read_journal(path).steps
    given = {reason.code for step in steps for reason in step.decision.reasons}
    assert given <= set(CODES) | FORMER


SOURCE = """
from typing import Literal, NamedTuple
Cause = Literal["wide", "narrow"]

class Choice(NamedTuple):
    size: int
    code: str

def hold(size, code): return Reason(code, "")
def both(): return "first", "text"

def decide(x):
    code = "up" if x else "down"
    other, code = 1, "third"
    code, text = both()
    choice = Choice(3, "chosen")
    return Reason("direct", ""), Reason(code, ""), hold(1, "held"), Reason(choice.code, "")
"""


def test_codes_are_found_however_they_reach_a_reason(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "rule.py").write_text(SOURCE, encoding="utf-8")
    expected = ["wide", "narrow", "up", "down", "third", "first", "chosen", "direct", "held"]
    assert set(find_codes(tmp_path)) == set(expected)


def test_a_code_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "rule.py").write_text("x = Reason(words[0], '')", encoding="utf-8")
    with pytest.raises(ValueError, match=r"rule:1: no code can be read from words\[0\]"):
        find_codes(tmp_path)


def test_every_setting_of_the_spark_configuration_is_on_the_page() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page] == []


def test_the_journal_on_the_page_can_be_read() -> None:
    page = (DOCS / "journal.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    header, step = block.strip().splitlines()
    assert msgspec.json.decode(header, type=JournalHeader).limits["max_executors"] == 16
    assert msgspec.json.decode(step, type=Step).decision.target_executors == 5
    assert json.loads(step)["receipt"] == {"accepted": True}


def test_every_data_file_of_the_package_has_its_origin_and_licence() -> None:
    page = (DOCS / "data.md").read_text(encoding="utf-8")
    code = {".py", ".pyc", ".toml", ".md", ".js", ".css", ".html", ".sh", ".go", ".typed"}
    code.add(".properties")
    data = [path for path in PACKAGED.rglob("*") if path.is_file() and path.suffix not in code]
    assert len(data) >= 6
    assert [str(path) for path in data if path.name not in page] == []
