"""Recovery: how long a job needs to catch up after a stop, predicted and measured.

What came since the last checkpoint is read again, what arrives during the stop waits, and all of
it is worked off by the capacity that the load leaves free. Afterwards the difference between
arrivals and throughput tells whether the assumed downtime was too short or too long.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Snapshot
from penstock.policies.algorithms.arima import Series

#: A deviation that ends is over only after this long: throughput swings while a job catches up.
GAP_S = 30
FEWEST_SAMPLES = 8  #: Nothing is called unusual before this many samples have shown what is usual.


def repeated_s(snapshot: Snapshot, default_s: float) -> float:
    """How much of the past a stop makes a job read again, at worst.

    A checkpoint interval where there are checkpoints, a batch in a micro-batch job.

    >>> from penstock.core.model import Fleet
    >>> repeated_s(Snapshot(0.0, Fleet(1, 1, 1), trigger_interval_s=2.0), default_s=10.0)
    2.0
    """
    intervals_s = snapshot.checkpoint_interval_s, snapshot.trigger_interval_s
    return next((known_s for known_s in intervals_s if known_s is not None), default_s)


def predicted_recovery_s(
    forecast_rps: Series,
    capacity_rps: float,
    *,
    arrival_rps: float,
    downtime_s: float,
    checkpoint_interval_s: float,
    lag_records: float = 0.0,
) -> int | None:
    """Seconds from the stop until all is worked off; ``None`` if that lies beyond the forecast.

    The backlog is what arrived since the last checkpoint (at worst a whole interval) and what
    arrives during the stop. Then ``capacity - forecast`` works it off. The published code of
    Daedalus adds the `lag_records` that wait already; its paper does not.

    At 1,000 records/s, 30 s of downtime and 10 s of repetition leave 40,000 records; 2,000
    records/s work off 1,000 of them each second, and more than all of them in 41 s:

    >>> predicted_recovery_s(np.full(900, 1000.0), 2000.0, arrival_rps=1000.0,
    ...                      downtime_s=30.0, checkpoint_interval_s=10.0)
    71
    """
    stop = round(downtime_s)
    backlog = checkpoint_interval_s * arrival_rps + lag_records + float(forecast_rps[:stop].sum())
    caught_up = np.cumsum(capacity_rps - forecast_rps[stop:]) > backlog
    if not caught_up.any():
        return None
    return stop + int(caught_up.argmax()) + 1


def catch_up_s(
    forecast_rps: Series,
    capacity_rps: float,
    *,
    arrival_rps: float,
    downtime_s: float,
    last_checkpoint_s: float,
) -> float:
    """Downtime and catching up as Phoebe foresees it, interval by interval.

    The work that arrived in one interval takes a time to process, in which more work arrives,
    and so on until an interval takes less than a second. `forecast_rps` starts with the present
    rate; work beyond its end is not counted, so a result longer than the forecast is too short
    and only says "too long".

    120 s of work at half the capacity take 60 s, then 30, 15, and so on:

    >>> half = dict(arrival_rps=50e3, downtime_s=110.0, last_checkpoint_s=10.0)
    >>> catch_up_s(np.full(601, 50e3), 100e3, **half)
    229.0625
    """
    arrived = np.concatenate([[0.0], np.cumsum((forecast_rps[1:] + forecast_rps[:-1]) / 2.0)])
    seconds = np.arange(float(len(arrived)))
    until = downtime_s
    arrived_by = float(np.interp(until, seconds, arrived))
    work, total_s = last_checkpoint_s * arrival_rps + arrived_by, downtime_s
    while True:
        took_s = work / capacity_rps
        total_s += took_s
        if took_s < 1.0 or until >= seconds[-1]:
            return total_s
        until += took_s
        before, arrived_by = arrived_by, float(np.interp(until, seconds, arrived))
        work = arrived_by - before


class Normal(Struct, frozen=True, gc=False, array_like=True):
    """What is usual: running mean and variance of a number, after Welford.

    >>> usual = Normal()
    >>> for value in (8.0, 12.0, 8.0, 12.0):
    ...     usual = usual.seen(value)
    >>> usual.mean, usual.deviation, usual.is_unusual(12.5), usual.is_unusual(11.5)
    (10.0, 2.0, True, False)
    """

    samples: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def seen(self, value: float) -> Normal:
        samples, off = self.samples + 1, value - self.mean
        mean = self.mean + off / samples
        return Normal(samples, mean, self.squares + off * (value - mean))

    @property
    def deviation(self) -> float:
        return sqrt(self.squares / self.samples) if self.samples else 0.0

    def is_unusual(self, value: float) -> bool:
        """Whether a value lies farther from the mean than a standard deviation."""
        return abs(value - self.mean) > self.deviation


class Downtime(Struct, frozen=True, gc=False, array_like=True):
    """How long a rescale is thought to stop the job, by its direction."""

    out_s: float = 30.0
    in_s: float = 15.0

    def of(self, grows: bool) -> float:
        return self.out_s if grows else self.in_s

    def corrected(self, grew: bool, measured_s: float, predicted_s: float) -> Downtime:
        """One second longer if the recovery took longer than predicted, else one shorter."""
        step_s = 1.0 if measured_s > predicted_s else -1.0
        stopped_s = max(0.0, self.of(grew) + step_s)
        return replace(self, out_s=stopped_s) if grew else replace(self, in_s=stopped_s)


class Watch(Struct, frozen=True, gc=False, array_like=True):
    """An eye on the recovery from one rescale: unusual samples since then, and when it is over."""

    asked_at_s: float
    grew: bool
    predicted_s: float
    first_at_s: float | None = None
    last_at_s: float | None = None

    def seen(self, since_s: float, at_s: float, is_unusual: bool) -> Watch:
        """The watch after a sample that covers `since_s` to `at_s`."""
        if not is_unusual:
            return self
        first_at_s = since_s if self.first_at_s is None else self.first_at_s
        return replace(self, first_at_s=first_at_s, last_at_s=at_s)

    def measured_s(self, now_s: float, give_up_s: float) -> float | None:
        """How long the recovery took, once it is over; 0 if nothing unusual came in time."""
        if self.first_at_s is not None and self.last_at_s is not None:
            return self.last_at_s - self.first_at_s if now_s - self.last_at_s > GAP_S else None
        return 0.0 if now_s - self.asked_at_s >= give_up_s else None
