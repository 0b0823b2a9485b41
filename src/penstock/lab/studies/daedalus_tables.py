"""The tables of Pfister et al. (2024), and ours beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.lab.experiments.statistics import mean
from penstock.lab.studies.study import (
    Bar,
    Bars,
    Chart,
    ChartLine,
    Comparison,
    Entry,
    Metric,
    Number,
)

if TYPE_CHECKING:
    from penstock.lab.studies.daedalus2024 import DaedalusResult

Results = Mapping[tuple[str, str], Sequence["DaedalusResult"]]

MOST = 12
JOBS = ("WordCount", "YSB", "Traffic")
#: Two comparisons besides: WordCount on Kafka Streams, and YSB under a sine against Phoebe.
KAFKA_STREAMS, AGAINST_PHOEBE = "Kafka Streams", "YSB under a sine"
MOST_AGAINST_PHOEBE = 18
POLICIES = ("Daedalus", "HPA 80", "HPA 85", "static")
#: Sections 4.5.1 to 4.5.3: mean workers, mean latency in ms.
_PRINTED = {
    "WordCount": ((5.4, 1171.0), (7.8, 1791.0), (7.0, 961.0), (12.0, 1408.0)),
    "YSB": ((5.5, 9106.0), (10.0, 7862.0), (9.6, 8042.0), (12.0, 7576.0)),
    "Traffic": ((3.5, 6176.0), (5.9, 5566.0), (5.6, 5671.0), (12.0, 8778.0)),
}
#: Sections 4.6 and 4.7.
_PRINTED_BESIDES = {
    KAFKA_STREAMS: {
        "Daedalus": (5.2, 10_566.0),
        "HPA 60": (5.8, 15_453.0),
        "HPA 80": (4.0, 102_153.0),
        "static": (12.0, 8_343.0),
    },
    AGAINST_PHOEBE: {"Daedalus": (10.1, 9_624.0), "Phoebe": (12.4, 3_340.0)},
}
PAPER: dict[str, dict[str, dict[str, float]]] = {
    job: {
        policy: {"workers": workers, "latency_ms": latency_ms}
        for policy, (workers, latency_ms) in rows.items()
    }
    for job, rows in (
        *((job, dict(zip(POLICIES, rows, strict=True))) for job, rows in _PRINTED.items()),
        *_PRINTED_BESIDES.items(),
    )
}
#: The points of a distribution of latency that are drawn.
SHARES = (*(round(0.01 * step, 2) for step in range(1, 100)), 0.995, 0.999, 1.0)


def most_workers(job: str) -> int:
    return MOST_AGAINST_PHOEBE if job == AGAINST_PHOEBE else MOST


def own_latency_s(job: str) -> float:
    """The latency of the job itself: the lowest mean that the paper has for it.

    >>> [own_latency_s(job) for job in JOBS]
    [0.961, 7.576, 5.566]
    """
    return min(row["latency_ms"] for row in PAPER[job].values()) / 1000.0


def worker_table(job: str, results: Results) -> Comparison:
    metrics = (Metric("workers", "", 1), Metric("latency_ms", "ms", 0), Metric("rescales", "", 0))
    entries = []
    for policy in PAPER[job]:
        group = results[job, policy]
        ours: dict[str, Number] = {
            m.name: mean([getattr(r, m.name) for r in group]) for m in metrics
        }
        entries.append(Entry(policy, {**PAPER[job][policy]}, ours))
    return Comparison(f"{job}: mean workers and latency", metrics, tuple(entries))


def latency_table(results: Results) -> Comparison:
    """Two points of each distribution of latency, and workers relative to the fixed fleet."""
    entries = []
    for job, policy in results:
        group = results[job, policy]
        ours: dict[str, Number] = {
            "p50_ms": mean([one.p50_ms for one in group]),
            "p95_ms": mean([one.p95_ms for one in group]),
            "use": mean([one.workers for one in group]) / MOST,
        }
        entries.append(
            Entry(f"{job}, {policy}", {"use": PAPER[job][policy]["workers"] / MOST}, ours)
        )
    metrics = (Metric("p50_ms", "ms", 0), Metric("p95_ms", "ms", 0), Metric("use", "", 2))
    return Comparison("Latency over seconds, and use relative to static", metrics, tuple(entries))


def distribution(job: str, results: Results) -> Chart:
    """The latency of a job under each policy: of every share of seconds, the mean over runs."""
    lines = tuple(
        ChartLine(
            policy,
            np.mean([one.latencies_ms for one in results[job, policy]], axis=0).tolist(),
            [100.0 * share for share in SHARES],
        )
        for policy in PAPER[job]
    )
    return Chart(f"{job}: latency", "ms", "% of seconds", lines, drawn="steps", log_x=True)


def use(results: Results) -> Bars:
    bars = tuple(
        Bar(
            policy,
            job,
            PAPER[job][policy]["workers"] / most_workers(job),
            mean([one.workers for one in results[job, policy]]) / most_workers(job),
        )
        for job in PAPER
        for policy in PAPER[job]
    )
    return Bars("Workers relative to the largest fleet", "part of it", bars, wide=True)
