"""A simulated Structured Streaming job: a trigger, a fixed cost per batch, stages in waves.

`batches` runs it, `stages` says what a batch costs.
"""

from functools import lru_cache
from math import exp, inf
from statistics import NormalDist
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from penstock.core.errors import ConfigError
from penstock.simulation.engines.batches import MicroBatchRun
from penstock.simulation.engines.engine import Rates
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.stages import Stage, plan, tasks_per_executor
from penstock.simulation.faults import Faults

NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]


class MicroBatchJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulated Structured Streaming query; by default about 10,000 records/s per executor.

    docs/simulated-jobs.md says what each field means.

    Twelve executors of two cores run 192 tasks in 8 and 200 tasks in 9 waves. Each record costs
    80 us in the first and 70 us in the second stage, and 11 % more for contention:

        base = 0.1 + 0.15 + 8 x 1 ms + 9 x 1 ms = 0.267 s
        per record = 1.11 x (8/192 x 80 us + 9/200 x 70 us) = 7.1965 us
        capacity = (2 s - 0.267 s) / 7.1965 us / 2 s = 120,406 records/s

    >>> round(MicroBatchJob().capacity_rps(12))
    120406
    """

    engine_name: ClassVar[str] = "micro-batch"

    trigger_interval_s: Annotated[float, Meta(gt=0)] = 2.0
    max_offsets_per_trigger: Annotated[float, Meta(gt=0)] | None = None
    max_batch_s: Annotated[float, Meta(gt=0)] | None = None
    planning_s: Annotated[float, Meta(gt=0)] = 0.1
    commit_s: NonNegative = 0.15
    launch_s: NonNegative = 0.0
    batch_core_s: NonNegative = 0.0
    stages: tuple[Stage, ...] = (
        Stage("source", tasks=192, core_s_per_record=80e-6),
        Stage("aggregate", tasks=200, core_s_per_record=70e-6, stateful=True),
    )
    cores_per_executor: Annotated[int, Meta(ge=1)] = 2
    contention: NonNegative = 0.01
    hot_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.0
    speed_spread: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    startup: Startup = Startup(10.0, 30.0)
    cold_s: NonNegative = 15.0
    cold_fraction: Fraction = 0.5
    join_s: NonNegative = 0.0
    decommission_s: NonNegative = 3.0
    noise_fraction: NonNegative = 0.05
    straggler_probability: Annotated[float, Meta(ge=0, le=1)] = 0.01
    straggler_factor: Annotated[float, Meta(ge=1)] = 1.5
    state_bytes: NonNegative = 200e6
    state_load_bytes_per_s: Annotated[float, Meta(gt=0)] = 84e6
    executor_memory_bytes: Annotated[float, Meta(gt=0)] = 4e9
    idle_cpu_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.05
    full_cpu_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.9

    def __post_init__(self) -> None:
        if not self.stages:
            raise ConfigError("a micro-batch job needs at least one stage")
        if not (self.trigger_interval_s > 0.0 and self.planning_s > 0.0):
            raise ConfigError(
                "trigger_interval_s and planning_s must be positive, "
                f"not {self.trigger_interval_s} and {self.planning_s}"
            )

    @property
    def fixed_s(self) -> float:
        """What a batch costs before its first record, whatever its fleet."""
        return self.planning_s + self.launch_s + self.commit_s

    def capacity_rps(self, executors: int) -> float:
        """The highest rate whose batches fit the trigger interval."""
        return _capacity_rps(self, executors)

    def start(
        self, rates_rps: Rates, *, executors: int, seed: int, faults: Faults = ()
    ) -> MicroBatchRun:
        """A run with one arrival rate per second, warm, with `executors` already there."""
        return MicroBatchRun(self, rates_rps, executors=executors, seed=seed, faults=faults)

    def noise_table(self) -> list[float]:
        """Equally likely factors of a batch's work."""
        return _noise_table(self.noise_fraction, self.straggler_probability, self.straggler_factor)

    def cost_factor(self, executors: int) -> float:
        """What a record costs in a fleet of that size, relative to one executor alone."""
        return 1.0 + self.contention * max(0, executors - 1)


@lru_cache(maxsize=1024)
def _capacity_rps(job: MicroBatchJob, executors: int) -> float:
    if executors <= 0:
        return 0.0
    speeds, cores = [1.0] * executors, job.cores_per_executor
    counts = [tasks_per_executor(stage.tasks, cores, speeds) for stage in job.stages]
    factor, hot = job.cost_factor(executors), job.hot_fraction
    ideal = plan(job.stages, counts, cores, speeds, cost_factor=factor, hot_fraction=hot)
    room_s = job.trigger_interval_s - job.fixed_s - ideal.base_s
    if room_s <= 0.0:
        return 0.0
    records = room_s / ideal.s_per_record if ideal.s_per_record > 0.0 else inf
    if job.max_offsets_per_trigger is not None:
        records = min(records, job.max_offsets_per_trigger)
    return records / job.trigger_interval_s


@lru_cache(maxsize=64)
def _noise_table(noise: float, probability: float, straggler_factor: float) -> list[float]:
    """A thousand equally likely factors of a batch's work, whose mean is 1."""
    size, normal = 1000, NormalDist()
    stragglers = round(size * probability)
    table: list[float] = []
    for count, factor in ((size - stragglers, 1.0), (stragglers, straggler_factor)):
        table += [factor * exp(noise * normal.inv_cdf((i + 0.5) / count)) for i in range(count)]
    mean = sum(table) / size
    return [value / mean for value in table]
