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
#: Instances differ when the largest is more than this many times the smallest.
RATE_SKEW_RATIO = 1.5
#: A queue that grows faster (records per second), or is longer on average, is a symptom.
QUEUE_GROWTH_RPS = 10.0
#: Heron never grows an operator more than fivefold at a time.
MOST_GROWTH = 4.0


class Skew(Struct, frozen=True, gc=False):
    """Whether instances differ too much, and which stand out above and below."""

    present: bool
    high: tuple[str, ...] = ()
    low: tuple[str, ...] = ()


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


def under_provisioned(symptoms: Collection[Symptom]) -> bool:
    """Backpressure that hits all alike: more instances will help.

    >>> under_provisioned(["back_pressure"]), under_provisioned(["back_pressure", "rate_skew"])
    (True, False)
    """
    return "back_pressure" in symptoms and not {"queue_skew", "rate_skew"} & set(symptoms)


def grown(instances: int, backpressure_ms: Sequence[float]) -> int:
    """Dhalion's scale-up: grow by the ratio of suspended to normal time.

    ``ceil(n (1 + min(bp / (1000 - bp), 4)))`` with ``bp`` summed over instances, at most 999.

    >>> grown(2, [500.0, 0.0]), grown(3, [400.0, 100.0, 0.0]), grown(1, [999.0])
    (4, 6, 5)
    """
    total = min(sum(backpressure_ms), 999.0)
    return ceil(instances * (1.0 + min(total / (1000.0 - total), MOST_GROWTH)))


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
