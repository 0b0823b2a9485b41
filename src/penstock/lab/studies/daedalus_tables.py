"""The tables of Pfister et al. (2024) beside ours, and what our runs say of its claims."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from penstock.lab.experiments.statistics import Ecdf, mean
from penstock.lab.studies.claims import Computed, judge
from penstock.lab.studies.skeleton import Told, beside_paper, mean_of, printed, prose
from penstock.lab.studies.study import (
    Bar,
    Bars,
    Chart,
    ChartLine,
    Claim,
    Comparison,
    Metric,
    agreement,
)

TEXT = prose("daedalus2024")
MOST = 12
JOBS = ("WordCount", "YSB", "Traffic")
#: Two comparisons besides: WordCount on Kafka Streams, and YSB under a sine against Phoebe.
KAFKA_STREAMS, AGAINST_PHOEBE = "Kafka Streams", "YSB under a sine"
MOST_AGAINST_PHOEBE = 18
PAPER = printed("daedalus2024")  #: By job and policy: mean workers, mean latency in ms.
FIGURES = dict(zip(PAPER, range(7, 12), strict=True))  #: Their numbers in the paper.
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
    longest_ms: float = 0.0
    #: Mean workers while the load falls over those while it rises.
    falling_over_rising: float = 1.0
    profiling: float = 0.0  #: What profiling before the run has cost, as mean workers of its time.
    levels: tuple[float, ...] = ()  #: Workers in each minute.

    @property
    def workers_with_profiling(self) -> float:
        return self.workers + self.profiling


Results = Mapping[tuple[str, str], Sequence[DaedalusResult]]  #: Runs by job and policy.


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


def distribution(job: str, results: Results) -> Chart:
    """The latency of a job under each policy: of every share of seconds, the mean over runs."""
    lines = []
    for policy in PAPER[job]:
        latencies_ms = np.mean([one.latencies_ms for one in results[job, policy]], axis=0)
        lines.append(ChartLine(policy, latencies_ms.tolist(), [100.0 * share for share in SHARES]))
    pairs = {
        p: (r["latency_ms"], mean_of("latency_ms", results[job, p])) for p, r in PAPER[job].items()
    }
    note = TEXT.text(f"Figure {FIGURES[job]}", Told(TEXT.study, results))
    return Chart(
        f"Figure {FIGURES[job]}c: {job}, latency", "ms", "% of seconds", tuple(lines),
        drawn="steps", log_x=True, note=f"{note}; {agreement('mean latency', pairs, ' ms')}",
    )  # fmt: skip


def over_time(job: str, rates: Sequence[float], results: Results) -> Iterator[Chart]:
    """The load of a job and the workers of the first run of each policy, minute by minute."""
    number = FIGURES[job]
    at_s = [60.0 * minute for minute in range(len(rates) // 60)]
    load = ChartLine("load", at_s, [round(mean(rates[int(at) : int(at) + 60])) for at in at_s])
    yield Chart(f"Figure {number}a: {job}, load", "time", "records/s", (load,))
    lines = (ChartLine(policy, at_s, [*results[job, policy][0].levels]) for policy in PAPER[job])
    yield Chart(f"Figure {number}b: {job}, workers", "time", "", tuple(lines), drawn="steps")


def use(results: Results) -> Bars:
    bars = []
    for (job, policy), group in results.items():
        most, paper = most_workers(job), PAPER[job][policy]["workers"]
        bars.append(Bar(policy, job, paper / most, mean_of("workers", group) / most))
    note = agreement("workers", {f"{b.name} on {b.group}": (b.paper, b.ours) for b in bars})
    title = "Workers relative to the largest fleet"
    return Bars(title, "part of it", tuple(bars), wide=True, note=note)


def claims(results: Results) -> list[Claim]:
    return judge(TEXT, results, _estimates([o for job in JOBS for o in results[job, "Daedalus"]]))


def _estimates(runs: Sequence[DaedalusResult]) -> dict[str, Computed]:
    """What Daedalus knew of capacity, of the load to come and of its recoveries."""
    # No estimate counts as one that is off by 100 %.
    known = Ecdf.of([error for one in runs for error in one.capacity_errors] or [1.0])
    foreseen = Ecdf.of([error for one in runs for error in one.wapes] or [1.0])
    plans = {"plans": float(len(known.values))}
    near, far_off = {"part below 3 %": known.at(0.03)}, {"part above 25 %": 1.0 - foreseen.at(0.25)}
    recoveries = [recovery for one in runs for recovery in one.recoveries]
    return {
        "D4": (known.at(0.05) >= MOSTLY, _evidence(known, "error") | plans, ""),
        "D5": (foreseen.at(0.05) >= MOSTLY, _evidence(foreseen, "WAPE"), ""),
        "D6": _recovery(recoveries),
        "D15": (foreseen.at(0.25) == 1.0, far_off, ""),
        "D16": (known.at(0.03) > 0.5, near | plans, ""),
        "D18": _precision(recoveries),
    }


def _evidence(errors: Ecdf, what: str) -> dict[str, float]:
    return {
        f"median {what}": errors.quantile(0.5),
        f"p95 {what}": errors.quantile(0.95),
        "part below 5 %": errors.at(0.05),
    }


def _recovery(found: Sequence[Recovery]) -> Computed:
    """By the instrument of the study; the time until nothing waits is evidence beside it."""
    pairs = [(one.predicted_s, one.measured_s) for one in found if one.measured_s is not None]
    exact = [(one.predicted_s, one.caught_up_s) for one in found if one.caught_up_s is not None]
    if not pairs:
        return False, {"rescales": 0.0}, TEXT.text("No rescale")
    in_time, caught_up = (
        [float(predicted_s >= took_s) for predicted_s, took_s in each] for each in (pairs, exact)
    )
    predicted_s, measured_s = (Ecdf.of(side).quantile(0.5) for side in zip(*pairs, strict=True))
    evidence = {
        "part that was faster than predicted": mean(in_time),
        "rescales": float(len(pairs)),
        "median predicted (s)": predicted_s,
        "median measured (s)": measured_s,
    }
    if exact:
        evidence["part that had nothing waiting by then"] = mean(caught_up)
    return mean(in_time) >= NEARLY_ALWAYS, evidence, ""


def _precision(found: Sequence[Recovery]) -> Computed:
    """How far predicted recoveries are off, relative to the measured ones."""
    off = [abs(one.predicted_s / one.measured_s - 1.0) for one in found if one.measured_s]
    if not off:
        return False, {"rescales": 0.0}, TEXT.text("No rescale")
    sample = Ecdf.of(off)
    evidence = {f"p{part}": sample.quantile(part / 100.0) for part in (5, 50, 95)}
    return evidence["p5"] < 0.1 and evidence["p95"] > 1.0, evidence, ""
