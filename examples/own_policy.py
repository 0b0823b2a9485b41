"""A policy of your own: write it, check its contract, and race it against others.

Run it with ``python examples/own_policy.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock import (
    Decision,
    Knowledge,
    Limits,
    Reason,
    Snapshot,
    checks,
    compare,
    not_measured,
)


@dataclass(frozen=True, slots=True)
class PerExecutor:
    """As many executors as it takes to give each at most `rate_rps`.

    The rule: ``n = ceil(arrival / rate)``.

    Parameters
    ----------
    rate_rps: What one executor is given at most.
    period_s: Seconds between decisions.

    Examples
    --------
    >>> from penstock import Fleet
    >>> seen = Snapshot(0.0, Fleet(2, 2, 2), arrival_rps=41_000.0)
    >>> PerExecutor(rate_rps=8_000.0).decide(seen, Knowledge()).target_executors
    6

    References
    ----------
    The rule of thumb of many a team.

    Where we differ
    ---------------
    Nowhere.

    Wins and loses
    --------------
    Wins when somebody measured the rate last week. Loses when the job has changed since.
    """

    rate_rps: Annotated[float, Meta(gt=0)] = 8_000.0
    period_s: Annotated[float, Meta(gt=0)] = 15.0

    default_limits: ClassVar[Limits] = Limits(stabilize_down_s=120.0)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        load = snapshot.arrival_rps
        if load is None:
            return not_measured(snapshot.fleet.target, "arrival_rps")
        wanted = max(1, ceil(load / self.rate_rps))
        text = f"{load:.0f} records/s at {self.rate_rps:.0f} each need {wanted} executors"
        return Decision.of(wanted, Reason("rate_per_executor", text, {"load_rps": load}))


def main() -> None:
    for check in checks.yield_checks(PerExecutor()):
        check()
    print("the contract holds")
    for row in compare([PerExecutor(), "hpa"], ["sine"], duration_s=6 * 3600.0, regret=False):
        print(f"cost {row.cost:6.1f}, late {row.late_fraction:.2%}: {row.policy}")


if __name__ == "__main__":
    main()
