"""The contract of a policy, as checks that anyone can run against their own.

A check is a callable with a name; it raises `AssertionError` with one sentence when the policy
breaks the contract. All of them together take about a second.

>>> from penstock.policies.static import Static
>>> for check in yield_checks(Static()):
...     check()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.core.protocols import Policy
from penstock.policies.checks.clauses import CLAUSES

__all__ = ["Check", "yield_checks"]


class Check(Protocol):
    """One clause of the contract."""

    __name__: str

    def __call__(self) -> None: ...


def yield_checks(policy: Policy) -> Iterator[Check]:
    """The clauses of the contract, each ready to be called on `policy`."""
    for clause in CLAUSES:
        yield _bound(clause, policy)


def _bound(clause: Callable[[Policy], None], policy: Policy) -> Check:
    def check() -> None:
        clause(policy)

    check.__name__ = clause.__name__
    return check
