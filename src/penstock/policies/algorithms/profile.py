"""What profiling runs say about a job: capacity of each size, latency at each size and rate.

Between the sizes that were run everything is interpolated. Latency depends on how full the job
is, so it is read at the same share of the capacity on the sizes to the left and to the right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import Protocol, Self, runtime_checkable

import msgspec
import numpy as np
from msgspec import Struct

from penstock.core.errors import ModelError

CapacityPoint = tuple[int, float]  #: A size and what it can process.
LatencyPoint = tuple[int, float, float]  #: A size, a rate, and the latency there, in seconds.


@runtime_checkable
class NeedsProfile(Protocol):
    """A policy that decides from profiling runs, and holds without them."""

    @property
    def profile(self) -> str:
        """The file with what the runs found, as long as nobody has read it; else empty."""

    @property
    def is_profiled(self) -> bool: ...

    def with_profile(
        self,
        capacity: tuple[CapacityPoint, ...],
        latency: tuple[LatencyPoint, ...],
        downtime_s: float,
    ) -> Self:
        """The same policy with what the runs found."""


class ProfilingResult(Struct, frozen=True, forbid_unknown_fields=True):
    """What profiling found, and the form of the file that holds it.

    `capacity` are pairs of executors and records/s, `latency` triples of executors, records/s and
    seconds, `downtime_s` is how long a rescale stops the job.

    >>> ProfilingResult.from_json(b'''{
    ...     "capacity": [[1, 950.0], [2, 1800.0]],
    ...     "latency": [[1, 300.0, 1.6], [1, 600.0, 2.1], [2, 600.0, 1.5]],
    ...     "downtime_s": 0.0
    ... }''').capacity
    ((1, 950.0), (2, 1800.0))
    """

    capacity: tuple[CapacityPoint, ...]
    latency: tuple[LatencyPoint, ...]
    downtime_s: float = 0.0

    def __post_init__(self) -> None:
        for size, *numbers in (*self.capacity, *self.latency):
            if size < 1 or not all(0.0 <= number < inf for number in numbers):
                shown = [size, *numbers]
                raise ModelError(f"a profile has sizes from 1 and finite numbers, not {shown}")
        if not 0.0 <= self.downtime_s < inf:
            raise ModelError(f"downtime_s must be finite and not negative, not {self.downtime_s}")

    @classmethod
    def from_json(cls, content: bytes) -> ProfilingResult:
        """Read a file of ``penstock profile``; raises `ModelError` if it is none."""
        try:
            found = msgspec.json.decode(content, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ModelError(f"not a profile: {error}") from None
        if not found.capacity or not found.latency:
            raise ModelError("a profile needs points of capacity and of latency")
        return found


class Profile(Struct, frozen=True, gc=False):
    """Points that were measured, by size and then by rate.

    Two executors carry 20,000 records/s and four 36,000. At 27,000 records/s three executors
    would use 27/28 of what they can carry, a little more than two did when they took 0.4 s:

    >>> profile = Profile.of([(2, 20e3), (4, 36e3)],
    ...                      [(2, 10e3, 0.2), (2, 20e3, 0.6), (4, 18e3, 0.1), (4, 36e3, 0.3)])
    >>> profile.capacity_rps(3), profile.capacity_rps(1), profile.capacity_rps(5)
    (28000.0, 10000.0, 44000.0)
    >>> profile.latency_s(3, 21_000.0), profile.latency_s(3, 30_000.0)
    (0.3, inf)
    """

    capacities: tuple[CapacityPoint, ...]
    curves: dict[int, tuple[tuple[float, float], ...]]

    @classmethod
    def of(cls, capacities: Sequence[CapacityPoint], latencies: Sequence[LatencyPoint]) -> Profile:
        """The profile of these points; latency curves run over the share of capacity used."""
        known = dict(sorted(capacities))
        curves: dict[int, list[tuple[float, float]]] = {}
        for size, rate_rps, latency_s in sorted(latencies):
            if known.get(size, 0.0) > 0.0:
                curves.setdefault(size, []).append((rate_rps / known[size], latency_s))
        return cls(tuple(known.items()), {size: tuple(curve) for size, curve in curves.items()})

    @property
    def largest(self) -> int:
        return self.capacities[-1][0]

    def capacity_rps(self, executors: int) -> float:
        """Interpolated, from 0 without executors; above the largest as between the two largest."""
        points: list[tuple[float, float]] = [(0.0, 0.0), *self.capacities]
        if executors > self.largest:
            (left, low), (right, high) = points[-2:]
            return high + (high - low) / (right - left) * (executors - right)
        return _interpolated(points, executors)

    def latency_s(self, executors: int, rate_rps: float) -> float:
        """Interpolated; infinite beyond the highest rate that was fit to run."""
        capacity_rps = self.capacity_rps(executors)
        if capacity_rps <= 0.0 or not self.curves:
            return inf
        used = rate_rps / capacity_rps
        sizes = sorted(self.curves)
        at = min(bisect_left(sizes, executors), len(sizes) - 1)
        right = sizes[at]
        left = right if right <= executors or at == 0 else sizes[at - 1]
        low, high = (_latency_s(self.curves[size], used) for size in (left, right))
        if left == right or inf in (low, high):
            return max(low, high)
        return low + (high - low) * (executors - left) / (right - left)


def _latency_s(curve: Sequence[tuple[float, float]], used: float) -> float:
    # A hair above the last point is still that point: shares are quotients.
    return inf if used > curve[-1][0] * (1.0 + 1e-9) else _interpolated(curve, used)


def _interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """Along the lines between points that are ordered by x; level outside of them."""
    xs, ys = zip(*points, strict=True)
    return float(np.interp(x, xs, ys))
