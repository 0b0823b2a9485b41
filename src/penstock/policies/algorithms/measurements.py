"""What many rules do with measurements: hold without them, take means, and find symptoms in them.

The symptoms are those of Dhalion, as Heron ships it. Backpressure is in milliseconds per second, as
Heron counts it; `held_back_fraction` brings what an engine measures into that form.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Literal

from penstock.core import phrases
from penstock.core.knowledge import Knowledge, SnapshotMetric
from penstock.core.model import Decision, ExecutorSample, Fleet, Reason, Snapshot

Metric = Literal["cpu_fraction", "memory_fraction", "throughput_rps"]
Symptom = Literal["back_pressure", "queue_skew", "rate_skew"]

#: Backpressure below this is noise: milliseconds per second, summed over instances.
NOISE_MS = 20.0
#: Instances differ when the largest is more than this many times the smallest.
RATE_SKEW_RATIO = 1.5
#: A queue that grows faster (records per second), or is longer on average, is a symptom.
QUEUE_GROWTH_RPS = 10.0
#: Records of up to this many trigger intervals wait in a micro-batch job that keeps up.
USUAL_TRIGGERS = 2.0
MOST_GROWTH = 4.0  #: Heron never grows an operator more than fivefold at a time.


def hold(
    fleet: int, code: str, why: str, evidence: dict[str, float] | None = None, memory: Any = None
) -> Decision:
    """The decision to leave the fleet as it is.

    >>> hold(1, "healthy", "nothing waits").reasons[0].text
    'holding 1 executor: nothing waits'
    """
    text = f"holding {phrases.executors(fleet)}: {why}"
    return Decision.of(fleet, Reason(code, text, evidence or {}), memory=memory)


def missing(**measured: float | None) -> list[str]:
    return [name for name, value in measured.items() if value is None]


def window_mean(
    metric: SnapshotMetric, snapshot: Snapshot, knowledge: Knowledge, window_s: float
) -> float | None:
    """The mean over the window; the present value where the window is empty."""
    mean = knowledge.mean(metric, window_s)
    return metric(snapshot) if mean is None else mean


def of_this_size(window: Sequence[Snapshot], fleet: Fleet) -> Sequence[Snapshot]:
    """The last snapshots of the window in which as many executors were active as are now.

    >>> from penstock.core.model import Fleet
    >>> past = [Snapshot(float(i), Fleet(n, n, n)) for i, n in enumerate((4, 2, 4, 4))]
    >>> [one.at_s for one in of_this_size(past, Fleet(4, 4, 4))]
    [2.0, 3.0]
    """
    others = [place for place, one in enumerate(window) if one.fleet.active != fleet.active]
    return window[others[-1] + 1 :] if others else window


def executor_mean(executors: Iterable[ExecutorSample], metric: Metric) -> float | None:
    """The mean over the ready executors that report the metric; ``None`` without any."""
    values = [v for e in executors if e.ready and (v := getattr(e, metric)) is not None]
    return sum(values) / len(values) if values else None


def skew(
    value_by_instance: Mapping[str, float], ratio: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instances that stand out above and below; none unless they differ by more than `ratio`.

    Those within 10 % of the largest and of the smallest are named.

    >>> skew({"i1": 1000.0, "i2": 200.0}, ratio=2.5), skew({"i1": 5.0, "i2": 4.0}, ratio=2.5)
    ((('i1',), ('i2',)), ((), ()))
    """
    values = value_by_instance.values()
    if len(values) < 2 or max(values) <= ratio * min(values):
        return (), ()
    high, low = 0.9 * max(values), 1.1 * min(values)
    above = tuple(name for name, value in value_by_instance.items() if value >= high)
    return above, tuple(name for name, value in value_by_instance.items() if value <= low)


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
    pressures = [operator.backpressured_fraction for operator in snapshot.operators]
    if measured := [pressure for pressure in pressures if pressure is not None]:
        return min(1.0, max(measured))
    if not snapshot.trigger_interval_s:
        return None
    # While a long batch runs there is no new one: the last still counts.
    duration_s = snapshot.latency_s
    if snapshot.batches:
        duration_s = sum([batch.duration_s for batch in snapshot.batches]) / len(snapshot.batches)
    if duration_s is None:
        return None
    return 1.0 - snapshot.trigger_interval_s / max(duration_s, snapshot.trigger_interval_s)


def excess_delay_s(snapshot: Snapshot) -> float | None:
    """The event-time lag beyond what the engine causes by itself.

    The study of Koper, whose thresholds it is compared with, takes the mean over partitions; where
    only the oldest record of all is known, its age. A micro-batch job that keeps up makes a record
    wait for the next trigger and then for a batch that takes no longer than one, so up to two
    trigger intervals say nothing about its size.

    >>> from penstock.core.model import Fleet
    >>> excess_delay_s(Snapshot(0.0, Fleet(1, 1, 1), trigger_interval_s=2.0, delay_s=3.0))
    0.0
    """
    delay_s = snapshot.delay_s if snapshot.mean_delay_s is None else snapshot.mean_delay_s
    if delay_s is None or not snapshot.trigger_interval_s:
        return delay_s
    return max(0.0, delay_s - USUAL_TRIGGERS * snapshot.trigger_interval_s)


def excess_backlog_records(snapshot: Snapshot) -> float | None:
    """What waits beyond what waits in a micro-batch job that keeps up.

    That is what arrives in two trigger intervals: one that the next batch will read, and one whose
    batch is running. While arrivals are not measured, what is processed stands for them.

    >>> from penstock.core.model import Fleet
    >>> seen = Snapshot(0.0, Fleet(1, 1, 1), trigger_interval_s=2.0, arrival_rps=30_000.0,
    ...                 backlog_records=150_000.0)
    >>> excess_backlog_records(seen)
    30000.0
    """
    backlog, trigger_s = snapshot.backlog_records, snapshot.trigger_interval_s
    if backlog is None or not trigger_s:
        return backlog
    arrival_rps = snapshot.arrival_rps
    rps = (snapshot.throughput_rps or 0.0) if arrival_rps is None else arrival_rps
    return max(0.0, backlog - USUAL_TRIGGERS * trigger_s * rps)


def last_run(snapshot: Snapshot, knowledge: Knowledge, pause_s: float) -> list[Snapshot]:
    """The turns of the last run, if a pause and only new executors show that another has begun."""
    ready = [executor for executor in snapshot.executors if executor.ready]
    past = (s for s in reversed(knowledge.history) if s is not snapshot)
    seen = (s for s in past if any(executor.ready for executor in s.executors))
    last = next(seen, None)
    if last is None or not ready or snapshot.at_s - last.at_s <= pause_s:
        return []
    if any(executor.started_at_s <= last.at_s for executor in ready):
        return []
    run = [last]
    for earlier in seen:
        if run[-1].at_s - earlier.at_s > pause_s:
            break
        run.append(earlier)
    return run


def widest_stage(snapshot: Snapshot) -> int | None:
    """The tasks of the widest stage: the stages of a micro-batch take turns.

    >>> from penstock.core.model import Fleet, OperatorSample
    >>> stages = (OperatorSample("read", tasks=8), OperatorSample("count", tasks=200))
    >>> widest_stage(Snapshot(0.0, Fleet(1, 1, 1), operators=stages, partitions=8))
    200
    """
    counts = [o.tasks for o in snapshot.operators if o.tasks is not None]
    return max(counts) if counts else snapshot.partitions


def is_at_work(snapshot: Snapshot) -> bool | None:
    """Whether tasks run or wait; ``None`` if neither busy time nor backlog was measured."""
    busy = [e.busy_fraction for e in snapshot.executors if e.busy_fraction is not None]
    if busy:
        return any(fraction > 0.0 for fraction in busy)
    return None if snapshot.backlog_records is None else snapshot.backlog_records > 0.0
