"""Borkowski, Hochreiner, Schulte (PVLDB 2019): filters before two thresholds, fewer rescales.

One operator works on images; pure, Gaussian and Kalman-filtered thresholds decide twice a second
on how many virtual machines (VMs). The testbed is calibrated on VM time and scaling events of two
of the three loads; how long images take, and all of the filters on the third load, are predictions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import log

import numpy as np
from msgspec import Struct

from penstock.core.model import Limits, Step
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.statistics import mean
from penstock.lab.studies.borkowski_tables import (
    FILTERS,
    PAPER,
    SCENARIOS,
    box_plots,
    break_even,
    claims,
    result_table,
)
from penstock.lab.studies.borkowski_testbed import Cloud
from penstock.lab.studies.playing import play, rescales, steer
from penstock.lab.studies.study import (
    Calibration,
    Comparison,
    Entry,
    Metric,
    Number,
    Study,
    distances,
    mean_relative_error,
)
from penstock.policies.thresholds.thresholds import Thresholds
from penstock.simulation.workloads.workload import Pyramid, Square

RUNS, RUN_S = 20, 2700
#: Eight nodes with four cores, one core per VM.
LIMITS = Limits(min_executors=1, max_executors=32)
IMAGE_SLA_S, QUERY_SLA_S, QUERIES_PER_IMAGE = 5.0, 1.0, 0.01
#: What the paper calls the filters.
RULES = {"pure": "PURE", "gauss": "GW", "ekf": "EKF"}
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

#: What was fitted, on what, and what was assumed.
FITTED = (
    "Work per image, noise of the cpu gauge and swings of the testbed, fitted to VM time and "
    "scaling events of all three filters on Pyramid and Square: {testbeds} testbeds, one run of "
    "each, three more of the nearest. Mean relative error of the fit {error:.0%}. All of Lab, and "
    "every time of an image and every violation, are held back (not fitted, but in sight when the "
    "form of the testbed and the bounds of the search were chosen). The fit does not settle the "
    "noise of the gauge: with 0.1 and 0.15 there are testbeds that come as near, all with too "
    "many events on Pyramid or too few on Square. Moving state at a rescale (section 3.2) is "
    "taken to be 0.05 s of work; with 0.1 s the fit is no better. The Kalman filter's R is the "
    "variance of the gauge, its b the least-squares effect of the rate per VM on a fleet of fixed "
    "size, as in sections 2.3 and 2.4; it decides nothing while new VMs bootstrap. For which load "
    "it sizes the paper does not print: of the upper threshold, the middle of the band and the "
    "lower threshold it is the one that comes nearest to the VM time of EKF on Pyramid. b on the "
    "rate of the operator as a whole, the other reading of D, is ruled out: images on Square "
    "would then take 10 s and more. Assumed: memory stands at 0.35 of a VM (a default Java heap "
    "and the system), so that EKF keeps 4 VMs without load; PURE and GW do not notice. With 0.2 "
    "instead, EKF's VM time on Square is 8.2 h, below PURE's, and an image takes 2.8 s, half of "
    "PURE's. All runs start warm, with the mean fleet of the paper's runs of that filter."
)

#: Other readings of the paper, tried on single runs of each load.
RULED_OUT = (
    "Three other readings were tried and contradict the tables. PURE and GW wait until a VM has "
    "booted before they ask for the next: PURE then makes 106 events on Pyramid, and an image on "
    "Square takes 95 s. Memory holds the state that section 3.2 implies (1000 images of 1.7 "
    "megapixels in three colours, 5.1 GB on VMs of 4 GB): GW then swings about the memory that "
    "it needs, with 2000 events on Square. All VMs stand still when one joins or leaves: from "
    "0.4 s on PURE makes more than 3000 events on every load. So we have no explanation for the "
    "second and more by which images take longer with PURE than with EKF on Pyramid and Lab."
)

Say = Callable[[str], None]


class BorkowskiCell(Struct, frozen=True):
    """One run: which load, under which rule, on which testbed."""

    scenario: str
    policy: Thresholds
    seed: int
    testbed: Cloud


class BorkowskiRun(Struct, frozen=True):
    """What the study reports of a run. VM time counts VMs that run, not those that boot."""

    vm_hours: float
    events: float
    image_s: float
    query_s: float
    violations: float


def reproduce(
    processes: int | None, say: Say, runs: int = RUNS, grid: Sequence[Cloud] | None = None
) -> Study:
    """Calibrate on two of the loads, run all nine configurations, judge the claims."""
    testbeds = GRID if grid is None else grid
    say("the rule that the paper does not print")
    readings = size_rules(kalman(MIDDLE), MIDDLE, min(5, runs), processes)
    sized_for = nearest(readings)
    say(f"calibrating on {len(testbeds)} testbeds")
    testbed, fit_error = calibrate(processes, sized_for, testbeds)
    rules = rules_on(testbed, sized_for)
    say(f"{runs} runs of three filters on three loads")
    results = _all_runs(rules, testbed, runs, processes)
    tables = [result_table(scenario, results) for scenario in SCENARIOS]
    aimed = [metric.name for metric in tables[0].metrics]

    def off(rule: str, name: str, *scenarios: str) -> float:
        return mean_relative_error(
            [
                (PAPER[each][rule][name], mean([getattr(r, name) for r in results[each, rule]]))
                for each in scenarios
            ]
        )

    return Study(
        name="borkowski2019",
        title="Minimizing cost by reducing scaling operations in distributed stream processing",
        source="Borkowski, Hochreiner, Schulte, PVLDB 12(7), 2019",
        protocol=(
            f"One operator, {runs} runs of 45 min per filter and load, decisions at 2 Hz, "
            "thresholds 0.45 and 0.8, VMs ready after 5 to 25 s, 1 to 32 of them, images dealt to "
            "VMs in turn. Each filter works on the readings of each VM, and the mean over VMs is "
            "compared with the thresholds; PURE and GW ask for one VM more or fewer at a time. "
            "Pyramid 0 to 60 images/s in steps of 15 held 130 s, Square 1 and 65 held "
            "370 s. Lab is a stand-in: the recorded trace is not published. VM time is read as "
            "hours per run (the tables say 1000 h, which 45 min on 32 cores cannot reach). Image "
            "time is work and waiting; the paper's has about 1 s of transfer on top. SLA "
            "violations are summed over 20 runs: images above 5 s, queries (1 per 100 images, "
            "same queues) above 1 s."
        ),
        tables=(*tables, break_even(results), readings),
        figures=box_plots(results),
        claims=claims(results),
        distances=tuple(
            distance
            for scenario, table in zip(SCENARIOS, tables, strict=True)
            for distance in distances(table, {}, f"{scenario}: ")
            if any(name in distance.name for name in aimed[:3])
        ),
        calibrations=(
            Calibration(
                "testbed",
                f"{FITTED.format(testbeds=len(testbeds), error=fit_error)} {RULED_OUT}",
                {
                    "work_s": testbed.work_s,
                    "gauge_noise": testbed.gauge_noise,
                    "swing": testbed.swing,
                    "transfer_s": testbed.transfer_s,
                    "R": rules["EKF"].noise,
                    "b_cpu": rules["EKF"].rate_effects[0],
                    "sized_for_fraction": rules["EKF"].sized_for_fraction or 0.0,
                },
                {
                    "vm_hours on Lab": mean([off(rule, "vm_hours", "Lab") for rule in FILTERS]),
                    "events on Lab": mean([off(rule, "events", "Lab") for rule in FILTERS]),
                    "image_s": mean([off(rule, "image_s", *SCENARIOS) for rule in FILTERS]),
                },
            ),
        ),
    )


def run(cell: BorkowskiCell) -> BorkowskiRun:
    """Carry out one cell."""
    testbed = cell.testbed
    vms = warm_start(cell.scenario, cell.policy.filter)
    engine = testbed.start(load(cell.scenario), executors=vms, seed=cell.seed)
    outcome = steer(engine, cell.policy, LIMITS, float(RUN_S))
    image_s = np.array(engine.image_s)
    wait_s = np.maximum(0.0, image_s - testbed.work_s)
    late = float((image_s > IMAGE_SLA_S).sum())
    late += QUERIES_PER_IMAGE * float((wait_s > QUERY_SLA_S).sum())
    return BorkowskiRun(
        vm_hours=engine.vm_s / 3600.0,
        events=float(rescales(outcome.targets)),
        image_s=float(image_s.mean()),
        query_s=float(wait_s.mean()),
        violations=late,
    )


def warm_start(scenario: str, name: str) -> int:
    """The fleet at the start: the mean of the last run with that filter, as the paper has it.

    >>> [[warm_start(scenario, name) for name in RULES] for scenario in SCENARIOS]
    [[11, 11, 12], [11, 12, 12], [13, 14, 16]]
    """
    return round(PAPER[scenario][RULES[name]]["vm_hours"] / 0.75)


def load(scenario: str) -> list[float]:
    """Images per second."""
    if scenario == "Pyramid":
        return Pyramid(low_rps=0.0, high_rps=60.0, step_rps=15.0, hold_s=130.0).rates(
            RUN_S, 0, float
        )
    if scenario == "Square":
        return Square(low_rps=1.0, high_rps=65.0, hold_s=370.0).rates(RUN_S, 0, float)
    return _lab()


def _lab() -> list[float]:
    """A stand-in for the trace of the laboratory: smooth drift, sudden changes, 0 to 65 images/s.

    Its rates and times are like those of Pyramid and Square, which were made after it; its mean,
    37 images/s, is what the paper's VM time on Lab says against that on Pyramid.
    """
    rng = np.random.default_rng(2019)
    rates = np.empty(RUN_S)
    at, level = 0, 35.0
    while at < RUN_S:
        length = int(rng.integers(40, 240))
        aim = float(rng.uniform(0.0, 65.0))
        sudden = rng.random() < 0.5
        piece = np.full(length, aim) if sudden else np.linspace(level, aim, length)
        rates[at : at + length] = piece[: RUN_S - at]
        at, level = at + length, aim
    rates += rng.normal(0.0, 1.5, RUN_S)
    return [float(rate) for rate in (rates * 37.0 / rates.mean()).clip(0.0, 65.0)]


def rules_on(testbed: Cloud, sized_for: float) -> dict[str, Thresholds]:
    """The three filters; the Kalman filter has been told of the testbed by runs before."""
    return {
        "PURE": Thresholds(filter="pure"),
        "GW": Thresholds(filter="gauss"),
        "EKF": dataclasses.replace(kalman(testbed), sized_for_fraction=sized_for),
    }


def calibrate(
    processes: int | None,
    sized_for: float,
    grid: Sequence[Cloud] = GRID,
    stages: Sequence[tuple[Sequence[int], int]] = STAGES,
) -> tuple[Cloud, float]:
    """The testbed on which all three filters come nearest to the paper, and how near."""
    told = run_in_processes(partial(rules_on, sized_for=sized_for), grid, processes)
    rules = dict(zip(grid, told, strict=True))
    found: dict[tuple[Cloud, str, str], list[BorkowskiRun]] = {}

    def pairs(testbed: Cloud) -> list[tuple[float, float]]:
        return [
            (
                PAPER[name][rule][metric],
                mean([getattr(r, metric) for r in found[testbed, name, rule]]),
            )
            for name, rule, metric in product(FITTED_LOADS, FILTERS, FITTED_METRICS)
        ]

    nearest_ones = list(grid)
    for seeds, kept in stages:
        keys = list(product(nearest_ones, FITTED_LOADS, FILTERS, seeds))
        cells = [
            BorkowskiCell(name, rules[each][rule], seed, each) for each, name, rule, seed in keys
        ]
        for (each, name, rule, _), one in zip(
            keys, run_in_processes(run, cells, processes), strict=True
        ):
            found.setdefault((each, name, rule), []).append(one)
        nearest_ones = sorted(nearest_ones, key=lambda each: _apart(pairs(each)))[:kept]
    return nearest_ones[0], mean_relative_error(pairs(nearest_ones[0]))


def _apart(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(abs(log(max(1e-9, ours) / paper)) for paper, ours in pairs)


def kalman(testbed: Cloud) -> Thresholds:
    """The Kalman filter with R and b as section 2 of the paper gets them: from runs before."""
    vms = 24
    steps: list[Step] = []
    fixed = Limits(min_executors=vms, max_executors=vms)
    pure = Thresholds(filter="pure")
    play(testbed, load("Pyramid"), pure, fixed, executors=vms, seed=0, watch=steps.append)
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    rates = [(snapshot.arrival_rps or 0.0) / vms for snapshot in seen]
    cpus = [mean([one.cpu_fraction or 0.0 for one in snapshot.executors]) for snapshot in seen]
    effect = float(np.polyfit(rates, cpus, 1)[0])
    return Thresholds(
        filter="ekf",
        noise=testbed.gauge_noise**2,
        rate_effects=(effect, 0.0),
        waits_for_newcomers=True,
    )


def _all_runs(
    rules: dict[str, Thresholds], testbed: Cloud, runs: int, processes: int | None
) -> dict[tuple[str, str], list[BorkowskiRun]]:
    """All runs by load and filter."""
    keys = list(product(SCENARIOS, FILTERS))
    cells = [
        BorkowskiCell(scenario, rules[name], seed, testbed)
        for scenario, name in keys
        for seed in range(1, runs + 1)
    ]
    found = run_in_processes(run, cells, processes)
    return {key: found[i * runs : (i + 1) * runs] for i, key in enumerate(keys)}


def size_rules(rule: Thresholds, testbed: Cloud, runs: int, processes: int | None) -> Comparison:
    """What comes of the Kalman filter by the load that it sizes for, on Pyramid.

    The seeds are not those of the runs that are judged.
    """
    cells = [
        BorkowskiCell("Pyramid", dataclasses.replace(rule, sized_for_fraction=each), seed, testbed)
        for each, seed in product(READINGS, range(101, 101 + runs))
    ]
    found = run_in_processes(run, cells, processes)
    names = ("vm_hours", "events", "image_s")
    printed: dict[str, Number] = {name: PAPER["Pyramid"]["EKF"][name] for name in names}
    entries = []
    for index, each in enumerate(READINGS):
        group = found[index * runs : (index + 1) * runs]
        ours: dict[str, Number] = {name: mean([getattr(r, name) for r in group]) for name in names}
        entries.append(Entry(f"{each:g}", printed, ours))
    metrics = (Metric("vm_hours", "h", 2), Metric("events", "", 1), Metric("image_s", "s", 2))
    return Comparison(
        f"EKF on Pyramid by the load that it sizes for, {runs} runs", metrics, tuple(entries)
    )


def nearest(readings: Comparison) -> float:
    """The load to size for with which EKF comes nearest to the VM time of the paper."""

    def apart(entry: Entry) -> float:
        return abs((entry.ours["vm_hours"] or 0.0) - (entry.paper["vm_hours"] or 0.0))

    return float(min(readings.entries, key=apart).label)
