"""Writes docs/results-live.md and docs/live/index.html from the runs in docs/live.

    python docs/results_live.py [--play 60min]

The main tables are also the last section of docs/results.md. With `--play`, runs of
docs/live/comparison.toml that are missing are made first, in that time: nothing else may run on the
machine. `make results-live` makes all of them, which takes hours.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import fmean

from penstock.cli.output import interrupt_on_sigterm
from penstock.cli.views.live_page import (
    COLUMNS,
    cell,
    live_page,
    mean_with_interval,
    origin,
    title,
)
from penstock.lab.experiments.statistics import spearman
from penstock.lab.live_comparison import contest
from penstock.lab.live_comparison.contest import Result
from penstock.lab.live_comparison.observer import ONE_RESCALE_S
from penstock.lab.live_comparison.plan import LivePlan
from penstock.lab.live_comparison.scalers import scaler_of
from penstock.lab.live_comparison.trial import Trial, measured
from penstock.settings.notation import quantity
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.attached import elapsed

RUNS = Path(__file__).parent / "live"
PAGE = Path(__file__).parent / "results-live.md"
ALL_RESULTS = PAGE.with_name("results.md")
#: The heading of our section, the last of that page.
SECTION = "## On real Spark"
#: What we make of the runs, in words; part of the page.
NOTES = RUNS / "notes.md"
#: The rows of tables 5.1 to 5.3 of Koper (2022) that were run: scaler and setting.
THESIS = {
    "hpa:cpu_target=0.5": ("hpa", 50),
    "hpa:cpu_target=0.7": ("hpa", 70),
    "varga:version=1,utilization_target=0.5": ("varga-v1", 50),
    "varga:version=2,utilization_target=0.5": ("varga-v2", 50),
    "dhalion_adapted:latency_threshold=5s": ("dhalion-adapted", 5),
    "ds2:overprovisioning=0.33": ("ds2", 33),
    "ds2_adapted:overprovisioning=0.33": ("ds2-adapted", 33),
}

HEAD = """\
# Results on real Spark

Written by `make results-live` from the runs in [live](live), of which it also makes a page with
charts (`docs/live/index.html`). A Kafka broker, a Spark cluster of {slots} slots and a benchmark
job on one machine. Records of most jobs wait instead of computing, so that one machine
can act as a cluster; policies that use cpu get busy time as cpu there. A load of an hour is
compressed into minutes; the time spans of Penstock's policies and guards are divided by the same
factor, at most 10. The waits of Spark's dynamic allocation are its defaults. Batches are not
capped. Runs of a job are made in random order.

{origin}

All are measured the same way. Executors are counted as processes, twice a second. The delay of a
record is the time from its arrival at the broker until its batch is committed. A record is late
after {slo:g} s. Executors that come or leave within {together:g} s are one rescale. Failed tasks
are those of Spark's status store. `sum` is mean delay in s and mean executors, by which the thesis
of Koper (2022) ranks. Cost is in executor-minutes: executors, late records and moves. Below each
row: the same in the simulator, with a job fitted to the runs of the *other* scalers. ± is half of
the 95 % interval of the mean.
"""


def page(trials: Sequence[Trial], notes: str = "") -> str:
    """The whole page."""
    head = HEAD.format(
        slots=sizes.MAX_EXECUTORS, origin=origin(trials), slo=sizes.SLO_S, together=ONE_RESCALE_S
    )
    found = {plan: contest.results(own) for plan, own in contest.by_plan(trials).items()}
    parts = [head, *([notes] if notes else [])]
    for plan, results in found.items():
        parts += [f"## {title(plan)}", "", *_means(results), "", *_job(trials, plan), ""]
    for plan, results in found.items():
        parts += _thesis(plan, results)
    parts += [*_truth([one for results in found.values() for one in results]), ""]
    return "\n".join([*parts, *_runs(trials), ""])


def section(trials: Sequence[Trial]) -> str:
    """The short version, for the page with all results."""
    parts = [SECTION, "", origin(trials), ""]
    for plan, own in contest.by_plan(trials).items():
        found = contest.results(own)
        parts += [f"{title(plan)}:", "", *_means(found, simulated=False), "", *_verdict(found), ""]
    more = "How it was measured, and every run: [results-live.md](results-live.md)."
    return "\n".join([*parts, more, ""])


def with_section(text: str, ours: str) -> str:
    """The page with all results, with our section replaced.

    >>> with_section("# Results\\n\\n## On real Spark\\n\\nold\\n", "## On real Spark\\n\\nnew\\n")
    '# Results\\n\\n## On real Spark\\n\\nnew\\n'
    """
    others = text.partition(SECTION)[0].rstrip()
    return f"{others}\n\n{ours}"


def _means(found: Sequence[Result], *, simulated: bool = True) -> Iterator[str]:
    yield f"| | {' | '.join(column.title for column in COLUMNS)} |"
    yield "|---" + "|---:" * len(COLUMNS) + "|"
    for one in found:
        cells = [mean_with_interval(one, column) for column in COLUMNS]
        runs = f" ({len(one.runs)} runs)" if len(one.runs) > 1 else ""
        yield f"| **{one.scaler}**{runs} | {' | '.join(cells)} |"
        if simulated and one.forecast is not None:
            cells = [cell(one.forecast, column) for column in COLUMNS]
            yield f"| simulated | {' | '.join(cells)} |"


def _verdict(found: Sequence[Result]) -> Iterator[str]:
    """What the default policy took, against the others that were late with as few records."""
    means = {one.scaler: one.mean for one in found}
    ours = means.pop("penstock", None)
    if ours is None or not means:
        return
    against = ", ".join(
        f"{abs(ours.executor_s / other.executor_s - 1.0):.0%} "
        f"{'more' if ours.executor_s > other.executor_s else 'less'} than `{name}`"
        for name, other in means.items()
        if name == "spark" or name.startswith("static")
    )
    place = [one.scaler for one in found].index("penstock") + 1
    yield (
        f"`penstock` is number {place} of {len(found)} by the sum, was late with "
        f"{100 * ours.late_fraction:.1f} % of the records and took {ours.executor_s:.0f} "
        f"executor-seconds{': ' if against else ''}{against}."
    )


def _thesis(plan: LivePlan, found: Sequence[Result]) -> Iterator[str]:
    """The rows of the thesis beside ours, if the load is its own."""
    if not plan.workload.startswith("koper-"):
        return
    text = (files("penstock.lab.studies") / "data" / "koper2022.json").read_text()
    table = json.loads(text)["tables"][query_of(plan.job)]
    paper = {(row[0], row[1]): row[2:] for row in table}
    rows = [(one, paper[THESIS[one.scaler]]) for one in found if one.scaler in THESIS]
    if len(rows) < 2:
        return
    yield f"## {plan.job}: the ranking of the thesis and ours"
    yield ""
    yield "| | latency s | workers | sum | rescales | ours: delay s | executors | sum | rescales |"
    yield "|---" + "|---:" * 8 + "|"
    for one, (latency_s, workers, rescales) in rows:
        cells = [cell(one.mean, column) for column in COLUMNS[:4]]
        yield (
            f"| {one.scaler} | {latency_s:.1f} | {workers:.2f} | {latency_s + workers:.2f} | "
            f"{rescales} | {' | '.join(cells)} |"
        )
    sums = [(row[0] + row[1], one.mean.delay_and_executors) for one, row in rows]
    workers_of = [(row[1], one.mean.mean_executors) for one, row in rows]
    delays = [(row[0], one.mean.mean_delay_s) for one, row in rows]
    yield ""
    yield (
        f"Rank correlation of {len(rows)} rows: latency {spearman(delays):.2f}, workers "
        f"{spearman(workers_of):.2f}, sum {spearman(sums):.2f}."
    )
    yield ""


def _truth(found: Sequence[Result]) -> Iterator[str]:
    """The error of the simulation, per figure."""
    both = [(one.mean, one.forecast) for one in found if one.forecast is not None]
    if not both:
        return
    yield "## How accurate the simulation is"
    yield ""
    yield "| | mean live | mean deviation of the simulation | rank correlation |"
    yield "|---|---:|---:|---:|"
    for column in COLUMNS[:-1]:
        pairs = [
            (column.scale * getattr(mean, column.name), column.scale * getattr(guess, column.name))
            for mean, guess in both
        ]
        live = fmean(mean for mean, _ in pairs)
        off = fmean(abs(guess - mean) for mean, guess in pairs)
        alike = f"{spearman(pairs):.2f}" if len(pairs) > 1 else "-"
        digits = column.decimals
        yield f"| {column.title} | {live:.{digits}f} | {off:.{digits}f} | {alike} |"


def _job(trials: Sequence[Trial], plan: LivePlan) -> Iterator[str]:
    job = contest.fitted_job([trial for trial in trials if trial.plan == plan])
    yield (
        "The simulated job, fitted to all runs: "
        f"{1e3 * job.stages[0].core_s_per_record:.2f} ms per record, "
        f"{job.fixed_s:.2f} s per batch, "
        f"{100 * job.contention:.1f} % more for each further executor; executors start in "
        f"{job.startup.shortest_s:.1f} to "
        f"{job.startup.longest_s:.1f} s and delay a batch by {job.join_s:.1f} s each."
    )


def _runs(trials: Sequence[Trial]) -> Iterator[str]:
    yield "## Every run, in order"
    yield ""
    yield f"| UTC | | {' | '.join(column.title for column in COLUMNS)} | load |"
    yield "|---|---" + "|---:" * len(COLUMNS) + "|---|"
    for trial in trials:
        cells = [cell(measured(trial), column) for column in COLUMNS]
        sent = "not all was sent"
        if trial.sent is not None:
            sent = "on time" if trial.sent.kept_up else f"{trial.sent.behind_max_s:.1f} s late"
        who = f"{trial.plan.job} {trial.scaler} {trial.number}"
        yield f"| {trial.began_at} | {who} | {' | '.join(cells)} | {sent} |"


def query_of(job: str) -> str:
    """The query of the thesis that a job is.

    >>> query_of("q3-thesis"), query_of("q11")
    ('q3', 'q11')
    """
    return job.removesuffix("-thesis")


def planned() -> list[tuple[LivePlan, list[str]]]:
    """Jobs and loads with the scalers that are compared on them."""
    text = (RUNS / "comparison.toml").read_text(encoding="utf-8")
    return [
        (
            LivePlan(
                job,
                round(60 * part["minutes"]),
                cpu_share=part.get("cpu_share"),
                workload=part["workload"].format(query=query_of(job)),
            ),
            part["scalers"],
        )
        for part in tomllib.loads(text)["part"]
        for job in part["jobs"]
    ]


def play(at_most_s: float) -> None:
    """Make runs that are missing until the time is up."""
    interrupt_on_sigterm()
    since_s = elapsed()

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    for plan, scalers in planned():
        runs = contest.order([scaler_of(text, plan).name for text in scalers], 1, plan)
        left_s = at_most_s - since_s()
        for _ in contest.play_missing(RUNS, plan, runs, say, at_most_s=left_s):
            pass


def main() -> None:
    options = argparse.ArgumentParser(description="Write the pages of the live comparisons.")
    options.add_argument("--play", metavar="TIME", help="make missing runs for so long, first")
    if (most := options.parse_args().play) is not None:
        play(quantity(most, "--play"))
    trials = contest.read_trials(RUNS)
    if not trials:
        sys.exit(f"there are no runs in {RUNS}: make results-live makes them")
    notes = NOTES.read_text(encoding="utf-8") if NOTES.exists() else ""
    PAGE.write_text(page(trials, notes), encoding="utf-8")
    (RUNS / "index.html").write_text(live_page(trials), encoding="utf-8")
    results = ALL_RESULTS.read_text(encoding="utf-8")
    ALL_RESULTS.write_text(with_section(results, section(trials)), encoding="utf-8")


if __name__ == "__main__":
    main()
