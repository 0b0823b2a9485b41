"""The tables of Pfister et al. (2024) beside ours, and what our runs say of its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from penstock.lab.experiments.statistics import Ecdf, mean
from penstock.lab.studies.skeleton import beside_paper, means, printed, prose
from penstock.lab.studies.study import Bar, Bars, Chart, ChartLine, Claim, Comparison, Entry, Metric

TEXT = prose("daedalus2024")
MOST = 12
JOBS = ("WordCount", "YSB", "Traffic")
#: Two comparisons besides: WordCount on Kafka Streams, and YSB under a sine against Phoebe.
KAFKA_STREAMS, AGAINST_PHOEBE = "Kafka Streams", "YSB under a sine"
MOST_AGAINST_PHOEBE = 18
#: By job and policy: mean workers, mean latency in ms.
PAPER = printed("daedalus2024")
HPAS = ("HPA 80", "HPA 85")
#: What "typically" and "nearly always" mean here, as a part of all cases.
MOSTLY, NEARLY_ALWAYS = 0.75, 0.9
#: The points of a distribution of latency that are drawn.
SHARES = (*(round(0.01 * step, 2) for step in range(1, 100)), 0.995, 0.999, 1.0)


class Recovery(Struct, frozen=True):
    """A rescale by Daedalus: how long it expected the recovery to take, how long it took.

    `measured_s` is by the instrument of the study (section 3.5): from the first to the last
    sample in which arrivals and throughput are farther apart than one standard deviation.
    `caught_up_s` is exact, and harder: from the stop until nothing waits. Either is missing if
    the next rescale came first, or if nothing was seen.
    """

    predicted_s: float
    measured_s: float | None = None
    caught_up_s: float | None = None


class DaedalusResult(Struct, frozen=True):
    """One run: what the study reports, and what Daedalus estimated on the way."""

    workers: float
    latency_ms: float
    p50_ms: float
    p95_ms: float
    rescales: float
    capacity_errors: tuple[float, ...] = ()
    wapes: tuple[float, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    latencies_ms: tuple[float, ...] = ()


#: Runs by job and policy.
Results = Mapping[tuple[str, str], Sequence[DaedalusResult]]


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
    runs = {policy: results[job, policy] for policy in PAPER[job]}
    return beside_paper(f"{job}: mean workers and latency", metrics, PAPER[job], runs)


def latency_table(results: Results) -> Comparison:
    """Two points of each distribution of latency, and workers relative to the fixed fleet."""
    entries = []
    for (job, policy), group in results.items():
        ours = means(group, ("p50_ms", "p95_ms"))
        ours["use"] = mean([one.workers for one in group]) / MOST
        paper = {"use": PAPER[job][policy]["workers"] / MOST}
        entries.append(Entry(f"{job}, {policy}", {**paper}, ours))
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
            mean([one.workers for one in group]) / most_workers(job),
        )
        for (job, policy), group in results.items()
    )
    return Bars("Workers relative to the largest fleet", "part of it", bars, wide=True)


def claims(results: Results) -> tuple[Claim, ...]:
    """D1 to D6."""
    jobs = list(dict.fromkeys(job for job, _ in results))
    workers, latency_ms = (
        {key: mean([getattr(one, name) for one in runs]) for key, runs in results.items()}
        for name in ("workers", "latency_ms")
    )
    saved = {job: 1.0 - workers[job, "Daedalus"] / workers[job, "static"] for job in jobs}
    pairs = [(job, hpa) for job in jobs for hpa in HPAS]
    fewer = all(workers[job, "Daedalus"] < workers[job, hpa] for job, hpa in pairs)
    above_ms = {
        f"{job}, above {hpa}": latency_ms[job, "Daedalus"] - latency_ms[job, hpa]
        for job, hpa in pairs
    }
    return (
        TEXT.claim("D1", all(part > 0.5 for part in saved.values()), saved),
        TEXT.claim(
            "D2",
            fewer,
            {f"{job}, {who}": workers[job, who] for job in jobs for who in ("Daedalus", *HPAS)},
        ),
        TEXT.claim("D3", all(abs(apart) <= 1600.0 for apart in above_ms.values()), above_ms),
        _capacity(results),
        _forecast(results),
        _recovery(results),
    )


def _capacity(results: Results) -> Claim:
    errors = _of_daedalus(results, "capacity_errors")
    evidence = {
        "median error": errors.quantile(0.5),
        "p95 error": errors.quantile(0.95),
        "part below 5 %": errors.at(0.05),
        "plans": float(len(errors.values)),
    }
    return TEXT.claim("D4", errors.at(0.05) >= MOSTLY, evidence)


def _forecast(results: Results) -> Claim:
    errors = _of_daedalus(results, "wapes")
    evidence = {
        "median WAPE": errors.quantile(0.5),
        "p95 WAPE": errors.quantile(0.95),
        "part below 5 %": errors.at(0.05),
        "part above 25 %": 1.0 - errors.at(0.25),
    }
    return TEXT.claim("D5", errors.at(0.05) >= MOSTLY, evidence)


def _of_daedalus(results: Results, name: str) -> Ecdf:
    """Errors of all runs of Daedalus; 100 % if there are none."""
    runs = [one for (_, policy), group in results.items() if policy == "Daedalus" for one in group]
    return Ecdf.of([error for one in runs for error in getattr(one, name)] or [1.0])


def _recovery(results: Results) -> Claim:
    """By the instrument of the study; the time until nothing waits is evidence beside it."""
    runs = [one for (_, policy), group in results.items() if policy == "Daedalus" for one in group]
    found = [recovery for one in runs for recovery in one.recoveries]
    pairs = [(one.predicted_s, one.measured_s) for one in found if one.measured_s is not None]
    exact = [(one.predicted_s, one.caught_up_s) for one in found if one.caught_up_s is not None]
    if not pairs:
        return TEXT.claim("D6", False, {"rescales": 0.0}, TEXT.text("D6 without evidence"))
    in_time = mean([float(predicted_s >= took_s) for predicted_s, took_s in pairs])
    evidence = {
        "part that was faster than predicted": in_time,
        "rescales": float(len(pairs)),
        "median predicted (s)": Ecdf.of([predicted_s for predicted_s, _ in pairs]).quantile(0.5),
        "median measured (s)": Ecdf.of([took_s for _, took_s in pairs]).quantile(0.5),
    }
    if exact:
        evidence["part that had nothing waiting by then"] = mean(
            [float(predicted_s >= took_s) for predicted_s, took_s in exact]
        )
    return TEXT.claim("D6", in_time >= NEARLY_ALWAYS, evidence, TEXT.text("D6 counted once"))
