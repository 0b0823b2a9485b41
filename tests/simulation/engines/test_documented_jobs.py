"""docs/simulated-jobs.md has every field of the simulated jobs, with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.stages import Stage

PAGE = Path(__file__).parents[3] / "docs" / "simulated-jobs.md"
#: In the order of their tables.
KINDS = (MicroBatchJob, Stage, ContinuousJob, Operator)


def documented(table: str) -> dict[str, str]:
    """Defaults by field; rows with several fields give one default for each."""
    found: dict[str, str] = {}
    for names, default in re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE):
        fields = re.findall(r"`(\w+)`", names)
        defaults = default.split(", ") if len(fields) > 1 else [default]
        found |= zip(fields, defaults, strict=True)
    return found


def shown(default: Any) -> str:
    match default:
        case msgspec.NODEFAULT:
            return "required"
        case None | ():
            return "none"
        case bool():
            return str(default).lower()
        case Startup():
            return f"{default.shortest_s:g} to {default.longest_s:g} s"
        case tuple():
            return ", ".join(f"`{one.name}`" for one in default)
    return f"{default:g}"


@pytest.mark.parametrize("place", range(len(KINDS)))
def test_every_field_is_in_its_table_with_its_default(place: int) -> None:
    table = PAGE.read_text().split("|---|---|---|")[place + 1]
    expected = {field.name: shown(field.default) for field in msgspec.structs.fields(KINDS[place])}
    assert documented(table) == expected
