"""Koper (2022): six scalers in three settings each, on three Nexmark queries over Flink.

140 minutes, a new arrival rate each minute, 1 to 16 workers of which 8 are there at the start.
Event-time lag and registered workers are measured every 15 s; what counts is the mean of both,
their sum, and how often the number of workers changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from penstock.core.knowledge import Rescale
from penstock.lab.experiments.scenario import steer
from penstock.lab.studies.claims import judge
from penstock.lab.studies.koper_recordings import (
    COUNTED,
    MOST_WORKERS,
    QUERIES,
    TEXT,
    Fit,
    calibration,
    first_half,
    fitted,
    recordings,
)
from penstock.lab.studies.koper_sensors import StudyGauges
from penstock.lab.studies.skeleton import Bench, StudyPlan, Told, mean_of
from penstock.lab.studies.study import (
    Chart,
    ChartLine,
    Comparison,
    Entry,
    Metric,
    Study,
    agreement,
    distances,
)
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.engine import Outcome

Array = NDArray[np.float64]

DURATION_S, SAMPLE_S, START_WORKERS = 140 * 60, 15.0, 8
BOUNDS = {"min_executors": 1, "max_executors": MOST_WORKERS}
LATE_S = 5.0  #: Adapted DS2 does not shrink above this latency.
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
#: The runs of which the thesis draws telemetry, by its figures.
TELEMETRY = {
    "5.7": ("q11", "hpa 70"), "5.8": ("q1", "varga-v1 50"), "5.9": ("q1", "varga-v2 50"),
    "5.10": ("q1", "dhalion-adapted 5"), "5.11": ("q11", "dhalion-adapted 1"),
    "5.12": ("q1", "ds2 66"),
}  # fmt: skip


class KoperCell(Struct, frozen=True):
    """One run: a query's job under one setting of one scaler."""

    query: str
    job: ContinuousJob
    scaler: str
    setting: int
    seed: int

    @property
    def row(self) -> str:
        return f"{self.scaler} {self.setting}"


class KoperResult(Struct, frozen=True):
    """What the study measures of a run, and what its text says of some."""

    latency_s: float
    workers: float
    rescales: float
    most_workers: float = 0.0
    late_shrinks: float = 0.0  #: Decisions for fewer workers while records waited.
    #: Of each sample, where the thesis draws them.
    samples: dict[str, list[float]] = {}

    @property
    def total(self) -> float:
        return self.latency_s + self.workers

    @property
    def reached_the_most(self) -> bool:
        """Whether it grew to all workers that there are, as in a loop of growing."""
        return self.most_workers == MOST_WORKERS


Results = Mapping[tuple[str, str], Sequence[KoperResult]]  #: By query and setting.
Fits = Mapping[Fit, ContinuousJob]


def study() -> StudyPlan[KoperCell, KoperResult]:
    """Fit a job to the recorded runs of each query, and run all settings on it."""
    return StudyPlan(prepare, findings, cells, run)


def prepare(bench: Bench) -> Fits:
    """Fit two jobs to each query: one to use, one to judge."""
    fits = [*(Fit(query) for query in QUERIES), *map(first_half, QUERIES)]
    jobs = bench.run(fitted, fits, "fitting the engine to the recorded runs")
    return dict(zip(fits, jobs, strict=True))


def cells(fits: Fits) -> dict[tuple[str, str], list[KoperCell]]:
    return {
        (query, row.label): [
            KoperCell(query, fits[Fit(query)], row.scaler, row.setting, seed) for seed in SEEDS
        ]
        for query in QUERIES
        for row in recordings().tables[query]
    }


def findings(fits: Fits, results: Results) -> Study:
    """The three tables, the claims, how near both come, and the figures."""
    tables, told = {query: _table(query, results) for query in QUERIES}, Told(TEXT.study, results)
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
        judge(TEXT, results),
        [calibration(query, fits[Fit(query)], fits[first_half(query)]) for query in QUERIES],
        near,
        [
            *(chart for query, table in tables.items() for chart in scatters(query, table, told)),
            *(chart for figure in TELEMETRY for chart in telemetry(figure, results)),
        ],
        seeds=len(SEEDS),
    )


def _never_recorded(query: str, table: Comparison) -> Comparison:
    """Workers and latency of the settings of which the fit has seen nothing."""
    seen = {run.label for run in recordings().runs if run.query == query}
    entries = tuple(entry for entry in table.entries if entry.label not in seen)
    return Comparison(table.title, METRICS[:2], entries)


def scatters(query: str, table: Comparison, told: Told) -> Iterator[Chart]:
    """Figures 5.1 to 5.6: workers and latency of all settings; a log scale replaces the zoom."""
    number = 1 + 2 * QUERIES.index(query)
    for side in ("paper", "ours"):
        lines, labels = [], []
        for scaler in recordings().scalers:
            settings = [e for e in table.entries if e.label.rsplit(" ", 1)[0] == scaler]
            x, y = ([getattr(e, side)[name] for e in settings] for name in ("workers", "latency"))
            lines.append(ChartLine(scaler, x, y))
            labels.append([entry.label for entry in settings])
        title = f"Figures 5.{number} and 5.{number + 1}: {table.title}, {side}"
        note = TEXT.text(f"Figure 5.{number}", told) if side == "ours" else ""
        for name, unit in (("workers", ""), ("latency", " s")) if note else ():
            pairs = {e.label: (e.paper[name], e.ours[name] or 0.0) for e in table.entries}
            note += f"; {agreement(name, pairs, unit)}"
        yield Chart(
            title, "workers", "s", tuple(lines),
            drawn="points", log_y=True, labels=labels, note=note,
        )  # fmt: skip


def telemetry(figure: str, results: Results) -> Iterator[Chart]:
    """Workers, latency and throughput of a run; as recorded too, where that is published."""
    query, setting = TELEMETRY[figure]
    ours = results[query, setting][0].samples
    recorded = next(
        (run.rows for run in recordings().runs if (run.query, run.label) == (query, setting)), []
    )
    at_s = [SAMPLE_S * (1 + i) for i in range(len(ours["workers"]))]
    columns = {"workers": (2, ""), "latency": (5, "s"), "throughput": (3, "records/s")}
    for name, (column, unit) in columns.items():
        lines = [ChartLine("ours", at_s, [*ours[name]])]
        if recorded:
            theirs = ChartLine(
                "thesis", [row[0] for row in recorded], [r[column] for r in recorded]
            )
            lines.insert(0, theirs)
        title = f"Figure {figure}: query {query[1:]}, {setting}, {name}"
        note = TEXT.text(f"Figure {figure}", Told(TEXT.study, results)) if name == "workers" else ""
        yield Chart(title, "time", unit, tuple(lines), drawn="steps", note=note)


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
    is_drawn = (cell.query, cell.row) in TELEMETRY.values() and cell.seed == SEEDS[0]
    return measure(outcome, cell.job.pipeline_latency_s, is_drawn=is_drawn)


def measure(outcome: Outcome, base_s: float, *, is_drawn: bool = False) -> KoperResult:
    """Means over samples every 15 s; a record that does not wait still takes `base_s`."""
    at_s = np.arange(SAMPLE_S, outcome.duration_s + 1.0, SAMPLE_S)
    departed, waited_s = _waited_s(outcome, at_s)
    levels = np.searchsorted([level.at_s for level in outcome.paid], at_s, side="right") - 1
    workers = np.array([level.executors for level in outcome.paid])[levels]
    changes = float(np.count_nonzero(np.diff(workers)))
    shrinks_s = [b.at_s for a, b in pairwise(outcome.targets) if b.executors < a.executors]
    late_shrinks = float((_waited_s(outcome, np.array(shrinks_s))[1] > LATE_S).sum())
    drawn: dict[str, Array] = {}
    if is_drawn:
        rates = np.diff(departed, prepend=0.0) / SAMPLE_S
        drawn = {"workers": workers, "latency": waited_s + base_s, "throughput": rates}
    return KoperResult(
        float(waited_s.mean()) + base_s, fmean(workers.tolist()), changes,
        float(workers.max()), late_shrinks,
        {name: [float(f"{value:.4g}") for value in values] for name, values in drawn.items()},
    )  # fmt: skip


def _waited_s(outcome: Outcome, at_s: Array) -> tuple[Array, Array]:
    """How many records have left at some instants, and how long the next has waited."""
    departed = np.interp(at_s, outcome.departures.at_s, outcome.departures.records)
    arrived_at_s = np.interp(departed, outcome.arrivals.records, outcome.arrivals.at_s)
    return departed, np.maximum(0.0, at_s - arrived_at_s)


def _table(query: str, results: Results) -> Comparison:
    entries = []
    for row in recordings().tables[query]:
        runs = results[query, row.label]
        ours = (mean_of(name, runs) for name in ("latency_s", "workers", "rescales"))
        paper = _numbers(row.latency_s, row.workers, row.rescales)
        entries.append(Entry(row.label, paper, _numbers(*ours)))
    return Comparison(f"query {query[1:]}", METRICS, tuple(entries))


def _numbers(latency_s: float, workers: float, rescales: float) -> dict[str, float | None]:
    values = (latency_s, workers, latency_s + workers, float(rescales))
    return {metric.name: value for metric, value in zip(METRICS, values, strict=True)}
