"""``penstock policies``: what rules there are, and what each does."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.table import Table

from penstock.cli.views.output import console, print_json
from penstock.core.errors import unknown
from penstock.policies import POLICIES


def policies(
    name: str | None = None, /, *, json: Annotated[bool, Parameter(help="As JSON.")] = False
) -> int:
    """List the policies, or explain one.

    Parameters
    ----------
    name
        The policy to explain; all are listed without it.
    """
    if name is not None and name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    if json:
        print_json(_facts(name) if name else [_facts(each) for each in POLICIES])
    elif name:
        console().print(_page(name), markup=False)
    else:
        table = Table(box=None, pad_edge=False)
        for title in ("policy", "every", "the rule in a line"):
            table.add_column(title, no_wrap=title != "the rule in a line")
        for each in POLICIES:
            facts = _facts(each)
            table.add_row(each, f"{facts['parameters']['period_s']:g} s", facts["summary"])
        console().print(table)
    return 0


def _page(name: str) -> str:
    """The whole docstring, with the limits that the policy brings along."""
    kind = POLICIES[name]
    limits = msgspec.json.decode(msgspec.json.encode(kind.default_limits))
    around = ", ".join(f"{key} = {value:g}" for key, value in limits.items()) or "none of its own"
    return f"{name}\n\n{inspect.getdoc(kind)}\n\nLimits: {around}"


def _facts(name: str) -> dict[str, Any]:
    kind = POLICIES[name]
    return {
        "policy": name,
        "summary": (inspect.getdoc(kind) or "").splitlines()[0],
        "parameters": {
            field.name: getattr(kind(), field.name)
            for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        },
        "limits": kind.default_limits,
    }
