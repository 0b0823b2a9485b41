"""The settings and triggers in a PySpark script, read without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from penstock.core.errors import ConfigError

#: Calls that set one setting: `SparkSession.builder.config(k, v)`, `SparkConf().set(k, v)`.
_SETTERS = {"config", "set", "setIfMissing"}


class Script(Struct, frozen=True):
    """The settings and triggers of a script, and whether it starts a query.

    A value that the script computes cannot be read: its key is in `hidden`.
    """

    conf: dict[str, str] = {}
    hidden: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    starts_query: bool = False


def read_script(path: Path) -> Script:
    """The script in a file, or one sentence on why it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    try:
        return parse_script(text)
    except SyntaxError as error:
        where = f"line {error.lineno}" if error.lineno else "its text"
        raise ConfigError(f"{path} is not Python: {error.msg} ({where})") from None


def parse_script(text: str) -> Script:
    """Read a script's calls.

    >>> found = parse_script('''
    ... spark = SparkSession.builder.master("spark://h:7077").config("spark.cores.max", cores)
    ... stream.writeStream.trigger(availableNow=True).start()
    ... ''')
    >>> found.conf, found.hidden, found.triggers, found.starts_query
    ({'spark.master': 'spark://h:7077'}, ('spark.cores.max',), ('availableNow',), True)
    """
    conf: dict[str, str] = {}
    hidden: list[str] = []
    triggers: list[str] = []
    starts = False
    for call in ast.walk(ast.parse(text)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        method = call.func.attr
        if method in ("start", "toTable"):
            starts = starts or "writeStream" in ast.dump(call.func)
        elif method == "trigger":
            triggers += [each.arg for each in call.keywords if each.arg is not None]
        for key, value in _settings(method, call):
            literal = _literal(value)
            if literal is None:
                hidden.append(key)
            else:
                conf[key] = literal
    # A writer may be kept in a variable: any mention counts.
    starts = starts or ("writeStream" in text and ".start(" in text)
    return Script(conf, tuple(hidden), tuple(dict.fromkeys(triggers)), starts)


def _settings(method: str, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The keys that a call sets, and the expressions of their values."""
    first = call.args[0] if call.args else None
    if method in ("master", "setMaster", "remote") and first is not None:
        yield ("spark.remote" if method == "remote" else "spark.master"), first
    elif method in _SETTERS and len(call.args) == 2:
        key = _literal(call.args[0])
        if key is not None and key.startswith("spark."):
            yield key, call.args[1]
    for keyword in call.keywords:
        if method == "config" and keyword.arg == "map" and isinstance(keyword.value, ast.Dict):
            for name, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if name is not None and (named := _literal(name)) is not None:
                    yield named, value


def _literal(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Constant):
        return None
    value = node.value
    return str(value).lower() if isinstance(value, bool) else str(value)
