"""Profile a real job: what each size of its fleet can carry, and how fast it answers.

`ProfilePlan` says which sizes are run at which rates. `run_profile` runs them on the testbed, a
fleet of fixed size at a time, with a journal each. `profile_of` reads the profile from their steps;
it is what Phoebe decides from. `lab.experiments.profiling` does the same with simulated jobs.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path

from msgspec import Struct

from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.core.model import Batch, Step
from penstock.core.phrases import executors as in_words
from penstock.core.phrases import rate
from penstock.lab.experiments.profiling import NORMAL_LATENCY_FACTOR
from penstock.policies.algorithms.profile import LatencyPoint, ProfilingResult
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.toml import LiveSettings, Settings
from penstock.spark.attach import Attachment
from penstock.testbed.demo.attached import WatchedJournal
from penstock.testbed.demo.environment import Say, demo_environment
from penstock.testbed.demo.plan import MAX_EXECUTORS, SLO_S, TRIGGER_S, DemoPlan
from penstock.testbed.jobs.benchmark_jobs import find_job

SIZES = (1, 2, 4)
#: Of what a fleet would carry if batches cost nothing but their records; the last one saturates it.
SHARES = (0.3, 0.6, 1.5)
HOLD_S = 45.0
#: The load begins up to `LEAD_S` after the environment is handed over; a third must be longer.
SHORTEST_HOLD_S, LONGEST_HOLD_S = 20.0, 3600.0
SETTLING = 1 / 3  #: The part of each rate in which the job settles, and is not measured.
#: A rate is steady if the last batches take at most this many times as long as those before.
STEADY_FACTOR = 1.5
KEEPS_UP = 0.95  #: A fleet that does less than this part of what arrives is saturated.
WARM_UP_S = 90.0
LOOK_EVERY_S = 0.5
READ_EVERY_S = 3.0


class ProfileRun(DemoPlan, frozen=True, kw_only=True):
    """One size of the fleet under several rates, each held for `hold_s`.

    >>> ProfileRun("q1", load_s=6, executors=2, held_rps=(100.0, 300.0), hold_s=3).rates_rps()
    [100.0, 100.0, 100.0, 300.0, 300.0, 300.0]
    """

    executors: int
    held_rps: tuple[float, ...]
    hold_s: int

    def rates_rps(self) -> list[float]:
        return [rate_rps for rate_rps in self.held_rps for _ in range(self.hold_s)]


class ProfilePlan(Struct, frozen=True):
    """Which sizes of a job are run at which shares of what they would carry at best.

    >>> [run.held_rps for run in ProfilePlan("q1", (1, 4), (0.3, 1.5)).runs()]
    [(300.0, 1500.0), (1200.0, 6000.0)]
    """

    job: str
    sizes: tuple[int, ...] = SIZES
    shares: tuple[float, ...] = SHARES
    hold_s: float = HOLD_S

    def __post_init__(self) -> None:
        find_job(self.job)
        if not self.sizes or not all(1 <= size <= MAX_EXECUTORS for size in self.sizes):
            raise ConfigError(f"sizes must be whole numbers from 1 to {MAX_EXECUTORS}")
        if not self.shares or not all(0.0 < share <= 5.0 for share in self.shares):
            raise ConfigError("shares must be greater than 0 and at most 5")
        if not SHORTEST_HOLD_S <= self.hold_s <= LONGEST_HOLD_S:
            bounds = f"{SHORTEST_HOLD_S:g} s and {LONGEST_HOLD_S:g} s"
            raise ConfigError(f"each rate must be held between {bounds}, not {self.hold_s:g} s")

    def runs(self) -> list[ProfileRun]:
        """One for each size, the rates in rising order: a backlog would spoil a lower one."""
        most_rps = 1.0 / DemoPlan(self.job).record_s
        hold_s = ceil(self.hold_s)
        return [
            ProfileRun(
                self.job,
                load_s=hold_s * len(self.shares),
                executors=size,
                held_rps=tuple(share * size * most_rps for share in sorted(set(self.shares))),
                hold_s=hold_s,
            )
            for size in sorted(set(self.sizes))
        ]

    @property
    def lasts_s(self) -> float:
        return float(sum(run.load_s for run in self.runs()))


class RateFinding(Struct, frozen=True):
    """A size under a rate: what it processed per second of work, and how long records took."""

    executors: int
    offered_rps: float
    processed_rps: float  #: What batches get through while they run.
    latency_s: float
    is_saturated: bool  #: Batches follow each other, and do less than what arrives.
    is_steady: bool  #: Batches do not grow.


def run_profile(plan: ProfilePlan, journals: Mapping[int, Path], say: Say) -> list[RateFinding]:
    """Run the plan on the testbed, size by size, with a journal for each."""
    found: list[RateFinding] = []
    for run in plan.runs():
        rates = ", ".join(map(rate, run.held_rps))
        say(f"{in_words(run.executors)} at {rates}, {run.hold_s} s each")
        began_at_s, steps = _recorded(run, journals[run.executors], say)
        found += rate_findings(run, began_at_s, steps)
    return found


def _recorded(run: ProfileRun, path: Path, say: Say) -> tuple[float, list[Step]]:
    """When the load began, and the steps until it was over."""
    spec = read_policy_spec(f"static:{run.executors}", {"max_executors": MAX_EXECUTORS})
    goal = Goal(slo_s=SLO_S)
    rates = ", ".join(f"{rate_rps:g}" for rate_rps in run.held_rps)
    facts = {"workload": f"{rates} records/s, {run.hold_s} s each", "job": run.job}
    facts["pace"] = f"{run.pace_s:g} s per record"
    with demo_environment(run, say, executors=run.executors, warmup_s=WARM_UP_S) as environment:
        clock = WallClock()
        began_at_s = clock.now()
        book = WatchedJournal(path, journal_header(spec, goal, engine="spark", **facts))
        live = LiveSettings(every_s=READ_EVERY_S)
        with Attachment(environment.spark, Settings(spec, goal, live=live), journal=book):
            for _ in clock.ticks(LOOK_EVERY_S):
                if environment.is_over():
                    return began_at_s, book.steps
    raise AssertionError("a clock ticks for ever")


def rate_findings(
    run: ProfileRun, began_at_s: float, steps: Sequence[Step]
) -> Iterator[RateFinding]:
    """What was seen at each of the rates."""
    batches = [batch for step in steps if step.snapshot for batch in step.snapshot.batches]
    for number, rate_rps in enumerate(run.held_rps):
        from_s = began_at_s + (number + SETTLING) * run.hold_s
        to_s = began_at_s + (number + 1) * run.hold_s
        during = [batch for batch in batches if from_s <= batch.started_at_s < to_s]
        if during:
            yield _finding(run.executors, rate_rps, during)


def _finding(executors: int, rate_rps: float, batches: Sequence[Batch]) -> RateFinding:
    records = sum(batch.input_records for batch in batches)
    spent_s = sum(batch.duration_s for batch in batches)
    mean_s = spent_s / len(batches)
    half = len(batches) // 2
    before, after = batches[:half], batches[half:]
    grown = _mean_s(after) > STEADY_FACTOR * _mean_s(before) if before else True
    processed_rps = records / spent_s if spent_s > 0.0 else 0.0
    return RateFinding(
        executors,
        rate_rps,
        processed_rps=processed_rps,
        # A record waits for the start of the next batch, half an interval on average.
        latency_s=max(TRIGGER_S, mean_s) / 2.0 + mean_s,
        # Batches that are longer than their trigger may still do all that arrives.
        is_saturated=mean_s > TRIGGER_S and processed_rps < KEEPS_UP * rate_rps,
        is_steady=not grown,
    )


def _mean_s(batches: Sequence[Batch]) -> float:
    return sum(batch.duration_s for batch in batches) / len(batches)


def unsaturated(found: Sequence[RateFinding]) -> list[int]:
    """Sizes that no rate saturated: their capacity is only known to be at least what they carried.

    >>> one = RateFinding(1, 1500.0, 950.0, 9.0, is_saturated=True, is_steady=False)
    >>> two = RateFinding(2, 600.0, 1800.0, 1.5, is_saturated=False, is_steady=True)
    >>> unsaturated([one, two])
    [2]
    """
    saturated = {one.executors for one in found if one.is_saturated}
    return sorted({one.executors for one in found} - saturated)


def profile_of(found: Sequence[RateFinding]) -> ProfilingResult:
    """Capacity of each size and latency at each rate that it carried.

    Capacity is what a saturated fleet processed; of one that is `unsaturated`, the highest rate
    that it carried. Rates at which latency is far above the lowest of the size are left out. On
    Spark executors come and go while the job runs, so a rescale stops nothing.
    """
    if not found:
        raise ConfigError("no batch was committed at any rate: hold the rates for longer")
    capacity: dict[int, float] = {}
    latency: list[LatencyPoint] = []
    for size in sorted({one.executors for one in found}):
        own = [one for one in found if one.executors == size]
        saturated = [one.processed_rps for one in own if one.is_saturated]
        carried = [one for one in own if not one.is_saturated]
        capacity[size] = max(saturated or [one.offered_rps for one in carried])
        lowest_s = min((one.latency_s for one in carried), default=0.0)
        latency += [
            (size, one.offered_rps, one.latency_s)
            for one in carried
            if one.latency_s <= NORMAL_LATENCY_FACTOR * lowest_s
            and one.offered_rps <= capacity[size]
        ]
    if not latency:
        raise ConfigError("no size carried any of its rates: give lower shares")
    return ProfilingResult(tuple(capacity.items()), tuple(latency), downtime_s=0.0)
