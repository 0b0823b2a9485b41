"""Nothing in `src` waits for a use: what only tests reach is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.reachability import EXCEPTIONS, idle_names

INIT = '__all__ = ["count"]\nfrom penstock.words import count\n'
WORDS = """
class Word:
    def letters(self): return len(self.text)
    def __len__(self): return self.letters()
    def shout(self): return self.text.upper()

class Loud(Word): pass

def count(text): return [len(Word(each)) for each in text.split()]
def unused(text): return only_for_unused(text)
def only_for_unused(text): return unused(text)
def by_name(): pass
TABLE = {"by_name": by_name}
"""
APP = """
from importlib import import_module

def main(name):
    return import_module(f"penstock.cli.commands.{name}").run(), TABLES

TABLES = "penstock.words:TABLE"
"""
COMMAND = "def run(): pass\ndef forgotten(): pass\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": '[project.scripts]\npenstock = "penstock.cli.app:main"\n',
        "src/penstock/__init__.py": INIT,
        "src/penstock/words.py": WORDS,
        "src/penstock/cli/__init__.py": "",
        "src/penstock/cli/app.py": APP,
        "src/penstock/cli/commands/__init__.py": "",
        "src/penstock/cli/commands/tell.py": COMMAND,
        "tests/test_words.py": "from penstock.words import Loud, unused\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_no_entry_point_reaches_is_named(tree: Path) -> None:
    # Two functions that only call each other are idle; what a table names by text is not.
    assert idle_names(tree) == [
        "penstock.cli.commands.tell:forgotten",
        "penstock.words:Word.shout",
        "penstock.words:Loud",
        "penstock.words:unused",
        "penstock.words:only_for_unused",
    ]


def test_a_script_of_the_docs_or_benchmarks_is_a_use(tree: Path) -> None:
    (tree / "benchmarks").mkdir()
    script = "from penstock.words import Loud, unused\nunused(Loud().shout())\n"
    (tree / "benchmarks" / "speed.py").write_text(script)
    assert idle_names(tree) == ["penstock.cli.commands.tell:forgotten"]


def test_nothing_in_src_is_reached_only_by_tests() -> None:
    idle = idle_names()
    assert [name for name in idle if name not in EXCEPTIONS] == []
    assert sorted(EXCEPTIONS) == sorted(set(EXCEPTIONS) & set(idle)), "an exception is not needed"
