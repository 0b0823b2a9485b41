"""Pfister, Scheinert, Geldenhuys, Kao (ICPE 2024): Daedalus against Kubernetes and a fixed fleet.

Three Flink jobs, six hours each: a sine, the clicks of an advertiser, the traffic of a city. The
loads are the study's own, the cpu curve is that of its recorded workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import product

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.lab.papers.daedalus_claims import claims
from penstock.lab.papers.playing import mean_level, rescales, steer
from penstock.lab.papers.study import (
    Bar,
    Bars,
    Calibration,
    Chart,
    Comparison,
    Entry,
    Line,
    Metric,
    Number,
    Study,
    distances,
    mean_relative_error,
)
from penstock.lab.spread import spread
from penstock.lab.statistics import Ecdf, mean
from penstock.model import Limits, Step
from penstock.policies.daedalus import Daedalus, DaedalusMemory
from penstock.policies.hpa import Hpa
from penstock.policies.static import Static
from penstock.protocols import Policy
from penstock.simulation.continuous import ContinuousJob
from penstock.simulation.continuous_run import ContinuousRun
from penstock.simulation.dataflow import Operator
from penstock.simulation.engine import Curve, Outcome
from penstock.simulation.fleet import Startup

Array = NDArray[np.float64]
Say = Callable[[str], None]

RUNS, RUN_S, MOST = 5, 21_600, 12
JOBS = ("WordCount", "YSB", "Traffic")
#: Both HPAs of the study wait five minutes before they act, upwards too.
_HPA_LIMITS = Limits(min_executors=1, max_executors=MOST, stabilize_up_s=300.0)
_LIMITS = Limits(min_executors=1, max_executors=MOST)
POLICIES = ("Daedalus", "HPA 80", "HPA 85", "static")
#: Sections 4.5.1 to 4.5.3: mean workers, mean latency in ms.
_PRINTED = {
    "WordCount": ((5.4, 1171.0), (7.8, 1791.0), (7.0, 961.0), (12.0, 1408.0)),
    "YSB": ((5.5, 9106.0), (10.0, 7862.0), (9.6, 8042.0), (12.0, 7576.0)),
    "Traffic": ((3.5, 6176.0), (5.9, 5566.0), (5.6, 5671.0), (12.0, 8778.0)),
}
PAPER: dict[str, dict[str, dict[str, float]]] = {
    job: {
        policy: {"workers": workers, "latency_ms": latency_ms}
        for policy, (workers, latency_ms) in zip(POLICIES, rows, strict=True)
    }
    for job, rows in _PRINTED.items()
}
#: The peak of each load over what twelve workers can do: the paper says less than 1.
PEAK_FRACTION = 0.95
#: What a worker may have requested of the cpu that it may use. Kubernetes counts against the
#: first, the engine's gauge against the second; the published chart has 250m and 500m, 0.5.
REQUESTS = tuple(round(0.4 + 0.05 * step, 2) for step in range(13))


#: The points of a distribution of latency that are drawn.
SHARES = (*(round(0.01 * step, 2) for step in range(1, 100)), 0.995, 0.999, 1.0)


class Recovery(Struct, frozen=True):
    """A rescale by Daedalus: how long it expected to take until nothing waits, how long it took."""

    predicted_s: float
    measured_s: float


class Measured(Struct, frozen=True):
    """One run: what the study reports, and what Daedalus believed on the way."""

    workers: float
    latency_ms: float
    p50_ms: float
    p95_ms: float
    rescales: float
    latencies_ms: tuple[float, ...] = ()
    capacity_errors: tuple[float, ...] = ()
    wapes: tuple[float, ...] = ()
    recoveries: tuple[Recovery, ...] = ()


class Cell(Struct, frozen=True):
    """One run to be made; `request_fraction` is what a worker requests of the cpu it may use."""

    job: str
    policy: str
    seed: int
    request_fraction: float

    def rule(self) -> tuple[Policy, Limits]:
        """The policy with its limits."""
        if self.policy == "Daedalus":
            return Daedalus(most_executors=MOST, period_s=15.0), _LIMITS
        if self.policy == "static":
            return Static(executors=MOST), _LIMITS
        target = float(self.policy.removeprefix("HPA ")) / 100.0 * self.request_fraction
        return Hpa(cpu_target_fraction=target, stabilize_down_s=300.0), _HPA_LIMITS


class _Loads(Struct, frozen=True):
    source: str
    every_s: int
    ysb: list[float]
    traffic: list[float]


def reproduce(processes: int | None, say: Say, runs: int = RUNS) -> Study:
    """Run all jobs under all policies, and judge the claims."""
    say("calibrating what Kubernetes counts as cpu")
    requests = calibrate(processes)
    say(f"{runs} runs of {len(POLICIES)} policies on {len(JOBS)} jobs")
    keys = list(product(JOBS, POLICIES))
    cells = [
        Cell(job, policy, seed, requests[job])
        for job, policy in keys
        for seed in range(1, runs + 1)
    ]
    found = spread(run, cells, processes)
    results = {key: found[i * runs : (i + 1) * runs] for i, key in enumerate(keys)}
    tables = [_table(job, results) for job in JOBS]
    example = engine_job("WordCount")
    return Study(
        name="daedalus2024",
        title="Daedalus: self-adaptive horizontal autoscaling for resource efficiency",
        source="Pfister, Scheinert, Geldenhuys, Kao, ICPE 2024",
        protocol=(
            f"{runs} runs of 6 h per job and policy on the Flink-like engine, checkpoints every "
            "10 s, at most 12 workers. Latency is the mean over seconds of what the record that "
            "leaves has waited, plus the job's own latency (windows, buffers), for which we take "
            "the lowest mean of the four in the paper. HPA waits 5 min in both directions, as its "
            "published chart says."
        ),
        tables=(*tables, _ecdf_table(results)),
        figures=(*(_distribution(job, results) for job in JOBS), _use(results)),
        claims=claims(results),
        distances=tuple(
            distance
            for job, table in zip(JOBS, tables, strict=True)
            for distance in distances(table, {}, f"{job}: ")
        ),
        calibrations=(
            Calibration(
                "all jobs",
                "From recordings of the study: cpu without load, its noise and that of capacity, "
                "the skew by which eleven workers idle when the twelfth is full (mean cpu 0.80), "
                "and 15 s of downtime when a worker joins (half of it when one leaves, as Daedalus "
                "takes it). Each load is scaled so that its peak is 95 % of what 12 workers can "
                "do. Fitted: what a worker requests of the cpu that it may use, so that HPA 80 has "
                "the paper's mean workers on each job (the published chart says half); the rows of "
                "Daedalus and HPA 85 are held back.",
                {
                    "idle_cpu_fraction": example.idle_cpu_fraction,
                    "measurement_noise": example.measurement_noise,
                    "capacity_noise": example.capacity_noise,
                    "hot_fraction": example.hot_fraction,
                    "restart_s": example.restart_s,
                    "join_s": example.join_s,
                    "peak_fraction": PEAK_FRACTION,
                    **{f"request_fraction, {job}": part for job, part in requests.items()},
                },
                {
                    f"workers, {label} (not fitted)": mean_relative_error(
                        [
                            (PAPER[job][label]["workers"], entry.ours["workers"] or 0.0)
                            for job, table in zip(JOBS, tables, strict=True)
                            for entry in table.entries
                            if entry.label == label
                        ]
                    )
                    for label in ("Daedalus", "HPA 85")
                },
            ),
        ),
    )


def calibrate(processes: int | None, requests: Sequence[float] = REQUESTS) -> dict[str, float]:
    """The request of cpu with which HPA 80 has the mean workers of the paper, for each job."""
    cells = [Cell(job, "HPA 80", 0, request) for job in JOBS for request in requests]
    best: dict[str, tuple[float, float]] = {}
    for cell, measured in zip(cells, spread(run, cells, processes), strict=True):
        apart = abs(measured.workers - PAPER[cell.job]["HPA 80"]["workers"])
        here = (apart, cell.request_fraction)
        best[cell.job] = min(best.get(cell.job, here), here)
    return {job: request for job, (_, request) in best.items()}


def engine_job(name: str) -> ContinuousJob:
    """A job of the study; what differs is the latency that it has of its own."""
    return ContinuousJob(
        operators=(
            Operator("source", 40e-6),
            Operator("parse", 60e-6, upstream=("source",)),
            Operator("window", 100e-6, upstream=("parse",), selectivity=0.01, keyed=True),
        ),
        contention=0.0,
        hot_fraction=0.05,
        speed_spread=0.02,
        capacity_noise=0.034,
        measurement_noise=0.02,
        startup=Startup(10.0, 20.0),
        restart_s=7.5,
        join_s=7.5,
        state_bytes=0.0,
        checkpoint_interval_s=10.0,
        partitions=MOST,
        idle_cpu_fraction=0.086,
        full_cpu_fraction=1.0,
        restart_cpu_fraction=0.5,
        pipeline_latency_s=own_latency_s(name),
    )


def own_latency_s(job: str) -> float:
    """The latency of the job itself: the lowest mean that the paper has for it.

    >>> [own_latency_s(job) for job in JOBS]
    [0.961, 7.576, 5.566]
    """
    return min(row["latency_ms"] for row in PAPER[job].values()) / 1000.0


def load(name: str) -> list[float]:
    """Records per second over six hours, scaled to what twelve workers can do."""
    if name == "WordCount":
        at_s = np.arange(RUN_S)
        shape = np.trunc(27_500.0 * np.sin(2.0 * np.pi * at_s / 10_800.0) + 32_500.0)
    else:
        means = np.array(_loads().ysb if name == "YSB" else _loads().traffic)
        middles_s = _loads().every_s * (np.arange(len(means)) + 0.5)
        shape = np.interp(np.arange(RUN_S) + 0.5, middles_s, means)
    scale = PEAK_FRACTION * engine_job(name).capacity_rps(MOST) / float(shape.max())
    return [float(rate) for rate in shape * scale]


@lru_cache(maxsize=1)
def _loads() -> _Loads:
    text = files("penstock").joinpath("data", "daedalus2024.json").read_bytes()
    return msgspec.json.decode(text, type=_Loads)


def run(cell: Cell) -> Measured:
    """Carry out one cell."""
    policy, limits = cell.rule()
    start = MOST if cell.policy == "static" else 1 if cell.job != "WordCount" else 6
    engine = engine_job(cell.job).start(load(cell.job), executors=start, seed=cell.seed)
    beliefs = Beliefs(engine)
    outcome = steer(engine, policy, limits, float(RUN_S), beliefs.watch)
    waits_s = seconds_waited(outcome)
    latency = Ecdf.of((1000.0 * (waits_s + own_latency_s(cell.job))).tolist())
    return Measured(
        workers=mean_level(outcome.paid, outcome.duration_s),
        latency_ms=mean(latency.values),
        p50_ms=latency.quantile(0.5),
        p95_ms=latency.quantile(0.95),
        rescales=float(rescales(outcome.targets)),
        latencies_ms=tuple([latency.quantile(share) for share in SHARES]),
        capacity_errors=tuple(beliefs.capacity_errors),
        wapes=tuple(beliefs.wapes),
        recoveries=tuple(_recoveries(beliefs.rescales, outcome)),
    )


class Beliefs:
    """What Daedalus thinks at each plan, held against what is so."""

    def __init__(self, engine: ContinuousRun) -> None:
        self._engine = engine
        self._planned_at_s: float | None = None
        self.capacity_errors: list[float] = []
        self.wapes: list[float] = []
        #: When it asked for another size, and how long recovery would take.
        self.rescales: list[tuple[float, float]] = []

    def watch(self, step: Step) -> None:
        memory = step.decision.memory
        if not isinstance(memory, DaedalusMemory) or step.snapshot is None:
            return
        if memory.planned_at_s == self._planned_at_s:
            return
        self._planned_at_s = memory.planned_at_s
        if memory.trust.wape is not None:
            self.wapes.append(memory.trust.wape)
        table, fleet = memory.scale_outs, step.snapshot.fleet
        if table.executors == fleet.active == fleet.target and self._engine.capacity_rps > 0.0:
            known_rps = table.capacity_rps(table.executors)
            self.capacity_errors.append(abs(known_rps / self._engine.capacity_rps - 1.0))
        if step.receipt is not None and memory.watch is not None:
            self.rescales.append((step.at_s, memory.watch.predicted_s))


def seconds_waited(outcome: Outcome) -> Array:
    """How long the record that leaves has waited, for each second in which any leaves."""
    seconds = np.arange(1.0, outcome.duration_s + 1.0)
    departed = np.interp(seconds, outcome.departures.at_s, outcome.departures.records)
    before = np.interp(seconds - 1.0, outcome.departures.at_s, outcome.departures.records)
    arrived_at_s = np.interp(departed, outcome.arrivals.records, outcome.arrivals.at_s)
    waited: Array = np.maximum(0.0, seconds - arrived_at_s)[departed > before]
    return waited


def _recoveries(rescales_made: Sequence[tuple[float, float]], outcome: Outcome) -> list[Recovery]:
    """From the stop of the job until nothing waits, for each rescale that ended before the next."""
    if not rescales_made:
        return []
    seconds = np.arange(outcome.duration_s + 1.0)
    arrived = _at(outcome.arrivals, seconds)
    departed = _at(outcome.departures, seconds)
    waiting = arrived - departed
    stands = np.diff(departed, append=departed[-1]) <= 1e-9
    found = []
    ends_s = [*(at_s for at_s, _ in rescales_made[1:]), outcome.duration_s]
    for (asked_s, predicted_s), end_s in zip(rescales_made, ends_s, strict=True):
        span = slice(int(asked_s), int(end_s))
        stopped = np.flatnonzero(stands[span])
        if not len(stopped):
            continue
        first = int(asked_s) + int(stopped[0])
        # Half a second's arrivals are not a backlog.
        done = np.flatnonzero(waiting[first + 1 : int(end_s)] <= 0.5 * np.diff(arrived)[first])
        if len(done):
            found.append(Recovery(predicted_s, float(done[0] + 1)))
    return found


def _at(curve: Curve, seconds: Array) -> Array:
    values: Array = np.interp(seconds, curve.at_s, curve.records)
    return values


def _table(job: str, results: dict[tuple[str, str], list[Measured]]) -> Comparison:
    metrics = (Metric("workers", "", 1), Metric("latency_ms", "ms", 0), Metric("rescales", "", 0))
    entries = []
    for policy in POLICIES:
        group = results[job, policy]
        ours: dict[str, Number] = {
            m.name: mean([getattr(r, m.name) for r in group]) for m in metrics
        }
        entries.append(Entry(policy, {**PAPER[job][policy]}, ours))
    return Comparison(f"{job}: mean workers and latency", metrics, tuple(entries))


def _ecdf_table(results: dict[tuple[str, str], list[Measured]]) -> Comparison:
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


def _distribution(job: str, results: dict[tuple[str, str], list[Measured]]) -> Chart:
    """The latency of a job under each policy: of every share of seconds, the mean over runs."""
    lines = tuple(
        Line(
            policy,
            np.mean([one.latencies_ms for one in results[job, policy]], axis=0).tolist(),
            [100.0 * share for share in SHARES],
        )
        for policy in POLICIES
    )
    return Chart(f"{job}: latency", "ms", "% of seconds", lines, drawn="steps", log_x=True)


def _use(results: dict[tuple[str, str], list[Measured]]) -> Bars:
    bars = tuple(
        Bar(
            policy,
            job,
            PAPER[job][policy]["workers"] / MOST,
            mean([one.workers for one in results[job, policy]]) / MOST,
        )
        for job in JOBS
        for policy in POLICIES
    )
    return Bars("Workers relative to the fixed fleet", "of 12 workers", bars)
