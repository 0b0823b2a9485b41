"""The contract of a policy, as checks that anyone can run against their own.

A check is a callable with a name; it raises `AssertionError` with one sentence when the policy
breaks the contract. All of them together take about a second.

>>> from penstock.policies.static import Static
>>> for check in yield_checks(Static()):
...     check()
"""

from collections.abc import Iterator
from functools import partial

from penstock.core.protocols import Policy
from penstock.policies.checks.clauses import CLAUSES

__all__ = ["Check", "yield_checks"]


class Check(partial[None]):
    """One clause of the contract, ready to be called on a policy."""

    @property
    def __name__(self) -> str:
        return self.func.__name__


def yield_checks(policy: Policy) -> Iterator[Check]:
    """The clauses of the contract, in their order."""
    return (Check(clause, policy) for clause in CLAUSES)
