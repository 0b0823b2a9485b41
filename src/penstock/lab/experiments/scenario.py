"""One experiment: a job, a load, what goes wrong, a seed. Run it under a policy."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from penstock.core.alarm import alarms_s
from penstock.core.clock import SimulatedClock
from penstock.core.errors import ConfigError, unknown
from penstock.core.journal import MemoryJournal
from penstock.core.knowledge import Rescale
from penstock.core.model import Limits, Step
from penstock.core.protocols import Journal, Policy
from penstock.lab.experiments.profiling import profiled
from penstock.lab.experiments.score import Score, score
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.settings.notation import build, parse
from penstock.settings.policy_spec import PolicySpec, wire
from penstock.simulation import MAX_DURATION_S
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.engine import Engine, Outcome, SimulatedJob
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.sensors import impaired, is_impaired
from penstock.simulation.faults import Fault, SourceSilence, faults_outside, with_silence
from penstock.simulation.workloads.expressions import notes, parse_workload

ENGINES: dict[str, SimulatedJob] = {
    MicroBatchJob.engine_name: MicroBatchJob(),
    ContinuousJob.engine_name: ContinuousJob(),
}

DEFAULT_DURATION_S = 6 * 3600.0  #: How long a load without a natural end is run.

Watcher = Callable[[Step], None]


@lru_cache(maxsize=64)
def engine_named(text: str) -> SimulatedJob:
    """The job of an engine; options change what docs/simulated-jobs.md lists.

    >>> engine_named("micro-batch:state=4G").state_bytes
    4000000000.0
    """
    notation = parse(text)
    if (job := ENGINES.get(notation.name)) is None:
        raise unknown("engine", notation.name, ENGINES)
    if notation.positional:
        raise ConfigError(f"{notation.name}: expected key=value, not '{notation.positional[0]}'")
    return build(type(job), notation.options, notation.name) if notation.options else job


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named, reproducible experiment; the policy comes on top."""

    workload: str  #: In the one-line notation, as `engine`.
    engine: str = MicroBatchJob.engine_name
    seed: int = 1  #: The same seed gives the same run.
    duration_s: float | None = None  #: By default the natural length of the load, or six hours.
    start_executors: int | None = None  #: By default as `start_size` says.
    faults: tuple[Fault, ...] = ()

    @property
    def job(self) -> SimulatedJob:
        return engine_named(self.engine)

    def length_s(self) -> float:
        natural_s = parse_workload(self.workload).natural_duration_s()
        return self.duration_s or natural_s or DEFAULT_DURATION_S

    def rates(self) -> Sequence[float]:
        return _rates(self.workload, self.engine, self.seed, self.length_s())

    def alarms_s(self) -> Sequence[float]:
        """When a surge wakes a policy that asks for it; none while the sensor has faults."""
        if is_impaired(self.faults):
            return ()
        silences = tuple(fault for fault in self.faults if isinstance(fault, SourceSilence))
        return _alarms_s(self.workload, self.engine, self.seed, self.length_s(), silences)

    def notes(self) -> list[str]:
        """What this run does that the user may not expect, one sentence each."""
        workload = parse_workload(self.workload)
        duration_s = float(len(self.rates()))
        return notes(workload, self.job.capacity_rps) + faults_outside(self.faults, duration_s)

    def start_size(self, limits: Limits, policy: Policy | None = None) -> int:
        """That of a fixed fleet, else one that carries the first minute with a fifth to spare."""
        if self.start_executors is not None:
            return self.start_executors
        if isinstance(policy, Static):
            return min(max(policy.executors, limits.min_executors), limits.max_executors)
        first = self.rates()[:60]
        needed = 1.2 * sum(first) / len(first)
        fleet = max(1, limits.min_executors)
        while fleet < limits.max_executors and self.job.capacity_rps(fleet) < needed:
            fleet += 1
        return fleet


@dataclass(frozen=True, slots=True)
class Run:
    """The result of an experiment. `policy` is the one that ran, with its profile if it has one."""

    outcome: Outcome
    steps: list[Step]
    score: Score
    policy: Policy


def run(
    scenario: Scenario, policy: Policy, limits: Limits, goal: Goal, watch: Watcher = lambda _: None
) -> Run:
    """Let `policy` run the job of `scenario` to its end, and rate what came of it."""
    journal = MemoryJournal()
    policy = profiled(policy, scenario.job, limits.max_executors)
    outcome = simulate(scenario, policy, limits, journal, watch)
    return Run(outcome, journal.steps, score(outcome, goal, limits.max_executors), policy)


def simulate(
    scenario: Scenario,
    policy: Policy,
    limits: Limits,
    journal: Journal | None = None,
    watch: Watcher = lambda _: None,
) -> Outcome:
    """The bare run. A policy that needs profiling runs first gets them, against the same job."""
    policy = profiled(policy, scenario.job, limits.max_executors)
    rates, faults = scenario.rates(), scenario.faults
    size = scenario.start_size(limits, policy)
    engine = scenario.job.start(rates, executors=size, seed=scenario.seed, faults=faults)
    surges_s = scenario.alarms_s() if policy.wakes_on_surge else None
    end_s = float(len(rates))
    return steer(impaired(engine, faults), policy, limits, end_s, watch, journal, surges_s)


def steer(
    engine: Engine,
    policy: Policy,
    limits: Limits,
    end_s: float,
    watch: Watcher = lambda _: None,
    journal: Journal | None = None,
    surges_s: Sequence[float] | None = None,
    earlier: Iterable[Rescale] = (),
) -> Outcome:
    """Let `policy` run a started job to its end, after `earlier` rescales; `surges_s` wake it."""
    controller = wire(PolicySpec.of(policy, limits), engine, engine, journal=journal)
    controller.knowledge.rescales.extend(earlier)
    for step in controller.run(SimulatedClock(end_s, policy.period_s, surges_s)):
        watch(step)
    return engine.finish()


@lru_cache(maxsize=4)
def _rates(text: str, engine: str, seed: int, length_s: float) -> Sequence[float]:
    """Many policies meet the same load: it is worked out once per process."""
    if not 1.0 <= length_s <= MAX_DURATION_S:
        raise ConfigError(
            f"a run must last at least 1 s and at most {MAX_DURATION_S:.0f} s, not {length_s} s"
        )
    return tuple(parse_workload(text).rates(int(length_s), seed, engine_named(engine).capacity_rps))


@lru_cache(maxsize=4)
def _alarms_s(
    text: str, engine: str, seed: int, length_s: float, silences: tuple[Fault, ...]
) -> Sequence[float]:
    return tuple(alarms_s(with_silence(_rates(text, engine, seed, length_s), silences)))
