"""Docstrings as the site shows them: examples are code; mkdocstrings calls this extension."""

import re
from typing import Any

import griffe

from penstock.policies.documentation import parameters

DOCTEST = re.compile(r"(?:^>>> .*(?:\n(?!\n|[^\n]*\n-{3,}).+)*\n?\n?)+", re.MULTILINE)
PARAMETERS = re.compile(r"^(Parameters\n-+\n)(.*?)(?=^[^\n]+\n---|\Z)", re.MULTILINE | re.DOTALL)


def shown(text: str) -> str:
    """The text with examples between fences, and each parameter as its name and what it is.

    >>> shown("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nOr not.").splitlines()[2:]
    ['```python', '>>> 1 + 1', '2', '```', '', 'Or not.']
    >>> shown("Parameters\\n---\\nlow, high: Two\\n    bounds.").splitlines()[2:4]
    ['low, high', '    Two bounds.']
    """
    found = [f"{', '.join(names)}\n    {said}\n" for names, said in parameters(text)]
    text = PARAMETERS.sub(lambda match: match[1] + "".join(found) + "\n", text)
    return DOCTEST.sub(lambda match: f"```python\n{match[0].rstrip()}\n```\n\n", text)


class SiteDocstrings(griffe.Extension):
    """Changes every docstring that is loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)
