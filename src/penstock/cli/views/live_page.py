"""Live comparisons as one page: figures of each scaler, and the telemetry of every run."""

from collections.abc import Sequence
from html import escape

from msgspec import Struct

from penstock.cli.views.study_page import NO_SCRIPT, figure_grid
from penstock.lab.experiments.score import Delays
from penstock.lab.live_comparison import contest
from penstock.lab.live_comparison.contest import Result
from penstock.lab.live_comparison.plan import LivePlan
from penstock.lab.live_comparison.trial import Figures, Trial
from penstock.lab.studies.study import Chart, ChartLine, Figure
from penstock.observe.report.frame import framed, table_section, template

#: The parts of the records for which the curve of delays has a point.
FRACTIONS = [part / 50 for part in range(50)] + [0.99, 0.995, 1.0]

#: The signals of figure 4.5 of Koper (2022): field of `Telemetry`, title, unit, factor.
PANELS = (
    ("input_rps", "input rate", "/s", 1.0),
    ("workers", "executors", "", 1.0),
    ("lag_records", "lag", "records", 1.0),
    ("latency_s", "latency of a batch", "s", 1.0),
    ("cpu_fraction", "cpu", "%", 100.0),
    ("busy_fraction", "busy", "%", 100.0),
    ("idle_fraction", "idle", "%", 100.0),
    ("trigger_fraction", "batch duration / trigger", "%", 100.0),
)


class Column(Struct, frozen=True):
    """A column of the table: the field of `Figures`, what stands over it, and its decimals."""

    name: str
    title: str
    decimals: int = 1
    scale: float = 1.0


COLUMNS = (
    Column("mean_delay_s", "mean delay s"),
    Column("mean_executors", "mean executors", 2),
    Column("delay_and_executors", "sum", 2),
    Column("rescales", "rescales"),
    Column("p95_s", "p95 s"),
    Column("late_fraction", "late %", scale=100.0),
    Column("executor_s", "executor-s", 0),
    Column("cost", "cost"),
    Column("failed_tasks", "failed tasks"),
)


def cell(figures: Figures, column: Column) -> str:
    value = getattr(figures, column.name)
    return "-" if value is None else f"{column.scale * value:.{column.decimals}f}"


def mean_with_interval(result: Result, column: Column) -> str:
    """A mean and its 95 % interval, such as ``412 ± 9``; no interval of fewer than three runs."""
    mean = cell(result.mean, column)
    if len(result.runs) < 3 or column.name == "delay_and_executors":
        return mean
    return f"{mean} ± {cell(result.interval, column)}"


def title(plan: LivePlan) -> str:
    return f"{plan.job} under {plan.description}; {plan.work}"


def live_page(trials: Sequence[Trial]) -> str:
    """One self-contained HTML page of all runs of a directory."""
    figures: list[Figure] = []
    parts = [f'<p class="note">{escape(origin(trials))}</p>']
    for plan, own in contest.by_plan(trials).items():
        found = contest.results(own)
        parts.append(_table(plan, found))
        parts.append(figure_grid([_scatter(found), _delays(own)], figures))
        parts += [_run(trial, figures) for trial in own]
    parts.append(NO_SCRIPT)
    return framed(
        "Scalers on real Spark",
        "\n".join(parts),
        style=template("study.css"),
        script=template("charts.js") + template("study.js"),
        data=figures,
    )


def origin(trials: Sequence[Trial]) -> str:
    """When and where the runs were made."""
    facts = trials[0].machine
    first, last = min(one.began_at for one in trials), max(one.began_at for one in trials)
    names = {"pyspark": "PySpark", "java": "Java", "kafka": "Kafka", "python": "Python"}
    versions = ", ".join(f"{name} {facts[key]}" for key, name in names.items())
    return (
        f"{len(trials)} runs from {first} to {last} UTC on {facts['cores']} cores with "
        f"{facts['memory']} of memory, {facts['system']}; {versions}, Penstock {facts['penstock']}."
    )


def _table(plan: LivePlan, found: Sequence[Result]) -> str:
    head = "".join(f'<th scope="col">{escape(column.title)}</th>' for column in COLUMNS)
    rows = "".join(map(_rows, found))
    about = (
        "By the sum of mean delay and mean executors, the best first. Below each: what a "
        f"simulation says, fitted to the runs of the others. Policies run {plan.speed:.3g} times "
        "as fast as in real life. Cost is in executor-minutes, with late records and moves."
    )
    return table_section(
        title(plan), "side", f"<tr><th></th>{head}</tr>", rows, f'<p class="hint">{about}</p>'
    )


def _rows(one: Result) -> str:
    name = escape(f"{one.scaler} x {len(one.runs)}")
    live = "".join(f"<td class=ours>{mean_with_interval(one, each)}</td>" for each in COLUMNS)
    rows = f'<tr><th scope="row"><b>{name}</b></th>{live}</tr>'
    if (guess := one.forecast) is not None:
        cells = "".join(f'<td class="paper-side">{cell(guess, each)}</td>' for each in COLUMNS)
        rows += f'<tr><th scope="row">simulated</th>{cells}</tr>'
    return rows


def _scatter(found: Sequence[Result]) -> Chart:
    lines = []
    for one in found:
        sizes = [run.mean_executors for run in one.runs]
        lines.append(ChartLine(one.scaler, sizes, [run.mean_delay_s for run in one.runs]))
    return Chart("Executors and delay", "mean executors", "s", tuple(lines), drawn="points")


def _delays(trials: Sequence[Trial]) -> Chart:
    """The first run of each scaler: the share of records that waited no longer than that."""
    firsts = {trial.scaler: trial for trial in reversed(trials)}
    lines = []
    for name, trial in sorted(firsts.items()):
        delays_s = Delays.of(trial.observation.outcome()).quantiles(*FRACTIONS)
        shares: list[float | None] = [100.0 * part for part in FRACTIONS]
        lines.append(ChartLine(name, [round(each, 3) for each in delays_s], shares))
    return Chart("Records done within", "s", "%", tuple(lines))


def _run(trial: Trial, figures: list[Figure]) -> str:
    """The telemetry of one run, folded up."""
    telemetry = []
    for field, title, unit, scale in PANELS:
        values = [None if x is None else scale * x for x in getattr(trial.telemetry, field)]
        if any(each is not None for each in values):
            line = ChartLine(title, trial.telemetry.at_s, values)
            telemetry.append(Chart(title, "s", unit, (line,), drawn="steps"))
    name = f"{trial.scaler}, run {trial.number} at {trial.began_at}"
    sent = "its load was not sent to the end"
    if trial.sent is not None:
        sent = "its load came on time"
        if not trial.sent.kept_up:
            sent = f"its load came up to {trial.sent.behind_max_s:.1f} s late"
    return (
        f"<details><summary>{escape(name)}: {sent}</summary>"
        + figure_grid(telemetry, figures)
        + "</details>"
    )
