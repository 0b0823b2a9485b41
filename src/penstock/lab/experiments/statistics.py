"""Means, intervals, tests and empirical distributions of small samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, sqrt
from statistics import stdev
from typing import Any

from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.lab.experiments import lab_module

#: Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom; 1.96 from there on. A
#: table, because `compare` prints intervals without the extra that has SciPy.
STUDENT_95 = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
)  # fmt: skip


def mean(values: Sequence[float]) -> float:
    if not values:
        raise ConfigError("a mean needs at least one value")
    return sum(values) / len(values)


def interval_95(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean; 0 for a single value.

    >>> round(interval_95([1.0, 2.0, 3.0]), 3)  # 4.30 x 1 / sqrt(3)
    2.483
    """
    count = len(values)
    if count < 2:
        return 0.0
    point = STUDENT_95[count - 2] if count - 2 < len(STUDENT_95) else 1.96
    return point * stdev(values) / sqrt(count)


def scipy_stats() -> Any:
    return lab_module("scipy.stats", "a statistical test")


def welch_p(left: Sequence[float], right: Sequence[float]) -> float:
    """The two-sided p of Welch's t-test, which does not assume equal variances.

    Two samples without any variance either differ for certain or not at all.

    >>> round(welch_p([20.0, 22.0, 19.0, 21.0], [28.0, 26.0, 27.0, 31.0]), 5)
    0.00204
    """
    moments = [(mean(side), stdev(side), len(side)) for side in (left, right)]
    if all(deviation == 0.0 for _, deviation, _ in moments):
        return 1.0 if moments[0][0] == moments[1][0] else 0.0
    test = scipy_stats().ttest_ind_from_stats(*moments[0], *moments[1], equal_var=False)
    return float(test.pvalue)


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation: 1 if both sides order alike, -1 if they order in reverse.

    A side whose values are all equal has no order: 0.

    >>> spearman([(1.0, 3.0), (2.0, 1.0), (3.0, 2.0), (4.0, 4.0)])
    0.4
    """
    if len(pairs) < 2:
        raise ConfigError(f"a rank correlation needs at least two pairs, not {len(pairs)}")
    left, right = zip(*pairs, strict=True)
    if len(set(left)) == 1 or len(set(right)) == 1:
        return 0.0
    return round(float(scipy_stats().spearmanr(left, right).statistic), 12)


class Regression(Struct, frozen=True, gc=False):
    """A straight line through points: its slope with an interval of 95 %, and how well it fits."""

    slope: float
    intercept: float
    r_squared: float
    slope_low: float
    slope_high: float
    p: float  #: Of a slope at least as far from 0 if there is none.


def regression(xs: Sequence[float], ys: Sequence[float]) -> Regression:
    """Least squares, with Student's t for the slope.

    >>> line = regression([1.0, 2.0, 3.0, 4.0, 5.0], [2.1, 3.9, 6.2, 7.8, 10.0])
    >>> round(line.slope, 2), round(line.intercept, 2), round(line.r_squared, 4)
    (1.97, 0.09, 0.9978)
    >>> round(line.slope_low, 2), round(line.slope_high, 2)
    (1.8, 2.14)
    """
    if len(xs) < 3 or len(set(xs)) < 2:
        raise ConfigError("a regression needs at least three points at two places")
    stats = scipy_stats()
    line = stats.linregress(xs, ys)
    half = float(stats.t.ppf(0.975, len(xs) - 2) * line.stderr)
    slope, intercept, p = float(line.slope), float(line.intercept), float(line.pvalue)
    return Regression(slope, intercept, float(line.rvalue) ** 2, slope - half, slope + half, p)


class Ecdf(Struct, frozen=True):
    """The part of a sample that is at most a value: a step function from 0 to 1.

    >>> latency = Ecdf.of([3.0, 1.0, 2.0, 2.0])
    >>> latency.at(2.0), latency.at(0.5), latency.at(9.0), latency.quantile(0.5)
    (0.75, 0.0, 1.0, 2.0)
    """

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Ecdf:
        if not values:
            raise ConfigError("a distribution needs at least one value")
        return cls(tuple(sorted(values)))

    def at(self, value: float) -> float:
        return bisect_right(self.values, value) / len(self.values)

    def quantile(self, fraction: float) -> float:
        """The smallest value of the sample that at least this part of it does not exceed."""
        count = len(self.values)
        # A part of 0.29 of 100 values is 28.999999999999996 of them: the 29th, not the 28th.
        return self.values[min(count, max(1, ceil(fraction * count - 1e-9))) - 1]


def five_numbers(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """What a box plot draws: minimum, lower quartile, median, upper quartile, maximum.

    >>> five_numbers([5.0, 1.0, 4.0, 2.0, 3.0])
    (1.0, 2.0, 3.0, 4.0, 5.0)
    """
    sample = Ecdf.of(values)
    lower, median, upper = (sample.quantile(part) for part in (0.25, 0.5, 0.75))
    return sample.values[0], lower, median, upper, sample.values[-1]
