"""A policy of your own: write it, check its contract, and race it against others.

Run it with ``python examples/own_policy.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.protocols import Policy
from penstock.lab.experiments.scenario import Scenario, run
from penstock.policies.checks import yield_checks
from penstock.policies.kubernetes.hpa import Hpa
from penstock.settings.goal import Goal


@dataclass(frozen=True, slots=True)
class PerExecutor:
    """So many executors that each gets at most `rate_rps`.

    The rule: ``n = ceil(arrival / rate)``.

    Parameters
    ----------
    rate_rps
        What one executor is given at most.
    period_s
        Seconds between decisions.

    Examples
    --------
    >>> from penstock.core.model import Fleet
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

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        load = snapshot.arrival_rps
        if load is None:
            return not_measured(snapshot.fleet.target, "arrival_rps")
        wanted = max(1, ceil(load / self.rate_rps))
        text = f"{load:.0f} records/s at {self.rate_rps:.0f} each need {wanted} executors"
        return Decision.of(wanted, Reason("rate_per_executor", text, {"load_rps": load}))


def main() -> None:
    for check in yield_checks(PerExecutor()):
        check()
    print("the contract holds")
    contenders: list[Policy] = [PerExecutor(), Hpa()]
    for policy in contenders:
        limits = type(policy).default_limits
        score = run(Scenario("sine", duration_s=6 * 3600.0), policy, limits, Goal()).score
        name = type(policy).__name__
        print(f"{name:12} cost {score.cost:6.1f}, late {score.late_fraction:.2%}")


if __name__ == "__main__":
    main()
