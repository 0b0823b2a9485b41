"""Borkowski, Hochreiner, Schulte (PVLDB 2019): filters before two thresholds, fewer rescales.

One operator works on images; pure, Gaussian and Kalman-filtered thresholds decide twice a second
on how many virtual machines (VMs). The engine is calibrated on the rows of the unfiltered rule
alone: what the two filters make of the same job is then a prediction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from math import log

import numpy as np
from msgspec import Struct

from penstock.lab.papers.borkowski_tables import (
    FILTERS,
    PAPER,
    SCENARIOS,
    box_plots,
    break_even,
    claims,
    result_table,
)
from penstock.lab.papers.playing import mean_wait_s, play, rescales
from penstock.lab.papers.study import (
    Calibration,
    Comparison,
    Entry,
    Metric,
    Number,
    Study,
    distances,
    mean_relative_error,
)
from penstock.lab.score import Delays
from penstock.lab.spread import spread
from penstock.lab.statistics import mean
from penstock.learning.filters import InputFit
from penstock.model import Limits, Step
from penstock.policies.thresholds import Thresholds
from penstock.simulation.continuous import ContinuousJob
from penstock.simulation.dataflow import Operator
from penstock.simulation.fleet import Startup
from penstock.simulation.workload import Pyramid, Square

RUNS, RUN_S, PERIOD_S = 20, 2700, 0.5
#: Eight nodes with four cores, one core per VM.
LIMITS = Limits(min_executors=1, max_executors=32)
IMAGE_SLA_S, QUERY_SLA_S, QUERIES_PER_IMAGE = 5.0, 1.0, 0.01
#: The middle of the band between the thresholds 0.45 and 0.8.
MIDDLE = 0.625

Say = Callable[[str], None]


class Setting(Struct, frozen=True):
    """What the study does not print of its testbed: found by `calibrate`."""

    service_s: float
    measurement_noise: float
    transfer_s: float = 0.0

    def job(self) -> ContinuousJob:
        """The operator: images wait in one queue, VMs join when they are ready.

        Each VM holds the state of a part of the plane, and all parts change when VMs come or go:
        work rests while state moves.
        """
        return ContinuousJob(
            operators=(Operator("images", self.service_s),),
            contention=0.0,
            speed_spread=0.05,
            capacity_noise=0.05,
            measurement_noise=self.measurement_noise,
            startup=Startup(5.0, 25.0),
            stops_to_rescale=self.transfer_s > 0.0,
            wait_for_workers_s=0.0,
            restart_s=self.transfer_s,
            restart_spread=0.5,
            checkpoint_interval_s=0.0,
            state_bytes=0.0,
            idle_cpu_fraction=0.02,
            full_cpu_fraction=1.0,
            idle_memory_fraction=0.2,
            full_memory_fraction=0.5,
            pipeline_latency_s=self.service_s,
        )


GRID = tuple(
    Setting(*point)
    for point in product((0.17, 0.19, 0.21), (0.02, 0.05, 0.08), (0.0, 0.1, 0.2, 0.3, 0.5))
)


class Cell(Struct, frozen=True):
    """One run: which load, under which rule, on which testbed."""

    scenario: str
    policy: Thresholds
    seed: int
    setting: Setting


class Measured(Struct, frozen=True):
    """What the study reports of a run. VM time counts VMs that run, not those that boot."""

    vm_hours: float
    events: float
    image_s: float
    query_s: float
    violations: float


def reproduce(
    processes: int | None, say: Say, runs: int = RUNS, grid: Sequence[Setting] | None = None
) -> Study:
    """Calibrate on the unfiltered rule, run all nine configurations, judge the claims."""
    testbeds = GRID if grid is None else grid
    say(f"calibrating on {len(testbeds)} testbeds")
    setting, fit_error = calibrate(processes, testbeds)
    rules = {
        "PURE": Thresholds(filter="pure"),
        "GW": Thresholds(filter="gauss"),
        "EKF": kalman(setting),
    }
    say(f"{runs} runs of three filters on three loads")
    results = _all_runs(rules, setting, runs, processes)
    tables = [result_table(scenario, results) for scenario in SCENARIOS]
    aimed = [metric.name for metric in tables[0].metrics]
    say("the rule that the paper does not print")
    others = size_rules(rules["EKF"], setting, min(5, runs), processes)
    held_back = {
        f"{name}, GW (not fitted)": mean_relative_error(
            [
                (PAPER[scenario]["GW"][name], mean([getattr(r, name) for r in found]))
                for scenario in ("Pyramid", "Square")
                for found in [results[scenario, "GW"]]
            ]
        )
        for name in ("vm_hours", "events")
    }
    return Study(
        name="borkowski2019",
        title="Minimizing cost by reducing scaling operations in distributed stream processing",
        source="Borkowski, Hochreiner, Schulte, PVLDB 12(7), 2019",
        protocol=(
            f"One operator, {runs} runs of 45 min per filter and load, decisions at 2 Hz, "
            "thresholds 0.45 and 0.8, VMs ready after 5 to 25 s, 1 to 32 of them. Pyramid 0 to 60 "
            "images/s in steps of 15 held 130 s, Square 1 and 65 held 370 s. Lab is a stand-in: "
            "the recorded trace is not published. VM time is read as hours per run (the tables say "
            "1000 h, which 45 min on 32 cores cannot reach). Image time is work and waiting in our "
            "queue; the paper's has about 1.3 s of transfer on top. SLA violations are summed over "
            "20 runs: images above 5 s, queries (1 per 100 images, same queue) above 1 s."
        ),
        tables=(*tables, break_even(results), others),
        figures=box_plots(results),
        claims=claims(results, others),
        distances=tuple(
            distance
            for scenario, table in zip(SCENARIOS, tables, strict=True)
            for distance in distances(table, {}, f"{scenario}: ")
            if any(name in distance.name for name in aimed[:2])
        ),
        calibrations=(
            Calibration(
                "operator",
                "Work per image, noise of the cpu gauge and the pause while state is moved at a "
                "rescale (section 3.2), fitted to VM time and scaling events "
                "of PURE on Pyramid and Square; all GW and EKF rows are held back. Mean relative "
                f"error of the fit {fit_error:.0%}. The Kalman filter's R is the variance under "
                "constant load, its b the least-squares effect of the rate on a fleet of fixed "
                "size, as in sections 2.3 and 2.4; it sizes for the middle of the band, since the "
                "paper does not print its rule, and holds while new VMs bootstrap. All runs start "
                "warm, with the mean fleet of the paper's runs.",
                {
                    "service_s": setting.service_s,
                    "measurement_noise": setting.measurement_noise,
                    "transfer_s": setting.transfer_s,
                    "R": rules["EKF"].noise,
                    "b_cpu": rules["EKF"].rate_effects[0],
                    "b_memory": rules["EKF"].rate_effects[1],
                },
                held_back,
            ),
        ),
    )


def run(cell: Cell) -> Measured:
    """Carry out one cell."""
    running = 0

    def count(step: Step) -> None:
        nonlocal running
        if step.snapshot is not None:
            running += step.snapshot.fleet.active

    outcome = play(
        cell.setting.job(),
        load(cell.scenario),
        cell.policy,
        LIMITS,
        executors=warm_start(cell.scenario),
        seed=cell.seed,
        watch=count,
    )
    delays, work_s = Delays.of(outcome), cell.setting.service_s
    wait_s = mean_wait_s(delays)
    images = float(delays.records.sum())
    late = delays.fraction_above(IMAGE_SLA_S - work_s)
    late += QUERIES_PER_IMAGE * delays.fraction_above(QUERY_SLA_S)
    return Measured(
        vm_hours=running * PERIOD_S / 3600.0,
        events=float(rescales(outcome.targets)),
        image_s=work_s + wait_s,
        query_s=wait_s,
        violations=late * images,
    )


def warm_start(scenario: str) -> int:
    """The fleet at the start: the mean number of VMs of the last run, as the paper had it.

    >>> [warm_start(scenario) for scenario in SCENARIOS]
    [12, 12, 16]
    """
    return round(PAPER[scenario]["EKF"]["vm_hours"] / 0.75)


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
    """A stand-in for the trace of the laboratory: smooth drift, sudden changes, 5 to 65 images/s.

    Its mean, 37 images/s, is what the paper's VM time on Lab says against that on Pyramid.
    """
    lots = np.random.default_rng(2019)
    rates = np.empty(RUN_S)
    at, level = 0, 35.0
    while at < RUN_S:
        length = int(lots.integers(40, 240))
        aim = float(lots.uniform(5.0, 65.0))
        sudden = lots.random() < 0.5
        piece = np.full(length, aim) if sudden else np.linspace(level, aim, length)
        rates[at : at + length] = piece[: RUN_S - at]
        at, level = at + length, aim
    rates += lots.normal(0.0, 1.5, RUN_S)
    return [float(rate) for rate in (rates * 37.0 / rates.mean()).clip(0.0, 65.0)]


def calibrate(processes: int | None, grid: Sequence[Setting] = GRID) -> tuple[Setting, float]:
    """The testbed on which the unfiltered rule comes nearest to the paper, and how near."""
    scenarios = ("Pyramid", "Square")
    policy = Thresholds(filter="pure")
    cells = [Cell(name, policy, 0, setting) for setting in grid for name in scenarios]
    found = spread(run, cells, processes)

    def distance(index: int) -> float:
        return sum(
            abs(log(max(1e-9, getattr(found[2 * index + i], metric)) / PAPER[name]["PURE"][metric]))
            for i, name in enumerate(scenarios)
            for metric in ("vm_hours", "events")
        )

    best = min(range(len(grid)), key=distance)
    pairs = [
        (PAPER[name]["PURE"][metric], getattr(found[2 * best + i], metric))
        for i, name in enumerate(scenarios)
        for metric in ("vm_hours", "events")
    ]
    return grid[best], mean_relative_error(pairs)


def kalman(setting: Setting) -> Thresholds:
    """The Kalman filter with R and b as section 2 of the paper gets them: from runs before."""
    job = setting.job()
    steady = [_means(s) for s in _watched(job, [40.0] * 600, executors=16)]
    noise = float(np.var([cpu for _, cpu, _ in steady[20:]], ddof=1))
    fits = [InputFit(), InputFit()]
    pairs = [_means(s) for s in _watched(job, load("Pyramid"), executors=24)]
    for before, now in pairwise(pairs):
        for index in (0, 1):
            moved = now[index + 1] - before[index + 1]
            fits[index] = fits[index].learn(now[0], now[0] - before[0], moved)
    effects = tuple(fit.coefficients()[1] for fit in fits)
    return Thresholds(
        filter="ekf",
        noise=noise,
        rate_effects=effects,
        sized_for_fraction=MIDDLE,
        waits_for_newcomers=True,
    )


def _watched(job: ContinuousJob, rates: Sequence[float], executors: int) -> list[Step]:
    """A run of a fleet that stays as it is."""
    steps: list[Step] = []
    fixed = Limits(min_executors=executors, max_executors=executors)
    policy = Thresholds(filter="pure")
    play(job, rates, policy, fixed, executors=executors, seed=0, watch=steps.append)
    return steps


def _means(step: Step) -> tuple[float, float, float]:
    """Rate per VM, mean cpu, mean memory."""
    assert step.snapshot is not None
    snapshot = step.snapshot
    cpu = mean([one.cpu_fraction or 0.0 for one in snapshot.executors])
    memory = mean([one.memory_fraction or 0.0 for one in snapshot.executors])
    return (snapshot.arrival_rps or 0.0) / snapshot.fleet.active, cpu, memory


def _all_runs(
    rules: dict[str, Thresholds], setting: Setting, runs: int, processes: int | None
) -> dict[tuple[str, str], list[Measured]]:
    """All runs by load and filter."""
    keys = list(product(SCENARIOS, FILTERS))
    cells = [
        Cell(scenario, rules[name], seed, setting)
        for scenario, name in keys
        for seed in range(1, runs + 1)
    ]
    found = spread(run, cells, processes)
    return {key: found[i * runs : (i + 1) * runs] for i, key in enumerate(keys)}


def size_rules(rule: Thresholds, setting: Setting, runs: int, processes: int | None) -> Comparison:
    """What comes of the Kalman filter if it sizes for other loads than the middle of the band."""
    loads, scenarios = (0.8, MIDDLE, 0.5), ("Pyramid", "Square")
    cells = [
        Cell(scenario, dataclasses.replace(rule, sized_for_fraction=each), seed, setting)
        for each, scenario, seed in product(loads, scenarios, range(1, runs + 1))
    ]
    found = spread(run, cells, processes)
    entries = []
    for index, (each, scenario) in enumerate(product(loads, scenarios)):
        group = found[index * runs : (index + 1) * runs]
        ours: dict[str, Number] = {
            name: mean([getattr(one, name) for one in group])
            for name in ("vm_hours", "events", "image_s")
        }
        printed = PAPER[scenario]["EKF"]
        entries.append(
            Entry(f"{scenario}, sized for {each:g}", {name: printed[name] for name in ours}, ours)
        )
    metrics = (Metric("vm_hours", "h", 2), Metric("events", "", 1), Metric("image_s", "s", 2))
    return Comparison(f"EKF by the load that it sizes for, {runs} runs", metrics, tuple(entries))
