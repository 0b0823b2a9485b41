"""``penstock init``: a penstock.toml with every setting, its default and its meaning."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.cli.views.output import console, print_json, write_new
from penstock.core.errors import unknown
from penstock.core.model import Limits
from penstock.policies import DEFAULT_POLICY, POLICIES
from penstock.settings.goal import Goal
from penstock.settings.live import LiveSettings
from penstock.settings.toml import FILE_NAME, JournalSettings, parse


def init(
    path: Path = Path(FILE_NAME),
    /,
    *,
    policy: str = DEFAULT_POLICY,
    json: Annotated[bool, Parameter(help="Say as JSON what was written.")] = False,
) -> int:
    """Write a commented penstock.toml. An existing file is never touched.

    Parameters
    ----------
    path
        Where to write it.
    policy
        The policy whose parameters it lists.
    """
    if policy not in POLICIES:
        raise unknown("policy", policy, POLICIES)
    text = document(policy)
    parse(text, str(path))
    write_new(path, text)
    if json:
        print_json({"written": str(path), "policy": policy})
    else:
        console().print(f"wrote {path} with policy {policy}; `penstock policies` lists others")
    return 0


def document(policy: str) -> str:
    """The text of a penstock.toml: defaults as comments, so that only what is changed stands out.

    >>> print(document("static"))  # doctest: +ELLIPSIS
    # Penstock settings. Everything has a default; uncomment what you change.
    <BLANKLINE>
    [policy]
    name = "static"
    # The size of the fleet.
    # executors = 12
    ...
    """
    kind = POLICIES[policy]
    parameters = {
        field.name: getattr(kind(), field.name)
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    }
    limits = {**msgspec.structs.asdict(kind.default_limits)}
    tables = [
        ("policy", [f'name = "{policy}"', *_lines(kind, parameters)]),
        ("limits", _lines(Limits, limits)),
        ("goal", _lines(Goal, msgspec.structs.asdict(Goal()))),
        ("journal", _lines(JournalSettings, msgspec.structs.asdict(JournalSettings()))),
        ("live", _lines(LiveSettings, msgspec.structs.asdict(LiveSettings()))),
    ]
    head = "# Penstock settings. Everything has a default; uncomment what you change.\n"
    return head + "".join(f"\n[{name}]\n" + "\n".join(lines) + "\n" for name, lines in tables)


def _lines(kind: type[Any], values: dict[str, Any]) -> list[str]:
    """Each setting as a comment, below the words of its docstring."""
    words = parameter_words(kind)
    lines: list[str] = []
    for name, value in values.items():
        text = words.get(name)
        if text is not None and f"# {text}" not in lines:
            lines.append(f"# {text}")
        lines.append(f"# {name} = {toml(value)}" if _plain(value) else f"# {name}: not set")
    return lines


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def toml(value: bool | float | str) -> str:
    """A value as TOML writes it.

    >>> toml(True), toml(0.5), toml("never")
    ('true', '0.5', '"never"')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def parameter_words(kind: type[Any]) -> dict[str, str]:
    """The sentences of a docstring's Parameters section, by parameter.

    >>> parameter_words(JournalSettings)["keep"]
    'How many rotated files stay.'
    """
    doc = inspect.getdoc(kind) or ""
    section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n\S[^\n]*\n-+\n|\Z)", doc, re.DOTALL)
    words: dict[str, str] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else ():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(",")]
        elif line.strip():
            for name in names:
                words[name] = f"{words.get(name, '')} {line.strip()}".strip()
    return words
