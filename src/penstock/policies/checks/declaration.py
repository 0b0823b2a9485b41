"""Clauses on how a policy is written down: its class, its parameters, its docstring, its file."""

from __future__ import annotations

import dataclasses
import re
from inspect import cleandoc
from math import inf
from typing import Any

import msgspec

from penstock.core.model import Limits
from penstock.core.protocols import Policy
from penstock.policies import POLICIES

#: What the docstring of a policy must have, in this order; the documentation is made from it.
SECTIONS = (
    "The rule:",
    "Parameters\n",
    "Examples\n",
    "References\n",
    "Where we differ\n",
    "Wins and loses\n",
)
#: The section Parameters, up to the next line that is underlined.
PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^[^\n]+\n---|\Z)", re.MULTILINE | re.DOTALL)


def is_frozen_with_sound_parameters(policy: Policy) -> None:
    """A frozen dataclass, asked every `period_s`, whose parameters survive a file."""
    kind: Any = type(policy)
    name = kind.__name__
    assert dataclasses.is_dataclass(kind), f"{name} must be a dataclass"
    frozen = getattr(kind, "__dataclass_params__").frozen  # noqa: B009
    assert frozen, f"{name} must be frozen: its fields are parameters, not state"
    period_s = getattr(policy, "period_s", None)
    assert isinstance(period_s, int | float), f"{name} must have a field period_s in seconds"
    assert 0.0 < period_s < inf, f"period_s must be positive and finite, not {period_s}"
    wakes = getattr(kind, "wakes_on_surge", None)
    assert isinstance(wakes, bool), (
        f"{name} has no wakes_on_surge: write `wakes_on_surge: ClassVar[bool] = False`"
    )
    back = msgspec.convert(msgspec.to_builtins(policy), kind)
    assert back == policy, f"parameters changed on their way through a file: {policy} -> {back}"


def has_default_limits(policy: Policy) -> None:
    """The class says which guards belong to the rule: `default_limits`, a class variable."""
    kind: Any = type(policy)
    name = kind.__name__
    limits = getattr(kind, "default_limits", None)
    assert limits is not None, (
        f"{name} has no default_limits: write `default_limits: ClassVar[Limits] = Limits()`"
    )
    assert isinstance(limits, Limits), f"{name}.default_limits must be Limits, not {limits!r}"


def has_a_complete_docstring(policy: Policy) -> None:
    """A first sentence, all sections in their order, and an example."""
    text = _docstring(policy)
    assert text.splitlines()[0].endswith("."), "the docstring must begin with one sentence"
    at = 0
    for section in SECTIONS:
        found = text.find(section, at)
        assert found >= 0, f"the docstring lacks {section.strip()!r} or has it out of order"
        at = found
    assert ">>>" in text[text.find("Examples\n") :], "the docstring has no example to run"


def documents_its_parameters(policy: Policy) -> None:
    """Every field is in the docstring's Parameters, and nothing else is.

    Names stand at the margin, several of one meaning on one line (`low, high`).
    """
    kind: Any = type(policy)
    section = PARAMETERS.search(_docstring(policy))
    lines = re.findall(r"^(\w.*)$", section[1], re.MULTILINE) if section else []
    names = {name.strip() for line in lines for name in line.split(",")}
    fields = {field.name for field in dataclasses.fields(kind)}
    for name in sorted(fields - names):
        raise AssertionError(f"the docstring does not document the parameter {name!r}")
    for name in sorted(names - fields):
        raise AssertionError(
            f"the docstring documents {name!r}, which is no parameter of {kind.__name__}"
        )


def has_the_file_that_its_name_promises(policy: Policy) -> None:
    """Of the table: `name` is policies/name.py or policies/folder/name.py; others are anywhere."""
    module = type(policy).__module__
    for name, kind in POLICIES.items():
        if kind is not type(policy):
            continue
        place = rf"penstock\.policies\.(\w+\.)?{name}"
        assert re.fullmatch(place, module), (
            f"the table calls it {name!r}, but its module is {module}: "
            f"it must be policies/{name}.py or policies/<folder>/{name}.py"
        )


def _docstring(policy: Policy) -> str:
    return cleandoc(type(policy).__doc__ or "") + "\n"
