"""Pfister, Scheinert, Geldenhuys, Kao (ICPE 2024): Daedalus against Kubernetes and a fixed fleet.

Three Flink jobs, six hours each: a sine, the clicks of an advertiser, the traffic of a city. The
loads are the study's own, the cpu curve is that of its recorded workers.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from penstock.core.model import Limits, Step
from penstock.core.protocols import Policy
from penstock.lab.experiments.profiling import findings as profile
from penstock.lab.experiments.profiling import profiled
from penstock.lab.experiments.scenario import steer
from penstock.lab.experiments.score import mean_level, moves
from penstock.lab.experiments.statistics import Ecdf, mean
from penstock.lab.studies.daedalus_tables import (
    AGAINST_PHOEBE,
    JOBS,
    KAFKA_STREAMS,
    MOST,
    PAPER,
    SHARES,
    TEXT,
    DaedalusResult,
    Recovery,
    Results,
    claims,
    distribution,
    most_workers,
    over_time,
    own_latency_s,
    use,
    worker_table,
)
from penstock.lab.studies.skeleton import Bench, StudyPlan, data, mean_of
from penstock.lab.studies.study import Chart, ChartLine, Study, distances, mean_relative_error
from penstock.policies.algorithms.recovery import Watch
from penstock.policies.daedalus.daedalus import Daedalus, DaedalusMemory
from penstock.policies.kubernetes.hpa import Hpa
from penstock.policies.phoebe import Phoebe
from penstock.policies.static import Static
from penstock.simulation.engines.continuous import ContinuousJob, ContinuousRun
from penstock.simulation.engines.engine import Curve, Outcome, Rates
from penstock.simulation.workloads.recordings import RecordedRates

Array = NDArray[np.float64]

RUNS, RUN_S = 5, 21_600
#: How often Daedalus looks. The study's metrics are of every second; five measure a recovery well.
SAMPLE_S = 5.0
GRACE_S = 180.0  #: It does not rescale again so soon.
_HPA_WAITS_S = 300.0  #: Both HPAs of the study wait five minutes before they act, upwards too.
#: The peak of each load over what twelve workers can do: the paper says less than 1. The one
#: saturated run of twelve that is published does 488,277/s, in the order of YSB; the published
#: deployment of YSB runs a load that peaks at 400,000/s. For the others nothing is published.
PEAK_FRACTION = round(400_000 / 488_277, 2)
#: What a worker may have requested of the cpu that it may use. Kubernetes counts against the
#: first, the engine's gauge against the second; the published chart has 250m and 500m, 0.5. Above
#: 1 a worker is full before it uses what it requested, as those of Kafka Streams seem to be.
REQUESTS = tuple(round(0.4 + 0.05 * step, 2) for step in range(21))

#: What the recordings of the study show of its workers.
RECORDED = (
    "idle_cpu_fraction", "measurement_noise", "capacity_noise", "hot_fraction", "restart_s",
    "join_s",
)  # fmt: skip


class DaedalusCell(Struct, frozen=True):
    """One run to be made; `request_fraction` is what a worker requests of the cpu it may use."""

    job: str
    policy: str
    seed: int
    request_fraction: float

    def rule(self) -> tuple[Policy, Limits]:
        most = most_workers(self.job)
        limits = Limits(min_executors=1, max_executors=most)
        if self.policy == "Daedalus":
            # On Kafka Streams it rests for 200 s more after a rescale.
            grace_s = GRACE_S + (200.0 if self.job == KAFKA_STREAMS else 0.0)
            return Daedalus(most_executors=most, grace_s=grace_s, period_s=SAMPLE_S), limits
        if self.policy == "static":
            return Static(executors=most), limits
        if self.policy == "Phoebe":
            phoebe = Phoebe(recovery_target_s=600.0)
            return profiled(phoebe, engine_job(self.job), most), limits
        target = float(self.policy.removeprefix("HPA ")) / 100.0 * self.request_fraction
        patient = msgspec.structs.replace(limits, stabilize_up_s=_HPA_WAITS_S)
        return Hpa(cpu_target_fraction=target, stabilize_down_s=_HPA_WAITS_S), patient


class _Data(Struct, frozen=True):
    job: ContinuousJob
    #: Recorded cpu and throughput: of two workers under a sine, by cpu, and of twelve full ones.
    two_workers: list[list[tuple[float, float]]]
    twelve_workers: list[tuple[float, float]]


DATA = data("daedalus2024", _Data)


def study(
    runs: int = RUNS, requests: Sequence[float] = REQUESTS
) -> StudyPlan[DaedalusCell, DaedalusResult]:
    """Fit what a worker requests, run all jobs under all policies."""

    def cells(found: dict[str, float]) -> dict[tuple[str, str], list[DaedalusCell]]:
        return {
            (job, policy): [
                DaedalusCell(job, policy, 1 + i, found.get(job, 1.0)) for i in range(runs)
            ]
            for job, policies in PAPER.items()
            for policy in policies
        }

    return StudyPlan(partial(calibrate, requests=requests), findings, cells, run)


def calibrate(bench: Bench, requests: Sequence[float] = REQUESTS) -> dict[str, float]:
    """The request of cpu with which HPA 80 has the mean workers of the paper, for each job."""
    fitted_on = {**dict.fromkeys(JOBS, "HPA 80"), KAFKA_STREAMS: "HPA 60"}
    cells = [DaedalusCell(job, hpa, 0, r) for job, hpa in fitted_on.items() for r in requests]
    found = bench.run(run, cells, "calibrating what Kubernetes counts as cpu")
    best: dict[str, tuple[float, float]] = {}
    for cell, measured in zip(cells, found, strict=True):
        apart = abs(measured.workers - PAPER[cell.job][cell.policy]["workers"])
        here = (apart, cell.request_fraction)
        best[cell.job] = min(best.get(cell.job, here), here)
    return {job: request for job, (_, request) in best.items()}


def findings(requests: dict[str, float], every: Results) -> Study:
    """The tables of sections 4.5 to 4.7, the claims and the figures."""
    tables = {job: worker_table(job, every) for job in PAPER}
    example = engine_job("WordCount")
    fitted = {
        **{name: getattr(example, name) for name in RECORDED},
        "peak_fraction": PEAK_FRACTION,
        **{f"request_fraction, {job}": part for job, part in requests.items()},
    }
    off = {}
    for policy in ("Daedalus", "HPA 85"):
        pairs = [(PAPER[j][policy]["workers"], mean_of("workers", every[j, policy])) for j in JOBS]
        off[f"workers, {policy} (not fitted)"] = mean_relative_error(pairs)
    return TEXT.findings(
        tables.values(),
        claims(every),
        [TEXT.calibration("all jobs", fitted, off)],
        distances({f"{job}: ": tables[job] for job in JOBS}),
        [
            *worker_curves(),
            *(
                chart
                for job in PAPER
                for chart in (*over_time(job, load(job), every), distribution(job, every))
            ),
            use(every),
        ],
        runs=len(every["WordCount", "Daedalus"]),
    )


def engine_job(name: str) -> ContinuousJob:
    """A job of the study; what differs is the latency that it has of its own."""
    return msgspec.structs.replace(
        DATA.job, partitions=most_workers(name), pipeline_latency_s=own_latency_s(name)
    )


def load(name: str) -> list[float]:
    """Records per second over six hours, scaled to what twelve workers can do."""
    if name in ("WordCount", KAFKA_STREAMS, AGAINST_PHOEBE):
        at_s = np.arange(RUN_S)
        shape = np.trunc(27_500.0 * np.sin(2.0 * np.pi * at_s / 10_800.0) + 32_500.0)
    else:
        recording = RecordedRates(name="daedalus-ysb" if name == "YSB" else "daedalus-traffic")
        shape = np.array(recording.rates(RUN_S, 0, float))
    scale = PEAK_FRACTION * engine_job(name).capacity_rps(most_workers(name)) / float(shape.max())
    return [float(rate) for rate in shape * scale]


def run(cell: DaedalusCell) -> DaedalusResult:
    policy, limits = cell.rule()
    middle = most_workers(cell.job) // 2
    start = MOST if cell.policy == "static" else 1 if cell.job in ("YSB", "Traffic") else middle
    engine = engine_job(cell.job).start(load(cell.job), executors=start, seed=cell.seed)
    estimates = Estimates(engine)
    outcome = steer(engine, policy, limits, float(RUN_S), estimates.watch)
    waits_s, levels = seconds_waited(outcome), seconds_paid(outcome)
    rates = np.array(load(cell.job))
    rises = np.sign(rates[600:] - rates[:-600])
    latency = Ecdf.of((1000.0 * (waits_s + own_latency_s(cell.job))).tolist())
    return DaedalusResult(
        workers=mean_level(outcome.paid, outcome.duration_s),
        latency_ms=mean(latency.values),
        p50_ms=latency.quantile(0.5),
        p95_ms=latency.quantile(0.95),
        rescales=float(moves(outcome.targets)[0]),
        latencies_ms=tuple([latency.quantile(share) for share in SHARES]),
        capacity_errors=tuple(estimates.capacity_errors),
        wapes=tuple(estimates.wapes),
        recoveries=tuple(_recoveries(estimates, outcome)),
        longest_ms=latency.values[-1],
        falling_over_rising=float(levels[600:][rises < 0].mean() / levels[600:][rises > 0].mean()),
        profiling=_profiling_s(cell) / RUN_S,
        levels=tuple(levels[::60].tolist()) if cell.seed == 1 else (),
    )


class CountedJob:
    """A job that counts the seconds of workers that all its runs take."""

    def __init__(self, job: ContinuousJob) -> None:
        self._job = job
        self.engine_name, self.capacity_rps = job.engine_name, job.capacity_rps
        self.worker_s = 0.0

    def start(self, rates_rps: Rates, *, executors: int, seed: int) -> ContinuousRun:
        self.worker_s += executors * len(rates_rps)
        return self._job.start(rates_rps, executors=executors, seed=seed)


@lru_cache(maxsize=1)
def _profiling_worker_s(job: str) -> float:
    counted = CountedJob(engine_job(job))
    profile(counted, most_workers(job))  # type: ignore[arg-type]  # has what a profile needs
    return counted.worker_s


def _profiling_s(cell: DaedalusCell) -> float:
    """Seconds of workers that were spent before the run."""
    return _profiling_worker_s(cell.job) if cell.policy == "Phoebe" else 0.0


def worker_curves() -> tuple[Chart, ...]:
    """Figures 2 to 5: cpu and throughput of two workers under a sine, and of twelve that are full.

    The recorded ones are those of the study's repository, averaged.
    """
    job = msgspec.structs.replace(DATA.job, hot_fraction=0.0, partitions=2)
    at_s = np.arange(RUN_S)
    sine = 0.5 * (1.0 + np.sin(2.0 * np.pi * at_s / RUN_S)) * 0.97 * job.capacity_rps(2)
    samples = _samples(job, sine.tolist(), 2)
    recorded = [("recorded", [(cpu, rps) for cpu, rps in DATA.two_workers[0]])]
    scale = DATA.two_workers[0][-1][1] / max(rps for _, rps in samples)
    ours = [(cpu, rps * scale) for cpu, rps in samples[::4]]
    both = [*recorded, ("ours, scaled", ours)]
    simple = [(name, [(cpu, rps / cpu) for cpu, rps in points]) for name, points in both]
    full = [2.0 * DATA.job.capacity_rps(MOST)] * 600
    twelve = _samples(DATA.job, full, MOST)[-MOST:]
    most_rps = mean([rps for _, rps in DATA.twelve_workers]) / mean([rps for _, rps in twelve])
    skewed = [
        ("recorded", [(cpu, rps) for cpu, rps in DATA.twelve_workers]),
        ("ours, scaled", [(cpu, rps * most_rps) for cpu, rps in twelve]),
    ]
    cpus = {f"{side[0][:4]}_cpu": mean([cpu for cpu, _ in side[1]]) for side in skewed}
    titles = {
        "Figures 2 and 5b: throughput over cpu of a worker": both,
        "Figure 5a: throughput / cpu over cpu": simple,
        "Figures 3 and 4: twelve workers, full": skewed,
    }
    return tuple(
        Chart(
            title, "cpu", "records/s",
            tuple(ChartLine(name, *map(list, zip(*points, strict=True))) for name, points in lines),
            drawn="points", note=TEXT.text(title.partition(":")[0], cpus),
        )
        for title, lines in titles.items()
    )  # fmt: skip


def _samples(job: ContinuousJob, rates: Rates, workers: int) -> list[tuple[float, float]]:
    """Cpu and throughput of each worker, a sample a minute."""
    engine = job.start(rates, executors=workers, seed=1)
    return [
        (round(one.cpu_fraction or 0.0, 3), one.throughput_rps or 0.0)
        for at_s in range(60, len(rates) + 1, 60)
        for one in engine.read(float(at_s)).executors
        if one.cpu_fraction
    ]


class Estimates:
    """What Daedalus estimates at each plan, compared with the truth."""

    def __init__(self, engine: ContinuousRun) -> None:
        self._engine = engine
        self._planned_at_s: float | None = None
        self.capacity_errors: list[float] = []
        self.wapes: list[float] = []
        #: When it asked for another size, and how long recovery would take.
        self.rescales: list[tuple[float, float]] = []
        #: How long it took, by when it was asked for, as Daedalus itself measures it.
        self.measured_s: dict[float, float] = {}
        self._watch: Watch | None = None

    def watch(self, step: Step) -> None:
        memory = step.decision.memory
        if not isinstance(memory, DaedalusMemory) or step.snapshot is None:
            return
        if self._watch is not None and memory.watch is None:
            measured_s = self._watch.measured_s(step.at_s, GRACE_S)
            if measured_s:  # zero: nothing unusual was seen
                self.measured_s[self._watch.asked_at_s] = measured_s
        self._watch = memory.watch
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


def seconds_paid(outcome: Outcome) -> Array:
    """Workers in each second."""
    at_s = np.arange(outcome.duration_s)
    places = np.searchsorted([level.at_s for level in outcome.paid], at_s, side="right") - 1
    return np.array([float(level.executors) for level in outcome.paid])[places]


def seconds_waited(outcome: Outcome) -> Array:
    """How long the record that leaves has waited, for each second in which any leaves."""
    seconds = np.arange(1.0, outcome.duration_s + 1.0)
    departed, before = _at(outcome.departures, seconds), _at(outcome.departures, seconds - 1.0)
    arrived_at_s = np.interp(departed, outcome.arrivals.records, outcome.arrivals.at_s)
    waited: Array = np.maximum(0.0, seconds - arrived_at_s)[departed > before]
    return waited


def _recoveries(estimates: Estimates, outcome: Outcome) -> list[Recovery]:
    """What came of each rescale, up to the next."""
    seconds = np.arange(outcome.duration_s + 1.0)
    arrived, departed = _at(outcome.arrivals, seconds), _at(outcome.departures, seconds)
    waiting = arrived - departed
    stands = np.diff(departed, append=departed[-1]) <= 1e-9
    found = []
    ends_s = [*(at_s for at_s, _ in estimates.rescales[1:]), outcome.duration_s]
    for (asked_s, predicted_s), end_s in zip(estimates.rescales, ends_s, strict=False):
        caught_up_s = None
        stopped = np.flatnonzero(stands[int(asked_s) : int(end_s)])
        if len(stopped):
            first = int(asked_s) + int(stopped[0])
            # Half a second's arrivals are not a backlog.
            done = np.flatnonzero(waiting[first + 1 : int(end_s)] <= 0.5 * np.diff(arrived)[first])
            caught_up_s = float(done[0] + 1) if len(done) else None
        found.append(Recovery(predicted_s, estimates.measured_s.get(asked_s), caught_up_s))
    return found


def _at(curve: Curve, seconds: Array) -> Array:
    values: Array = np.interp(seconds, curve.at_s, curve.records)
    return values
