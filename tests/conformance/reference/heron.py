"""Detectors and diagnosers of Heron and ESPA that need a queue per instance; Spark has none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from penstock.policies.algorithms.measurements import NOISE_MS, QUEUE_GROWTH_RPS, Symptom

QUEUE_SKEW_RATIO = 20.0


LARGE_QUEUE_RECORDS = 1000.0


class Backpressure(Struct, frozen=True, gc=False):
    """Whether an operator suffers backpressure, and which of its instances do."""

    present: bool
    instances: tuple[str, ...]


def backpressure(ms_by_instance: Mapping[str, float], noise_ms: float = NOISE_MS) -> Backpressure:
    """An operator is pressed if its instances are *together*, an instance if it is on its own.

    >>> backpressure({"i1": 55.0, "i2": 3.0}, noise_ms=50.0)
    Backpressure(present=True, instances=('i1',))
    """
    pressed = tuple(name for name, ms in ms_by_instance.items() if ms > noise_ms)
    return Backpressure(sum(ms_by_instance.values()) > noise_ms, pressed)


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


def _far_up(queue: Mapping[str, float]) -> tuple[str, ...]:
    """The instances whose queue is more than half of the longest."""
    longest = max(queue.values(), default=0.0)
    return tuple(name for name, length in queue.items() if longest < 2.0 * length)


class Allotment(Struct, frozen=True, gc=False):
    """Instances per operator, and the slots that they take together."""

    instances: dict[str, int]
    slots: int


def deal(total: int, among: int) -> list[int]:
    """Deal a number out evenly, as partitions are to readers: shares differ by one at most.

    >>> deal(20, 4), deal(7, 3)
    ([5, 5, 5, 5], [3, 2, 2])
    """
    share, rest = divmod(total, among)
    return [share + (hand < rest) for hand in range(among)]


def fit(wanted: Mapping[str, int], available: int) -> Allotment:
    """Shrink all operators in proportion, each keeps at least one, until they fit.

    What is above one instance each is scaled by ``(available - m) / (sum - m)`` for ``m``
    operators and rounded; a rounding that misses is put right by one instance of the largest. It
    can therefore leave a slot unused when several roundings go the same way.

    >>> fit({"source": 10, "filter": 25, "map": 20, "sink": 20}, available=50)
    Allotment(instances={'source': 7, 'filter': 17, 'map': 13, 'sink': 13}, slots=50)
    """
    total, operators = sum(wanted.values()), len(wanted)
    if total <= available or total == operators:
        return Allotment(dict(wanted), total)
    share = max(0, available - operators) / (total - operators)
    instances = {name: 1 + round(share * (count - 1)) for name, count in wanted.items()}
    largest = max(wanted, key=lambda name: wanted[name])
    slots = sum(instances.values())
    if slots > available and instances[largest] > 1:
        instances[largest] -= 1
    elif slots < available:
        instances[largest] += 1
    return Allotment(instances, sum(instances.values()))
