"""Profiling runs: what a job can carry, and how fast it answers, at several sizes and rates.

Phoebe needs them before it can decide anything. Nothing is taken from the job's description: it
is run and watched, as a real one would be. The executor-hours that this costs are not part of
any score.
"""

from functools import lru_cache

import numpy as np

from penstock.core.errors import ConfigError
from penstock.core.protocols import Policy
from penstock.lab.experiments.score import Delays
from penstock.policies.algorithms.profile import LatencyPoint, NeedsProfile, ProfilingResult
from penstock.simulation.engines.engine import Curve, Engine, Outcome, SimulatedJob

#: How many sizes are run, and at which shares of what each can carry.
SIZES = 8
SHARES = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95)
SETTLE_S, WATCH_S = 300, 120  #: How long each run settles, and how long it is then watched.
#: A rate at which latency is this many times the lowest of its size is an overload.
NORMAL_LATENCY_FACTOR = 2.0
#: The search for an overload begins with this rate per executor, and how many runs it may take.
FIRST_RPS, MOST_RUNS = 1000.0, 40
OVERLOAD = 1.2  #: Capacity is measured at this multiple of what can be processed.
READ_EVERY_S = 15


def profiled(policy: Policy, job: SimulatedJob, most_executors: int = 16) -> Policy:
    """The policy with the profile of this job, if it needs one and has none.

    >>> from penstock.policies.phoebe import Phoebe
    >>> from penstock.simulation.engines.continuous import ContinuousJob
    >>> phoebe = profiled(Phoebe(), ContinuousJob(), most_executors=4)
    >>> [executors for executors, _ in phoebe.capacity]
    [1, 2, 3, 4]
    """
    if not isinstance(policy, NeedsProfile) or policy.is_profiled:
        return policy
    found: ProfilingResult = _found(job, most_executors)  # type: ignore[arg-type]  # jobs are frozen
    return policy.with_profile(found.capacity, found.latency, found.downtime_s)


def findings(job: SimulatedJob, most_executors: int = 16, seed: int = 1) -> ProfilingResult:
    """Run the job at several sizes: saturated for its capacity, then at shares of that."""
    sizes = sorted({round(size) for size in np.linspace(1, most_executors, SIZES)})
    capacity = tuple((size, capacity_rps(job, size, seed)) for size in sizes)
    latency = [point for size, rps in capacity for point in _latencies(job, size, rps, seed)]
    middle, rps = capacity[len(capacity) // 2]
    return ProfilingResult(capacity, tuple(latency), downtime_s(job, middle, 0.5 * rps, seed))


#: Many runs meet the same job: it is profiled once per process.
_found = lru_cache(maxsize=16)(findings)


def capacity_rps(job: SimulatedJob, executors: int, seed: int = 1) -> float:
    """What a fleet processes when more arrives than it can.

    First rates double until the job falls behind. Then it is run a little above what it processed
    there, for a micro-batch job far behind commits too seldom to be measured well.
    """
    rate_rps, growth = FIRST_RPS * executors, 2.0
    for _ in range(MOST_RUNS):
        processed_rps = _processed_rps(_start(job, executors, rate_rps, seed).finish())
        if processed_rps >= 0.95 * rate_rps:
            rate_rps *= growth
        elif growth == OVERLOAD:
            return processed_rps
        else:
            rate_rps, growth = OVERLOAD * processed_rps, OVERLOAD
    raise ConfigError(f"{executors} executors carry any rate: there is no capacity to profile")


def downtime_s(job: SimulatedJob, executors: int, rate_rps: float, seed: int = 1) -> float:
    """How much longer than usual no record departs around a rescale."""
    engine = _start(job, executors, rate_rps, seed)
    engine.apply(executors + 1, float(SETTLE_S))
    departures = engine.finish().departures
    at_s = np.array([0.0, *_rises(departures)])
    gaps, settled = np.diff(at_s), at_s[1:] <= SETTLE_S
    before, after = gaps[settled], gaps[~settled]
    usual_s = float(before.max()) if len(before) else 0.0
    return max(0.0, float(after.max()) - usual_s) if len(after) else float(WATCH_S)


def _latencies(job: SimulatedJob, executors: int, most_rps: float, seed: int) -> list[LatencyPoint]:
    """Latency at rising rates, up to the one at which it is no longer normal."""
    points: list[LatencyPoint] = []
    for share in SHARES:
        rate_rps = share * most_rps
        latency_s = _latency_s(job, executors, rate_rps, seed)
        lowest_s = min((point[2] for point in points), default=latency_s)
        if latency_s > NORMAL_LATENCY_FACTOR * lowest_s:
            break
        points.append((executors, rate_rps, latency_s))
    return points


def _latency_s(job: SimulatedJob, executors: int, rate_rps: float, seed: int) -> float:
    """What the engine reports or what records waited, whichever is longer."""
    engine = _start(job, executors, rate_rps, seed)
    engine.read(float(SETTLE_S))
    instants = range(SETTLE_S + READ_EVERY_S, SETTLE_S + WATCH_S + 1, READ_EVERY_S)
    latencies_s = [engine.read(float(at_s)).latency_s for at_s in instants]
    reported = [latency_s for latency_s in latencies_s if latency_s is not None]
    waited_s = Delays.of(engine.finish(), float(SETTLE_S)).mean()
    return max(waited_s, sum(reported) / len(reported) if reported else 0.0)


def _start(job: SimulatedJob, executors: int, rate_rps: float, seed: int) -> Engine:
    return job.start([rate_rps] * (SETTLE_S + WATCH_S), executors=executors, seed=seed)


def _processed_rps(outcome: Outcome) -> float:
    """The mean rate of departures from the first rise after a while to the last one."""
    departures = outcome.departures
    rises = [at_s for at_s in _rises(departures) if at_s > WATCH_S]
    if len(rises) < 2:
        return departures.records[-1] / outcome.duration_s
    ends = np.searchsorted(departures.at_s, [rises[0], rises[-1]], "right") - 1
    first, last = np.asarray(departures.records)[ends]
    return float(last - first) / (rises[-1] - rises[0])


def _rises(curve: Curve) -> list[float]:
    """The instants up to which the curve has just risen."""
    records = curve.records
    return [curve.at_s[i] for i in range(1, len(records)) if records[i] > records[i - 1]]
