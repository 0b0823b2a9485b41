"""Russo Russo, Schiazza, Cardellini (ICPE 2021): three rules on a pipeline of images.

Two functions resize each image, a third recognises what is in it. Images are slow and come at
random, so each of them is followed. The job is calibrated on the results of the backlog threshold
alone; what the queueing rule and DS2 do on it is then a prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import log

from msgspec import Struct

from penstock.core.model import Limits
from penstock.core.protocols import Policy
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.statistics import mean
from penstock.lab.studies.playing import mean_level, rescales, steer
from penstock.lab.studies.study import (
    Calibration,
    Claim,
    Comparison,
    Entry,
    Metric,
    Number,
    Study,
    distances,
    mean_relative_error,
)
from penstock.policies.backlog_threshold import BacklogThreshold
from penstock.policies.ds2 import Ds2
from penstock.policies.queueing.queueing import Queueing
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.records import RecordJob

RUNS, HOLD_S = 5, 600
LIMITS = Limits(min_executors=1, max_executors=15)
#: The functions that resize: they are never the bottleneck, one instance of each is enough.
OTHERS = 2
#: The shape of the load, 10 minutes each: relative to its mean.
SHAPE = (0.4, 0.8, 1.4, 1.8, 1.1, 0.5)

RULES: dict[str, Policy] = {
    "backlog threshold": BacklogThreshold(low_records=50.0, high_records=150.0, period_s=30.0),
    "DS2": Ds2(overprovisioning=0.0, window_s=30.0, period_s=30.0),
    "queueing": Queueing(max_response_s=1.0, period_s=30.0),
}
#: Section 5.2; a peak where it is printed.
PAPER: dict[str, dict[str, Number]] = {
    "backlog threshold": {"instances": 3.5, "response_s": 23.0, "longest_s": 74.0},
    "DS2": {"instances": 4.5, "response_s": 2.7, "longest_s": 26.0},
    "queueing": {"instances": 5.0, "response_s": 1.03, "longest_s": 3.0},
}

Say = Callable[[str], None]


class Setting(Struct, frozen=True):
    """What the study does not print: the work per image, and how many recognisers that keeps
    busy on average."""

    recognise_s: float
    offered: float

    def job(self) -> RecordJob:
        """The pipeline. The topic that both resizers read from costs next to nothing."""
        return RecordJob(
            operators=(
                Operator("topic", 0.0005, service_cv2=0.1),
                Operator("resize A", 0.05, ("topic",), service_cv2=0.1),
                Operator("resize B", 0.05, ("topic",), service_cv2=0.1),
                Operator("recognise", self.recognise_s, ("resize A",), service_cv2=0.1),
            ),
            answer="recognise",
        )

    def rates(self) -> list[float]:
        """Images per second: a new rate every ten minutes."""
        mean_rps = self.offered / self.recognise_s / mean(SHAPE)
        return [level * mean_rps for level in SHAPE for _ in range(HOLD_S)]


GRID = tuple(Setting(*point) for point in product((0.4, 0.45, 0.5, 0.55, 0.6), (1.3, 1.4, 1.5)))


class RussoCell(Struct, frozen=True):
    """One run."""

    rule: str
    seed: int
    setting: Setting


class RussoResult(Struct, frozen=True):
    """What the study reports of a run: means, and the longest response."""

    instances: float
    response_s: float
    longest_s: float
    rescales: float


def reproduce(processes: int | None, say: Say, runs: int = RUNS) -> Study:
    """Calibrate on the backlog threshold, run all three rules, judge the claims."""
    say(f"calibrating on {len(GRID)} pipelines")
    setting = calibrate(processes)
    say(f"{runs} runs of three rules")
    cells = [RussoCell(rule, seed, setting) for rule in RULES for seed in range(1, runs + 1)]
    found = run_in_processes(run, cells, processes)
    results = {
        rule: _average(found[index * runs : (index + 1) * runs]) for index, rule in enumerate(RULES)
    }
    table = Comparison(
        "Section 5.2: instances of all three functions, response time",
        (
            Metric("instances", "", 1),
            Metric("response_s", "s", 2),
            Metric("longest_s", "s", 1),
            Metric("rescales", "", 0),
        ),
        tuple(Entry(rule, PAPER[rule], _numbers(results[rule])) for rule in RULES),
    )
    held_back = {
        name: mean_relative_error(
            [
                (printed, getattr(results[rule], name))
                for rule in ("DS2", "queueing")
                if (printed := PAPER[rule][name]) is not None
            ]
        )
        for name in ("instances", "response_s")
    }
    return Study(
        name="russo2021",
        title="Elastic Pulsar Functions for distributed stream processing",
        source="Russo Russo, Schiazza, Cardellini, ICPE 2021 companion (Auto-DaSP)",
        protocol=(
            f"{runs} runs of {len(SHAPE)} intervals of 10 min with Poisson arrivals, decisions "
            "every 30 s, at most 15 instances, rescaling without a stop. Thresholds 50 and 150 "
            "images, 1 s of response time asked for, DS2 with a window of 30 s. The rates of the "
            "intervals are only drawn in the paper: ours rise and fall. Instances are those of the "
            "recogniser, and one of each resizer, which are at most a third busy."
        ),
        tables=(table,),
        claims=claims(results),
        distances=distances(table, {}),
        calibrations=(
            Calibration(
                "images",
                "Work per image and load, fitted to instances and mean response time of the "
                "backlog threshold; the rows of DS2 and queueing are held back.",
                {
                    "recognise_s": setting.recognise_s,
                    "offered": setting.offered,
                    "mean_rps": mean(setting.rates()),
                },
                held_back,
            ),
        ),
    )


def run(cell: RussoCell) -> RussoResult:
    """Carry out one cell."""
    rates = cell.setting.rates()
    job = cell.setting.job()
    pipeline = job.start(rates, executors=1, seed=cell.seed)
    outcome = steer(pipeline, RULES[cell.rule], LIMITS, float(len(rates)))
    return RussoResult(
        instances=OTHERS + mean_level(outcome.paid, outcome.duration_s),
        response_s=mean(pipeline.responses_s),
        longest_s=max(pipeline.responses_s),
        rescales=float(rescales(outcome.targets)),
    )


def calibrate(processes: int | None, grid: Sequence[Setting] = GRID) -> Setting:
    """The pipeline on which the backlog threshold comes nearest to what the paper measured."""
    rule = "backlog threshold"
    found = run_in_processes(run, [RussoCell(rule, 0, setting) for setting in grid], processes)

    def distance(index: int) -> float:
        pairs = [(getattr(found[index], n), PAPER[rule][n]) for n in ("instances", "response_s")]
        return sum(abs(log(ours / (paper or 1.0))) for ours, paper in pairs)

    return grid[min(range(len(grid)), key=distance)]


def claims(results: dict[str, RussoResult]) -> tuple[Claim, ...]:
    """R1 to R3."""
    queueing, backlog, ds2 = (results[n] for n in ("queueing", "backlog threshold", "DS2"))
    evidence = {
        f"{rule}, {name}": getattr(measured, name)
        for rule, measured in results.items()
        for name in ("instances", "response_s")
    }
    most = queueing.instances == max(one.instances for one in results.values())
    fewest = backlog.instances == min(one.instances for one in results.values())
    in_time = queueing.response_s <= 1.1
    between = (
        backlog.instances < ds2.instances < queueing.instances
        and queueing.response_s < ds2.response_s < backlog.response_s
    )
    return (
        _claim(
            "R1",
            "Queueing holds about the 1 s that is asked for, with the most instances",
            in_time and most,
            evidence,
            "the rule adds one instance every 30 s, and meanwhile images wait",
        ),
        _claim(
            "R2",
            "The backlog threshold uses the fewest instances, at more than 10 s mean response time",
            fewest and backlog.response_s > 10.0,
            evidence,
            "with this load the backlog seldom lies between the thresholds",
        ),
        _claim(
            "R3",
            "DS2 lies between the two in instances and in response time",
            between,
            evidence,
            "with this load DS2 rounds up to more than the response time needs",
        ),
    )


def _claim(name: str, text: str, holds: bool, evidence: dict[str, float], reason: str) -> Claim:
    return Claim(name, text, holds, evidence, "" if holds else reason)


def _average(group: Sequence[RussoResult]) -> RussoResult:
    return RussoResult(
        *(mean([getattr(one, name) for one in group]) for name in RussoResult.__struct_fields__)
    )


def _numbers(measured: RussoResult) -> dict[str, Number]:
    return {name: getattr(measured, name) for name in RussoResult.__struct_fields__}
