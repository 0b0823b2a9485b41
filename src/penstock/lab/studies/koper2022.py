"""Koper (2022): six scalers in three settings each, on three Nexmark queries over Flink.

140 minutes, a new arrival rate each minute, 1 to 16 workers of which 8 are there at the start.
Event-time lag and registered workers are measured every 15 s; what counts is the mean of both,
their sum, and how often the number of workers changed.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec import Struct, structs

from penstock.core.knowledge import Rescale
from penstock.lab.experiments.scenario import steer
from penstock.lab.studies.koper_claims import QUERIES, TEXT, claims, with_single_runs
from penstock.lab.studies.koper_recordings import (
    COUNTED,
    Fit,
    calibration,
    first_half,
    fitted,
    recordings,
    replayed,
)
from penstock.lab.studies.koper_sensors import StudyGauges
from penstock.lab.studies.skeleton import Bench, StudyPlan
from penstock.lab.studies.study import Chart, ChartLine, Comparison, Entry, Metric, Study, distances
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.engine import Outcome

DURATION_S, SAMPLE_S, START_WORKERS = 140 * 60, 15.0, 8
BOUNDS = {"min_executors": 1, "max_executors": 16}
#: The study has one run of each setting. A scaler that is lucky once is not lucky on average.
SEEDS = (1, 2, 3, 4, 5)

#: Pauses of the study count from when the number of registered workers last changed, which is
#: this long after the decision. It is part of each cooldown in the settings of the scalers but
#: that of varga-v2, which looks at registered workers itself.
REGISTERED_AFTER_S = 15.0

METRICS = (
    Metric("latency", "s"), Metric("workers"), Metric("latency + workers"),
    Metric("rescales", decimals=0),
)  # fmt: skip
AIMS = {"workers": 0.8, "latency": 0.7}  #: What the rank correlations are to reach.


class KoperCell(Struct, frozen=True):
    """One run: a query's job under one setting of one scaler."""

    query: str
    job: ContinuousJob
    scaler: str
    setting: int
    seed: int


class KoperResult(Struct, frozen=True):
    """What the study measures of a run."""

    latency_s: float
    workers: float
    rescales: float


SettingKey = tuple[str, str, int]  #: Query, scaler and setting.
Results = Mapping[SettingKey, Sequence[KoperResult]]
Fits = Mapping[Fit, ContinuousJob]


def study() -> StudyPlan[KoperCell, KoperResult]:
    """Fit a job to the recorded runs of each query, and run all settings on it."""
    return StudyPlan(prepare, findings, cells, run)


def prepare(bench: Bench) -> Fits:
    """Fit two jobs to each query: one to use, one to judge."""
    fits = [*(Fit(query) for query in QUERIES), *map(first_half, QUERIES)]
    jobs = bench.run(fitted, fits, "fitting the engine to the recorded runs")
    return dict(zip(fits, jobs, strict=True))


def cells(fits: Fits) -> dict[SettingKey, list[KoperCell]]:
    return {
        (query, row.scaler, row.setting): [
            KoperCell(query, fits[Fit(query)], row.scaler, row.setting, seed) for seed in SEEDS
        ]
        for query in QUERIES
        for row in recordings().tables[query]
    }


def findings(fits: Fits, results: Results) -> Study:
    """The three tables and the claims, on means over seeds and on each seed alone."""
    tables = {query: _table(query, results) for query in QUERIES}
    alone = [
        claims([_table(q, {key: [runs[i]] for key, runs in results.items()}) for q in QUERIES])
        for i in range(len(SEEDS))
    ]
    near = [
        each
        for query, table in tables.items()
        for each in (
            *distances({f"{query} ": table}, AIMS),
            *distances({f"{query}, never recorded: ": _never_recorded(query, table)}),
        )
    ]
    return TEXT.findings(
        tables.values(),
        with_single_runs(claims([*tables.values()]), alone),
        [calibration(query, fits[Fit(query)], fits[first_half(query)]) for query in QUERIES],
        near,
        [
            *(against(table, metric) for metric in METRICS[:2] for table in tables.values()),
            *(chart for query in QUERIES for chart in replayed(query, fits[Fit(query)])),
        ],
        seeds=len(SEEDS),
    )


def _never_recorded(query: str, table: Comparison) -> Comparison:
    """Workers and latency of the settings of which the fit has seen nothing."""
    seen = {f"{run.scaler} {run.setting}" for run in recordings().runs if run.query == query}
    entries = tuple(entry for entry in table.entries if entry.label not in seen)
    return Comparison(table.title, METRICS[:2], entries)


def against(table: Comparison, metric: Metric) -> Chart:
    """All settings of a query as points: across what the paper has, upwards what we have."""
    lines, labels = [], []
    for scaler in recordings().scalers:
        settings = [e for e in table.entries if e.label.rsplit(" ", 1)[0] == scaler]
        x = [entry.paper[metric.name] or 0.0 for entry in settings]
        lines.append(ChartLine(scaler, x, [entry.ours[metric.name] for entry in settings]))
        labels.append([entry.label for entry in settings])
    unit, logs = f" ({metric.unit})" if metric.unit else "", metric.name == "latency"
    return Chart(
        f"{table.title}: {metric.name}", f"paper{unit}", f"ours{unit}", tuple(lines),
        drawn="points", log_x=logs, log_y=logs, diagonal=True, labels=labels,
    )  # fmt: skip


def policy_text(scaler: str, setting: int) -> str:
    """A setting of section 4.6.

    The tolerance of the HPA is a tenth, but Kubernetes 1.21, on which the study ran, subtracts the
    ratio from 1 before it compares: in floating point 99 % over 90 % is then above the tolerance.

    >>> policy_text("ds2", 33)
    'ds2:overprovisioning=0.33,whole_instances=true,cooldown=255s'
    """
    return recordings().scalers[scaler].format(setting=setting, fraction=setting / 100)


def run(cell: KoperCell) -> KoperResult:
    """One run of 140 minutes, measured as in the study."""
    entry = read_policy_spec(policy_text(cell.scaler, cell.setting), BOUNDS)
    rates = [rps for rps in recordings().loads_rps[cell.query] for _ in range(60)]
    by_kubernetes = cell.scaler == "hpa"
    # Kubernetes counts the cpu time that was used; the others read gauges, which err.
    job = structs.replace(cell.job, measurement_noise=0.0) if by_kubernetes else cell.job
    engine = StudyGauges(
        job.start(rates, executors=START_WORKERS, seed=cell.seed),
        minute_cpu=by_kubernetes,
        lag_per_worker=cell.scaler.startswith("varga"),
        counted=COUNTED[cell.query],
    )
    # The workers have just registered when a run begins: pauses count from then on.
    earlier = [Rescale(-REGISTERED_AFTER_S, START_WORKERS, START_WORKERS)]
    outcome = steer(engine, entry.policy, entry.limits, float(DURATION_S), earlier=earlier)
    return measure(outcome, cell.job.pipeline_latency_s)


def measure(outcome: Outcome, base_s: float) -> KoperResult:
    """Means over samples every 15 s; a record that does not wait still takes `base_s`."""
    at_s = np.arange(SAMPLE_S, outcome.duration_s + 1.0, SAMPLE_S)
    departed = np.interp(at_s, outcome.departures.at_s, outcome.departures.records)
    arrived_at_s = np.interp(departed, outcome.arrivals.records, outcome.arrivals.at_s)
    waited_s = np.maximum(0.0, at_s - arrived_at_s)
    levels = np.searchsorted([level.at_s for level in outcome.paid], at_s, side="right") - 1
    workers = np.array([level.executors for level in outcome.paid])[levels]
    changes = float(np.count_nonzero(np.diff(workers)))
    return KoperResult(float(waited_s.mean()) + base_s, fmean(workers.tolist()), changes)


def _table(query: str, results: Results) -> Comparison:
    entries = []
    for row in recordings().tables[query]:
        runs = results[query, row.scaler, row.setting]
        ours = map(fmean, zip(*map(structs.astuple, runs), strict=True))
        paper = _numbers(row.latency_s, row.workers, row.rescales)
        entries.append(Entry(f"{row.scaler} {row.setting}", paper, _numbers(*ours)))
    return Comparison(f"query {query[1:]}", METRICS, tuple(entries))


def _numbers(latency_s: float, workers: float, rescales: float) -> dict[str, float | None]:
    values = (latency_s, workers, latency_s + workers, float(rescales))
    return {metric.name: value for metric, value in zip(METRICS, values, strict=True)}
