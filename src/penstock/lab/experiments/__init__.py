"""One run, its score, and many runs: scenario, oracle, tournament, sweep, tuning."""

from importlib import import_module
from typing import Any

from penstock.core.errors import ConfigError


def lab_module(name: str, needed_for: str) -> Any:
    """The module of that name, or one sentence that says how to install it.

    >>> lab_module("pypi_has_none.part", "x.parquet")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: x.parquet needs pypi_has_none: install it with pip ...
    """
    try:
        return import_module(name)
    except ModuleNotFoundError:
        library = name.partition(".")[0]
        raise ConfigError(
            f'{needed_for} needs {library}: install it with pip install "penstock[lab]"'
        ) from None
