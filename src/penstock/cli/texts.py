"""What ``--help`` says of each option, from options.toml."""

from __future__ import annotations

import pkgutil
import tomllib

from cyclopts import Parameter

TEXTS = tomllib.loads((pkgutil.get_data("penstock.cli", "options.toml") or b"").decode())


def about(option: str) -> Parameter:
    """The help of an option; that of one command is named ``command.option``.

    >>> about("seed").help
    'The same seed gives the same run.'
    """
    return Parameter(help=TEXTS[option])
