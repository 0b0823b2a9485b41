"""Every policy in the table keeps the contract."""

from __future__ import annotations

import pytest

from penstock.checks import Check, yield_checks
from penstock.policies import POLICIES
from penstock.policies.thresholds import Thresholds
from penstock.protocols import Policy

#: Policies whose parameters choose between rules are checked with each of them.
VARIANTS: dict[str, Policy] = {
    "thresholds-pure": Thresholds(filter="pure"),
    "thresholds-gauss": Thresholds(filter="gauss"),
}

SUBJECTS: dict[str, Policy] = {name: kind() for name, kind in POLICIES.items()} | VARIANTS


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{name}-{check.__name__}")
        for name, policy in SUBJECTS.items()
        for check in yield_checks(policy)
    ],
)
def test_the_policy(check: Check) -> None:
    check()
