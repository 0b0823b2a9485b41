"""The text of ``penstock --help``, without the libraries that parse a command line.

They take ten times as long to load as Python takes to start. A test compares this text with
theirs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from textwrap import wrap

FLAGS = {
    "--help (-h)": "Display this message and exit.",
    "--version": "Display application version.",
}
#: Narrower terminals need words to be broken, which is left to the library.
LEAST_WIDTH = 50


def overview(about: str, commands: Mapping[str, str], epilogue: str, width: int) -> str:
    """What each command does, in a box of `width` characters.

    >>> print(overview("Counts.", {"up": "Count up."}, "Exit code 0.", 50).splitlines()[5])
    │ up           Count up.                         │
    """
    rows = {name: commands[name] for name in sorted(commands)} | FLAGS
    first = max(map(len, rows))
    room = width - first - 6
    lines = ["Usage: penstock COMMAND", "", *_paragraph(about, width), ""]
    lines.append(f"╭─ Commands {'─' * (width - 13)}╮")
    for name, text in rows.items():
        for number, part in enumerate(wrap(text, room, break_on_hyphens=False)):
            lines.append(f"│ {'' if number else name:{first}}  {part:{room}} │")
    return "\n".join([*lines, f"╰{'─' * (width - 2)}╯", "", *_paragraph(epilogue, width), ""])


def _paragraph(text: str, width: int) -> list[str]:
    """Lines that keep the space at which they were broken where it fits, as the library does."""
    lines = wrap(text, width, break_on_hyphens=False)
    return [*(f"{line} "[:width] for line in lines[:-1]), *lines[-1:]]


def terminal_width() -> int:
    """Columns of the terminal; 80 where there is none."""
    if (columns := os.environ.get("COLUMNS", "")).isdigit():
        return int(columns)
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            return os.get_terminal_size(stream.fileno()).columns if stream else 80
        except (OSError, ValueError):
            continue
    return 80
