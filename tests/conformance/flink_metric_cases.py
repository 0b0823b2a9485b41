"""Cases of the Flink autoscaler that are about metrics: capacity, demand, memory, periods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import chain
from math import inf
from typing import Any

from penstock.core.errors import ConfigError
from penstock.policies.flink.capacity import (
    mean,
    observed_rps,
    observed_series_rps,
    rate,
    true_processing_rps,
    unhindered_rps,
)
from penstock.policies.flink.evaluation import (
    Flow,
    Options,
    Vertex,
    band,
    evaluate,
    is_processing_backlog,
    output_ratio,
)
from tests.conformance.flink_words import (
    GIGABYTE,
    Case,
    demand_of,
    gigabytes,
    known,
    metric_words,
    number,
    options_of,
    sample_of,
    seconds,
    source_sample_of,
)
from tests.conformance.reference.flink import (
    BusyTime,
    WorkerMemory,
    busy_ms_per_s,
    heap_after_bytes,
    heap_fraction,
    input_rps,
    load_fraction,
    memory_window,
    network_segments,
    pool_bytes,
    source_partitions,
    workers,
)
from tests.conformance.reference.flink_cron import LocalTime
from tests.conformance.reference.flink_periods import is_excluded, read_period

# -- capacity and demand ---------------------------------------------------------------------------


def _thresholds(case: Case) -> dict[str, Any]:
    words = case["given"]
    options = options_of(words)
    limits = band(
        demand_of(words),
        options,
        restart_s=options.restart_s,
        processing_backlog=words.get("processing_backlog", False),
    )
    return {
        "scale_up_below": number(limits.scale_up_below_rps),
        "scale_down_above": number(limits.scale_down_above_rps),
    }


def _is_processing_backlog(case: Case) -> dict[str, Any]:
    words = case["given"]
    input_rate = known(words["input_rate"])
    return {
        "processing_backlog": is_processing_backlog(words["lag"], input_rate, words["threshold_s"])
    }


def _true_processing_rate(case: Case) -> dict[str, Any]:
    words = case["given"]
    capacity_rps = true_processing_rps(
        known(words["busy_ms_per_s"]),
        known(words["input_rate"]),
        [known(sample) for sample in words["observed_tpr_samples"]],
        switch_threshold=words["switch_threshold"],
        min_observations=words["min_observations"],
    )
    return {"true_processing_rate": number(capacity_rps)}


def _observed_tpr_sample(case: Case) -> dict[str, Any]:
    words = case["given"]
    seen = observed_rps(
        source_sample_of(words),
        lambda: known(words.get("previous_average")),
        lag_threshold_s=words["lag_threshold_s"],
    )
    return {"observed_tpr": number(seen)}


def _observed_tpr_sequence(case: Case) -> dict[str, Any]:
    words = case["given"]
    series = observed_series_rps(
        [source_sample_of(sample) for sample in words["samples"]],
        lag_threshold_s=words["lag_threshold_s"],
        min_observations=words["min_observations"],
    )
    return {"observed_tpr_per_sample": [number(seen) for seen in series]}


def _observed_tpr_with_backpressure(case: Case) -> dict[str, Any]:
    words = case["given"]
    seen = unhindered_rps(words["records_per_s"], words["backpressured_ms_per_s"])
    return {"observed_tpr": number(seen)}


def _load_sample(case: Case) -> dict[str, Any]:
    words = case["given"]
    busy = BusyTime(**{key: known(value) for key, value in words["busy_ms_per_s"].items()})
    return {"load": number(load_fraction(busy, words["aggregator"].lower()))}


def _busy_time_avg(case: Case) -> dict[str, Any]:
    words = case["given"]
    samples = words["samples"]
    busy = busy_ms_per_s(
        [known(sample.get("load")) for sample in samples],
        [(seconds(sample["t_ms"]), known(sample.get("accumulated_busy_ms"))) for sample in samples],
        words["aggregator"].lower(),
        words["parallelism"],
    )
    return {"busy_ms_per_s": number(busy)}


def _rate_over_window(case: Case) -> dict[str, Any]:
    points = [(seconds(t_ms), known(value)) for t_ms, value in case["given"]["samples_ms_value"]]
    return {"rate_per_s": number(rate(points))}


def _tpr_input_rate(case: Case) -> dict[str, Any]:
    words = case["given"]
    samples = words["samples_ms_counter_persec"]
    rate_rps = input_rps(
        [known(per_second) for _, _, per_second in samples],
        [(seconds(t_ms), known(counter)) for t_ms, counter, _ in samples],
        words["aggregator"].lower(),
    )
    return {"input_rate": number(rate_rps)}


def _edge_output_ratio(case: Case) -> dict[str, Any]:
    words = case["given"]
    names = dict.fromkeys(chain.from_iterable(words["edges"]))
    inputs = {name: [up for up, down in words["edges"] if down == name] for name in names}
    counted = words["delta_over_1s"]
    flows = {
        name: Flow(
            known(counted.get(name, {}).get("records_in")),
            known(counted.get(name, {}).get("records_out")),
        )
        for name in names
    }
    upstream, downstream = words["edge"]
    return {"ratio": output_ratio(inputs, flows, upstream, downstream)}


def _evaluate_chain(case: Case) -> dict[str, Any]:
    words = case["given"]
    options = Options(catch_up_s=words["catch_up_s"])
    vertices = {"source": Vertex(1), "sink": Vertex(1, inputs=("source",))}
    samples = {
        name: [(seconds(sample["t_ms"]), sample_of(sample)) for sample in words["metrics"][name]]
        for name in vertices
    }
    loads = evaluate(vertices, samples, options, restart_s=words.get("restart_s", 0.0))
    return {
        name: {
            "target_rate": number(load.demand.target_rps),
            "catch_up_rate": number(load.demand.catch_up_rps),
            "load": number(mean(one.load_fraction for _, one in samples[name])),
            "true_processing_rate": number(load.capacity_rps),
        }
        for name, load in loads.items()
    }


# -- memory ----------------------------------------------------------------------------------------


def _global_metrics(case: Case) -> dict[str, Any]:
    names = {
        "gc": "gc_fraction",
        "heap_ratio": "heap_fraction",
        "heap_used": "heap_bytes",
        "managed_used": "managed_bytes",
        "metaspace_used": "metaspace_bytes",
        "slots": "slots_used",
    }
    samples = [
        WorkerMemory(**{ours: known(sample.get(theirs)) for theirs, ours in names.items()})
        for sample in case["given"]["samples"]
    ]
    window = memory_window(samples)
    answer = {theirs: metric_words(getattr(window, ours)) for theirs, ours in names.items()}
    return {**answer, "slots_used": answer["slots"]}


def _global_metrics_sample(case: Case) -> dict[str, Any]:
    words = case["given"]
    return {
        "heap_ratio": heap_fraction(words["heap_used_max"], words["heap_max"]),
        "heap_used": words["heap_used_max"],
        "managed_used": words["managed_used_max"],
        "metaspace_used": words["metaspace_used_max"],
    }


def _memory_pool_size(case: Case) -> dict[str, Any]:
    words = case["given"]
    budget_bytes = words.get("budget_bytes", inf)
    return {"size_bytes": pool_bytes(words["used_bytes"], words["overhead"], budget_bytes)}


def _memory_scale(case: Case) -> dict[str, Any]:
    words = case["given"]
    if not words["enabled"]:
        return {"heap_gb": words["heap_gb"]}
    heap_bytes = heap_after_bytes(
        gigabytes(words["heap_gb"]),
        workers(words["current_slots"], words["slots_per_worker"]),
        workers(words["new_slots"], words["slots_per_worker"]),
        gigabytes(words["budget_gb"]),
    )
    return {"heap_gb": heap_bytes / GIGABYTE}


def _network_segments(case: Case) -> dict[str, Any]:
    words = case["given"]
    segments = network_segments(
        words["parallelism"],
        words["connected_parallelism"],
        words["ship"].lower(),
        buffers_per_channel=words["buffers_per_channel"],
        floating_buffers=words["floating_buffers"],
    )
    return {"segments": segments}


# -- when and what ---------------------------------------------------------------------------------


def _excluded_period(case: Case) -> dict[str, Any]:
    words = case["given"]
    at = datetime.fromisoformat(words["local_time"])
    local = LocalTime(at.year, at.month, at.day, at.hour, at.minute, at.second)
    return {"excluded": is_excluded(words["periods"], local)}


def _excluded_period_valid(case: Case) -> dict[str, Any]:
    try:
        for period in case["given"]["periods"]:
            read_period(period)
    except ConfigError:
        return {"valid": False}
    return {"valid": True}


def _source_partitions(case: Case) -> dict[str, Any]:
    """The names of the partitions, whatever they are made of."""
    told = (names for key, names in case["given"].items() if key.startswith("distinct_"))
    return {"partitions": source_partitions(tuple(name) for name in next(told))}


RUNNERS: dict[str, Callable[[Case], Any]] = {
    "thresholds": _thresholds,
    "is_processing_backlog": _is_processing_backlog,
    "true_processing_rate": _true_processing_rate,
    "observed_tpr_sample": _observed_tpr_sample,
    "observed_tpr_sequence": _observed_tpr_sequence,
    "observed_tpr_with_backpressure": _observed_tpr_with_backpressure,
    "load_sample": _load_sample,
    "busy_time_avg": _busy_time_avg,
    "rate_over_window": _rate_over_window,
    "tpr_input_rate": _tpr_input_rate,
    "edge_output_ratio": _edge_output_ratio,
    "evaluate_chain": _evaluate_chain,
    "global_metrics": _global_metrics,
    "global_metrics_sample": _global_metrics_sample,
    "memory_pool_size": _memory_pool_size,
    "memory_scale": _memory_scale,
    "network_segments": _network_segments,
    "excluded_period": _excluded_period,
    "excluded_period_valid": _excluded_period_valid,
    "source_partitions": _source_partitions,
}
