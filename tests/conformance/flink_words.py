"""The words of the Flink autoscaler's cases in our types, and our values in their words.

``"NaN"`` is our ``None`` (unknown), ``"Infinity"`` our infinity (idle, without limit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import inf, isinf
from typing import Any

from penstock.policies.flink.capacity import SourceSample
from penstock.policies.flink.evaluation import (
    NO_LIMIT,
    Options,
    Vertex,
    VertexDemand,
    VertexLoad,
    VertexSample,
    band,
)
from penstock.policies.flink.history import DelayedScaleDown, Pending, Scaling
from tests.conformance.reference.flink import Aggregator, BusyTime, WindowedMetric, load_fraction

Case = Mapping[str, Any]
Words = Mapping[str, Any]

GIGABYTE = 2**30

#: What the tests of the original set before they begin, where a case does not say otherwise.
TESTED = {
    "max_scale_down_factor": 1.0,
    "max_scale_up_factor": NO_LIMIT,
    "catch_up_s": 0,
    "scale_down_interval_s": 0,
}
#: Words of a case that are named otherwise here.
RENAMED = {
    "prefer_tracked": "track_restarts",
    "limit_s": "restart_limit_s",
    "configured_s": "restart_s",
}


SETTABLE = {field.name for field in fields(Options)}


def known(word: Any) -> float | None:
    """A number of a case; ``"NaN"`` and null are unknown."""
    if word is None or word == "NaN":
        return None
    return inf if word == "Infinity" else word


def number(value: float | None) -> Any:
    if value is None:
        return "NaN"
    return "Infinity" if isinf(value) else value


def metric_words(metric: WindowedMetric) -> dict[str, Any]:
    return {"current": number(metric.current), "average": number(metric.average)}


def seconds(ms: float) -> float:
    return ms / 1000


def picked(words: Words, *keys: str) -> dict[str, Any]:
    return {key: words[key] for key in keys if key in words}


def options_of(words: Words) -> Options:
    settings: dict[str, Any] = {**TESTED}
    for key, value in words.items():
        name = RENAMED.get(key, key)
        if name in SETTABLE:
            settings[name] = value.lower() if isinstance(value, str) else value
    return Options(**settings)


def vertex_of(words: Words, config: Words) -> Vertex:
    """A vertex; what it does not say, the configuration may."""
    both = {**config, **words}
    return Vertex(
        both["parallelism"],
        (),
        both.get("max_parallelism", NO_LIMIT),
        both.get("source_partitions", 0),
        both.get("keyed", False),
    )


def demand_of(words: Words) -> VertexDemand:
    return VertexDemand(known(words["target_rate"]), known(words.get("catch_up_rate", 0.0)))


def load_of(words: Words, options: Options) -> VertexLoad:
    demand = demand_of(words)
    limits = band(
        demand,
        options,
        restart_s=options.restart_s,
        processing_backlog=words.get("processing_backlog", False),
    )
    return VertexLoad(known(words["true_processing_rate"]), demand, limits)


def past_of(history: Sequence[Words]) -> list[Scaling]:
    return [
        Scaling(
            at_s,
            entry["current"],
            entry["new"],
            known(entry["true_processing_rate"]),
            known(entry.get("expected_processing_rate")),
        )
        for at_s, entry in enumerate(history)
    ]


def pending_of(requests: Sequence[Words]) -> Pending | None:
    pending: Pending | None = None
    for words in requests:
        request = DelayedScaleDown(words["t"], words["parallelism"], words.get("outside", False))
        pending = (pending or Pending(request.at_s)).with_request(request)
    return pending


def sample_of(words: Words) -> VertexSample:
    return VertexSample(
        records_in=known(words.get("records_in")),
        records_out=known(words.get("records_out")),
        lag_records=known(words.get("lag")),
        load_fraction=known(words.get("load")),
    )


def source_sample_of(words: Words) -> SourceSample:
    """A source that does not tell its lag has none."""
    return SourceSample(
        known(words["records_per_s"]),
        known(words.get("lag")) or 0.0,
        words.get("backpressured_ms_per_s", 0.0),
    )


def collected_of(words: Words, aggregator: Aggregator, observed: float | None) -> VertexSample:
    """A vertex whose instances are all as busy; a source that does not tell its lag has none."""
    busy = known(words["busy_ms_per_s"])
    return VertexSample(
        records_in=known(words["records_in"]),
        records_out=known(words.get("records_out", words["records_in"])),
        lag_records=known(words.get("lag")) or 0.0,
        load_fraction=load_fraction(BusyTime(busy, busy, busy), aggregator),
        observed_rps=observed,
    )


def gigabytes(count: float) -> int:
    return int(count * GIGABYTE)
