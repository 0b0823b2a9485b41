"""``penstock workloads``: the shapes of loads, and the loads that have a name."""

import inspect
from typing import Annotated, Any

from rich.table import Column, Table

from penstock.cli.options import about
from penstock.cli.output import console, print_json
from penstock.cli.views.docstrings import plain
from penstock.settings.notation import keys_of
from penstock.simulation.workloads.expressions import NAMED
from penstock.simulation.workloads.shape import Shape
from penstock.simulation.workloads.workload import WORKLOADS


def workloads(*, json: Annotated[bool, about("workloads.json")] = False) -> int:
    """List the shapes with their options, and the loads of studies with what they stand for."""
    shapes = [_facts(name, kind) for name, kind in WORKLOADS.items()]
    if json:
        named = [{"workload": name, "stands_for": text} for name, text in NAMED.items()]
        print_json([*shapes, *named])
        return 0
    first = Column("workload", no_wrap=True)
    table = Table(first, "what it is", "options", box=None, pad_edge=False)
    for facts in shapes:
        table.add_row(facts["workload"], facts["summary"], ", ".join(facts["options"]))
    for name, text in NAMED.items():
        table.add_row(name, text)
    console().print(table)
    return 0


def _facts(name: str, kind: type[Shape]) -> dict[str, Any]:
    short: dict[str, str] = {}
    for key, field in keys_of(kind).items():
        short.setdefault(field, key)
    summary = plain((inspect.getdoc(kind) or "").splitlines()[0])
    return {"workload": name, "summary": summary, "options": list(short.values())}
