"""All that a plan is made from at one instant, and the sizes that are worth a thought."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.core.model import Limits
from penstock.policies.penstock.capacity import Capacity
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.surges import Surges

#: The most sizes of the fleet that are weighed against each other.
MOST_SIZES = 14


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The job as it is, what is known of it, what may come, and what it costs.

    `late_s` is the price of a second of arrivals that come through late, `move_s` that of starting
    or removing an executor, both in executor-seconds.
    """

    at_s: float
    target: int
    active: int
    behind_s: float
    load_rps: float
    load: Forecast
    surges: Surges
    capacity: Capacity
    error: float
    startup_s: float
    pending_s: float
    rescale_s: float
    trigger_s: float | None
    mean_rps: float
    bin_s: float
    slo_s: float
    late_s: float
    move_s: float

    @property
    def waits_s(self) -> float:
        """How long the records wait that wait longest: in a micro-batch job for two batches."""
        return self.behind_s * (1.0 if self.trigger_s is None else 2.0)

    @property
    def coming_rps(self) -> float:
        """The load that is there and will still be there when executors asked for now work."""
        later = min(len(self.load.mean) - 1, int(self.startup_s / self.bin_s))
        return min(self.load_rps, self.load.mean[later])

    @property
    def fixed_s(self) -> float:
        """What a batch costs at the present size before its first record."""
        return self.capacity.fixed_s(max(1, self.active))


def sizes(sight: PlanInputs, limits: Limits) -> list[int]:
    """The sizes worth weighing: around what the load needs, what there is, and to catch up."""
    capacity, surges = sight.capacity, sight.surges
    low = min(sight.load.quantile(-1.3)) * 0.85
    high = max(sight.load.quantile(1.3)) * 1.2
    least, most = max(limits.min_executors, 1), limits.max_executors
    if surges.recur:
        high = max(high, 1.1 * (surges.calm_rps + surges.rise_rps()))
    if surges.rising:
        high = max(high, capacity.rps(most))
    if sight.behind_s > 0.5 * sight.slo_s:
        high *= 1.0 + sight.behind_s / 60.0
    first = smallest(capacity, low, least, most)
    last = smallest(capacity, high, first, most)
    first, last = min(first, sight.target), max(last, sight.target)
    first, last = max(least, min(first, most)), min(most, max(last, least))
    found = list(range(first, last + 1))
    if len(found) > MOST_SIZES:
        chosen = {round(x) for x in np.linspace(first, last, MOST_SIZES - 3)}
        near = {sight.target - 1, sight.target, sight.target + 1}
        found = sorted(chosen | {n for n in near if first <= n <= last})
    return found


def largest_useful_fleet(sight: PlanInputs, limits: Limits) -> int:
    """The smallest fleet that carries nearly as much as the largest."""
    most = limits.max_executors
    return smallest(sight.capacity, 0.99 * sight.capacity.rps(most), 1, most)


def smallest(capacity: Capacity, load_rps: float, first: int, last: int) -> int:
    """The smallest size that carries a load, by halving."""
    while first < last:
        middle = (first + last) // 2
        if capacity.rps(middle) >= load_rps:
            last = middle
        else:
            first = middle + 1
    return first
