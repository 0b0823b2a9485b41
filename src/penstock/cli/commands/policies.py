"""``penstock policies``: what rules there are, and what each does."""

from typing import Annotated, Any

import msgspec
from rich.console import Console
from rich.table import Column, Table

from penstock.cli.options import about
from penstock.cli.output import console, print_json
from penstock.cli.views.docstrings import defaults, parameter_texts, plain, sections
from penstock.core.errors import unknown
from penstock.policies import POLICIES

#: Sections for programmers; the generated pages of the docs have them.
LEFT_OUT = ("Parameters", "Examples")


def policies(
    name: Annotated[str | None, about("policies.name")] = None,
    /,
    *,
    json: Annotated[bool, about("policies.json")] = False,
) -> int:
    """List the policies, or explain one."""
    if name is not None and name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    if json:
        print_json(_facts(name) if name else [_facts(each) for each in POLICIES])
    elif name:
        _print_policy(name, console())
    else:
        short = (Column(title, no_wrap=True) for title in ("policy", "decides every"))
        table = Table(*short, "the rule in a line", box=None, pad_edge=False)
        for each in POLICIES:
            facts = _facts(each)
            table.add_row(each, f"{facts['parameters']['period_s']:g} s", facts["summary"])
        console().print(table)
    return 0


def _print_policy(name: str, screen: Console) -> None:
    """The rule, its parameters with their defaults, its limits, and the rest of its docstring."""
    kind = POLICIES[name]
    parts = sections(kind)
    screen.print(name, style="bold")
    screen.print(plain(parts[""]))
    table = Table(box=None, pad_edge=False, title="Parameters", title_justify="left")
    for title in ("name", "default", "meaning"):
        table.add_column(title, no_wrap=title == "name", overflow="fold")
    texts = parameter_texts(kind)
    for key, value in defaults(kind).items():
        table.add_row(key, _shown(value), texts.get(key, ""))
    screen.print()
    screen.print(table)
    limits = msgspec.to_builtins(kind.default_limits)
    around = ", ".join(f"{key} = {_shown(value)}" for key, value in limits.items())
    screen.print(f"\nLimits of its own: {around or 'none'}")
    example = next(iter(defaults(kind)))
    screen.print(f"Set them as {name}:{example}={_shown(defaults(kind)[example])},...")
    for heading, text in parts.items():
        if heading and heading not in LEFT_OUT:
            screen.print(f"\n{heading}", style="bold")
            screen.print(plain(text))


def _shown(value: Any) -> str:
    if value is None or value == ():
        return "not set"
    if isinstance(value, tuple):
        return "|".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _facts(name: str) -> dict[str, Any]:
    kind = POLICIES[name]
    return {
        "policy": name,
        "summary": sections(kind)[""].splitlines()[0],
        "parameters": defaults(kind),
        "limits": kind.default_limits,
    }
