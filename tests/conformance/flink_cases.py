"""The words of the Flink autoscaler's cases in our types, and our answers in their words.

``"NaN"`` is our ``None`` (unknown), ``"Infinity"`` our infinity (idle, without limit).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, chain, count, repeat
from math import inf, isinf
from typing import Any

from penstock.errors import ConfigError
from penstock.flink.alignment import align, is_alignable, scale
from penstock.flink.capacity import (
    BusyTime,
    SourceSample,
    busy_ms_per_s,
    input_rps,
    load_fraction,
    observed_rps,
    observed_series_rps,
    source_partitions,
    true_processing_rps,
    unhindered_rps,
)
from penstock.flink.cron import LocalTime
from penstock.flink.demand import Demand, Flow, band, is_processing_backlog, output_ratio
from penstock.flink.evaluation import Load, Sample, Vertex, evaluate, mean_load_fraction
from penstock.flink.history import (
    Pending,
    Restart,
    Scaling,
    Wish,
    measured_restart_s,
    restart_s,
    scaling_coefficient,
    trimmed,
)
from penstock.flink.job import Plan, Worker, decide_job, exceeds_quota, slots_after, workers
from penstock.flink.memory import (
    Metric,
    WorkerMemory,
    heap_after_bytes,
    heap_fraction,
    memory_window,
    network_segments,
    pool_bytes,
)
from penstock.flink.options import NO_LIMIT, Options
from penstock.flink.periods import is_excluded, read_period
from penstock.flink.vertex import decide_vertex
from penstock.flink.windows import collect, rate

Case = Mapping[str, Any]
Words = Mapping[str, Any]

GIGABYTE = 2**30
MINUTE_S = 60

#: What the tests of the original set before they begin, where a case does not say otherwise.
TESTED = {
    "max_scale_down_factor": 1.0,
    "max_scale_up_factor": NO_LIMIT,
    "catch_up_s": 0,
    "scale_down_interval_s": 0,
}
#: Words of a case that are named otherwise here.
RENAMED = {
    "observed_true_processing_rate_lag_threshold_s": "observed_lag_threshold_s",
    "prefer_tracked": "track_restarts",
    "limit_s": "restart_limit_s",
    "configured_s": "restart_s",
}


# -- one vertex ------------------------------------------------------------------------------------


def _vertex_decision(case: Case) -> dict[str, Any]:
    words = case["given"]
    options = _options(words)
    change = decide_vertex(
        _vertex(words, words),
        _load(words, options),
        options,
        restart_s=options.restart_s,
        now_s=0.0,
        past=_past(words.get("history", ())),
    )
    return {
        "new_parallelism": change.parallelism,
        "outside_utilization_bound": change.outside,
        "expected_processing_rate": _number(change.expected_rps),
    }


def _scale(case: Case) -> dict[str, Any]:
    words = case["given"]
    return {
        "new_parallelism": scale(
            _vertex({"parallelism": words["current"]}, words),
            _value(words["scale_factor"]) or 0.0,
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
    vertex = _vertex({"parallelism": words["current"], "keyed": words.get("keyed", True)}, words)
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
    options = _options(words)
    pending = _pending(words.get("preloaded", ()))
    changes = []
    for step in words["steps"]:
        change = decide_vertex(
            _vertex(words, words),
            _load({**words, **step}, options),
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
    pending = _pending(words["recommendations"])
    assert pending is not None
    largest = pending.since(words["window_start"]).wishes[0]
    return {
        "max_parallelism": largest.parallelism,
        "max_at": largest.at_s,
        "outside": largest.outside,
    }


def _scaling_coefficient(case: Case) -> dict[str, Any]:
    words = case["given"]
    coefficient = scaling_coefficient(
        [(past["parallelism"], _value(past["true_processing_rate"])) for past in words["history"]],
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


# -- capacity and demand ---------------------------------------------------------------------------


def _thresholds(case: Case) -> dict[str, Any]:
    words = case["given"]
    options = _options(words)
    limits = band(
        _demand(words),
        options,
        restart_s=options.restart_s,
        processing_backlog=words.get("processing_backlog", False),
    )
    return {
        "scale_up_below": _number(limits.scale_up_below_rps),
        "scale_down_above": _number(limits.scale_down_above_rps),
    }


def _is_processing_backlog(case: Case) -> dict[str, Any]:
    words = case["given"]
    input_rate = _value(words["input_rate"])
    return {
        "processing_backlog": is_processing_backlog(words["lag"], input_rate, words["threshold_s"])
    }


def _true_processing_rate(case: Case) -> dict[str, Any]:
    words = case["given"]
    capacity_rps = true_processing_rps(
        _value(words["busy_ms_per_s"]),
        _value(words["input_rate"]),
        [_value(sample) for sample in words["observed_tpr_samples"]],
        switch_threshold=words["switch_threshold"],
        min_observations=words["min_observations"],
    )
    return {"true_processing_rate": _number(capacity_rps)}


def _observed_tpr_sample(case: Case) -> dict[str, Any]:
    words = case["given"]
    seen = observed_rps(
        words["lag"],
        _value(words["records_per_s"]),
        words["backpressured_ms_per_s"],
        lag_threshold_s=words["lag_threshold_s"],
        previous_rps=_value(words.get("previous_average")),
    )
    return {"observed_tpr": _number(seen)}


def _observed_tpr_sequence(case: Case) -> dict[str, Any]:
    words = case["given"]
    series = observed_series_rps(
        [_source_sample(sample) for sample in words["samples"]],
        lag_threshold_s=words["lag_threshold_s"],
        min_observations=words["min_observations"],
    )
    return {"observed_tpr_per_sample": [_number(seen) for seen in series]}


def _observed_tpr_with_backpressure(case: Case) -> dict[str, Any]:
    words = case["given"]
    seen = unhindered_rps(words["records_per_s"], words["backpressured_ms_per_s"])
    return {"observed_tpr": _number(seen)}


def _load_sample(case: Case) -> dict[str, Any]:
    words = case["given"]
    busy = BusyTime(**{key: _value(value) for key, value in words["busy_ms_per_s"].items()})
    return {"load": _number(load_fraction(busy, words["aggregator"].lower()))}


def _busy_time_avg(case: Case) -> dict[str, Any]:
    words = case["given"]
    samples = words["samples"]
    busy = busy_ms_per_s(
        [_value(sample.get("load")) for sample in samples],
        [(_s(sample["t_ms"]), _value(sample.get("accumulated_busy_ms"))) for sample in samples],
        words["aggregator"].lower(),
        words["parallelism"],
    )
    return {"busy_ms_per_s": _number(busy)}


def _rate_over_window(case: Case) -> dict[str, Any]:
    points = [(_s(t_ms), _value(value)) for t_ms, value in case["given"]["samples_ms_value"]]
    return {"rate_per_s": _number(rate(points))}


def _tpr_input_rate(case: Case) -> dict[str, Any]:
    words = case["given"]
    samples = words["samples_ms_counter_persec"]
    rate_rps = input_rps(
        [_value(per_second) for _, _, per_second in samples],
        [(_s(t_ms), _value(counter)) for t_ms, counter, _ in samples],
        words["aggregator"].lower(),
    )
    return {"input_rate": _number(rate_rps)}


def _edge_output_ratio(case: Case) -> dict[str, Any]:
    words = case["given"]
    names = dict.fromkeys(chain.from_iterable(words["edges"]))
    inputs = {name: [up for up, down in words["edges"] if down == name] for name in names}
    counted = words["delta_over_1s"]
    flows = {
        name: Flow(
            _value(counted.get(name, {}).get("records_in")),
            _value(counted.get(name, {}).get("records_out")),
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
        name: [(_s(sample["t_ms"]), _sample(sample)) for sample in words["metrics"][name]]
        for name in vertices
    }
    loads = evaluate(vertices, samples, options, restart_s=words.get("restart_s", 0.0))
    return {
        name: {
            "target_rate": _number(load.demand.target_rps),
            "catch_up_rate": _number(load.demand.catch_up_rps),
            "load": _number(mean_load_fraction(samples[name])),
            "true_processing_rate": _number(load.capacity_rps),
        }
        for name, load in loads.items()
    }


# -- the job ---------------------------------------------------------------------------------------


def _job_decision(case: Case) -> dict[str, Any]:
    plan = _plan(case["given"])
    return {
        "scaled_vertices": sorted(plan.scaled),
        "new_parallelism": plan.scaled,
        "expected_rate": {name: _number(plan.changes[name].expected_rps) for name in plan.scaled},
        "memory_pressure": plan.under_memory_pressure,
    }


def _plan(words: Words) -> Plan:
    config = words["config"]
    options = _options({**config, **_picked(words, "gc_threshold", "heap_threshold")})
    return decide_job(
        {name: _vertex(vertex, config) for name, vertex in words["vertices"].items()},
        {name: _load(vertex, options) for name, vertex in words["vertices"].items()},
        options,
        restart_s=options.restart_s,
        now_s=0.0,
        excluded=words.get("excluded", ()),
        gc_fraction=_value(words.get("gc_pressure")),
        heap_fraction=_value(words.get("heap_usage_avg")),
    )


def _quota(case: Case) -> dict[str, Any]:
    words = case["given"]
    worker = Worker(words["slots_per_worker"], words["worker_cpu"], words["worker_memory_gb"])
    reached = exceeds_quota(
        {name: vertex["parallelism"] for name, vertex in words["vertices"].items()},
        _plan(words).scaled,
        words["slot_sharing_groups"],
        worker,
        cpu_quota=words["cpu_quota"],
        memory_quota_bytes=words["memory_quota_gb"],
    )
    return {"quota_reached": reached}


def _slots_after_rescale(case: Case) -> dict[str, Any]:
    words = case["given"]
    return {"slots": slots_after(words["current"], words["new"], words["slots_used"])}


def _end_to_end(case: Case) -> dict[str, Any]:
    """A source, and a sink that reads what it reads and is as busy."""
    words = case["given"]
    options = _options(words["config"])
    told = words["source"]
    seen = observed_series_rps(
        [_source_sample(sample) for sample in told],
        lag_threshold_s=options.observed_lag_threshold_s,
        min_observations=options.observed_min_observations,
    )
    sampled = {
        "source": [
            (sample["t_s"], _collected(sample, options, observed))
            for sample, observed in zip(told, seen, strict=True)
        ],
        "sink": [(sample["t_s"], _collected(sample, options, None)) for sample in told],
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
        "target_rate": _number(source.demand.target_rps),
        "catch_up_rate": _number(source.demand.catch_up_rps),
        "true_processing_rate": _number(source.capacity_rps),
        "scale_up_below": _number(source.band.scale_up_below_rps),
        "scale_down_above": _number(source.band.scale_down_above_rps),
    }


def _delayed_scale_down_e2e(case: Case) -> dict[str, Any]:
    """One sample a minute, ten minutes of each busy time, until the job is first scaled."""
    words = case["given"]
    options = _options(words)
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
    taken: dict[str, list[tuple[float, Sample]]] = {name: [] for name in vertices}
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
            samples.append((now_s, _collected(told, options, None)))
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
    return {"restart_s": restart_s(words["tracked_s"], _options(words))}


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
        WorkerMemory(**{ours: _value(sample.get(theirs)) for theirs, ours in names.items()})
        for sample in case["given"]["samples"]
    ]
    window = memory_window(samples)
    answer = {theirs: _metric(getattr(window, ours)) for theirs, ours in names.items()}
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
        words["heap_gb"] * GIGABYTE,
        workers(words["current_slots"], words["slots_per_worker"]),
        workers(words["new_slots"], words["slots_per_worker"]),
        words["budget_gb"] * GIGABYTE,
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


# -- words -----------------------------------------------------------------------------------------


def _value(word: Any) -> float | None:
    """A number of a case; ``"NaN"`` and null are unknown."""
    if word is None or word == "NaN":
        return None
    return inf if word == "Infinity" else word


def _number(value: float | None) -> Any:
    if value is None:
        return "NaN"
    return "Infinity" if isinf(value) else value


def _metric(metric: Metric) -> dict[str, Any]:
    return {"current": _number(metric.current), "average": _number(metric.average)}


def _s(ms: float) -> float:
    return ms / 1000


def _picked(words: Words, *keys: str) -> dict[str, Any]:
    return {key: words[key] for key in keys if key in words}


def _options(words: Words) -> Options:
    known: dict[str, Any] = {**TESTED}
    for key, value in words.items():
        name = RENAMED.get(key, key)
        if name in Options.__struct_fields__:
            known[name] = value.lower() if isinstance(value, str) else value
    return Options(**known)


def _vertex(words: Words, config: Words) -> Vertex:
    """A vertex; what it does not say, the configuration may."""
    both = {**config, **words}
    return Vertex(
        both["parallelism"],
        (),
        both.get("max_parallelism", NO_LIMIT),
        both.get("source_partitions", 0),
        both.get("keyed", False),
    )


def _demand(words: Words) -> Demand:
    return Demand(_value(words["target_rate"]), _value(words.get("catch_up_rate", 0.0)))


def _load(words: Words, options: Options) -> Load:
    demand = _demand(words)
    limits = band(
        demand,
        options,
        restart_s=options.restart_s,
        processing_backlog=words.get("processing_backlog", False),
    )
    return Load(_value(words["true_processing_rate"]), demand, limits)


def _past(history: Sequence[Words]) -> list[Scaling]:
    return [
        Scaling(
            at_s,
            entry["current"],
            entry["new"],
            _value(entry["true_processing_rate"]),
            _value(entry.get("expected_processing_rate")),
        )
        for at_s, entry in enumerate(history)
    ]


def _pending(wishes: Sequence[Words]) -> Pending | None:
    pending: Pending | None = None
    for words in wishes:
        wish = Wish(words["t"], words["parallelism"], words.get("outside", False))
        pending = Pending.begin(wish) if pending is None else pending.with_wish(wish)
    return pending


def _sample(words: Words) -> Sample:
    return Sample(
        records_in=_value(words.get("records_in")),
        records_out=_value(words.get("records_out")),
        lag_records=_value(words.get("lag")),
        load_fraction=_value(words.get("load")),
    )


def _source_sample(words: Words) -> SourceSample:
    """A source that does not tell its lag has none."""
    return SourceSample(
        _value(words["records_per_s"]),
        _value(words.get("lag")) or 0.0,
        words.get("backpressured_ms_per_s", 0.0),
    )


def _collected(words: Words, options: Options, observed: float | None) -> Sample:
    """A vertex whose instances are all as busy; a source that does not tell its lag has none."""
    busy = _value(words["busy_ms_per_s"])
    return Sample(
        records_in=_value(words["records_in"]),
        records_out=_value(words.get("records_out", words["records_in"])),
        lag_records=_value(words.get("lag")) or 0.0,
        load_fraction=load_fraction(BusyTime(busy, busy, busy), options.busy_aggregator),
        observed_rps=observed,
    )


RUNNERS: dict[str, Callable[[Case], Any]] = {
    "vertex_decision": _vertex_decision,
    "scale": _scale,
    "scale_error": _scale_error,
    "align": _align,
    "delayed_scale_down": _delayed_scale_down,
    "delayed_scale_down_e2e": _delayed_scale_down_e2e,
    "sliding_max": _sliding_max,
    "scaling_coefficient": _scaling_coefficient,
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
    "job_decision": _job_decision,
    "quota": _quota,
    "slots_after_rescale": _slots_after_rescale,
    "end_to_end": _end_to_end,
    "metric_window": _metric_window,
    "restart_time": _restart_time,
    "record_restart": _record_restart,
    "trim_history": _trim_history,
    "global_metrics": _global_metrics,
    "global_metrics_sample": _global_metrics_sample,
    "memory_pool_size": _memory_pool_size,
    "memory_scale": _memory_scale,
    "network_segments": _network_segments,
    "excluded_period": _excluded_period,
    "excluded_period_valid": _excluded_period_valid,
    "source_partitions": _source_partitions,
}
