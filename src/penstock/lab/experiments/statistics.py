"""Numbers about numbers: spread, Welch's t-test, empirical distribution, weighted error."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import exp, inf, isinf, lgamma, log, log1p, sqrt

from msgspec import Struct

from penstock.core.errors import ConfigError

_TINY = 1e-300
_CLOSE = 1e-15
_MOST_TERMS = 10_000


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean.

    >>> mean([1.0, 2.0, 6.0])
    3.0
    """
    if not values:
        raise ConfigError("a mean needs at least one value")
    return sum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """The variance of what a sample was drawn from (divided by one fewer than there are).

    >>> variance([2.0, 4.0, 6.0])
    4.0
    """
    if len(values) < 2:
        raise ConfigError(f"a variance needs at least two values, not {len(values)}")
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values) / (len(values) - 1)


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of what a sample was drawn from.

    >>> deviation([2.0, 4.0, 6.0])
    2.0
    """
    return sqrt(variance(values))


class Welch(Struct, frozen=True, gc=False):
    """Whether two samples differ in their means: t, its degrees of freedom, two-sided p."""

    t: float
    degrees: float
    p: float


def welch(left: Sequence[float], right: Sequence[float]) -> Welch:
    """Welch's t-test, which does not assume that both samples spread alike.

    ``t = (m1 - m2) / sqrt(v1/n1 + v2/n2)``, with the degrees of freedom of Welch and
    Satterthwaite. Two samples without any spread either differ for certain or not at all.

    >>> test = welch([20.0, 22.0, 19.0, 21.0], [28.0, 26.0, 27.0, 31.0])
    >>> round(test.t, 3), round(test.degrees, 2), round(test.p, 5)
    (-5.96, 4.9, 0.00204)
    """
    parts = [variance(sample) / len(sample) for sample in (left, right)]
    apart = mean(left) - mean(right)
    both = sum(parts)
    if both == 0.0:
        t = 0.0 if apart == 0.0 else inf if apart > 0.0 else -inf
        return Welch(t, inf, 1.0 if apart == 0.0 else 0.0)
    t = apart / sqrt(both)
    shares = [part / both for part in parts]
    degrees = 1.0 / sum(
        share * share / (len(sample) - 1)
        for share, sample in zip(shares, (left, right), strict=True)
    )
    return Welch(t, degrees, student_two_sided(t, degrees))


def student_two_sided(t: float, degrees: float) -> float:
    """The chance that Student's t is at least as far from 0 as `t`.

    ``p = I_x(degrees/2, 1/2)`` at ``x = degrees / (degrees + t^2)``.

    >>> round(student_two_sided(2.228, 10), 4), round(student_two_sided(12.706, 1), 4)
    (0.05, 0.05)
    """
    if isinf(t):
        return 0.0
    square = t * t
    # The complement is formed from t itself: near t = 0, 1 - x would lose all its digits.
    return incomplete_beta(
        degrees / (degrees + square), degrees / 2.0, 0.5, complement=square / (degrees + square)
    )


def incomplete_beta(x: float, a: float, b: float, complement: float | None = None) -> float:
    """The regularised incomplete beta function ``I_x(a, b)``.

    A continued fraction, evaluated by Lentz's method, which converges fast for
    ``x < (a + 1) / (a + b + 2)``; beyond that by the symmetry ``I_x(a, b) = 1 - I_1-x(b, a)``.
    `complement` is ``1 - x`` where the caller knows it better than by subtraction.

    >>> incomplete_beta(0.5, 2.0, 2.0), round(incomplete_beta(0.2, 1.0, 3.0), 6)
    (0.5, 0.488)
    """
    if not (0.0 <= x <= 1.0 and a > 0.0 and b > 0.0):
        raise ConfigError(f"I_x(a, b) needs 0 <= x <= 1 and a, b > 0, not {x}, {a}, {b}")
    rest = 1.0 - x if complement is None else complement
    if x == 0.0 or rest == 0.0:
        return 0.0 if x == 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(rest, b, a, complement=x)
    log_rest = log1p(-x) if complement is None else log(rest)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log_rest) / a
    return front * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction ``1 / (1 + d1 / (1 + d2 / ...))`` of the incomplete beta function."""
    upper, lower = 1.0, 1.0 / _apart_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = lower
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            lower = 1.0 / _apart_from_zero(1.0 + term * lower)
            upper = _apart_from_zero(1.0 + term / upper)
            value *= lower * upper
        if abs(lower * upper - 1.0) < _CLOSE:
            break
    return value


def _apart_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


class Regression(Struct, frozen=True, gc=False):
    """A straight line through points: its slope with an interval of 95 %, and how well it fits.

    `p` is the chance of a slope at least so far from 0 if there is none.
    """

    slope: float
    intercept: float
    r_squared: float
    slope_low: float
    slope_high: float
    p: float


def regression(xs: Sequence[float], ys: Sequence[float]) -> Regression:
    """Least squares, with Student's t for the slope.

    >>> line = regression([1.0, 2.0, 3.0, 4.0, 5.0], [2.1, 3.9, 6.2, 7.8, 10.0])
    >>> round(line.slope, 2), round(line.intercept, 2), round(line.r_squared, 4)
    (1.97, 0.09, 0.9978)
    >>> round(line.slope_low, 2), round(line.slope_high, 2)
    (1.8, 2.14)
    """
    count = len(xs)
    if count < 3 or len(set(xs)) < 2:
        raise ConfigError("a regression needs at least three points at two places")
    x_mean, y_mean = mean(xs), mean(ys)
    xx = sum((x - x_mean) ** 2 for x in xs)
    yy = sum((y - y_mean) ** 2 for y in ys)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / xx
    left = max(0.0, yy - slope * slope * xx)
    degrees = count - 2
    error = sqrt(left / degrees / xx)
    reach = student_reach(degrees) * error
    t = inf if error == 0.0 else slope / error
    return Regression(
        slope,
        y_mean - slope * x_mean,
        1.0 - left / yy if yy > 0.0 else 0.0,
        slope - reach,
        slope + reach,
        student_two_sided(t, degrees) if slope else 1.0,
    )


def student_reach(degrees: float, chance: float = 0.05) -> float:
    """How far from 0 Student's t lies with that chance, by halving intervals.

    >>> round(student_reach(10), 3), round(student_reach(3), 3)
    (2.228, 3.182)
    """
    low, high = 0.0, 1.0
    while student_two_sided(high, degrees) > chance:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        if student_two_sided(middle, degrees) > chance:
            low = middle
        else:
            high = middle
    return high


class Ecdf(Struct, frozen=True):
    """What part of a sample is at most so large: a staircase from 0 to 1.

    Examples
    --------
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
        """The part of the sample that is at most `value`."""
        return bisect_right(self.values, value) / len(self.values)

    def quantile(self, fraction: float) -> float:
        """The smallest value of the sample that at least this part of it does not exceed."""
        count = len(self.values)
        # A part of 0.29 of 100 values is 28.999999999999996 of them: the 29th, not the 28th.
        place = -int(-(fraction * count - 1e-9) // 1)
        return self.values[min(count, max(1, place)) - 1]


def wape(actual: Sequence[float], forecast: Sequence[float]) -> float:
    """Weighted absolute percentage error: ``sum |actual - forecast| / sum |actual|``.

    >>> wape([100.0, 200.0, 100.0], [110.0, 190.0, 100.0])
    0.05
    """
    if len(actual) != len(forecast):
        raise ConfigError(f"{len(actual)} values cannot be held against {len(forecast)} forecasts")
    weight = sum(abs(value) for value in actual)
    if weight == 0.0:
        raise ConfigError("a weighted error needs a value that is not 0")
    return sum(abs(a - f) for a, f in zip(actual, forecast, strict=True)) / weight


def five_numbers(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """What a box plot draws: least, lower quartile, median, upper quartile, most.

    >>> five_numbers([5.0, 1.0, 4.0, 2.0, 3.0])
    (1.0, 2.0, 3.0, 4.0, 5.0)
    """
    sample = Ecdf.of(values)
    lower, median, upper = (sample.quantile(part) for part in (0.25, 0.5, 0.75))
    return sample.values[0], lower, median, upper, sample.values[-1]
