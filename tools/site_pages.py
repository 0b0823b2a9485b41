"""Pages that the site has besides those in ``docs``; MkDocs calls this file as a hook.

CONTRIBUTING and CHANGELOG become pages, and so does every file or folder outside of ``docs`` that a
page links to: the site is complete without a network and without the repository.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from penstock.policies import POLICIES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Pages of the site that are files beside ``docs``.
OUTSIDE = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)([^)\s]*\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json"}


def on_config(config: MkDocsConfig) -> None:
    """List the pages of the policies below their table, the default first."""
    (reference,) = [each["Reference"] for each in config.nav or [] if "Reference" in each]
    (section,) = [each for each in reference if "Policies" in each]
    pages = [{name: f"policies/{name}.md"} for name in POLICIES]
    section["Policies"] = [{"All policies": "policies.md"}, *pages]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for name, path in OUTSIDE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "adr/index.md", content=decision_records()))
    linked = {
        target
        for file in files.documentation_pages()
        for _, link, _ in LINK.findall(file.content_string)
        if uri_of(target := target_of(file.src_uri, link)).startswith("source/")
    }
    for target in sorted(path for path in linked if path.exists()):
        files.append(File.generated(config, uri_of(target), content=source_page(target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Let links that leave ``docs`` lead to the page that stands for their target."""
    here = page.file.src_uri

    def replaced(match: re.Match[str]) -> str:
        target = target_of(here, match[2])
        if not target.exists():
            return match[0]  # MkDocs says that it is broken
        return match[1] + posixpath.relpath(uri_of(target), posixpath.dirname(here)) + match[3]

    return markdown if here.startswith("source/") else LINK.sub(replaced, markdown)


def target_of(page: str, link: str) -> Path:
    """The file that a link means, seen from where its page really is."""
    place = ROOT / OUTSIDE[page] if page in OUTSIDE else DOCS / page
    return (place.parent / link).resolve()


def uri_of(target: Path) -> str:
    """The page, or the picture, that stands for a file or a folder of the repository.

    >>> uri_of(DOCS / "live.md"), uri_of(ROOT / "CHANGELOG.md"), uri_of(DOCS / "adr")
    ('live.md', 'changelog.md', 'adr/index.md')
    >>> uri_of(ROOT / "examples" / "own_policy.py")
    'source/examples/own_policy.py.md'
    """
    for name, path in OUTSIDE.items():
        if target == ROOT / path:
            return name
    if target == DOCS / "adr":
        return "adr/index.md"
    if target.is_relative_to(DOCS) and target.suffix in {".md", ".png", ".svg"}:
        return target.relative_to(DOCS).as_posix()
    return f"source/{target.relative_to(ROOT).as_posix()}.md"


def source_page(target: Path) -> str:
    """A file as code, or the list of what is in a folder."""
    name = target.relative_to(ROOT).as_posix()
    head = f"---\nhide: [navigation, toc]\nsearch:\n  exclude: true\n---\n# {name}\n\n"
    if target.is_dir():
        entries = sorted(each for each in target.iterdir() if each.name[0] not in "_.")
        return head + "\n".join(f"- `{each.name}`{_about(each)}" for each in entries) + "\n"
    text = target.read_text(encoding="utf-8")
    return f"{head}````{LANGUAGES.get(target.suffix, '')}\n{text}````\n"


def _about(path: Path) -> str:
    """The first line of a module's docstring."""
    if path.suffix != ".py":
        return ""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return f": {text.splitlines()[0]}" if text else ""


def decision_records() -> str:
    """The list of the decision records."""
    lines = ["# Decision records", "", "Decisions that may surprise, each with its reasons."]
    for path in sorted((DOCS / "adr").glob("0*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        number, _, words = title.partition(". ")
        lines += [""] if number == "1" else []
        lines.append(f"{number}. [{words}]({path.name})")
    return "\n".join(lines) + "\n"
