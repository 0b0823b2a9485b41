"""Symptoms and diagnoses: how Dhalion reads a job, as Heron ships it.

Detectors look at one metric of the instances of an operator and say whether it shows a symptom;
diagnosers combine symptoms into a cause. Backpressure is in milliseconds per second, as Heron
counts it; `held_back_fraction` brings what an engine measures into that form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Literal

from msgspec import Struct

from penstock.core.model import Snapshot

Symptom = Literal["back_pressure", "queue_skew", "rate_skew"]

#: Backpressure below this is noise: milliseconds per second, summed over instances.
NOISE_MS = 20.0
#: Instances differ when the largest is more than so many times the smallest.
RATE_SKEW_RATIO = 1.5
QUEUE_SKEW_RATIO = 20.0
#: A queue that grows faster (records per second), or is longer on average, is a symptom.
QUEUE_GROWTH_RPS = 10.0
LARGE_QUEUE_RECORDS = 1000.0
#: Heron never grows an operator more than fivefold at a time.
MOST_GROWTH = 4.0


class Backpressure(Struct, frozen=True, gc=False):
    """Whether an operator suffers backpressure, and which of its instances do."""

    present: bool
    instances: tuple[str, ...]


class Skew(Struct, frozen=True, gc=False):
    """Whether instances differ too much, and which stand out above and below."""

    present: bool
    high: tuple[str, ...] = ()
    low: tuple[str, ...] = ()


def backpressure(ms_by_instance: Mapping[str, float], noise_ms: float = NOISE_MS) -> Backpressure:
    """An operator is pressed if its instances are *together*, an instance if it is on its own.

    >>> backpressure({"i1": 55.0, "i2": 3.0}, noise_ms=50.0)
    Backpressure(present=True, instances=('i1',))
    """
    pressed = tuple(name for name, ms in ms_by_instance.items() if ms > noise_ms)
    return Backpressure(sum(ms_by_instance.values()) > noise_ms, pressed)


def skew(value_by_instance: Mapping[str, float], ratio: float) -> Skew:
    """Instances are skewed if the largest exceeds `ratio` times the smallest.

    Those within 10 % of the largest and of the smallest are named.

    >>> skew({"i1": 1000.0, "i2": 200.0}, ratio=2.5)
    Skew(present=True, high=('i1',), low=('i2',))
    """
    if len(value_by_instance) < 2:
        return Skew(False)
    largest, smallest = max(value_by_instance.values()), min(value_by_instance.values())
    if largest <= ratio * smallest:
        return Skew(False)
    high = tuple(name for name, value in value_by_instance.items() if value >= 0.9 * largest)
    low = tuple(name for name, value in value_by_instance.items() if value <= 1.1 * smallest)
    return Skew(True, high, low)


def growing(
    at_s: Sequence[float], queue: Sequence[float], limit_per_s: float = QUEUE_GROWTH_RPS
) -> bool:
    """A queue grows if its least-squares slope over three or more points exceeds the limit.

    >>> growing([0.0, 60.0, 120.0], [0.0, 900.0, 1800.0])
    True
    """
    count = len(at_s)
    if count < 3:
        return False
    at_mean, queue_mean = sum(at_s) / count, sum(queue) / count
    spread = sum([(at - at_mean) ** 2 for at in at_s])
    if spread == 0.0:
        return False
    moved = sum([(at - at_mean) * (q - queue_mean) for at, q in zip(at_s, queue, strict=True)])
    return moved / spread > limit_per_s


def large(queue: Sequence[float], limit: float = LARGE_QUEUE_RECORDS) -> bool:
    """A queue is large if its mean exceeds the limit.

    >>> large([21.0, 21.0], limit=20.0)
    True
    """
    return sum(queue) / len(queue) > limit


def under_provisioned(symptoms: Collection[Symptom]) -> bool:
    """Backpressure that hits all alike: more instances will help.

    >>> under_provisioned(["back_pressure"]), under_provisioned(["back_pressure", "rate_skew"])
    (True, False)
    """
    return "back_pressure" in symptoms and not {"queue_skew", "rate_skew"} & set(symptoms)


def slow_instances(symptoms: Collection[Symptom], queue: Mapping[str, float]) -> tuple[str, ...]:
    """Instances with a long queue though they get no more records than others: they are slow.

    >>> slow_instances(["back_pressure", "queue_skew"], {"i1": 1000.0, "i2": 20.0, "i3": 20.0})
    ('i1',)
    """
    present = set(symptoms)
    if not {"back_pressure", "queue_skew"} <= present or "rate_skew" in present:
        return ()
    return _far_up(queue)


def overloaded_instances(
    symptoms: Collection[Symptom], rate: Mapping[str, float], queue: Mapping[str, float]
) -> tuple[str, ...]:
    """Instances with a long queue *and* the highest rate: their keys are hot.

    >>> overloaded_instances(
    ...     ["back_pressure", "rate_skew", "queue_skew"],
    ...     rate={"i1": 5000.0, "i2": 2000.0}, queue={"i1": 10000.0, "i2": 500.0})
    ('i1',)
    """
    if not {"back_pressure", "queue_skew", "rate_skew"} <= set(symptoms) or not rate:
        return ()
    fastest = max(rate.values())
    return tuple(name for name in _far_up(queue) if fastest < 1.10 * rate[name])


def grown(instances: int, backpressure_ms: Sequence[float]) -> int:
    """Dhalion's scale-up: grow by the ratio of suspended to normal time.

    ``ceil(n (1 + min(bp / (1000 - bp), 4)))`` with ``bp`` summed over instances, at most 999.

    >>> grown(2, [500.0, 0.0]), grown(3, [400.0, 100.0, 0.0]), grown(1, [999.0])
    (4, 6, 5)
    """
    total = min(sum(backpressure_ms), 999.0)
    return ceil(instances * (1.0 + min(total / (1000.0 - total), MOST_GROWTH)))


def growth_factor(held_back_fraction: float) -> float:
    """The same ratio for a fraction of time, capped where it becomes tenfold.

    >>> growth_factor(0.2), growth_factor(0.5)
    (1.25, 2.0)
    """
    held_back_fraction = min(0.9, held_back_fraction)
    return 1.0 + held_back_fraction / (1.0 - held_back_fraction)


def source_growth_factor(pending_rps: float, consumed_rps: float) -> float:
    """How much faster a source must read so that what waits in front of it stops growing.

    >>> source_growth_factor(500.0, 1000.0), source_growth_factor(-100.0, 1000.0)
    (1.5, 1.0)
    """
    return max(1.0, 1.0 + pending_rps / (consumed_rps or 1.0))


def held_back_fraction(snapshot: Snapshot) -> float | None:
    """The largest fraction of time for which records are held back; ``None`` if none can tell.

    Engines with backpressure report it per operator. Spark's micro-batches have none: there a
    source is held back while a batch overruns its trigger, ``1 - trigger / duration``. It is the
    same quantity: a batch of twice the trigger interval means that reading is suspended half of
    the time, and that twice the executors are needed.

    >>> from penstock.core.model import Batch, Fleet
    >>> batches = (Batch(7, 0.0, 4.0, 1000), Batch(8, 4.0, 4.0, 1000))
    >>> held_back_fraction(Snapshot(8.0, Fleet(2, 2, 2), trigger_interval_s=2.0, batches=batches))
    0.5
    """
    measured = [
        operator.backpressured_fraction
        for operator in snapshot.operators
        if operator.backpressured_fraction is not None
    ]
    if measured:
        return min(1.0, max(measured))
    if snapshot.trigger_interval_s and snapshot.batches:
        duration_s = sum([batch.duration_s for batch in snapshot.batches]) / len(snapshot.batches)
        if duration_s <= snapshot.trigger_interval_s:
            return 0.0
        return 1.0 - snapshot.trigger_interval_s / duration_s
    return None


def excess_delay_s(snapshot: Snapshot) -> float | None:
    """The event-time lag beyond what the engine causes by itself.

    A micro-batch job that keeps up makes a record wait for the next trigger and then for a batch
    that takes no longer than one, so up to two trigger intervals say nothing about its size.

    >>> from penstock.core.model import Fleet
    >>> excess_delay_s(Snapshot(0.0, Fleet(1, 1, 1), trigger_interval_s=2.0, delay_s=3.0))
    0.0
    """
    if snapshot.delay_s is None or not snapshot.trigger_interval_s:
        return snapshot.delay_s
    return max(0.0, snapshot.delay_s - 2.0 * snapshot.trigger_interval_s)


def _far_up(queue: Mapping[str, float]) -> tuple[str, ...]:
    """The instances whose queue is more than half of the longest."""
    longest = max(queue.values(), default=0.0)
    return tuple(name for name, length in queue.items() if longest < 2.0 * length)
