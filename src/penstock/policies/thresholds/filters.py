"""Filters: what a noisy metric really is.

Plain arithmetic on floats. The Kalman filter here is scalar: the state of Borkowski et al. is a
vector, but its transition and its noise do not mix the components, so a vector of metrics is as
many scalar filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, inf

from msgspec import Struct

#: The least system noise, as a fraction of the measurement noise. Without any, the gain would
#: fall to zero and the filter would never again believe a measurement; with this much the gain
#: settles at 0.095, a memory of about ten measurements.
LEAST_NOISE_FRACTION = 0.01


class KalmanStep(Struct, frozen=True, gc=False):
    """One turn of a Kalman filter: prediction, trust in the measurement, estimate, variance."""

    prior: float
    gain: float
    x: float
    p: float


def bootstrap_step(x: float, p: float, count: int, measured: float) -> tuple[float, float]:
    """Weighted mean and variance of the first `count` measurements from those of one fewer.

    West's running form of the sums in `bootstrap`, so that no measurement has to be kept.
    """
    total = count * (count + 1) / 2
    before = total - count
    mean = x + (count / total) * (measured - x)
    spread = p * max(0.0, before - 1) + count * (measured - x) * (measured - mean)
    return mean, (spread / (total - 1) if count > 1 else 0.0)


def system_noise(p0: float, noise: float) -> float:
    """``Q = P0 - R``, but never so small that the filter stops listening."""
    return max(p0 - noise, LEAST_NOISE_FRACTION * noise)


def kalman_step(
    x: float,
    p: float,
    measured: float,
    *,
    q: float,
    r: float,
    drift: float = 0.0,
    posterior_update: bool = True,
) -> KalmanStep:
    """Predict, then correct by a measurement.

    ``prior = x + drift``, ``P = P + Q``, ``G = P / (P + R)``, ``x = prior + G (z - prior)`` and
    ``P = (1 - G) P``. Without that last, `posterior_update`, ``P`` only grows and the gain goes
    to one: nothing is filtered any more.

    >>> kalman_step(0.5, 0.01, 0.52, q=0.001, r=0.01)
    KalmanStep(prior=0.5, gain=0.523810, x=0.510476, p=0.005238)
    """
    prior = x + drift
    p += q
    gain = p / (p + r)
    after = (1.0 - gain) * p if posterior_update else p
    return KalmanStep(prior, gain, prior + gain * (measured - prior), after)


class InputFit(Struct, frozen=True, gc=False, array_like=True):
    """How a metric follows its input, ``dz = a D + b dD``, by ordinary least squares.

    Five running sums stand for all that was seen, so the fit never grows.

    >>> fit = InputFit()
    >>> for rate, change in [(100, 0), (140, 40), (140, 0), (90, -50)]:
    ...     fit = fit.learn(rate, change, moved=0.005 * change)
    >>> fit.coefficients()
    (0.0, 0.005)
    """

    rate_rate: float = 0.0
    rate_change: float = 0.0
    change_change: float = 0.0
    rate_moved: float = 0.0
    change_moved: float = 0.0

    def learn(self, rate: float, change: float, moved: float) -> InputFit:
        """The fit that has also seen a metric move by `moved` under this input."""
        return InputFit(
            self.rate_rate + rate * rate,
            self.rate_change + rate * change,
            self.change_change + change * change,
            self.rate_moved + rate * moved,
            self.change_moved + change * moved,
        )

    def coefficients(self) -> tuple[float, float]:
        """``a`` and ``b``; zero for an input that never varied, or cannot be distinguished."""
        determinant = self.rate_rate * self.change_change - self.rate_change**2
        if determinant > 1e-9 * self.rate_rate * self.change_change:
            a = self.rate_moved * self.change_change - self.change_moved * self.rate_change
            b = self.change_moved * self.rate_rate - self.rate_moved * self.rate_change
            return a / determinant, b / determinant
        if self.change_change > 0.0:
            return 0.0, self.change_moved / self.change_change
        return 0.0, 0.0


def growth_of(before_rps: float, now_rps: float) -> float:
    """How much a rate changed, as a fraction of what it was; infinite from nothing."""
    if now_rps == before_rps:
        return 0.0
    return (now_rps - before_rps) / before_rps if before_rps > 0.0 else inf


def plausible_drift(drift: float, x: float, growth: float) -> float:
    """The drift, kept between no change and one in proportion to the rate.

    >>> plausible_drift(0.9, x=0.5, growth=growth_of(100.0, 150.0))
    0.25
    """
    if growth == inf:
        return max(0.0, drift)
    proportional = x * growth
    return min(max(drift, min(0.0, proportional)), max(0.0, proportional))


def half_gaussian(
    samples: Iterable[tuple[float, float]], now_s: float, *, variance_s2: float, window_s: float
) -> float | None:
    """The past, weighted by the left half of a Gaussian kernel; ``None`` without any past.

    ``sum w_i z_i / sum w_i`` with ``w_i = exp(-age_i^2 / (2 variance))`` over ``(at_s, z)``
    samples no older than the window. Samples of the future (a clock was set back) do not count.

    >>> half_gaussian([(0.0, 1.0), (3.0, 2.0)], now_s=3.0, variance_s2=9.0, window_s=60.0)
    1.622459
    """
    weights = total = 0.0
    for at_s, value in samples:
        age_s = now_s - at_s
        if 0.0 <= age_s <= window_s:
            weight = exp(-age_s * age_s / (2.0 * variance_s2))
            weights += weight
            total += weight * value
    return total / weights if weights > 0.0 else None


def kernel_means(
    times_s: Sequence[float],
    past: Sequence[tuple[tuple[float, ...], ...]],
    now_s: float,
    *,
    variance_s2: float,
    window_s: float,
) -> tuple[float, ...]:
    """Per metric, the mean over executors of what `half_gaussian` makes of the past of each.

    `past` has a series per metric of each executor, whose last value is that of the last of
    `times_s`. The kernel is linear: of executors that have been there equally long, it may as well
    filter the mean.
    """
    by_length: dict[int, list[tuple[tuple[float, ...], ...]]] = {}
    for series in past:
        by_length.setdefault(len(series[0]), []).append(series)
    smoothed = []
    for index in range(len(past[0])):
        total = 0.0
        for length, members in by_length.items():
            sums = [sum(values) for values in zip(*(m[index] for m in members), strict=True)]
            dated = zip(times_s[-length:], sums, strict=True)
            filtered = half_gaussian(dated, now_s, variance_s2=variance_s2, window_s=window_s)
            total += filtered or 0.0
        smoothed.append(total / len(past))
    return tuple(smoothed)


class Estimate(Struct, frozen=True, gc=False, array_like=True):
    """One metric of one executor: estimate, its variance, system noise, last measurement."""

    x: float
    p: float
    q: float
    z: float


class ExecutorFilter(Struct, frozen=True, gc=False, array_like=True):
    """The filter of one executor: how long it has run, and an estimate per metric."""

    age_s: float
    samples: int
    estimates: tuple[Estimate, ...]

    def advanced(
        self,
        measured: Sequence[float],
        drifts: Sequence[float],
        growth: float | None,
        passed_s: float,
        noise: float,
        dead_time_s: float,
    ) -> ExecutorFilter:
        """The filter after one more measurement; `growth` keeps drifts plausible, if given."""
        age_s, samples = self.age_s + passed_s, self.samples + 1
        estimates = []
        if self.age_s >= dead_time_s and self.estimates[0].q > 0.0:
            for before, z, drift in zip(self.estimates, measured, drifts, strict=True):
                if growth is not None:
                    drift = plausible_drift(drift, before.x, growth)
                step = kalman_step(before.x, before.p, z, q=before.q, r=noise, drift=drift)
                estimates.append(Estimate(step.x, step.p, before.q, z))
            samples = self.samples
        else:
            over = age_s >= dead_time_s
            for before, z in zip(self.estimates, measured, strict=True):
                x, p = bootstrap_step(before.x, before.p, samples, z)
                estimates.append(Estimate(x, p, system_noise(p, noise) if over else 0.0, z))
        return ExecutorFilter(age_s, samples, tuple(estimates))
