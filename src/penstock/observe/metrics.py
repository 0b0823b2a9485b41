"""A running scaler as metrics: a table of them, and a pure fold from steps to their values.

The table is in metrics.toml; docs/metrics.md is generated from it. Two ways out of the driver are
in `endpoint` (Prometheus) and `spark.outlets` (Spark's own metrics system).
"""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.model import Limits, Snapshot, Step
from penstock.observe.formatting import codes
from penstock.observe.report.account import kind_of, processed_by_query, share_above
from penstock.settings.goal import Goal

PREFIX = "penstock_"
#: What a step of mode recommend says in place of a move.
RECOMMENDED = "recommended only, nothing was moved"
#: A pattern may subscribe to thousands of topics; these are the first ones.
MOST_TOPICS = 100
#: A policy of a user may have any number of reasons; further ones are counted as this one.
MOST_COUNTERS, OTHER = 120, "other"

#: A metric without its prefix, and the values of its labels.
Series: TypeAlias = tuple[str, ...]
Values: TypeAlias = dict[Series, float]


class MetricSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One metric: what it says, and what to do when it moves."""

    type: Literal["gauge", "counter"]
    help: str
    action: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, MetricSpec] = msgspec.convert(
    tomllib.loads((pkgutil.get_data("penstock.observe", "metrics.toml") or b"").decode()),
    dict[str, MetricSpec],
)
#: Counters begin at zero, so that a first increase is seen.
_ZEROS: Values = {
    **{(name,): 0.0 for name, m in METRICS.items() if m.type == "counter" and not m.labels},
    ("rescales_total", "up"): 0.0,
    ("rescales_total", "down"): 0.0,
}


class MetricTotals(Struct, frozen=True):
    """The metrics after some steps. `seen` is the last snapshot that could be read."""

    counters: Values = {}
    gauges: Values = {}
    last: Step | None = None
    seen: Snapshot | None = None

    @property
    def values(self) -> Values:
        return (self.counters or _ZEROS) | self.gauges


def fold(
    totals: MetricTotals,
    step: Step,
    limits: Limits,
    goal: Goal,
    *,
    acts: bool = True,
    turn_s: float = 0.0,
) -> MetricTotals:
    """The metrics after one more step; `turn_s` is how long that took."""
    counters = dict(totals.counters or _ZEROS)
    for series, amount in _increments(totals, step, limits, goal, acts):
        if series not in counters and len(counters) >= MOST_COUNTERS:
            series = (series[0], OTHER)
        counters[series] = counters.get(series, 0.0) + amount
    counters["turn_seconds_total",] += turn_s
    if acts and kind_of(step) == "refused":
        counters["refusals_total",] += 1.0
    gauges = {s: float(value) for s, value in _gauges(step, limits, goal) if value is not None}
    return MetricTotals(
        counters, gauges, step, totals.seen if step.snapshot is None else step.snapshot
    )


def _increments(
    totals: MetricTotals, step: Step, limits: Limits, goal: Goal, acts: bool
) -> Iterator[tuple[Series, float]]:
    """What one more step adds to the counters; what was seen at a turn holds until the next."""
    yield ("turns_total",), 1.0
    for code in codes(step.decision):
        yield ("decisions_total", code), 1.0
    if (kind := kind_of(step)) in ("up", "down"):
        yield ("rescales_total", kind), 1.0
    if (last := totals.last) is None:
        return
    span_s = max(0.0, step.at_s - last.at_s)
    if last.snapshot is None:
        yield ("blind_seconds_total",), span_s
    if (seen := totals.seen) is None:
        return
    paid = max(seen.fleet.target, seen.fleet.registered)
    sizes = {
        "": paid,
        "saved_": max(0, limits.max_executors - paid),
        "recommended_": paid if acts else last.decision.target_executors,
    }
    for prefix, size in sizes.items():
        yield (f"{prefix}executor_seconds_total",), size * span_s
        if goal.is_priced:
            cost = size * span_s / 3600.0 * goal.executor_price
            yield (f"{prefix}cost_total", goal.currency), cost
    if seen.fleet.target >= limits.max_executors:
        yield ("at_max_seconds_total",), span_s
    yield from _records(seen, step.snapshot, goal)


def _records(before: Snapshot, seen: Snapshot | None, goal: Goal) -> Iterator[tuple[Series, float]]:
    """The records that were processed in between, and those that were late."""
    if seen is None or seen.delay_s is None:
        return
    for own_s, (first_s, last_s, records) in processed_by_query(before, seen):
        yield ("records_total",), records
        yield ("late_records_total",), records * share_above(own_s or goal.slo_s, first_s, last_s)


def recommended_account(values: Values, goal: Goal) -> str:
    """What acting would have saved so far, in words; empty before anything was paid."""
    paid_h = values.get(("executor_seconds_total",), 0.0) / 3600.0
    if not paid_h:
        return ""
    taken_h = values["recommended_executor_seconds_total",] / 3600.0
    saved_h = paid_h - taken_h
    change = f"{abs(saved_h) / paid_h:.0%}".replace("%", " %")
    money = f" (saved {goal.money(saved_h)})" if goal.is_priced and saved_h > 0.0 else ""
    return (
        f"acting would have taken {taken_h:.3g} executor-hours instead of {paid_h:.3g}, "
        f"{change} {'fewer' if saved_h >= 0.0 else 'more'}{money}; "
        "how late records would have been then is not known"
    )


def _gauges(step: Step, limits: Limits, goal: Goal) -> Iterator[tuple[Series, float | None]]:
    """What one step says of the present; ``None`` is not measured."""
    decision, seen = step.decision, step.snapshot
    yield ("last_turn_timestamp_seconds",), step.at_s
    yield ("min_executors",), limits.min_executors
    yield ("max_executors",), limits.max_executors
    asked = seen.queries[0] if seen is not None and seen.queries else None
    yield ("slo_seconds",), (asked and asked.slo_s) or goal.slo_s
    yield ("max_cost_per_day", goal.currency), goal.max_cost_per_day
    yield ("wanted_executors",), decision.wanted_executors
    yield ("decided_executors",), decision.target_executors
    yield ("capacity_records_per_second",), decision.expected_rps
    evidence = {key: value for each in decision.reasons for key, value in each.evidence.items()}
    for bound, key in ("mean", "ahead_rps"), ("low", "ahead_low_rps"), ("high", "ahead_high_rps"):
        yield ("forecast_records_per_second", bound), evidence.get(key)
    yield ("forecast_horizon_seconds",), evidence.get("horizon_s")
    if seen is None:
        return
    is_moved = kind_of(step) in ("up", "down")
    yield ("target_executors",), decision.target_executors if is_moved else seen.fleet.target
    yield ("registered_executors",), seen.fleet.registered
    yield ("active_executors",), seen.fleet.active
    yield ("arrival_records_per_second",), seen.arrival_rps
    yield ("throughput_records_per_second",), seen.throughput_rps
    yield ("backlog_records",), seen.backlog_records
    yield ("delay_seconds",), seen.delay_s
    yield ("batch_seconds",), seen.latency_s
    yield ("partitions",), seen.partitions
    yield ("state_bytes",), seen.state_bytes
    for each in seen.topics[:MOST_TOPICS]:
        yield ("lag_seconds", each.query, each.topic), each.delay_s
        yield ("lag_records", each.query, each.topic), each.backlog_records
