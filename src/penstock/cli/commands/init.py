"""``penstock init``: a penstock.toml with every setting, its default and its meaning."""

import textwrap
from collections.abc import Mapping
from json import dumps as to_json
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from penstock.cli.options import about
from penstock.cli.output import check_new, console, print_json
from penstock.cli.views.docstrings import defaults, parameter_texts
from penstock.core.errors import unknown
from penstock.core.files import write_whole
from penstock.core.model import Limits
from penstock.policies import DEFAULT_POLICY, POLICIES
from penstock.settings.goal import Goal
from penstock.settings.toml import FILE_NAME, JournalSettings, LiveSettings, parse

HEAD = """\
# Penstock settings. Everything has a default. A line such as #name = value is a setting:
# remove its # to change it.
"""
SCHEDULE = """
# Floors, ceilings and quiet periods at certain times, each a table of its own. For example:
#   [[schedule]]
#   name = "morning peak"
#   cron = "30 7 * * mon-fri"
#   duration = "2h"
#   timezone = "Europe/Berlin"
#   min_executors = 6
"""


def init(
    path: Annotated[Path, about("init.path")] = Path(FILE_NAME),
    /,
    *,
    policy: Annotated[str, about("init.policy")] = DEFAULT_POLICY,
    json: Annotated[bool, about("init.json")] = False,
) -> int:
    """Write a commented penstock.toml. An existing file is never touched."""
    if policy not in POLICIES:
        raise unknown("policy", policy, POLICIES)
    text = document(policy)
    parse(text, str(path))
    check_new(path, advice="remove it or name another file")
    write_whole(path, [text.encode()])
    if json:
        print_json({"written": str(path), "policy": policy})
    else:
        console().print(f"wrote {path} with policy {policy}; `penstock policies` lists others")
    return 0


def document(policy: str, changed: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The text of a penstock.toml: what is `changed`, by table, and all defaults as comments.

    The SLO and the prices stand in [goal] only: policies take them from there.

    >>> print(document("static", {"limits": {"max_executors": 8}}))  # doctest: +ELLIPSIS
    # Penstock settings. ...
    <BLANKLINE>
    [policy]
    name = "static"
    # The size of the fleet.
    #executors = 12
    ...
    #min_executors = 1
    max_executors = 8
    ...
    """
    kind = POLICIES[policy]
    own = {key: value for key, value in defaults(kind).items() if key not in defaults(Goal)}
    limits = msgspec.structs.asdict(kind.default_limits)
    del limits["schedule"]  # tables of its own
    text = HEAD
    for name, table, values in (
        ("policy", kind, own),
        ("limits", Limits, limits),
        ("goal", Goal, defaults(Goal)),
        ("journal", JournalSettings, defaults(JournalSettings)),
        ("live", LiveSettings, defaults(LiveSettings)),
    ):
        lines = [f'name = "{policy}"'] if table is kind else []
        lines += _lines(table, values, (changed or {}).get(name, {}))
        text += f"\n[{name}]\n" + "\n".join(lines) + "\n"
    return text + SCHEDULE


def _lines(kind: type[Any], values: Mapping[str, Any], changed: Mapping[str, Any]) -> list[str]:
    """Each setting below the sentence of its docstring; as a comment unless it is changed."""
    texts = parameter_texts(kind)
    hints = get_type_hints(kind, include_extras=True)
    lines: list[str] = []
    for name, value in {**values, **changed}.items():
        text, mark = texts.get(name, name), "" if name in changed else "#"
        if value is None:
            value = example(hints[name])
            text += " Not set by default; for example:"
        comment = textwrap.wrap(text, 96, initial_indent="# ", subsequent_indent="# ")
        if comment[0] not in lines:
            lines += comment
        # Numbers, texts and lists are written in TOML as in JSON.
        lines.append(f"{mark}{name} = {to_json(value)}")
    return lines


def example(hint: Any) -> Any:
    """A value for a setting that has none.

    >>> example(int | None), example(float | None)
    (1, 1.0)
    """
    if get_origin(hint) is Annotated:
        return example(get_args(hint)[0])
    if options := [each for each in get_args(hint) if each is not NoneType]:
        return example(options[0])
    return hint(1) if hint in (int, float) else {}
