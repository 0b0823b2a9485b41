"""A simulated Flink-like job: records flow through one by one, and a rescale stops the job.

`continuous_run` runs it, `dataflow` says how fast, and `gauges` what its instruments show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from penstock.core.errors import ConfigError
from penstock.simulation.engines.continuous_run import ContinuousRun
from penstock.simulation.engines.dataflow import Dataflow, Operator
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.faults import Fault

_THREE_STAGES = (
    Operator("source", 20e-6),
    Operator("map", 30e-6, upstream=("source",)),
    Operator("window", 50e-6, upstream=("map",), selectivity=0.01, keyed=True),
)


class ContinuousJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job on a Flink-like engine.

    The defaults make a small stateful job: three operators, about 10,000 records/s per worker,
    stopped for some 3 s by a rescale. docs/simulated-jobs.md says what each field means.
    """

    engine_name: ClassVar[str] = "continuous"

    operators: tuple[Operator, ...] = _THREE_STAGES
    cores_per_executor: Annotated[int, Meta(ge=1)] = 1
    contention: Annotated[float, Meta(ge=0)] = 0.01
    late_contention: Annotated[float, Meta(ge=0)] = 0.0
    late_after_s: Annotated[float, Meta(gt=0)] = 10.0
    late_for_s: Annotated[float, Meta(ge=0)] = 0.0
    hot_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.0
    partitions: Annotated[int, Meta(ge=1)] = 64
    speed_spread: Annotated[float, Meta(ge=0, lt=1)] = 0.02
    capacity_noise: Annotated[float, Meta(ge=0)] = 0.02
    measurement_noise: Annotated[float, Meta(ge=0)] = 0.02
    startup: Startup = Startup()
    wait_for_workers_s: Annotated[float, Meta(ge=0)] = 20.0
    restart_s: Annotated[float, Meta(ge=0)] = 2.0
    restart_spread: Annotated[float, Meta(ge=0, le=1)] = 0.2
    join_s: Annotated[float, Meta(ge=0)] = 0.0
    warmup_s: Annotated[float, Meta(ge=0)] = 0.0
    cold_fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    catch_up_fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    state_bytes: Annotated[float, Meta(ge=0)] = 100e6
    restore_bytes_per_s: Annotated[float, Meta(gt=0)] = 100e6
    detect_loss_s: Annotated[float, Meta(ge=0)] = 5.0
    checkpoint_interval_s: Annotated[float, Meta(ge=0)] = 5.0
    busy_at_saturation: Annotated[float, Meta(gt=0, le=1)] = 0.95
    busy_exponent: Annotated[float, Meta(gt=0)] = 1.0
    cpu_exponent: Annotated[float, Meta(gt=0)] = 1.0
    calm_loss_in_busy: Annotated[float, Meta(ge=-2, le=1)] = 1.0
    calm_loss_in_cpu: Annotated[float, Meta(ge=0, le=1)] = 1.0
    pressed_loss_in_busy: Annotated[float, Meta(ge=0, le=1)] = 1.0
    pressed_loss_in_cpu: Annotated[float, Meta(ge=0, le=1)] = 1.0
    calm_backpressure_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.0
    pressed_backpressure_fraction: Annotated[float, Meta(ge=0, le=1)] = 1.0
    idle_cpu_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.08
    full_cpu_fraction: Annotated[float, Meta(ge=0)] = 1.06
    restart_cpu_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.5
    idle_memory_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.25
    full_memory_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.75
    pipeline_latency_s: Annotated[float, Meta(ge=0)] = 0.05
    arrival_cv2: Annotated[float, Meta(ge=0)] = 1.0

    def __post_init__(self) -> None:
        Dataflow(self.operators)
        if not self.restore_bytes_per_s > 0.0:
            raise ConfigError(f"restore_bytes_per_s must be positive: {self.restore_bytes_per_s}")

    def capacity_rps(self, executors: int) -> float:
        """The rate that a fleet of mean speeds keeps up with.

        The slowest worker sets the pace: 1 - s + 2 s / (n + 1) for n speeds uniform in 1 ± s.

        >>> job = ContinuousJob(contention=0.0, speed_spread=0.0)
        >>> job.capacity_rps(0), round(job.capacity_rps(1)), round(job.capacity_rps(4))
        (0.0, 10000, 40000)
        >>> round(ContinuousJob().capacity_rps(16))
        136675
        """
        working = min(executors, self.partitions)
        slowest = 1.0 - self.speed_spread * (working - 1) / (working + 1)
        # A hot key makes its worker the bottleneck, whichever speed that happens to have.
        speeds = [1.0 if self.hot_fraction else slowest] * working
        regime = Dataflow(self.operators).regime(
            speeds,
            cores=self.cores_per_executor,
            contention=self.contention,
            hot_fraction=self.hot_fraction,
        )
        return regime.capacity_rps

    def start(
        self, rates_rps: Sequence[float], *, executors: int, seed: int, faults: Sequence[Fault] = ()
    ) -> ContinuousRun:
        """A run with one arrival rate per second, warm, with `executors` already there."""
        return ContinuousRun(self, rates_rps, executors=executors, seed=seed, faults=faults)
