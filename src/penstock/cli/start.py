"""Where the program `penstock` starts: what takes no command is answered without loading any."""

import os
import sys

from penstock import __version__
from penstock.cli.overview import LEAST_WIDTH, command_texts, overview, terminal_width


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        _print(f"{__version__}\n")
    elif arguments in ([], ["--help"], ["-h"]) and (width := terminal_width()) >= LEAST_WIDTH:
        _print(overview(command_texts(), width, colours=_has_colours()))
    else:
        from penstock.cli.app import main as run

        run(arguments)


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough


def _has_colours() -> bool:
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    )
