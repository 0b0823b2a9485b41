"""The pages for readers: links that lead somewhere, and words that a stranger would search for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.app import main

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "adr").glob("*.md"),
        *(ROOT / "docs" / "howto").glob("*.md"),
        *(ROOT / "docs" / "policies").glob("*.md"),
    ]
)
#: Phrases of the authors that nobody else would use or search for.
PRIVATE = re.compile(
    r"\b(so many|anew|in earnest|on paper|by lot|wish(es)?|bent|quickened|mend(s|ed|ing|ings)?|"
    r"reckoned|as ever|told apart|astray)\b"
)
#: Words that docs/glossary.md has to define.
WORDS = """
executor fleet target turn step snapshot decision reason guard limit policy surge scenario
regret oracle SLO late delay backlog lag capacity
"""


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith(("http:", "https:")):
            continue
        name, _, heading = link.partition("#")
        place = (page.parent / name).resolve() if name else page
        text = place.read_text(encoding="utf-8") if place.suffix == ".md" and place.exists() else ""
        headings = {anchor(found) for found in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
        if not place.exists() or (heading and heading not in headings):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_private_phrases(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if PRIVATE.search(line)] == []


def test_the_glossary_defines_each_word_once_in_order() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    defined = re.findall(r"^\| ([^|`]+?) \| ", page, re.MULTILINE)[1:]
    assert set(defined) >= set(WORDS.split())
    assert defined == sorted(set(defined), key=str.lower)


def test_the_adrs_have_numbers_of_their_own() -> None:
    numbers = [page.name[:4] for page in PAGES if page.parent.name == "adr"]
    assert len(set(numbers)) == len(numbers)
    for page in PAGES:
        if page.parent.name == "adr":
            first = page.read_text(encoding="utf-8").splitlines()[0]
            assert first.startswith(f"# {int(page.name[:4])}. ")


def shell_lines() -> list[str]:
    """The calls of ``penstock`` in the pages that users read."""
    names = ["advise", "index", "live", "testbed", "troubleshooting", "tutorial", "when-not-to-use"]
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs" / f"{name}.md" for name in names),
        *sorted((ROOT / "docs" / "howto").glob("*.md")),
    ]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    found = re.findall(r"^(penstock .*?)(?:\s+#.*)?$", text, re.MULTILINE)
    return sorted({*found, *re.findall(r"`(penstock [a-z-]+ [^`]*--[^`]*)`", text)})


def test_the_readme_is_a_screen_and_a_half_of_things_that_exist() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 75
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z-]+)", page):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in re.findall(r"pip install \"penstock\[(\w+)\]\"", page):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"no extra {extra}"
    # Fenced code only: nothing is code because it is indented.
    outside = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    assert [line for line in outside.splitlines() if line.startswith("    ")] == []


def test_the_policy_of_the_how_to_runs_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "write-a-policy.md").read_text(encoding="utf-8")
    (script,) = re.findall(r'```python title="halves.py"\n(.*?)```', page, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "halves.py").write_text(script, encoding="utf-8")
    argv = [sys.executable, "halves.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(re.escape(shown).replace(r"\.\.\.", ".*"), done.stdout)


@pytest.mark.parametrize("line", shell_lines())
def test_every_command_and_option_in_the_docs_exists(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split()
    own = words[: next((i for i, word in enumerate(words) if word.endswith(".py")), len(words))]
    with pytest.raises(SystemExit) as ended:
        main([words[1], "--help"])
    assert ended.value.code == 0
    options = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    assert {word for word in own if word.startswith("--")} <= options
