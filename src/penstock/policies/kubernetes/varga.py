"""Varga et al.: the horizontal pod autoscaler, fed with lag and utilisation."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, OperatorSample, Reason, Snapshot, not_measured
from penstock.core.phrases import counted, rate
from penstock.policies.algorithms.measurements import excess_backlog_records, window_mean
from penstock.policies.kubernetes import pacing
from penstock.policies.kubernetes.metrics import Tolerance, bounded_ceil

#: The YAML of the papers sets only the window down, which is a behaviour: all else is default.
DEFAULTS = pacing.Behavior()


def lag_metric(
    lag_records: float, threshold_records: float, *, slope_rps: float, rate_rps: float
) -> float:
    """How the queue grows against what is read from it; negative while it is short.

    The queue grows by 2 k/s while 10 k/s are read: 1.2 times the executors would keep up.

    >>> lag_metric(60_000, 50_000, slope_rps=2_000, rate_rps=10_000)
    1.2
    >>> lag_metric(40_000, 50_000, slope_rps=2_000, rate_rps=10_000)
    -1.2
    >>> lag_metric(50_000, 50_000, slope_rps=2_000, rate_rps=10_000)
    0.0
    """
    if lag_records == threshold_records:
        return 0.0
    sign = 1.0 if lag_records > threshold_records else -1.0
    return sign * (1.0 + slope_rps / rate_rps)


@dataclass(frozen=True, slots=True)
class Varga:
    """The autoscaler of Kubernetes over two metrics of a stream: lag and utilisation.

    The rule: ``n' = max(ceil(n x L/l), ceil(n x U/u))`` with ``L = sign(lag - threshold) x (1 +
    slope(lag) / rate)`` over the last minute, target ``l``, and ``U = 1 - mean idle fraction`` of
    the operators that are no sources, target ``u``. Each metric is left alone within 10 % of its
    target; a fleet shrinks only to the highest recommendation of `stabilize_down_s`. Version 2:
    both metrics read 0 while the number of registered executors has changed within `cooldown_s`.
    """

    version: Literal[1, 2] = 2
    lag_threshold_records: Annotated[float, Meta(ge=0)] = 50_000.0
    utilization_target_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.7
    lag_target: Annotated[float, Meta(gt=0)] = 1.0
    count_sources: bool = False
    window_s: Annotated[float, Meta(gt=0)] = 60.0
    cooldown_s: Annotated[float, Meta(ge=0)] = 120.0
    tolerance_fraction: Annotated[float, Meta(ge=0)] = 0.1
    stabilize_down_s: Annotated[float, Meta(ge=0, le=3600)] = 480.0
    period_s: Annotated[float, Meta(gt=0)] = 15.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        current, now_s = snapshot.fleet.target, snapshot.at_s
        past = pacing.seeded(knowledge.recall(pacing.Recommendations), current, now_s)
        lag = excess_backlog_records(snapshot)
        used = self._utilization(snapshot, knowledge)
        ready = snapshot.fleet.active
        if lag is None:
            return not_measured(current, "backlog_records", memory=past)
        if used is None or ready == 0:
            return not_measured(current, "idle_fraction of any operator", memory=past)
        rate_rps = window_mean(lambda s: s.throughput_rps, snapshot, knowledge, self.window_s)
        if rate_rps is None:
            return not_measured(current, "throughput_rps", memory=past)
        slope_rps = knowledge.slope(excess_backlog_records, self.window_s) or 0.0
        grows, threshold = 0.0, self.lag_threshold_records
        if rate_rps > 0.0:
            grows = lag_metric(lag, threshold, slope_rps=slope_rps, rate_rps=rate_rps)
        # Equation 3.6: executors that came, went or were lost within the cooldown.
        sizes = {past.fleet.registered for past in knowledge.window(self.cooldown_s)}
        cooling = self.version == 2 and len(sizes) > 1
        if cooling:
            grows = used = 0.0
        target = self.utilization_target_fraction
        wanted = max(
            0,
            self._replicas(current, ready, grows, self.lag_target),
            self._replicas(current, ready, used, target),
        )
        evidence = {"lag_metric": grows, "utilization": used, "target": target, "wanted": wanted}
        if cooling:
            text = (
                "both metrics count as 0: the number of registered executors changed within the "
                f"last {self.cooldown_s:.0f} s"
            )
            reason = Reason("cooling_down", text, evidence)
        else:
            workers = "operators" if snapshot.trigger_interval_s is None else "slots"
            seen = f"{workers} work {used:.0%} of their time for a target of {target:.0%}, "
            beyond = " beyond two triggers" if snapshot.trigger_interval_s else ""
            seen += self._lag_words(lag, beyond, slope_rps, rate_rps)
            reason = pacing.metric_reason(
                seen, used / target, wanted, current, self._tolerance, evidence
            )
        window_s, rescales = self.stabilize_down_s, knowledge.rescales
        return pacing.settle(wanted, current, now_s, past, reason, window_s, DEFAULTS, rescales)

    def _utilization(self, snapshot: Snapshot, knowledge: Knowledge) -> float | None:
        """``U``: of the operators now, or of the slots of a micro-batch job over the window."""
        if snapshot.trigger_interval_s is not None:
            return window_mean(_slots_in_use, snapshot, knowledge, self.window_s)
        return _operators_in_use(snapshot.operators, count_sources=self.count_sources)

    def _replicas(self, current: int, ready: int, metric: float, target: float) -> int:
        """An average value over pods that all report the same, in thousandths."""
        ratio = floor(metric * 1000.0 + 0.5) / floor(target * 1000.0 + 0.5)
        return current if self._tolerance.covers(ratio) else bounded_ceil(ratio * ready)

    @property
    def _tolerance(self) -> Tolerance:
        return Tolerance(self.tolerance_fraction, self.tolerance_fraction)

    def _lag_words(self, lag: float, beyond: str, slope_rps: float, rate_rps: float) -> str:
        """What the lag metric says: how the queue moves against what is read from it."""
        threshold = self.lag_threshold_records
        queue = f"the lag of {counted(round(lag), 'record')}{beyond}"
        if lag <= threshold:
            return f"{queue} is short (up to {threshold:g})"
        if rate_rps == 0.0:
            return f"{queue} is long (above {threshold:g}), but nothing is read"
        verb = "grows" if slope_rps >= 0.0 else "falls"
        return f"{queue} {verb} by {rate(abs(slope_rps))} while {rate(rate_rps)} are read"


def _operators_in_use(operators: Iterable[OperatorSample], *, count_sources: bool) -> float | None:
    """Over operators that are no sources; over all if that is asked for, or there are no others."""
    sources: list[float] = []
    inner: list[float] = []
    for operator in operators:
        idle = operator.idle_fraction
        if idle is None and operator.busy_fraction is not None:
            waits = operator.backpressured_fraction or 0.0
            idle = max(0.0, 1.0 - operator.busy_fraction - waits)
        if idle is not None:
            (inner if operator.upstream or count_sources else sources).append(idle)
    idle_fractions = inner or sources
    return 1.0 - sum(idle_fractions) / len(idle_fractions) if idle_fractions else None


def _slots_in_use(snapshot: Snapshot) -> float | None:
    """The share of all slots' time in which a task of any stage runs.

    A stage has the idle time of the slots, or, in older journals, only its own busy time.
    """
    idle = [o.idle_fraction for o in snapshot.operators if o.idle_fraction is not None]
    if idle:
        return max(0.0, 1.0 - min(idle))
    busy = [o.busy_fraction for o in snapshot.operators if o.busy_fraction is not None]
    return min(1.0, sum(busy)) if busy else None
