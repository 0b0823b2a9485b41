"""What a live run is given: a job, and a workload of hours that is compressed into its minutes.

The highest second of the workload is what the demo of that job has at its peak.
"""

from math import ceil

import numpy as np

from penstock.core.errors import ConfigError
from penstock.simulation.workloads.expressions import parse_workload
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.plan import DemoPlan
from penstock.testbed.jobs.benchmark_jobs import find_job

WAVE = "wave"  #: The load of the demo: low, one wave, low again.
#: How much of a fleet the load may fill: of a static one the peak, of any other the first seconds.
FILL = 0.7
FIRST_S = 10
#: While the job warms up: its executors are to have compiled their code. Of the first rate, or of
#: the mean rate where a load begins with next to nothing.
WARM_UP_SHARE, WARM_UP_LEAST = 0.5, 0.1
#: Policies cannot be run faster than this: executors take as long to start as ever.
HIGHEST_SPEED = 10.0
SHORTEST_S, LONGEST_S = 30, 24 * 3600


class LivePlan(DemoPlan, frozen=True, kw_only=True):
    """A job under a workload that is compressed into `load_s`.

    Three hours in three minutes; the peak is that of the demo of q11:

    >>> plan = LivePlan("q11", load_s=180, workload="sine:period=3h for 3h")
    >>> rates = plan.rates_rps()
    >>> len(rates), round(max(rates)), plan.speed
    (180, 3400, 10.0)
    """

    workload: str = WAVE

    def __post_init__(self) -> None:
        if not SHORTEST_S <= self.load_s <= LONGEST_S:
            raise ConfigError(
                f"a live run lasts {SHORTEST_S} s to {LONGEST_S / 3600:g} h, not {self.load_s} s"
            )
        if self.workload != WAVE:
            self.natural_s()

    def natural_s(self) -> float:
        """How long the workload lasts by itself."""
        if self.workload == WAVE:
            return float(self.load_s)
        found = parse_workload(self.workload).natural_duration_s()
        if found is None:
            raise ConfigError(
                f"workload '{self.workload}' has no end: say how much of it is played, "
                f"such as '{self.workload} for 3h'"
            )
        return found

    @property
    def heavy(self) -> bool:
        """Never: all jobs have the same trigger and start alike, as in the runs that are kept."""
        return False

    @property
    def description(self) -> str:
        if self.workload == WAVE:
            return super().description
        return f"{self.workload} in {self.load_s} s, up to {self.peak_rps:g} records/s"

    @property
    def low_rps(self) -> float:
        """The load in the seconds before the run, which is the one that it begins with."""
        if self.workload == WAVE:
            return super().low_rps
        return float(np.mean(self.rates_rps()[:FIRST_S]))

    @property
    def warm_up_rps(self) -> float:
        if self.workload == WAVE:
            return super().warm_up_rps
        mean_rps = float(np.mean(self.rates_rps()))
        return max(WARM_UP_SHARE * self.low_rps, WARM_UP_LEAST * mean_rps)

    @property
    def peak_rps(self) -> float:
        if self.workload == WAVE:
            return super().peak_rps
        return self.full_peak_rps or self._suited_rps(find_job(self.job).demo.peak_rps)

    @property
    def speed(self) -> float:
        if self.workload == WAVE:
            return super().speed
        return min(HIGHEST_SPEED, max(1.0, self.natural_s() / self.load_s))

    def rates_rps(self) -> list[float]:
        if self.workload == WAVE:
            return super().rates_rps()
        length = ceil(self.natural_s())
        rates = parse_workload(self.workload).rates(length, seed=1, capacity_rps=float)
        sums = np.concatenate(([0.0], np.cumsum(rates)))
        edges = np.linspace(0.0, length, self.load_s + 1)
        means = np.diff(np.interp(edges, np.arange(length + 1), sums))
        if means.max() <= 0.0:
            raise ConfigError(f"workload '{self.workload}' has no records")
        compressed: list[float] = (means * (self.peak_rps / means.max())).round(3).tolist()
        return compressed

    def fleet_for(self, rate_rps: float) -> int:
        """The executors of which that rate fills at most `FILL`.

        >>> LivePlan("q11", load_s=180).fleet_for(2600.0)
        4
        """
        needed = ceil(rate_rps * self.record_s / FILL)
        return min(sizes.MAX_EXECUTORS, max(1, needed))
