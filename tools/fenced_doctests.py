"""Shows the examples of docstrings as code in the site; mkdocstrings calls this extension."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^>>> .*(?:\n(?!\n|[^\n]*\n-{3,}).+)*\n?\n?)+", re.MULTILINE)


def fenced(text: str) -> str:
    """The text with each run of examples between fences.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nOr not.").splitlines()[2:]
    ['```python', '>>> 1 + 1', '2', '```', '', 'Or not.']
    """
    return DOCTEST.sub(lambda match: f"```python\n{match[0].rstrip()}\n```\n\n", text)


class FencedDoctests(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
