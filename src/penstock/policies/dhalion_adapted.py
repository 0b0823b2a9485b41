"""Dhalion as Koper adapted it: the whole job at once, by its lag and its throughput."""

from dataclasses import dataclass
from math import floor
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from penstock.core.knowledge import Knowledge, SnapshotMetric
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import rate, resized
from penstock.policies.algorithms.dataflow import with_margin
from penstock.policies.algorithms.measurements import (
    excess_delay_s,
    executor_mean,
    held_back_fraction,
    hold,
    missing,
    window_mean,
)


def grown(executors: int, arrival_rps: float, throughput_rps: float, factor: float) -> int:
    """A fleet that would process what arrives, with a safety factor.

    Only while there is lag is the throughput what the fleet can do at most.

    >>> grown(4, arrival_rps=200.0, throughput_rps=100.0, factor=1.0)
    8
    """
    return with_margin(executors * (arrival_rps / throughput_rps), factor)


def shrunk(executors: int, fraction: float) -> int:
    """A fleet smaller by a fraction, rounded down.

    >>> shrunk(16, 0.2), shrunk(2, 0.2)
    (12, 1)
    """
    return floor(executors * (1.0 - fraction))


@dataclass(frozen=True, slots=True)
class DhalionAdapted:
    """Grow by the ratio of arrivals to throughput when late; shrink by a fifth when idle enough.

    The rule: if ``lag > latency_threshold_s`` and the backlog grows:
    ``n' = ceil(n x arrival / throughput x (1 + overprovisioning))``, where the throughput is what
    comes in at the sink. Else, if backpressure, lag and cpu are all below their thresholds:
    ``n' = floor(n x (1 - shrink_fraction))``.
    """

    latency_threshold_s: Annotated[float, Meta(gt=0)] = 5.0
    overprovisioning: Annotated[float, Meta(ge=0)] = 0.2
    throughput_at: Literal["sink", "source"] = "sink"
    backpressure_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.1
    cpu_fraction: Annotated[float, Meta(ge=0)] = 0.6
    shrink_fraction: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    window_s: Annotated[float, Meta(gt=0)] = 60.0
    lag_window_s: Annotated[float, Meta(ge=0)] = 60.0
    period_s: Annotated[float, Meta(gt=0)] = 10.0

    default_limits: ClassVar[Limits] = Limits(cooldown_s=120.0)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        lag_s = _mean(excess_delay_s, snapshot, knowledge, self.lag_window_s)
        if lag_s is None:
            return not_measured(snapshot.fleet.target, "delay_s")
        if lag_s > self.latency_threshold_s:
            return self._late(lag_s, snapshot, knowledge)
        return self._in_time(lag_s, snapshot, knowledge)

    def _late(self, lag_s: float, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet.target
        # A job in a long batch may measure nothing for a turn or two: the window still counts.
        arrival_rps = window_mean(lambda s: s.arrival_rps, snapshot, knowledge, self.window_s)
        read_rps = window_mean(lambda s: s.throughput_rps, snapshot, knowledge, self.window_s)
        sink_rps = None
        if self.throughput_at == "sink":
            sink_rps = window_mean(_sink_rps, snapshot, knowledge, self.window_s)
        throughput_rps = sink_rps or read_rps
        growth_rps = knowledge.slope(lambda s: s.backlog_records, self.window_s)
        if arrival_rps is None or throughput_rps is None or growth_rps is None:
            unknown = missing(arrival_rps=arrival_rps, throughput_rps=throughput_rps)
            growth = ["growth of backlog_records"] if growth_rps is None else []
            return not_measured(fleet, *unknown, *growth)
        at_sink = bool(sink_rps)
        evidence = {
            "lag_s": lag_s,
            "backlog_growth_rps": growth_rps,
            "mean_arrival_rps": arrival_rps,
            "mean_sink_rps" if at_sink else "mean_throughput_rps": throughput_rps,
        }
        late = f"{lag_s:.1f} s late"
        if growth_rps <= 0.0:
            return hold(fleet, "catching_up", f"{late}, but the backlog shrinks", evidence)
        if throughput_rps == 0.0:
            return hold(fleet, "no_throughput", f"{late}, but nothing is processed", evidence)
        factor = 1.0 + self.overprovisioning
        target = max(fleet, grown(fleet, arrival_rps, throughput_rps, factor))
        text = (
            f"{late} and the backlog grows by {rate(growth_rps)}: {rate(arrival_rps)} "
            f"arrive, {rate(throughput_rps)} {'reach the sink' if at_sink else 'are processed'}, "
            f"with {self.overprovisioning:.0%} on top: {resized(fleet, target)}"
        )
        expected_rps = read_rps * target / fleet if read_rps and fleet > 0 else None
        return Decision.of(target, Reason("scale_up", text, evidence), expected_rps=expected_rps)

    def _in_time(self, lag_s: float, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        fleet = snapshot.fleet.target
        # Between two long batches there is nothing new to see: the last ones still count.
        held_back = window_mean(held_back_fraction, snapshot, knowledge, self.window_s)
        cpu = _mean(
            lambda s: executor_mean(s.executors, "cpu_fraction"), snapshot, knowledge, self.window_s
        )
        if held_back is None or cpu is None:
            return not_measured(fleet, *missing(backpressured_fraction=held_back, cpu_fraction=cpu))
        evidence = {"lag_s": lag_s, "backpressured_fraction": held_back, "mean_cpu_fraction": cpu}
        state = f"{lag_s:.1f} s late, {held_back:.0%} backpressured, cpu at {cpu:.0%}"
        target = max(1, shrunk(fleet, self.shrink_fraction))
        has_room = held_back < self.backpressure_fraction and cpu < self.cpu_fraction
        if has_room and target < fleet:
            text = f"{state}: {self.shrink_fraction:.0%} fewer, {resized(fleet, target)}"
            return Decision.of(target, Reason("scale_down", text, evidence))
        return hold(fleet, "right_size", state, evidence)


def _mean(
    metric: SnapshotMetric, snapshot: Snapshot, knowledge: Knowledge, window_s: float
) -> float | None:
    """The mean over the window, provided that the metric is being measured now."""
    measured = metric(snapshot) is not None
    return window_mean(metric, snapshot, knowledge, window_s) if measured else None


def _sink_rps(snapshot: Snapshot) -> float | None:
    """What comes in at the operators from which no other reads; ``None`` if not measured."""
    read = {feed for operator in snapshot.operators for feed in operator.upstream}
    sinks = [o.input_rps for o in snapshot.operators if o.name not in read]
    return sum(rps or 0.0 for rps in sinks) if sinks and None not in sinks else None
