"""Docstrings of policies and settings as plain text, in sections and by parameter."""

import dataclasses
import re
from typing import Any

import msgspec

from penstock.policies.documentation import documentation, parameters


def sections(kind: type[Any]) -> dict[str, str]:
    """The parts of a docstring by heading; what stands above the first has an empty one.

    >>> from penstock.policies.static import Static
    >>> list(sections(Static))[:2]
    ['', 'Parameters']
    """
    parts = re.split(r"^(\S[^\n]*)\n-{3,}\n", documentation(kind), flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], (text.strip() for text in parts[::2]), strict=True))


def plain(text: str) -> str:
    """Without the marks of reStructuredText, and each paragraph in one line.

    >>> plain("Holds ``n``\\nexecutors.\\n\\nNo `more`.")
    'Holds n executors.\\n\\nNo more.'
    """
    paragraphs = re.sub(r"`+", "", text).replace("::\n", ":\n").split("\n\n")
    return "\n\n".join(
        each if each.startswith(" ") else " ".join(each.split()) for each in paragraphs
    )


def parameter_texts(kind: type[Any]) -> dict[str, str]:
    """The sentences of a docstring's Parameters section, by parameter.

    >>> from penstock.settings.toml import JournalSettings
    >>> parameter_texts(JournalSettings)["keep"]
    'How many rotated files stay.'
    """
    found = parameters(documentation(kind))
    return {name: plain(text) for names, text in found for name in names}


def defaults(kind: type[Any]) -> dict[str, Any]:
    value = kind()
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
