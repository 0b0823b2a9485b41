"""What is known of a policy: its docstring, and the Markdown file beside its module.

The docstring has the rule, which is read with the code. Its parameters, examples, where the rule
comes from, where ours differs, and where it wins and loses are in ``NAME.md``; all of it may also
stand in the docstring, as in a policy of one file.
"""

import inspect
import re
import sys
from pathlib import Path

#: The section Parameters, up to the next line that is underlined.
_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^[^\n]+\n---|\Z)", re.MULTILINE | re.DOTALL)


def documentation(kind: type) -> str:
    """The sections of both in one text, headings underlined as in a docstring.

    >>> from penstock.policies.static import Static
    >>> documentation(Static).count("\\n---")
    5
    """
    text = inspect.getdoc(kind) or ""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    notes = Path(file).with_suffix(".md") if file else None
    if notes is None or not notes.is_file():
        return text
    # In Markdown examples are indented, so that they show as code, and parameters are a list.
    unindented = re.sub(r"^ {4}", "", notes.read_text(encoding="utf-8"), flags=re.MULTILINE)
    _, *sections = unindented.split("\n## ")
    parted = (section.partition("\n") for section in sections)
    underlined = (f"{name}\n{'-' * len(name)}\n{body.strip()}" for name, _, body in parted)
    return re.sub(r"^- (?=\w+(, \w+)*: )", "", "\n\n".join([text, *underlined]), flags=re.MULTILINE)


def parameters(text: str) -> list[tuple[list[str], str]]:
    """The names of the section Parameters, those of one meaning together, each with its text.

    >>> parameters("Parameters\\n---\\nlow, high: Two\\n    bounds.\\nin_numpy_style\\n    One.")
    [(['low', 'high'], 'Two bounds.'), (['in_numpy_style'], 'One.')]
    """
    found: list[tuple[list[str], str]] = []
    section = _PARAMETERS.search(text)
    for line in section[1].splitlines() if section else ():
        if line[:1].strip():
            names, _, said = line.partition(": ")
            found.append(([name.strip() for name in names.split(",")], said))
        elif line.strip():
            names_before, said = found.pop()
            found.append((names_before, f"{said} {line.strip()}".strip()))
    return found
