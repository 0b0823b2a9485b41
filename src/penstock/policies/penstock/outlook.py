"""What a plan expects, for people: the load, the fleet that follows it, and other sizes."""

from bisect import bisect_right
from itertools import accumulate

import numpy as np

from penstock.core.model import Outlook
from penstock.policies.penstock.days import rounded
from penstock.policies.penstock.dynamic_program import late_if_held, planned_sizes
from penstock.policies.penstock.planning import PlanInputs, SolvedPlan

#: The edges of the fan around a forecast, in standard deviations: 8 of 10 lie between them.
FAN = 1.28
EVERY_BINS = 3  #: One of this number of bins is shown.
MERGED_STEPS = 3  #: How many steps of the plan count as one for the sizes that it does not take.


def expect(inputs: PlanInputs, best: int, solved: SolvedPlan | None = None) -> Outlook:
    """The forecast, and with a plan what follows if the fleet has `best` executors now."""
    shown = slice(0, None, EVERY_BINS)
    ahead_s = [(place + 0.5) * inputs.bin_s for place in range(len(inputs.load.mean))][shown]
    load, low, high = (
        tuple(rounded(rps) for rps in inputs.load.quantile(deviations)[shown])
        for deviations in (0.0, -FAN, FAN)
    )
    if solved is None:
        return Outlook(tuple(ahead_s), load, low, high)
    plan, start = solved.plan, inputs.start
    later = planned_sizes(plan, best, start.lag_s, solved.lengths_s)
    begins_s = list(accumulate(solved.lengths_s, initial=start.startup_s))
    # A fleet that is given up in the last step would be needed after it.
    planned = [best, *later[:-1], *later[-2:-1] * 2]
    executors = tuple(planned[bisect_right(begins_s, at_s)] for at_s in ahead_s)
    spans_s = np.asarray(solved.lengths_s).reshape(-1, MERGED_STEPS)
    records = (solved.loads_rps * solved.lengths_s).reshape(-1, *spans_s.shape)
    loads_rps, merged_s = records.sum(axis=2) / spans_s.sum(axis=1), spans_s.sum(axis=1)
    late, arrived = late_if_held(
        plan, start, solved.bins_rps, loads_rps, merged_s.tolist(), inputs.bin_s
    )
    shares = solved.weights @ late / np.maximum(solved.weights @ arrived, 1e-9)
    late_fractions = tuple(round(min(1.0, float(share)), 4) for share in shares)
    compared = tuple(solved.sizes), late_fractions
    return Outlook(tuple(ahead_s), load, low, high, executors, *compared)
