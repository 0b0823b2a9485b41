"""Borkowski, Hochreiner, Schulte (PVLDB 2019): filters before two thresholds, fewer rescales.

One operator works on images; pure, Gaussian and Kalman-filtered thresholds decide twice a second
on how many virtual machines (VMs). The testbed is calibrated on VM time and scaling events of two
of the three loads; how long images take, and all of the filters on the third load, are predictions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from math import log
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs

from penstock.core.model import Limits, Step
from penstock.lab.experiments.scenario import steer
from penstock.lab.experiments.score import moves
from penstock.lab.experiments.statistics import five_numbers, mean, welch_p
from penstock.lab.studies.borkowski_testbed import Cloud
from penstock.lab.studies.claims import Computed, judge
from penstock.lab.studies.skeleton import (
    Bench,
    StudyPlan,
    Told,
    beside_paper,
    data,
    mean_of,
    printed,
    prose,
)
from penstock.lab.studies.study import (
    Box,
    Boxes,
    Chart,
    ChartLine,
    Claim,
    Comparison,
    Entry,
    Metric,
    Number,
    Study,
    agreement,
    distances,
    mean_relative_error,
)
from penstock.policies.thresholds.thresholds import FilterMemory, Thresholds
from penstock.simulation.workloads.recordings import Laboratory
from penstock.simulation.workloads.workload import Pyramid, Square


class _Sensitivity(Struct, frozen=True):
    table_2: dict[str, float]  #: Thousands of violations by "lower and upper threshold".


TEXT = prose("borkowski2019")
PAPER = printed("borkowski2019")  #: By load and filter.
SCENARIOS = tuple(PAPER)
TABLE_2 = data("borkowski2019", _Sensitivity).table_2
#: The columns of tables 3 to 5, each with the title of its box plot.
TITLES = {
    Metric("vm_hours", "h", 1): "VM time",
    Metric("events", "", 1): "Scaling events",
    Metric("image_s", "s", 2): "Time of an image",
    Metric("query_s", "s", 2): "Time of a query",
    Metric("violations", "1000", 1): "SLA violations of 20 runs",
}
METRICS = tuple(TITLES)
#: What is tested in pairs; the time of a query is that of an image without its work.
_TESTED = ("vm_hours", "events", "image_s", "violations")
_LEVEL = 0.05

RUNS, RUN_S = 20, 2700
VM_HOUR_DOLLARS = 0.0612  #: What the paper reckons with.
DRAWN_EVERY, DRAWN_S = 10, 5.0  #: Every tenth decision is drawn.
#: Table 2 takes one run of each filter and load, of one period of Pyramid.
SENSITIVITY_S = 1170
LOWER, UPPER = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9), (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LIMITS = Limits(min_executors=1, max_executors=32)  #: Eight nodes with four cores, one core per VM.
IMAGE_SLA_S, QUERY_SLA_S, QUERIES_PER_IMAGE = 5.0, 1.0, 0.01
RULES = {"pure": "PURE", "gauss": "GW", "ekf": "EKF"}  #: What the paper calls the filters.
FILTERS = tuple(RULES.values())
#: For which load EKF may size: the upper threshold, the middle of the band, the lower threshold.
READINGS = (0.8, 0.625, 0.45)
#: None of them is zero: the paper has noise of the system and of the gauge, and state to move.
GRID = tuple(
    Cloud(work_s=work_s, gauge_noise=noise, swing=swing, transfer_s=0.05)
    for work_s, noise, swing in product((0.19, 0.20, 0.21), (0.05, 0.1, 0.15), (0.03, 0.06))
)
#: Where it is looked at for which load EKF sizes, before a testbed is chosen.
MIDDLE = Cloud(work_s=0.20, gauge_noise=0.1, swing=0.03, transfer_s=0.05)
#: Calibration has runs of its own, so that no run is judged by what it was fitted to: one of each
#: testbed, then three more of the nearest, of which chance would pick one.
STAGES = (((51,), 3), ((52, 53, 54), 1))
FITTED_LOADS, FITTED_METRICS = ("Pyramid", "Square"), ("vm_hours", "events")


class BorkowskiCell(Struct, frozen=True):
    """One run: which load, under which rule, on which testbed."""

    scenario: str
    policy: Thresholds
    seed: int
    testbed: Cloud
    seconds: int | None = None  #: If not all of the load.


class Prepared(NamedTuple):
    """What comes before the runs: the testbed, how well it fits, and the three filters on it."""

    testbed: Cloud
    fit_error: float
    rules: dict[str, Thresholds]
    readings: Comparison
    thresholds: Comparison


def study(runs: int = RUNS, grid: Sequence[Cloud] = GRID) -> StudyPlan[BorkowskiCell, BorkowskiRun]:
    """Calibrate on two of the loads, run all nine configurations."""

    def prepare(bench: Bench) -> Prepared:
        readings = size_rules(bench, kalman(MIDDLE), MIDDLE, min(5, runs))
        testbed, fit_error = calibrate(bench, nearest(readings), grid)
        rules = rules_on(testbed, nearest(readings))
        thresholds = sensitivity(bench, rules, testbed)
        return Prepared(testbed, fit_error, rules, readings, thresholds)

    def cells(prepared: Prepared) -> dict[tuple[str, str], list[BorkowskiCell]]:
        return {
            (scenario, name): [
                BorkowskiCell(scenario, prepared.rules[name], 1 + i, prepared.testbed)
                for i in range(runs)
            ]
            for scenario, name in product(SCENARIOS, FILTERS)
        }

    return StudyPlan(prepare, partial(findings, testbeds=len(grid)), cells, run)


def findings(prepared: Prepared, results: Results, testbeds: int) -> Study:
    """Tables 3 to 5, the break-even of the Kalman filter, and how far off predictions are."""
    testbed, ekf = prepared.testbed, prepared.rules["EKF"]
    tables = {scenario: result_table(scenario, results) for scenario in SCENARIOS}

    def off(metric: str, *scenarios: str) -> float:
        """How far the filters are off on these loads, on average."""
        pairs = (
            [(PAPER[s][rule][metric], mean_of(metric, results[s, rule])) for s in scenarios]
            for rule in FILTERS
        )
        return mean([*map(mean_relative_error, pairs)])

    found = ("work_s", "gauge_noise", "swing", "transfer_s")
    fitted = {
        **{name: getattr(testbed, name) for name in found},
        "R": ekf.noise,
        "b_cpu": ekf.rate_effects[0],
        "sized_for_fraction": ekf.sized_for_fraction or 0.0,
    }
    errors = {
        "vm_hours on Lab": off("vm_hours", "Lab"),
        "events on Lab": off("events", "Lab"),
        "image_s": off("image_s", *SCENARIOS),
    }
    return TEXT.findings(
        [prepared.thresholds, *tables.values(), break_even(results), prepared.readings],
        claims(results, prepared.thresholds),
        [TEXT.calibration("testbed", fitted, errors, testbeds=testbeds, error=prepared.fit_error)],
        distances({f"{s}: ": table for s, table in tables.items()}, metrics=METRICS[:3]),
        [*exemplary(results), *box_plots(results)],
        runs=len(results["Lab", "EKF"]),
    )


def run(cell: BorkowskiCell) -> BorkowskiRun:
    testbed = cell.testbed
    vms = warm_start(cell.scenario, cell.policy.filter)
    rates = load(cell.scenario)[: cell.seconds or RUN_S]
    engine = testbed.start(rates, executors=vms, seed=cell.seed)
    seen: list[Step] = []
    is_drawn = (cell.scenario, cell.seed) == ("Pyramid", 1)
    watch = seen.append if is_drawn else lambda _: None
    outcome = steer(engine, cell.policy, LIMITS, float(len(rates)), watch)
    image_s = np.array(engine.image_s)
    wait_s = np.maximum(0.0, image_s - testbed.work_s)
    late = float((image_s > IMAGE_SLA_S).sum())
    late += QUERIES_PER_IMAGE * float((wait_s > QUERY_SLA_S).sum())
    return BorkowskiRun(
        vm_hours=engine.vm_s / 3600.0,
        events=float(moves(outcome.targets)[0]),
        image_s=float(image_s.mean()),
        query_s=float(wait_s.mean()),
        violations=late * 20.0 / 1000.0 * RUN_S / len(rates),
        samples=_samples(seen[::DRAWN_EVERY]) if is_drawn else {},
    )


def _samples(steps: Sequence[Step]) -> dict[str, list[float]]:
    """VMs, and the mean cpu as measured and as the Kalman filter has it."""
    found: dict[str, list[float]] = {"VMs": [], "measured": [], "filtered": []}
    for step in steps:
        if step.snapshot is None or not step.snapshot.executors:
            continue
        cpus = [one.cpu_fraction or 0.0 for one in step.snapshot.executors]
        memory = step.decision.memory
        tracks = memory.tracks.values() if isinstance(memory, FilterMemory) else ()
        filtered = [track.estimates[0].x for track in tracks]
        found["VMs"].append(float(len(cpus)))
        found["measured"].append(round(mean(cpus), 3))
        found["filtered"].append(round(mean(filtered), 3) if filtered else 0.0)
    return found


def warm_start(scenario: str, name: str) -> int:
    """The fleet at the start: the mean of the last run with that filter, as the paper has it.

    >>> [[warm_start(scenario, name) for name in RULES] for scenario in SCENARIOS]
    [[11, 11, 12], [11, 12, 12], [13, 14, 16]]
    """
    return round(PAPER[scenario][RULES[name]]["vm_hours"] / 0.75)


def load(scenario: str) -> list[float]:
    shapes = {
        "Pyramid": Pyramid(low_rps=0.0, high_rps=60.0, step_rps=15.0, hold_s=130.0),
        "Square": Square(low_rps=1.0, high_rps=65.0, hold_s=370.0),
        "Lab": Laboratory(),
    }
    return shapes[scenario].rates(RUN_S, 0, float)


def rules_on(testbed: Cloud, sized_for: float) -> dict[str, Thresholds]:
    """The three filters; the Kalman filter knows the testbed from runs before."""
    return {
        "PURE": Thresholds(filter="pure"),
        "GW": Thresholds(filter="gauss"),
        "EKF": dataclasses.replace(kalman(testbed), sized_for_fraction=sized_for),
    }


def calibrate(
    bench: Bench,
    sized_for: float,
    grid: Sequence[Cloud] = GRID,
    stages: Sequence[tuple[Sequence[int], int]] = STAGES,
) -> tuple[Cloud, float]:
    """The testbed on which all three filters come nearest to the paper, and how near."""
    what = f"calibrating on {len(grid)} testbeds"
    rules = bench.run(partial(rules_on, sized_for=sized_for), grid, what)
    rules_of = dict(zip(grid, rules, strict=True))
    found: dict[tuple[Cloud, str, str], list[BorkowskiRun]] = {}

    def pairs(testbed: Cloud) -> list[tuple[float, float]]:
        return [
            (PAPER[name][rule][metric], mean_of(metric, found[testbed, name, rule]))
            for name, rule, metric in product(FITTED_LOADS, FILTERS, FITTED_METRICS)
        ]

    def apart(testbed: Cloud) -> float:
        return sum(abs(log(max(1e-9, ours) / paper)) for paper, ours in pairs(testbed))

    remaining = list(grid)
    for seeds, count in stages:
        cells = {
            (testbed, name, rule): [
                BorkowskiCell(name, rules_of[testbed][rule], seed, testbed) for seed in seeds
            ]
            for testbed, name, rule in product(remaining, FITTED_LOADS, FILTERS)
        }
        for key, runs in bench.run_groups(run, cells, what).items():
            found.setdefault(key, []).extend(runs)
        remaining = sorted(remaining, key=apart)[:count]
    return remaining[0], mean_relative_error(pairs(remaining[0]))


def kalman(testbed: Cloud) -> Thresholds:
    """The Kalman filter with R and b as section 2 of the paper gets them: from runs before."""
    vms = 24
    engine = testbed.start(load("Pyramid"), executors=vms, seed=0)
    period_s = Thresholds().period_s
    seen = [engine.read(period_s * i) for i in range(1, int(RUN_S / period_s))]
    rates = [(snapshot.arrival_rps or 0.0) / vms for snapshot in seen]
    cpus = [mean([one.cpu_fraction or 0.0 for one in snapshot.executors]) for snapshot in seen]
    effect = float(np.polyfit(rates, cpus, 1)[0])
    noise = testbed.gauge_noise**2
    return Thresholds("ekf", noise=noise, rate_effects=(effect, 0.0), waits_for_newcomers=True)


def size_rules(bench: Bench, rule: Thresholds, testbed: Cloud, runs: int) -> Comparison:
    """The Kalman filter on Pyramid by the load that it sizes for; no seed of a judged run."""
    rules = {f"{each:g}": dataclasses.replace(rule, sized_for_fraction=each) for each in READINGS}
    cells = {
        label: [BorkowskiCell("Pyramid", each, 101 + i, testbed) for i in range(runs)]
        for label, each in rules.items()
    }
    found = bench.run_groups(run, cells, "the rule that the paper does not print")
    metrics = (Metric("vm_hours", "h", 2), *METRICS[1:3])
    row = {metric.name: PAPER["Pyramid"]["EKF"][metric.name] for metric in metrics}
    title = f"EKF on Pyramid by the load that it sizes for, {runs} runs"
    return beside_paper(title, metrics, dict.fromkeys(found, row), found)


def sensitivity(bench: Bench, rules: Mapping[str, Thresholds], testbed: Cloud) -> Comparison:
    """Table 2: SLA violations by both thresholds, mean over all filters and loads."""
    cells = {}
    for low, high in product(LOWER, UPPER):
        if low < high:
            cells[f"{low:.0%} and {high:.0%}"] = [
                BorkowskiCell(scenario, _banded(rule, low, high), 301, testbed, SENSITIVITY_S)
                for scenario, rule in product(SCENARIOS, rules.values())
            ]
    found = bench.run_groups(run, cells, "both thresholds")
    metric = (Metric("violations", "1000", 1),)
    paper = {label: {"violations": value} for label, value in TABLE_2.items()}
    return beside_paper("Table 2: SLA violations by both thresholds", metric, paper, found)


def _banded(rule: Thresholds, low: float, high: float) -> Thresholds:
    """A rule with other thresholds; the Kalman filter sizes for the lower one."""
    sized_for = low if rule.sized_for_fraction else None
    bands = dataclasses.replace(rule, lower_fraction=low, upper_fraction=high)
    return dataclasses.replace(bands, sized_for_fraction=sized_for)


def nearest(readings: Comparison) -> float:
    """The load to size for with which EKF comes nearest to the VM time of the paper."""
    apart = [abs(ours - paper) for paper, ours in readings.pairs("vm_hours")]
    return float(readings.entries[apart.index(min(apart))].label)


class BorkowskiRun(Struct, frozen=True):
    """What the study reports of a run."""

    vm_hours: float  #: Of VMs that run, not of those that boot.
    events: float
    image_s: float
    query_s: float
    violations: float  #: As in the tables: thousands over 20 runs like this one.
    #: What the figures draw, every five seconds.
    samples: dict[str, list[float]] = {}


Results = Mapping[tuple[str, str], Sequence[BorkowskiRun]]  #: Runs by load and filter.


def column(results: Results, scenario: str, rule: str, metric: str) -> list[float]:
    """One number of every run of a configuration."""
    return [float(getattr(one, metric)) for one in results[scenario, rule]]


def result_table(scenario: str, results: Results) -> Comparison:
    """Table 3, 4 or 5."""
    runs = {rule: results[scenario, rule] for rule in FILTERS}
    title = f"Table {3 + SCENARIOS.index(scenario)}: {scenario}"
    return beside_paper(title, METRICS, PAPER[scenario], runs)


def break_even(results: Results) -> Comparison:
    """Equations 20 to 23: what a VM hour may cost for EKF to pay off against GW."""

    def margins(value: Callable[[str, str, str], float]) -> dict[str, Number]:
        ratios = (
            sum(value(scenario, "EKF", metric) for scenario in SCENARIOS)
            / sum(value(scenario, "GW", metric) for scenario in SCENARIOS)
            for metric in ("vm_hours", "violations", "image_s")
        )
        return _margins(*ratios)

    paper = margins(lambda scenario, rule, metric: PAPER[scenario][rule][metric])
    ours = margins(lambda scenario, rule, metric: mean_of(metric, results[scenario, rule]))
    metrics = tuple(Metric(name, "", 3) for name in paper)
    entry = Entry("all loads", paper, ours)
    return Comparison("Break-even of EKF against GW (equations 20 to 23)", metrics, (entry,))


def _margins(vm: float, violations: float, time: float) -> dict[str, Number]:
    """The price of a VM hour, in SLA penalties and in revenue per image, at which EKF breaks even.

    >>> [round(value or 0.0, 2) for value in _margins(1.078, 0.868, 0.563).values()]
    [0.08, 0.13, 0.44, 1.05, 1.65]
    """
    fewer = 1.0 - violations
    return {
        "more VM time": vm - 1.0,
        "fewer violations": fewer,
        "less image time": 1.0 - time,
        "VM hour / penalty": (1.0 + fewer) / vm,
        "VM hour / revenue": 1.0 / time / vm,
    }


def box_plots(results: Results) -> tuple[Boxes, ...]:
    """How each number scatters over the runs of each configuration, with the paper's mean."""
    found = []
    for metric, title in TITLES.items():
        boxes = []
        for scenario, rule in product(SCENARIOS, FILTERS):
            five = five_numbers(column(results, scenario, rule, metric.name))
            boxes.append(Box(rule, scenario, five, PAPER[scenario][rule][metric.name]))
        pairs = {f"{b.name} on {b.group}": (b.paper, b.five[2]) for b in boxes}
        note = agreement("medians", pairs)
        found.append(Boxes(title, metric.unit or "per run", tuple(boxes), note))
    return tuple(found)


def exemplary(results: Results) -> Iterator[Chart]:
    """Figures 8 and 9: VMs of a run of each filter on Pyramid, and cpu before and after EKF."""
    runs = {rule: results["Pyramid", rule][0].samples for rule in FILTERS}
    at_s = {rule: [DRAWN_S * i for i in range(len(one["VMs"]))] for rule, one in runs.items()}
    told = Told(TEXT.study, results)
    vms = [ChartLine(rule, at_s[rule], [*one["VMs"]]) for rule, one in runs.items()]
    title, note = "Figure 8: VMs of a run of each filter on Pyramid", TEXT.text("Figure 8", told)
    yield Chart(title, "time", "", tuple(vms), drawn="steps", note=note)
    cpus = [ChartLine(name, at_s["EKF"], [*runs["EKF"][name]]) for name in ("measured", "filtered")]
    title = "Figure 9: mean cpu under the Kalman filter"
    note = TEXT.text("Figure 9", highest=max(runs["EKF"]["filtered"]))
    yield Chart(title, "time", "", tuple(cpus), note=note)


def claims(results: Results, thresholds: Comparison) -> list[Claim]:
    best = min(thresholds.entries, key=lambda entry: entry.ours["violations"] or 0.0)
    cells = {entry.label: entry.ours["violations"] or 0.0 for entry in thresholds.entries}
    chosen = "50% and 80%"
    evidence = {name: cells[name] for name in (chosen, "40% and 80%", best.label)}
    where = f"the fewest violations are at {best.label}"
    margin = break_even(results).entries[0].ours["VM hour / penalty"] or 0.0
    prices = {"VM hour / penalty": margin, "least penalty ($)": VM_HOUR_DOLLARS / margin}
    computed = {
        "B4": _significant(results),
        "B14": (margin >= 1.0, prices, ""),
        "B10": (best.label == chosen, evidence, where),
    }
    return judge(TEXT, {**results, **_totals(results), **_ratios(results)}, computed)


def _totals(results: Results) -> Results:
    """Sums over the loads, run by run, as the load "all"."""
    return {
        ("all", rule): [
            _combined(runs, sum)
            for runs in zip(*(results[scenario, rule] for scenario in SCENARIOS), strict=True)
        ]
        for rule in FILTERS
    }


def _ratios(results: Results) -> Results:
    """The Kalman filter over GW, run by run."""
    return {
        (scenario, "EKF over GW"): [
            _combined(pair, lambda two: two[0] / max(1e-9, two[1]))
            for pair in zip(results[scenario, "EKF"], results[scenario, "GW"], strict=True)
        ]
        for scenario in SCENARIOS
    }


def _combined(
    runs: Sequence[BorkowskiRun], combine: Callable[[list[float]], float]
) -> BorkowskiRun:
    numbers = {m.name: combine([getattr(one, m.name) for one in runs]) for m in METRICS}
    return structs.replace(runs[0], **numbers)


def _significant(results: Results) -> Computed:
    """The paper finds all pairs but one different, VM time on Square between GW and EKF."""
    tests = {
        f"{scenario}, {metric}, {left} and {right}": welch_p(
            column(results, scenario, left, metric), column(results, scenario, right, metric)
        )
        for scenario, metric in product(SCENARIOS, _TESTED)
        for left, right in combinations(FILTERS, 2)
    }
    unclear = {pair: p for pair, p in tests.items() if p >= _LEVEL}
    evidence = {"pairs": float(len(tests)), "significant": float(len(tests) - len(unclear))}
    return len(unclear) <= 1, evidence | unclear, f"{len(unclear)} pairs are not"
