"""Daedalus: the smallest fleet that carries the next 15 minutes and could recover in time."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta, Struct, structs

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import due, executors, rate
from penstock.policies.algorithms import arima, recovery
from penstock.policies.algorithms.arima import Series, Trust
from penstock.policies.algorithms.measurements import excess_backlog_records, hold, missing
from penstock.policies.daedalus import regression

#: Width of the bins of a forecast, the past that it sees, and how far ahead it goes, in seconds.
BIN_S, PAST_S, HORIZON_S = 60.0, 3600.0, 900
#: Width of the bins, and the past, of the line that stands in for a bad forecast.
LINE_BIN_S, LINE_PAST_S = 15.0, 300.0
#: From this cpu on (of full) throughput / cpu is a fair estimate, says section 3.1.
RELIABLE_CPU = 0.7


class DaedalusMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """What was learned on the job: a few numbers per executor and per size of the fleet."""

    lines: dict[str, regression.RunningRegression] = {}  #: Throughput over cpu, per executor.
    #: Cpu of the busiest executor over the share of its time that a micro-batch job works.
    full_cpu: regression.RunningRegression = regression.RunningRegression()
    scale_outs: regression.ScaleOuts = regression.ScaleOuts()
    #: Arrivals minus throughput, as it usually is.
    usual: recovery.Normal = recovery.Normal()
    downtime: recovery.Downtime = recovery.Downtime()
    watch: recovery.Watch | None = None
    planned_at_s: float | None = None
    trust: Trust = Trust()


class CapacityOutlook(NamedTuple):
    """The inputs of Algorithm 1: C (by number of executors), W, TSF (by second), lag."""

    executors: int
    capacities_rps: Sequence[float]
    arrival_rps: float
    forecast_rps: Series
    lag_records: float
    since_rescale_s: float = inf
    downtime: recovery.Downtime = recovery.Downtime()
    checkpoint_interval_s: float = 10.0


class SizeChoice(NamedTuple):
    """What Algorithm 1 returns, and how long recovery would take there, if it was worked out."""

    executors: int
    code: str
    recovery_s: float | None = None


@dataclass(frozen=True, slots=True)
class Daedalus:
    """Self-adaptive scaling from learned capacity, a forecast and a target for recovery.

    The rule: the smallest ``i`` with ``C_i > mean load``, ``recovery_i <= recovery target``,
    ``C_i >= max forecast until recovered``, and, if ``i`` is not the present size,
    ``C_i > max forecast of 15 min`` and, on the way down, ``C_i >= lag``; the largest size if
    there is none. For 180 s after a rescale there is no plan, and before 600 s only if the
    present size does not carry the mean load or the forecast until the next plan. ``C_i`` sums
    per executor ``throughput = a + b cpu`` at the cpu that it has when the busiest is full,
    ``own cpu / cpu of the busiest``; sizes never seen are in proportion. ``recovery_i`` is the
    downtime plus the time to work off with ``C_i - forecast`` what came since the checkpoint and
    during the downtime.
    """

    recovery_target_s: Annotated[float, Meta(gt=0)] = 600.0
    loop_s: Annotated[float, Meta(gt=0)] = 60.0
    grace_s: Annotated[float, Meta(ge=0)] = 180.0
    lasting_s: Annotated[float, Meta(ge=0)] = 600.0
    executor_warmup_s: Annotated[float, Meta(ge=0)] = 120.0
    checkpoint_interval_s: Annotated[float, Meta(ge=0)] = 10.0
    most_executors: Annotated[int, Meta(ge=1)] = 512
    skew: regression.Skew = "proportional"
    count_lag: bool = False
    auto_arima: bool = False
    period_s: Annotated[float, Meta(gt=0)] = 60.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.auto_arima:
            arima.require_auto_arima()

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = knowledge.recall(DaedalusMemory)
        fleet, now_s = snapshot.fleet.target, knowledge.now_s
        if unknown := _missing(snapshot):
            return not_measured(fleet, *unknown, memory=memory)
        since_s = knowledge.since_rescale_s()
        if since_s is None or since_s < 0.0:
            since_s = inf
        memory = self._watched(memory, snapshot, knowledge)
        last_s = memory.planned_at_s
        wait_s = 0.0 if last_s is None or now_s < last_s else self.loop_s - (now_s - last_s)
        if wait_s > 0.5 * self.period_s:
            why = f"the next plan is due {due(wait_s)}"
            return hold(fleet, "between_plans", why, memory=memory)
        memory = self._sampled(memory, snapshot, knowledge, since_s)
        memory = self._sized(memory, snapshot, since_s)
        memory, outlook = self._outlook(memory, snapshot, knowledge, since_s)
        if since_s < self.grace_s:
            text = f"the last rescale was {since_s:.0f} s ago, no plan for {self.grace_s:.0f} s"
            return hold(fleet, "settling", text, memory=memory)
        if not memory.scale_outs.executors:
            return hold(fleet, "warming_up", "too few samples of each executor yet", memory=memory)
        plan = self.plan(outlook)
        if plan.executors != fleet:
            predicted_s = plan.recovery_s or self.recovery_target_s
            watch = recovery.Watch(now_s, plan.executors > fleet, float(predicted_s))
            memory = structs.replace(memory, watch=watch)
        return _decision(plan, outlook, memory)

    def plan(self, now: CapacityOutlook) -> SizeChoice:
        """Algorithm 1; all conditions must hold, so those that cost nothing are asked first."""
        current, forecast = now.executors, now.forecast_rps
        most = min(self.most_executors, len(now.capacities_rps) - 1)
        peak_rps = float(forecast.max())
        if now.since_rescale_s < self.lasting_s and current <= most:
            soon_rps = float(forecast[: int(self.loop_s)].max())
            if now.capacities_rps[current] > max(now.arrival_rps, soon_rps):
                return SizeChoice(current, "lasting")
        for i in range(1, most + 1):
            capacity_rps = now.capacities_rps[i]
            if (
                capacity_rps <= now.arrival_rps
                or (i != current and capacity_rps <= peak_rps)
                or (i < current and capacity_rps < now.lag_records)
            ):
                continue
            recovery_s = recovery.predicted_recovery_s(
                forecast,
                capacity_rps,
                arrival_rps=now.arrival_rps,
                downtime_s=now.downtime.of(grows=i >= current),
                checkpoint_interval_s=now.checkpoint_interval_s,
                lag_records=now.lag_records if self.count_lag else 0.0,
            )
            if recovery_s is None or recovery_s > self.recovery_target_s:
                continue
            if capacity_rps < forecast[: int(recovery_s)].max():
                continue
            code = "scale_up" if i > current else "scale_down" if i < current else "right_size"
            return SizeChoice(i, code, recovery_s)
        return SizeChoice(most, "largest")

    def _sampled(
        self, memory: DaedalusMemory, snapshot: Snapshot, knowledge: Knowledge, since_s: float
    ) -> DaedalusMemory:
        """The lines with one more sample per warm executor; they start again after a rescale."""
        lines: dict[str, regression.RunningRegression] = {}
        is_settled = since_s >= self.executor_warmup_s
        last_s = -inf if memory.planned_at_s is None else memory.planned_at_s
        is_same_fleet = is_settled and since_s > knowledge.now_s - last_s
        known = memory.lines if is_same_fleet else {}
        born_by_s = snapshot.at_s - self.executor_warmup_s if is_settled else -inf
        window = knowledge.window(self.loop_s)
        past = [s for s in window if snapshot.at_s - s.at_s < self.loop_s] or [snapshot]
        means = regression.executor_means(past)
        busiest: float | None = None
        for executor in snapshot.executors:
            line, mean = known.get(executor.id), means.get(executor.id)
            if mean is not None and executor.ready and executor.started_at_s <= born_by_s:
                cpu, rps = mean
                line = (line or regression.RunningRegression()).seen(cpu, rps)
                busiest = cpu if busiest is None or cpu > busiest else busiest
            if line is not None:
                lines[executor.id] = line
        full_cpu, working = memory.full_cpu, regression.working_fraction(past)
        if busiest is not None and working is not None:
            full_cpu = full_cpu.seen(working, busiest)
        return structs.replace(memory, lines=lines, full_cpu=full_cpu)

    def _watched(
        self, memory: DaedalusMemory, snapshot: Snapshot, knowledge: Knowledge
    ) -> DaedalusMemory:
        """What is usual with one more sample, and the downtime once a recovery is over."""
        arrival_rps, throughput_rps = snapshot.arrival_rps, snapshot.throughput_rps
        if arrival_rps is None or throughput_rps is None:
            return memory
        behind_rps = arrival_rps - throughput_rps
        watch, usual, downtime = memory.watch, memory.usual, memory.downtime
        rescaled_at_s = knowledge.rescales[-1].at_s if knowledge.rescales else None
        if watch is not None and rescaled_at_s != watch.asked_at_s:
            watch = None  # it never came to that rescale
        if watch is not None:
            unusual = usual.samples >= recovery.FEWEST_SAMPLES and usual.is_unusual(behind_rps)
            watch = watch.seen(snapshot.at_s - self.period_s, snapshot.at_s, unusual)
            measured_s = watch.measured_s(knowledge.now_s, self.grace_s)
            if measured_s is not None:
                downtime = downtime.corrected(watch.grew, measured_s, watch.predicted_s)
                watch = None
        usual = usual.seen(behind_rps)
        return structs.replace(memory, watch=watch, usual=usual, downtime=downtime)

    def _sized(
        self, memory: DaedalusMemory, snapshot: Snapshot, since_rescale_s: float
    ) -> DaedalusMemory:
        """The table of capacities with what the present fleet can do."""
        executors = len(memory.lines)
        if since_rescale_s < self.executor_warmup_s or not 0 < executors == snapshot.fleet.active:
            return memory
        full = (
            regression.cpu_at_full_trigger(memory.full_cpu) if snapshot.trigger_interval_s else 1.0
        )
        table = memory.scale_outs
        least_cpu = RELIABLE_CPU * full if table.executors else 0.0
        lines = list(memory.lines.values())
        capacity_rps = regression.fleet_capacity_rps(lines, full, least_cpu, self.skew)
        seen = table.seen(executors, capacity_rps) if capacity_rps else table
        return structs.replace(memory, scale_outs=seen)

    def _outlook(
        self, memory: DaedalusMemory, snapshot: Snapshot, knowledge: Knowledge, since_s: float
    ) -> tuple[DaedalusMemory, CapacityOutlook]:
        """What Algorithm 1 needs to know, and the trust in the model that foresees it."""
        past = knowledge.window(PAST_S) or [snapshot]
        turns = max(1, round(self.loop_s / self.period_s))
        recent = [s.arrival_rps for s in past[-turns:] if s.arrival_rps is not None]
        arrival_rps = sum(recent) / len(recent)
        trust = memory.trust.judged(recent, knowledge.now_s, self.loop_s)
        trust, forecast = self._forecast(trust, past, arrival_rps)
        outlook = CapacityOutlook(
            executors=snapshot.fleet.target,
            capacities_rps=memory.scale_outs.up_to(self.most_executors),
            arrival_rps=arrival_rps,
            forecast_rps=forecast,
            lag_records=excess_backlog_records(snapshot) or 0.0,
            since_rescale_s=since_s,
            downtime=memory.downtime,
            checkpoint_interval_s=recovery.repeated_s(snapshot, self.checkpoint_interval_s),
        )
        return structs.replace(memory, planned_at_s=knowledge.now_s, trust=trust), outlook

    def _forecast(
        self, trust: Trust, past: Sequence[Snapshot], arrival_rps: float
    ) -> tuple[Trust, Series]:
        """The load of each of the next 900 s: by the model, or by a line while that is wrong."""
        known = [snapshot for snapshot in past if snapshot.at_s >= trust.trained_from_s]
        predict = arima.auto_arima_rps if self.auto_arima else arima.forecast_rps
        bin_s = BIN_S
        ahead = predict(arima.mean_rates(known, bin_s), int(HORIZON_S / bin_s))
        trust = trust.with_promise(() if ahead is None else self._promise(arrival_rps, ahead))
        if ahead is None or not trust.is_earned:
            bin_s = max(LINE_BIN_S, self.period_s)
            turns = round(LINE_PAST_S / self.period_s) + 1
            recent = arima.mean_rates(past[-turns:], bin_s)
            recent = recent if len(recent) else np.array([arrival_rps])
            ahead = arima.line_rps(recent, int(HORIZON_S / bin_s))
        return trust, arima.per_second(arrival_rps, ahead, bin_s, HORIZON_S)

    def _promise(self, arrival_rps: float, ahead_rps: Series) -> list[float]:
        """The means that the samples until the next plan will show if the forecast is right."""
        turns = max(1, round(self.loop_s / self.period_s))
        seconds = arima.per_second(arrival_rps, ahead_rps, BIN_S, max(turns, round(self.loop_s)))
        return [float(piece.mean()) for piece in np.array_split(seconds, turns)]


def _missing(snapshot: Snapshot) -> list[str]:
    names = missing(arrival_rps=snapshot.arrival_rps, backlog_records=snapshot.backlog_records)
    for name in ("cpu_fraction", "throughput_rps"):
        if all(getattr(executor, name) is None for executor in snapshot.executors):
            names.append(f"{name} of executors")
    return names


def _decision(plan: SizeChoice, now: CapacityOutlook, memory: DaedalusMemory) -> Decision:
    capacity_rps = float(now.capacities_rps[plan.executors])
    peak_rps = float(now.forecast_rps.max())
    evidence = {
        "mean_arrival_rps": now.arrival_rps,
        "forecast_peak_rps": peak_rps,
        "capacity_rps": capacity_rps,
        "lag_records": now.lag_records,
    }
    text = (
        f"{executors(plan.executors, 'carry')} {rate(capacity_rps)}, {rate(now.arrival_rps)} "
        f"arrive and up to {rate(peak_rps)} will within 15 min"
    )
    if plan.recovery_s is not None:
        evidence["recovery_s"] = float(plan.recovery_s)
        text += f"; recovery would take {plan.recovery_s:.0f} s"
    if plan.code == "largest":
        text += "; no size satisfies all conditions, so the largest"
    elif plan.code == "lasting":
        text += f"; the last rescale, {now.since_rescale_s:.0f} s ago, is to last"
    reason = Reason(plan.code, text, evidence)
    expected_rps = None if plan.code == "largest" else capacity_rps
    return Decision.of(plan.executors, reason, expected_rps=expected_rps, memory=memory)
