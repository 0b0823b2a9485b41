"""The policy of the job under chaos: it follows the load, and remembers what it has measured.

What it decides depends on nothing but the journal, so any decision can be checked afterwards, those
of a restarted driver included.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import ClassVar

from msgspec import Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured

MIN, MAX = 2, 4  #: Bounds of the fleet.
RPS = 10.0  #: What one executor should carry; it can carry 25, since processors may be busy.
COST_S = 0.04
#: How much more or less than that a size is kept for, so that noise moves nothing.
SLACK_RPS = 2.5
WINDOW = 5


class Rates(Struct, frozen=True, tag=True):
    """The last arrival rates that were measured."""

    rps: tuple[float, ...] = ()


@dataclass(frozen=True)
class FollowLoad:
    """As many executors as the median of the last rates needs; blind, it holds.

    >>> from penstock.core.model import ExecutorSample, Fleet
    >>> fleet, one = Fleet(2, 2, 2), (ExecutorSample("1", 0.0),)
    >>> seen = Snapshot(at_s=9.0, fleet=fleet, arrival_rps=35.0, executors=one)
    >>> FollowLoad().decide(seen, Knowledge()).target_executors
    4
    >>> FollowLoad().decide(Snapshot(at_s=9.0, fleet=fleet), Knowledge()).target_executors
    2
    """

    period_s: float = 0.5
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        rates, target = knowledge.recall(Rates), snapshot.fleet.target
        lacking = [name for name in ("arrival_rps", "executors") if not getattr(snapshot, name)]
        if snapshot.arrival_rps == 0.0:
            reason = Reason("no_load", "nothing arrives: the fleet stays as it is")
            return Decision.of(target, reason, memory=rates)
        if snapshot.arrival_rps is None or lacking:
            return not_measured(target, *lacking, memory=rates)
        rates = Rates((*rates.rps, snapshot.arrival_rps)[-WINDOW:])
        rate_rps = median(rates.rps)
        if (target - 1) * RPS - SLACK_RPS <= rate_rps <= target * RPS + SLACK_RPS:
            return Decision.of(target, Reason("fits", f"{rate_rps:.0f} records/s"), memory=rates)
        wanted = min(MAX, max(MIN, ceil(rate_rps / RPS)))
        return Decision.of(wanted, Reason("follow", f"{rate_rps:.0f} records/s"), memory=rates)
