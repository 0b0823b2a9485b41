"""What is remembered: scale downs that wait, past scalings, and how long restarts took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import TypeVar

from msgspec import Struct

from penstock.policies.flink.evaluation import Options


class DelayedScaleDown(Struct, frozen=True, gc=False):
    """A smaller parallelism that was wanted, and whether capacity was outside its band then."""

    at_s: float
    parallelism: int
    outside: bool = False


class Pending(Struct, frozen=True, gc=False, rename={"requests": "wishes"}):
    """A scale down that waits, since when, and the requests that can still be the largest.

    A request that a later one equals or exceeds can never again be the largest of a window that
    slides on, so the queue falls from its first to its last, and its first is the answer.
    """

    since_s: float
    requests: tuple[DelayedScaleDown, ...] = ()

    def with_request(self, request: DelayedScaleDown) -> Pending:
        requests = self.requests
        while requests and requests[-1].parallelism <= request.parallelism:
            requests = requests[:-1]
        return Pending(self.since_s, (*requests, request))

    def since(self, window_start_s: float) -> Pending:
        """Without requests from before the window.

        >>> requests = [DelayedScaleDown(at, request) for at, request in enumerate((5, 9, 4, 5, 6))]
        >>> pending = Pending(since_s=0)
        >>> for request in requests:
        ...     pending = pending.with_request(request)
        >>> pending.since(1).requests[0], pending.since(2).requests[0].parallelism
        (DelayedScaleDown(at_s=1, parallelism=9, outside=False), 6)
        """
        requests = self.requests
        while requests and requests[0].at_s < window_start_s:
            requests = requests[1:]
        return Pending(self.since_s, requests)


class Scaling(Struct, frozen=True, gc=False):
    """A scaling of one vertex: its capacity before, and the one that was expected after it."""

    at_s: float
    before: int
    after: int
    capacity_rps: float | None = None
    expected_rps: float | None = None


class Restart(Struct, frozen=True, gc=False):
    """A rescale of the job, and how long it took until it ran at the wanted parallelism."""

    at_s: float
    took_s: float | None = None


_Record = TypeVar("_Record", Scaling, Restart)


def trimmed(
    records: Sequence[_Record],
    now_s: float,
    *,
    keep_s: float,
    keep_count: int,
    keep_latest: bool = False,
) -> tuple[_Record, ...]:
    """The newest records, not too old and not too many; of restarts, always the latest.

    >>> trimmed([Restart(0.0), Restart(60.0)], 120.0, keep_s=60.0, keep_count=3)
    (Restart(at_s=60.0, took_s=None),)
    """
    oldest_at_s = now_s - keep_s
    kept = [record for record in records if record.at_s >= oldest_at_s]
    kept = kept[max(0, len(kept) - keep_count) :]
    if keep_latest and records and not kept:
        kept = [records[-1]]
    return tuple(kept)


def restart_s(tracked_s: Iterable[float | None], options: Options) -> float:
    """The longest restart that was measured, up to a limit, or else the configured time.

    >>> restart_s([180.0, 1200.0], Options(track_restarts=True))
    900.0
    """
    known = [took_s for took_s in tracked_s if took_s is not None]
    if not options.track_restarts or not known:
        return options.restart_s
    return min(max(known), options.restart_limit_s)


def measured_restart_s(
    scaled_at_s: float, running_at_s: float, target: Sequence[int], actual: Sequence[int]
) -> float | None:
    """How long a rescale took, if the job now runs as it was meant to.

    >>> measured_restart_s(0.0, 60.0, target=[2, 3], actual=[2, 3])
    60.0
    """
    return running_at_s - scaled_at_s if list(target) == list(actual) else None


def scaling_coefficient(
    past: Sequence[tuple[int, float | None]], *, min_observations: int, coefficient_min: float
) -> float:
    """How much of its nominal capacity a parallelism brings, by least squares over the past.

    `past` are pairs of parallelism and capacity, oldest first; the newest with the least
    parallelism is the measure of what one task can do.

    >>> past = [(4, 160.0), (2, 96.0), (8, 240.0)]
    >>> scaling_coefficient(past, min_observations=3, coefficient_min=0.5)
    0.69
    """
    known = [(parallelism, rps) for parallelism, rps in past if rps is not None]
    if not known or len(known) < len(past) or len(past) < min_observations:
        return 1.0
    least, rps = min(reversed(known), key=lambda entry: entry[0])
    squares = sum(parallelism * parallelism for parallelism, _ in known)
    nominal = squares * (rps / least) if least else 0.0
    if nominal == 0.0:
        return 1.0
    slope = sum(parallelism * rps for parallelism, rps in known) / nominal
    bounded = max(coefficient_min, min(1.0, slope))
    return float(Decimal(repr(float(bounded))).quantize(Decimal("0.01"), ROUND_CEILING))
