"""Formulas of the studies that the policies do not evaluate in this form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from penstock.policies.daedalus.regression import RunningRegression, Skew, full_cpu_fractions
from penstock.policies.thresholds.filters import (
    KalmanStep,
    bootstrap_step,
    kalman_step,
    system_noise,
)


class SourceTask(NamedTuple):
    """One task that reads from Kafka: the lag of its worst partition, and how many it has."""

    max_lag_records: float
    partitions: int


def total_lag(tasks: Iterable[SourceTask]) -> float:
    """Records behind, as far as Flink tells: it reports the worst partition of each task.

    Four tasks with five partitions each, all 50 000 behind:

    >>> total_lag([SourceTask(50_000, 5)] * 4)
    1000000
    """
    return sum(task.max_lag_records * task.partitions for task in tasks)


def allen_cunneen_wait(servers: int, utilisation: float) -> float:
    """Allen and Cunneen's closed form for the chance to wait, good to a few percent.

    ``(rho^k + rho) / 2`` from a utilisation of 0.7 on, ``rho^((k+1)/2)`` below; both are exact
    for one server.

    >>> allen_cunneen_wait(1, 0.5), allen_cunneen_wait(4, 0.75)
    (0.5, 0.533203)
    """
    if utilisation >= 1.0:
        return 1.0
    if utilisation >= 0.7:
        return (utilisation**servers + utilisation) / 2.0
    return math.pow(utilisation, (servers + 1) / 2.0)


class Bootstrap(Struct, frozen=True, gc=False):
    """Where a Kalman filter starts: estimate, its variance, and the noise of the system."""

    x0: float
    p0: float
    q: float


def bootstrap(measurements: Iterable[float], noise: float) -> Bootstrap:
    """A start from the measurements of a dead time, the later the heavier.

    With weights ``i`` and their sum ``D = n(n+1)/2``: ``x0 = sum i z_i / D``,
    ``P0 = sum i (z_i - x0)^2 / (D - 1)`` and ``Q = P0 - R``. One measurement has no spread: then
    the noise of the instrument is all that is known.

    >>> bootstrap([0.4, 0.5, 0.6], noise=0.001)
    Bootstrap(x0=0.533333, p0=0.006667, q=0.005667)
    """
    x = p = 0.0
    count = 0
    for count, z in enumerate(measurements, start=1):
        x, p = bootstrap_step(x, p, count, z)
    if count == 0:
        raise ValueError("a filter cannot start without a measurement")
    p0 = noise if count == 1 else p
    return Bootstrap(x, p0, system_noise(p0, noise))


def kalman_run(
    measurements: Sequence[float],
    rates: Sequence[float],
    *,
    a: float,
    b: float,
    x0: float,
    p0: float,
    q: float,
    r: float,
    posterior_update: bool = True,
) -> list[KalmanStep]:
    """The filter over a series, driven by an input: ``f(x, u) = x + a D + b dD``.

    The start `x0` belongs to the first measurement; each later one is predicted from the input
    one turn before it, ``u[t-1] = (D[t-1], D[t-1] - D[t-2])``.

    >>> for step in kalman_run([0.5, 0.5, 0.7], [100, 140, 140], a=0.0, b=0.005,
    ...                        x0=0.5, p0=0.01, q=0.001, r=0.01):
    ...     print(f"{step.prior:.3f} {step.x:.3f}")
    0.500 0.500
    0.700 0.700
    """
    x, p = x0, p0
    steps = []
    for t in range(1, len(measurements)):
        change = rates[t - 1] - rates[t - 2] if t > 1 else 0.0
        drift = a * rates[t - 1] + b * change
        step = kalman_step(
            x, p, measurements[t], q=q, r=r, drift=drift, posterior_update=posterior_update
        )
        x, p = step.x, step.p
        steps.append(step)
    return steps


def executor_capacities_rps(
    lines: Sequence[RunningRegression], full: float = 1.0, skew: Skew = "proportional"
) -> list[int]:
    """What each executor can process, in whole records/s; what they can together is the sum.

    >>> even = RunningRegression.through([0.2, 0.4], [200.0, 400.0])
    >>> behind = RunningRegression.through([0.1, 0.3], [100.0, 300.0])
    >>> executor_capacities_rps([even, behind])
    [1000, 666]
    >>> executor_capacities_rps([even, behind], skew="additive")
    [1000, 900]
    """
    fractions = full_cpu_fractions([line.x_mean for line in lines], full, skew)
    return [int(line.at(cpu)) for line, cpu in zip(lines, fractions, strict=True)]


def worth_reconfiguring(before: Sequence[int], after: Sequence[int], least_shrink: int = 2) -> bool:
    """Whether any operator grows, or shrinks by enough to be worth a restart.

    DS2's own manager ignores a shrink by one: it is as likely to be noise.

    >>> worth_reconfiguring([1, 8], [1, 7]), worth_reconfiguring([1, 8], [1, 6])
    (False, True)
    """
    return any(
        now > was or was - now >= least_shrink for was, now in zip(before, after, strict=True)
    )


def catch_up_whole_s(
    rate_rps: float, capacity_rps: float, horizon_s: int, downtime_s: float, checkpoint_s: float
) -> float:
    """Phoebe's sum at a level rate as its published code has it: intervals are rounded up.

    Above half of the capacity it ends with the forecast only: two seconds of work take more than
    one.

    >>> catch_up_whole_s(50e3, 100e3, 600, 110.0, 10.0)
    230.0
    """
    until, total_s = math.ceil(downtime_s), downtime_s
    work = (checkpoint_s + min(until, horizon_s)) * rate_rps
    while True:
        took_s = work / capacity_rps
        total_s += took_s
        if took_s < 1.0 or until >= horizon_s:
            return total_s
        before, until = until, until + math.ceil(took_s)
        work = (min(until, horizon_s) - before) * rate_rps
