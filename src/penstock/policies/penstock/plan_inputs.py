"""All that a plan is made from at one instant, and the sizes of the fleet that it compares."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from penstock.core.model import Limits, Snapshot
from penstock.policies.penstock.capacity import Capacity
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.surges import BIN_S, Surges

#: The most sizes of the fleet that are compared.
MOST_SIZES = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """The job as it is, what is known of it, what may come, and what it costs.

    `earlier` was seen about a minute ago. `late_s` is the price of a second of arrivals that come
    out late, `move_s` that of starting or removing an executor, both in executor-seconds.
    """

    at_s: float
    target: int
    active: int
    lag_s: float
    load_rps: float
    earlier: Snapshot | None
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
    limits: Limits

    @property
    def pace(self) -> float:
        """How long the spans of `surges` are: 1 for bins of half a minute."""
        return self.bin_s / BIN_S

    @property
    def surge_rises(self) -> bool:
        return self.surges.is_rising(self.pace)

    @property
    def waits_s(self) -> float:
        """The longest that a record waits: in a micro-batch job for two batches."""
        return self.lag_s * (1.0 if self.trigger_s is None else 2.0)

    @property
    def coming_rps(self) -> float:
        """The load that is there and will still be there when executors asked for now work."""
        later = min(len(self.load.mean) - 1, int(self.startup_s / self.bin_s))
        return min(self.load_rps, self.load.mean[later])

    @property
    def fixed_s(self) -> float:
        """What a batch costs at the present size before its first record."""
        return self.capacity.fixed_s(max(1, self.active))


def sizes(inputs: PlanInputs) -> list[int]:
    """The sizes to compare: around what the load needs, what there is, and to catch up."""
    capacity, surges, limits = inputs.capacity, inputs.surges, inputs.limits
    low = min(inputs.load.quantile(-1.3)) * 0.85
    high = max(inputs.load.quantile(1.3)) * 1.2
    least, most = max(limits.min_executors, 1), limits.max_executors
    if surges.recur:
        high = max(high, 1.1 * (surges.calm_rps + surges.rise_rps()))
    if inputs.surge_rises:
        high = max(high, capacity.rps(most))
    if inputs.lag_s > 0.5 * inputs.slo_s:
        high *= 1.0 + inputs.lag_s / 60.0
    first = smallest(capacity, low, least, most)
    last = smallest(capacity, high, first, most)
    first, last = min(first, inputs.target), max(last, inputs.target)
    first, last = max(least, min(first, most)), min(most, max(last, least))
    found = list(range(first, last + 1))
    if len(found) > MOST_SIZES:
        chosen = {round(x) for x in np.linspace(first, last, MOST_SIZES - 3)}
        near = {inputs.target - 1, inputs.target, inputs.target + 1}
        found = sorted(chosen | {n for n in near if first <= n <= last})
    return found


def largest_useful_fleet(inputs: PlanInputs) -> int:
    """The smallest fleet that carries nearly as much as the largest."""
    most = inputs.limits.max_executors
    return smallest(inputs.capacity, 0.99 * inputs.capacity.rps(most), 1, most)


def smallest(capacity: Capacity, load_rps: float, first: int, last: int) -> int:
    """The smallest size that carries a load; the last if none does."""
    return first + bisect_left(range(first, last), load_rps, key=capacity.rps)
