"""The site: strict about its links, and complete without a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.policies import POLICIES

ROOT = Path(__file__).parents[1]


def build(target: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*command, str(target)], cwd=ROOT, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    remote = re.compile(
        r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//[^"'\s>]+"""
        r"""|<link[^>]*rel=["']?(?:stylesheet|preconnect|icon|preload)[^>]*href=["']?(?:https?:)?//"""
        r"""|@import\s+url\(["']?https?:|url\(["']?https?:"""
    )
    found = {
        match[0]
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        for match in remote.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.slow
def test_scripts_and_data_of_the_docs_are_no_pages(site: Path) -> None:
    files = [path.relative_to(site) for path in site.rglob("*") if path.is_file()]
    assert [str(path) for path in files if path.suffix in {".py", ".toml"}] == []
    assert [str(path) for path in files if "live" in path.parts and path.suffix == ".json"] == []


@pytest.mark.slow
def test_search_knows_every_page_of_the_navigation(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    known = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = re.findall(r": ([\w/-]+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert len(pages) > 30
    expected = {"" if page == "index" else f"{page.removesuffix('/index')}/" for page in pages}
    expected |= {f"policies/{name}/" for name in POLICIES}
    assert expected <= known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("[gone](nowhere.md)", "nowhere.md"),
        ("[gone](other.md#no-such-heading)", "no-such-heading"),
    ],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, page: str, complaint: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A\n\n{page}\n", encoding="utf-8")
    (tmp_path / "docs" / "other.md").write_text("# B\n", encoding="utf-8")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^nav:.*", "", settings, flags=re.MULTILINE | re.DOTALL)
    settings = re.sub(r"^(hooks|extra_css):.*$", "", settings, flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert complaint in done.stderr
