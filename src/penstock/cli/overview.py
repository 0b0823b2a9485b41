"""What ``penstock --help`` says, without the libraries that parse a command line.

Those take ten times as long to load as Python to start. A test compares both texts.
"""

import os
import sys
import tomllib
from collections.abc import Mapping
from textwrap import wrap
from typing import TypedDict

ABOUT = "Keeps a Spark Structured Streaming job at the right size, and compares policies that do."
EXIT_CODES = "Exit codes: 0 done, 1 done but the answer is no, 2 bad input, 130 interrupted."
FLAGS = {
    "--help (-h)": "Display this message and exit.",
    "--version": "Display application version.",
}
LEAST_WIDTH = 50  #: Narrower terminals need words to be broken, which is left to the library.


class CommandText(TypedDict):
    """What the help says of a command; the rest is in its docstring."""

    help: str
    examples: list[str]


def command_texts() -> dict[str, CommandText]:
    path = os.path.join(os.path.dirname(__file__), "commands.toml")
    with open(path, "rb") as file:
        texts: dict[str, CommandText] = tomllib.load(file)
    return texts


def overview(commands: Mapping[str, CommandText], width: int, *, colours: bool = False) -> str:
    """What each command does, in a box of `width` characters.

    >>> print(overview({"up": {"help": "Count up.", "examples": []}}, 50).splitlines()[6])
    │ up           Count up.                         │
    """
    rows = {name: commands[name]["help"] for name in sorted(commands)} | FLAGS
    first = max(map(len, rows))
    room = width - first - 6
    bold, cyan, plain = ("\x1b[1m", "\x1b[36m", "\x1b[0m") if colours else ("", "", "")
    lines = [f"{bold}Usage: penstock COMMAND{plain}", "", *_paragraph(ABOUT, width), ""]
    lines.append(f"╭─ Commands {'─' * (width - 13)}╮")
    for name, text in rows.items():
        for number, part in enumerate(wrap(text, room, break_on_hyphens=False)):
            label = f"{cyan}{'' if number else name:{first}}{plain}"
            lines.append(f"│ {label}  {part:{room}} │")
    lines += [f"╰{'─' * (width - 2)}╯", "", *_paragraph(EXIT_CODES, width), ""]
    return "\n".join(lines)


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
