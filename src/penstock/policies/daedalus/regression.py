"""Capacity from a straight line: what an executor processes at each level of cpu.

Throughput grows with cpu along a line (Daedalus, section 3.1), so a few samples at moderate load
tell what full load would give. Each executor has a line of its own, kept as five running sums:
one pass, nothing stored, exact. Keys are not spread evenly, so when the busiest executor is full
the others are not: an executor counts at the cpu that it will then have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, sqrt
from typing import Literal

from msgspec import Struct

from penstock.core.model import Snapshot

#: How far behind the busiest executor another stays as the load grows.
Skew = Literal["proportional", "additive"]
#: A line is believed from this many samples on, where its standard error is below this fraction.
FEWEST_SAMPLES, MOST_ERROR = 4, 0.03
#: The least part of how throughput varies that a line must explain: at a steady load there is none.
LEAST_EXPLAINED = 0.5
MOST_GAIN = 2.0  #: A line counts for this many times of what proportion to cpu would give, at most.


class RunningRegression(Struct, frozen=True, gc=False, array_like=True):
    """A least-squares line as Welford's running sums: means, and sums of squared deviations.

    One sample after the other gives exactly the line through all of them.

    >>> line = RunningRegression.through([0.2, 0.4, 0.6, 0.8], [1500.0, 3900.0, 6100.0, 8500.0])
    >>> line.slope, line.intercept, line.at(1.0)
    (11600.0, -800.0, 10800.0)
    """

    samples: int = 0
    x_mean: float = 0.0
    y_mean: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    @classmethod
    def through(cls, xs: Iterable[float], ys: Iterable[float]) -> RunningRegression:
        line = cls()
        for x, y in zip(xs, ys, strict=True):
            line = line.seen(x, y)
        return line

    def seen(self, x: float, y: float) -> RunningRegression:
        samples = self.samples + 1
        x_off, y_off = x - self.x_mean, y - self.y_mean
        x_mean, y_mean = self.x_mean + x_off / samples, self.y_mean + y_off / samples
        # One deviation from the old mean times one from the new: that is what makes it exact.
        return RunningRegression(
            samples,
            x_mean,
            y_mean,
            self.xx + x_off * (x - x_mean),
            self.xy + x_off * (y - y_mean),
            self.yy + y_off * (y - y_mean),
        )

    def sloping_as(self, others: Sequence[RunningRegression]) -> RunningRegression:
        """The line through the middle of its own points that rises as those of all do.

        Only how each one's points lie about their own middle counts, so that executors which
        differ by a constant do not blur the slope. What happens to a job happens to all of its
        executors at once: many of them are no more samples than one.

        >>> steep = RunningRegression.through([0.2, 0.4], [20.0, 60.0])
        >>> RunningRegression.through([0.5], [70.0]).sloping_as([steep, steep]).at(1.0)
        170.0
        """
        return RunningRegression(
            max(other.samples for other in others),
            self.x_mean,
            self.y_mean,
            sum(other.xx for other in others),
            sum(other.xy for other in others),
            sum(other.yy for other in others),
        )

    @property
    def slope(self) -> float:
        """Change of y per unit of x; 0 if all points have the same x."""
        return self.xy / self.xx if self.xx > 0.0 else 0.0

    @property
    def intercept(self) -> float:
        return self.y_mean - self.slope * self.x_mean

    def error_at(self, x: float) -> float:
        """The standard error of the line at x: it grows with the distance from the points.

        >>> line = RunningRegression.through([0.1, 0.2, 0.3, 0.4], [11.0, 19.0, 31.0, 39.0])
        >>> round(line.error_at(0.25), 2), round(line.error_at(1.0), 2)
        (0.63, 4.29)
        """
        if self.samples < 3 or self.xx <= 0.0:
            return inf
        variance = max(0.0, self.yy - self.xy * self.xy / self.xx) / (self.samples - 2)
        off = x - self.x_mean
        return sqrt(variance * (1.0 / self.samples + off * off / self.xx))

    def is_firm_at(self, x: float) -> bool:
        """Whether the points make a rising line that can be followed as far as x."""
        explains = self.xy * self.xy > LEAST_EXPLAINED * self.xx * self.yy
        rises = self.samples >= FEWEST_SAMPLES and self.slope > 0.0 and explains
        return rises and self.error_at(x) <= MOST_ERROR * self.at(x)

    def at(self, x: float) -> float:
        return self.y_mean + self.slope * (x - self.x_mean)


def full_cpu_fractions(
    mean_cpus: Sequence[float], full: float = 1.0, skew: Skew = "proportional"
) -> list[float]:
    """The cpu that each executor has when the busiest is full: as far behind as it is now.

    In proportion as the paper has it, or by the same difference as its published code has it.

    >>> full_cpu_fractions([0.5, 0.75, 0.25]), full_cpu_fractions([0.5, 0.75], skew="additive")
    ([0.666667, 1.0, 0.333333], [0.75, 1.0])
    """
    busiest = max(mean_cpus, default=0.0)
    if skew == "additive":
        return [full - (busiest - cpu) for cpu in mean_cpus]
    return [full * cpu / busiest if busiest > 0.0 else full for cpu in mean_cpus]


def fleet_capacity_rps(
    lines: Sequence[RunningRegression],
    full: float = 1.0,
    least_cpu: float = 0.0,
    skew: Skew = "proportional",
) -> int | None:
    """What the executors can process together, also while some are hardly known.

    One whose points make no line borrows the slope of all; if that is not known either, its
    throughput grows in proportion to its cpu. An idle executor uses cpu too, so proportion says
    too little at low load: below `least_cpu` it does not count, and the capacity is unknown.

    >>> known = RunningRegression.through([0.2, 0.4, 0.6, 0.8], [250.0, 450.0, 650.0, 850.0])
    >>> barely = RunningRegression.through([0.5], [550.0])
    >>> fleet_capacity_rps([known, barely]), fleet_capacity_rps([barely])
    (2100, 1100)
    >>> fleet_capacity_rps([barely], least_cpu=0.7)
    """
    fractions = full_cpu_fractions([line.x_mean for line in lines], full, skew)
    total = 0
    for line, cpu in zip(lines, fractions, strict=True):
        in_proportion_rps = line.y_mean / line.x_mean * cpu if line.x_mean > 0.0 else 0.0
        best = line if line.is_firm_at(cpu) else line.sloping_as(lines)
        if best.is_firm_at(cpu):
            # Points that lie close together may make any line; none is worth a miracle.
            total += int(min(best.at(cpu), MOST_GAIN * in_proportion_rps))
        elif line.x_mean >= least_cpu:
            total += int(in_proportion_rps)
        else:
            return None
    return max(0, total)


def executor_means(minute: Sequence[Snapshot]) -> dict[str, tuple[float, float]]:
    """The mean cpu and throughput of each executor over the samples that have both."""
    samples: dict[str, list[tuple[float, float]]] = {}
    for snapshot in minute:
        for one in snapshot.executors:
            if one.cpu_fraction is not None and one.throughput_rps is not None:
                samples.setdefault(one.id, []).append((one.cpu_fraction, one.throughput_rps))
    return {
        name: (sum([cpu for cpu, _ in seen]) / len(seen), sum([rps for _, rps in seen]) / len(seen))
        for name, seen in samples.items()
    }


def working_fraction(minute: Sequence[Snapshot]) -> float | None:
    """The share of its trigger interval that a micro-batch job works; ``None`` without batches."""
    durations_s = [batch.duration_s for snapshot in minute for batch in snapshot.batches]
    trigger_s = minute[-1].trigger_interval_s
    if not durations_s or not trigger_s:
        return None
    return min(1.0, sum(durations_s) / len(durations_s) / trigger_s)


def cpu_at_full_trigger(line: RunningRegression) -> float:
    """The cpu of the busiest executor when batches fill the trigger interval."""
    if line.is_firm_at(1.0):
        return min(1.0, line.at(1.0))
    return min(1.0, line.y_mean / line.x_mean) if line.x_mean > 0.0 else 1.0


class Observed(Struct, frozen=True, gc=False, array_like=True):
    """The capacity that was found for a number of executors."""

    executors: int
    capacity_rps: int


class ScaleOuts(Struct, frozen=True, gc=False, array_like=True):
    """What each number of executors can process: seen ones as seen, others in proportion.

    A size that is seen again counts as the mean of what it was known for and what it shows now.
    A size that was never seen has the average capacity per executor of the present one.

    >>> table = ScaleOuts()
    >>> for executors, capacity in ((2, 21001), (2, 20000), (3, 28500)):
    ...     table = table.seen(executors, capacity)
    >>> [table.capacity_rps(executors) for executors in (1, 2, 3, 4)]
    [9500, 20500, 28500, 38000]
    """

    observed: tuple[Observed, ...] = ()
    executors: int = 0
    current_rps: int = 0

    def seen(self, executors: int, capacity_rps: int, most: int = 256) -> ScaleOuts:
        """The table after one more sample; of more than `most` sizes the farthest is forgotten."""
        old = next((row for row in self.observed if row.executors == executors), None)
        now = capacity_rps if old is None else int((old.capacity_rps + capacity_rps) / 2)
        rows = [row for row in self.observed if row.executors != executors]
        if len(rows) >= most:
            rows.remove(max(rows, key=lambda row: abs(row.executors - executors)))
        rows = sorted([*rows, Observed(executors, now)], key=lambda row: row.executors)
        return ScaleOuts(tuple(rows), executors, capacity_rps)

    def capacity_rps(self, executors: int) -> int:
        return self.up_to(executors)[-1]

    def up_to(self, most: int) -> list[int]:
        """The capacities of 0, 1, ... `most` executors: as observed, else in proportion."""
        per_executor = self.current_rps / self.executors if self.executors else 0.0
        capacities = [int(executors * per_executor) for executors in range(most + 1)]
        for row in self.observed:
            if row.executors <= most and row.capacity_rps:
                capacities[row.executors] = row.capacity_rps
        return capacities
