"""Cases of the Flink autoscaler that are about decisions, and all its translators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, chain, count, repeat
from typing import Any

from penstock.core.errors import ConfigError
from penstock.policies.flink.capacity import collect, observed_series_rps
from penstock.policies.flink.evaluation import NO_LIMIT, Vertex, VertexSample, evaluate
from penstock.policies.flink.history import (
    Pending,
    Restart,
    measured_restart_s,
    restart_s,
    scaling_coefficient,
    trimmed,
)
from penstock.policies.flink.vertex import (
    JobPlan,
    align,
    decide_job,
    decide_vertex,
    is_alignable,
    scale,
)
from tests.conformance.flink_metric_cases import RUNNERS as METRIC_RUNNERS
from tests.conformance.flink_words import (
    Case,
    Words,
    collected_of,
    gigabytes,
    known,
    load_of,
    number,
    options_of,
    past_of,
    pending_of,
    picked,
    source_sample_of,
    vertex_of,
)
from tests.conformance.reference.flink import WorkerResources, exceeds_quota, slots_after

# -- one vertex ------------------------------------------------------------------------------------


def _vertex_decision(case: Case) -> dict[str, Any]:
    words = case["given"]
    options = options_of(words)
    change = decide_vertex(
        vertex_of(words, words),
        load_of(words, options),
        options,
        restart_s=options.restart_s,
        now_s=0.0,
        past=past_of(words.get("history", ())),
    )
    return {
        "new_parallelism": change.parallelism,
        "outside_utilization_bound": change.outside,
        "expected_processing_rate": number(change.expected_rps),
    }


def _scale(case: Case) -> dict[str, Any]:
    words = case["given"]
    return {
        "new_parallelism": scale(
            vertex_of({"parallelism": words["current"]}, words),
            known(words["scale_factor"]) or 0.0,
            lower_limit=words["lower_limit"],
            upper_limit=words["upper_limit"],
            alignment=words["alignment"].lower(),
        )
    }


def _scale_error(case: Case) -> dict[str, Any]:
    limits = {key: case["given"][key] for key in ("lower_limit", "upper_limit")}
    try:
        scale(Vertex(case["given"].get("current", 1)), 1.0, **limits)
    except ConfigError:
        return {"error": True}
    return {"error": False}


def _align(case: Case) -> dict[str, Any]:
    words = case["given"]
    vertex = vertex_of({"parallelism": words["current"], "keyed": words.get("keyed", True)}, words)
    if not is_alignable(vertex):
        return {"aligned": words["target"]}
    return {
        "aligned": align(
            vertex,
            words["target"],
            lower_limit=words.get("lower_limit", 1),
            upper_limit=words.get("upper_limit", NO_LIMIT),
            alignment=words["alignment"].lower(),
        )
    }


def _delayed_scale_down(case: Case) -> dict[str, Any]:
    words = case["given"]
    options = options_of(words)
    pending = pending_of(words.get("preloaded", ()))
    changes = []
    for step in words["steps"]:
        change = decide_vertex(
            vertex_of(words, words),
            load_of({**words, **step}, options),
            options,
            restart_s=options.restart_s,
            now_s=step["t"],
            pending=pending,
        )
        pending = change.pending
        changes.append(change)
    return {
        "new_parallelism_per_step": [change.parallelism for change in changes],
        "outside_bound_last": changes[-1].outside,
        "pending_after_last": pending is not None,
    }


def _sliding_max(case: Case) -> dict[str, Any]:
    words = case["given"]
    pending = pending_of(words["recommendations"])
    assert pending is not None
    largest = pending.since(words["window_start"]).requests[0]
    return {
        "max_parallelism": largest.parallelism,
        "max_at": largest.at_s,
        "outside": largest.outside,
    }


def _scaling_coefficient(case: Case) -> dict[str, Any]:
    words = case["given"]
    coefficient = scaling_coefficient(
        [(past["parallelism"], known(past["true_processing_rate"])) for past in words["history"]],
        min_observations=words["min_observations"],
        coefficient_min=words["coefficient_min"],
    )
    answer = {"coefficient": coefficient}
    # A case may give bounds instead of a number: a bound that holds is repeated.
    expect = case["expect"]
    if "greater_than" in expect:
        holds = coefficient > expect["greater_than"]
        answer["greater_than"] = expect["greater_than"] if holds else coefficient
    if "less_than" in expect:
        holds = coefficient < expect["less_than"]
        answer["less_than"] = expect["less_than"] if holds else coefficient
    return answer


# -- the job ---------------------------------------------------------------------------------------


def _job_decision(case: Case) -> dict[str, Any]:
    plan = _plan(case["given"])
    return {
        "scaled_vertices": sorted(plan.scaled),
        "new_parallelism": plan.scaled,
        "expected_rate": {name: number(plan.changes[name].expected_rps) for name in plan.scaled},
        "memory_pressure": plan.under_memory_pressure,
    }


def _plan(words: Words) -> JobPlan:
    config = words["config"]
    options = options_of({**config, **picked(words, "heap_threshold")})
    if (known(words.get("gc_pressure")) or 0.0) > words.get("gc_threshold", 1.0):
        return JobPlan({}, {}, under_memory_pressure=True)
    kept = words["vertices"].keys() - set(words.get("excluded", ()))
    return decide_job(
        {name: vertex_of(words["vertices"][name], config) for name in kept},
        {name: load_of(vertex, options) for name, vertex in words["vertices"].items()},
        options,
        restart_s=options.restart_s,
        now_s=0.0,
        heap_fraction=known(words.get("heap_usage_avg")),
    )


def _quota(case: Case) -> dict[str, Any]:
    words = case["given"]
    worker = WorkerResources(
        words["slots_per_worker"], words["worker_cpu"], gigabytes(words["worker_memory_gb"])
    )
    quota_gb = words["memory_quota_gb"]
    reached = exceeds_quota(
        {name: vertex["parallelism"] for name, vertex in words["vertices"].items()},
        _plan(words).scaled,
        words["slot_sharing_groups"],
        worker,
        cpu_quota=words["cpu_quota"],
        memory_quota_bytes=None if quota_gb is None else gigabytes(quota_gb),
    )
    return {"quota_reached": reached}


def _slots_after_rescale(case: Case) -> dict[str, Any]:
    words = case["given"]
    return {"slots": slots_after(words["current"], words["new"], words["slots_used"])}


def _end_to_end(case: Case) -> dict[str, Any]:
    """A source, and a sink that reads what it reads and is as busy."""
    words = case["given"]
    options = options_of(words["config"])
    aggregator = words["config"].get("busy_aggregator", "max").lower()
    told = words["source"]
    seen = observed_series_rps(
        [source_sample_of(sample) for sample in told],
        lag_threshold_s=options.observed_lag_threshold_s,
        min_observations=options.observed_min_observations,
    )
    sampled = {
        "source": [
            (sample["t_s"], collected_of(sample, aggregator, observed))
            for sample, observed in zip(told, seen, strict=True)
        ],
        "sink": [(sample["t_s"], collected_of(sample, aggregator, None)) for sample in told],
    }
    vertices = {
        "source": Vertex(words["parallelism"], (), words["max_parallelism"]),
        "sink": Vertex(words["parallelism"], ("source",), words["max_parallelism"]),
    }
    loads = evaluate(vertices, sampled, options, restart_s=options.restart_s)
    now_s = told[-1]["t_s"]
    plan = decide_job(vertices, loads, options, restart_s=options.restart_s, now_s=now_s)
    source = loads["source"]
    return {
        "new_parallelism": plan.scaled.get("source", words["parallelism"]),
        "sink_parallelism": plan.scaled.get("sink", words["parallelism"]),
        "target_rate": number(source.demand.target_rps),
        "catch_up_rate": number(source.demand.catch_up_rps),
        "true_processing_rate": number(source.capacity_rps),
        "scale_up_below": number(source.band.scale_up_below_rps),
        "scale_down_above": number(source.band.scale_down_above_rps),
    }


def _delayed_scale_down_e2e(case: Case) -> dict[str, Any]:
    """One sample a minute, ten minutes of each busy time, until the job is first scaled."""
    words = case["given"]
    options = options_of(words)
    vertices = {
        "source": Vertex(words["source_parallelism"]),
        "sink": Vertex(words["sink_parallelism"], inputs=("source",)),
    }
    busy = {
        name: list(chain.from_iterable(repeat(ms, 10) for ms in windows))
        for name, windows in words["busy_ms_per_10min_window"].items()
    }
    # The first reading comes before the first minute, and counts nothing yet.
    records = [0, *accumulate(repeat(words["records_per_minute"], len(busy["source"]) - 1))]
    records.insert(0, 0)
    busy = {name: [series[0], *series] for name, series in busy.items()}
    taken: dict[str, list[tuple[float, VertexSample]]] = {name: [] for name in vertices}
    pending: Mapping[str, Pending] = {}
    for minute, now_s in zip(range(len(records)), count(0, words["sample_every_s"]), strict=False):
        window = collect(
            [at_s for at_s, _ in taken["source"]],
            now_s,
            running_at_s=0,
            stabilization_s=0,
            window_s=words["metric_window_s"],
        )
        for name, samples in taken.items():
            told = {"records_in": records[minute], "busy_ms_per_s": busy[name][minute], "lag": None}
            samples.append((now_s, collected_of(told, "max", None)))
            taken[name] = [sample for sample in samples if sample[0] in window.at_s]
        if not window.is_full:
            continue
        loads = evaluate(vertices, taken, options, restart_s=options.restart_s)
        plan = decide_job(
            vertices, loads, options, restart_s=options.restart_s, now_s=now_s, pending=pending
        )
        pending = plan.pending
        if plan.scaled:
            after = {name: vertex.parallelism for name, vertex in vertices.items()} | plan.scaled
            return {"no_scaling_before_minute": minute, f"at_minute_{minute}": after}
    return {"no_scaling_before_minute": None}


def _metric_window(case: Case) -> dict[str, Any]:
    words = case["given"]
    steps = []
    kept: tuple[float, ...] = ()
    for now in words["collect_at_ms"]:
        window = collect(
            kept,
            now,
            running_at_s=words["job_running_ms"],
            stabilization_s=words["stabilization_ms"],
            window_s=words["window_ms"],
        )
        kept = window.at_s
        steps.append(window)
    return {
        "samples_kept": [len(window.at_s) for window in steps],
        "fully_collected": [window.is_full for window in steps],
    }


# -- what is remembered ----------------------------------------------------------------------------


def _restart_time(case: Case) -> dict[str, Any]:
    words = case["given"]
    return {"restart_s": restart_s(words["tracked_s"], options_of(words))}


def _record_restart(case: Case) -> dict[str, Any]:
    words = case["given"]
    took_s = measured_restart_s(
        words["scaled_at_s"], words["running_at_s"], words["target"], words["actual"]
    )
    return {"restart_s": took_s}


def _trim_history(case: Case) -> dict[str, Any]:
    words = case["given"]
    records = sorted((Restart(-age_s) for age_s in words["ages_s"]), key=lambda one: one.at_s)
    kept = trimmed(
        records, 0.0, keep_s=words["keep_s"], keep_count=words["keep_n"], keep_latest=True
    )
    return {"remaining": len(kept)}


RUNNERS: dict[str, Callable[[Case], Any]] = {
    **METRIC_RUNNERS,
    "vertex_decision": _vertex_decision,
    "scale": _scale,
    "scale_error": _scale_error,
    "align": _align,
    "delayed_scale_down": _delayed_scale_down,
    "delayed_scale_down_e2e": _delayed_scale_down_e2e,
    "sliding_max": _sliding_max,
    "scaling_coefficient": _scaling_coefficient,
    "job_decision": _job_decision,
    "quota": _quota,
    "slots_after_rescale": _slots_after_rescale,
    "end_to_end": _end_to_end,
    "metric_window": _metric_window,
    "restart_time": _restart_time,
    "record_restart": _record_restart,
    "trim_history": _trim_history,
}
