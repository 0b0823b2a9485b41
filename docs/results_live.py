"""Writes docs/results-live.md from the runs of ``penstock compare-live``.

Its main table is also the last section of docs/results.md.

    python docs/results_live.py [--note "What else to know about these runs."]

`make results-live` makes the runs first, and a demo whose journal is calibrated on its first half:
about 45 minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from penstock.cli.commands.compare_live import COLUMNS, RUNS, amount, mean_with_interval
from penstock.core.journal import read_rotated
from penstock.core.model import Step
from penstock.lab.experiments.statistics import spearman
from penstock.lab.live_comparison import contest
from penstock.lab.live_comparison.contest import Result
from penstock.lab.live_comparison.trial import Trial, measured
from penstock.simulation.calibration.calibrate import calibrated
from penstock.testbed.demo import plan

#: The journal of a demo of five minutes; without it that section is left out.
DEMO = RUNS.with_name("live-demo.jsonl")
PAGE = Path(__file__).parent / "results-live.md"
ALL_RESULTS = PAGE.with_name("results.md")
#: The heading of our section, the last of that page.
SECTION = "## On real Spark"

HEAD = """\
# Results on real Spark

Written by `make results-live`. A Kafka broker, a Spark cluster of {slots} slots and the Nexmark
query {query} on one machine; every run is a wave of {load_s} s from {low:g} to {peak:g} records/s
and back. Each record waits {pace:g} ms instead of computing, so that one machine can act as a
cluster. `hpa`, which uses cpu, therefore gets busy time as cpu. Time is scaled: all time spans of
Penstock's policies and guards are divided by {speed:g}; the waits of Spark's dynamic allocation
are its defaults. Batches are not capped. {runs} runs in random order.

{machine}

All are measured the same way. Executors are counted as processes, twice a second. The delay of a
record is the time from its arrival at the broker until its batch is committed. A record is late
after {slo:g} s. Executors that come or leave within {together:g} s are one rescale. Failed tasks
are those of Spark's status store. Below each row: the same in the simulator, with a job fitted to
the runs of the *other* scalers. ± is half of the 95 % interval of the mean.
"""


SHORT = """\
Two caveats. `static` was sized by somebody who knew the peak and the capacity of an executor. And
the wave is short: each executor that joins delays a batch by seconds, so if several join while
the load rises, that alone can make records late; and a policy that learns the capacity of the job
has a minute to do so. Runs in the lab last for hours: see [results.md](results.md)."""


def page(trials: Sequence[Trial], steps: Sequence[Step] = (), note: str = "") -> str:
    """The whole page; `steps` are those of the demo."""
    from penstock.lab.live_comparison.observer import ONE_RESCALE_S

    found = contest.results(trials)
    load = trials[0].plan
    head = HEAD.format(
        slots=plan.MAX_EXECUTORS, query=load.job, load_s=load.load_s, low=load.low_rps,
        peak=load.peak_rps, pace=1e3 * load.pace_s, speed=load.speed, runs=len(trials),
        machine=f"{_machine(trials)} {note}".rstrip(), slo=plan.SLO_S, together=ONE_RESCALE_S,
    )  # fmt: skip
    parts = [head, *_means(found), "", *_verdict(found), *_truth(found), "", *_job(trials), ""]
    if steps:
        parts += [*_halves(steps), ""]
    parts += [*_runs(trials), ""]
    return "\n".join(parts)


def section(trials: Sequence[Trial], note: str = "") -> str:
    """The short version, for the page with all results."""
    found = contest.results(trials)
    verdict = next(_verdict(found), "")
    more = "How it was measured, and every run: [results-live.md](results-live.md)."
    parts = [SECTION, "", f"{_machine(trials)} {note}".rstrip(), "", *_means(found), ""]
    return "\n".join([*parts, f"{verdict} {more}".lstrip(), ""])


def with_section(text: str, ours: str) -> str:
    """The page with all results, with our section replaced.

    >>> with_section("# Results\\n\\n## On real Spark\\n\\nold\\n", "## On real Spark\\n\\nnew\\n")
    '# Results\\n\\n## On real Spark\\n\\nnew\\n'
    """
    others = text.partition(SECTION)[0].rstrip()
    return f"{others}\n\n{ours}"


def _machine(trials: Sequence[Trial]) -> str:
    facts = trials[0].machine
    first, last = min(one.began_at for one in trials), max(one.began_at for one in trials)
    versions = ", ".join(
        f"{title} {facts[name]}"
        for name, title in {
            "pyspark": "PySpark", "java": "Java", "kafka": "Kafka", "python": "Python",
            "penstock": "Penstock",
        }.items()
    )  # fmt: skip
    return (
        f"Run from {first} to {last} UTC on {facts['cores']} cores with {facts['memory']} of "
        f"memory, {facts['system']}; {versions}."
    )


def _means(found: Sequence[Result]) -> Iterator[str]:
    titles = [title for title, _ in COLUMNS.values()]
    yield f"| | {' | '.join(titles)} |"
    yield "|---" + "|---:" * len(titles) + "|"
    for one in found:
        cells = [mean_with_interval(one, name) for name in COLUMNS]
        yield f"| **{one.contestant}** ({len(one.runs)} runs) | {' | '.join(cells)} |"
        if one.forecast is not None:
            cells = [amount(one.forecast, name) for name in COLUMNS]
            yield f"| simulated | {' | '.join(cells)} |"
    yield ""
    for one in found:
        yield f"- `{one.contestant}`: {one.words}"


def _verdict(found: Sequence[Result]) -> Iterator[str]:
    """What the default policy took, against each of the others."""
    means = {one.contestant: one.mean for one in found}
    ours = means.pop("penstock", None)
    if ours is None or not means:
        return
    against = ", ".join(
        f"{abs(ours.executor_s / other.executor_s - 1.0):.0%} "
        f"{'more' if ours.executor_s > other.executor_s else 'less'} than `{name}`"
        for name, other in means.items()
    )
    yield (
        f"`penstock` was late with {100 * ours.late_fraction:.1f} % of the records and took "
        f"{ours.executor_s:.0f} executor-seconds: {against}."
    )
    yield ""
    yield SHORT
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
    for name in ("executor_s", "p50_s", "p95_s", "late_fraction", "rescales"):
        pairs = [(float(getattr(mean, name)), float(getattr(guess, name))) for mean, guess in both]
        scale = 100.0 if name == "late_fraction" else 1.0
        title, digits = COLUMNS[name]
        live = scale * fmean(mean for mean, _ in pairs)
        off = scale * fmean(abs(guess - mean) for mean, guess in pairs)
        alike = f"{spearman(pairs):.2f}" if len(pairs) > 1 else "-"
        yield f"| {title} | {live:.{digits}f} | {off:.{digits}f} | {alike} |"


def _job(trials: Sequence[Trial]) -> Iterator[str]:
    job = contest.job(trials)
    yield (
        "The simulated job, fitted to all runs: "
        f"{1e3 * job.stages[0].core_s_per_record:.2f} ms per record, "
        f"{job.fixed_s:.2f} s per batch, "
        f"{100 * job.contention:.1f} % more for each further executor; executors start in "
        f"{job.startup.shortest_s:.1f} to "
        f"{job.startup.longest_s:.1f} s and delay a batch by {job.join_s:.1f} s each."
    )


def _halves(steps: Sequence[Step]) -> Iterator[str]:
    """How well a demo predicts its second half."""
    fitted = calibrated(steps)
    minutes = (steps[-1].at_s - steps[0].at_s) / 60
    yield "## A run predicts its second half"
    yield ""
    yield (
        f"`penstock calibrate` on the journal of a `penstock demo` of {minutes:.0f} min: a job is "
        f"fitted to its first {fitted.fitted_rows} samples and predicts the {fitted.judged_rows} "
        "after them, given what arrived and how many executors there were."
    )
    yield ""
    yield "| | error | goal |"
    yield "|---|---:|---:|"
    for name, goal in {"throughput": "5 %", "delay": "30 %", "busy": "", "cpu": ""}.items():
        value = getattr(fitted.errors, name)
        yield f"| {name} | {'-' if value is None else f'{100 * value:.1f} %'} | {goal} |"


def _runs(trials: Sequence[Trial]) -> Iterator[str]:
    yield "## Every run, in order"
    yield ""
    yield f"| UTC | | {' | '.join(title for title, _ in COLUMNS.values())} | load |"
    yield "|---|---" + "|---:" * len(COLUMNS) + "|---|"
    for trial in trials:
        cells = [amount(measured(trial), name) for name in COLUMNS]
        sent = "not all was sent"
        if trial.sent is not None:
            sent = "on time" if trial.sent.kept_up else f"{trial.sent.behind_max_s:.1f} s late"
        who = f"{trial.contestant} {trial.number}"
        yield f"| {trial.began_at} | {who} | {' | '.join(cells)} | {sent} |"


def main() -> None:
    options = argparse.ArgumentParser(description="Write docs/results-live.md.")
    options.add_argument("--note", default="", help="what else to know of these runs")
    given = options.parse_args()
    trials = contest.read_trials(RUNS, contest.LOAD)
    if not trials:
        sys.exit(f"there are no runs in {RUNS}: make results-live makes them")
    steps = list(read_rotated(DEMO)) if DEMO.exists() else []
    PAGE.write_text(page(trials, steps, given.note), encoding="utf-8")
    results = ALL_RESULTS.read_text(encoding="utf-8")
    ALL_RESULTS.write_text(with_section(results, section(trials, given.note)), encoding="utf-8")


if __name__ == "__main__":
    main()
