"""Every policy in the table keeps the contract, with each of the rules it can choose from.

The checks of one policy: ``pytest tests/policies/test_policy_contracts.py -k hpa``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from penstock.core.protocols import Policy
from penstock.policies import POLICIES
from penstock.policies.checks import Check, yield_checks
from penstock.policies.checks.made_up_job import run


def subjects() -> Iterator[tuple[str, Policy]]:
    """Each policy as it comes, and once for each other value of a parameter that is a choice."""
    for name, kind in POLICIES.items():
        standard = kind()
        yield name, standard
        fields: Any = standard
        for parameter, annotation in get_type_hints(kind).items():
            if get_origin(annotation) is not Literal:
                continue
            for choice in get_args(annotation):
                if choice != getattr(standard, parameter):
                    yield f"{name}-{choice}", dataclasses.replace(fields, **{parameter: choice})


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{name}-{check.__name__}")
        for name, policy in subjects()
        for check in yield_checks(policy)
    ],
)
def test_every_policy_keeps_every_clause_of_the_contract(check: Check) -> None:
    check()


def test_choices_are_checked_too() -> None:
    names = {name for name, _ in subjects()}
    assert {"thresholds", "thresholds-pure", "thresholds-gauss"} <= names


def test_a_tag_of_a_memory_stands_for_one_class() -> None:
    """Or after a change of policy one would read the memory of the other."""
    found = {
        type(turn.decision.memory)
        for kind in POLICIES.values()
        for turn in run(kind(), "micro_batch", 10)
        if turn.decision.memory is not None
    }
    tags = [kind.__struct_config__.tag for kind in found]
    assert len(tags) > 4
    assert len(set(tags)) == len(tags)
