"""Russo Russo, Schiazza, Cardellini (ICPE 2021): three rules on a pipeline of images.

Two functions resize each image, a third recognises what is in it. Images are slow and come at
random, so each of them is followed. The job is calibrated on the results of the backlog threshold
alone; what the queueing rule and DS2 do on it is then a prediction.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import log

from msgspec import Struct, structs

from penstock.core.model import Limits, Step
from penstock.core.protocols import Policy
from penstock.lab.experiments.scenario import steer
from penstock.lab.experiments.score import mean_level, moves
from penstock.lab.experiments.statistics import mean
from penstock.lab.studies.claims import judge
from penstock.lab.studies.skeleton import (
    Bench,
    StudyPlan,
    Told,
    beside_paper,
    mean_of,
    printed,
    prose,
)
from penstock.lab.studies.study import (
    Chart,
    ChartLine,
    Claim,
    Metric,
    Study,
    distances,
    mean_relative_error,
)
from penstock.policies.backlog_threshold import BacklogThreshold
from penstock.policies.ds2 import Ds2
from penstock.policies.queueing.queueing import Queueing
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.records import RecordJob
from penstock.simulation.workloads.workload import Levels

RUNS, HOLD_S = 5, 600
LIMITS = Limits(min_executors=1, max_executors=15)
#: The functions that resize: they are never the bottleneck, one instance of each is enough.
OTHERS = 2
#: The shape of the load, 10 minutes each: relative to its mean.
SHAPE = (0.4, 0.8, 1.4, 1.8, 1.1, 0.5)

PERIOD_S, HIGH = 30.0, 150.0
RULES: dict[str, Policy] = {
    "backlog threshold": BacklogThreshold(low_records=50.0, high_records=HIGH, period_s=PERIOD_S),
    "DS2": Ds2(overprovisioning=0.0, window_s=30.0, period_s=PERIOD_S),
    "queueing": Queueing(max_response_s=1.0, period_s=PERIOD_S),
}
DRAWN = ("Figure 6", "Figure 7", "Figure 8")
TEXT = prose("russo2021")
PAPER = printed("russo2021")["section 5.2"]
METRICS = (
    Metric("instances", "", 1), Metric("response_s", "s", 2), Metric("longest_s", "s", 1),
    Metric("rescales", "", 0),
)  # fmt: skip
#: What the fit compares, and what is reported of the rows that are held back.
FITTED = ("instances", "response_s")


class Setting(Struct, frozen=True):
    """What the study does not print."""

    recognise_s: float  #: The work per image.
    offered: float  #: How many recognisers that keeps busy on average.

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
        levels = Levels(levels_rps=tuple(level * mean_rps for level in SHAPE), hold_s=HOLD_S)
        return levels.rates(HOLD_S * len(SHAPE), 0, float)


GRID = tuple(Setting(*point) for point in product((0.4, 0.45, 0.5, 0.55, 0.6), (1.3, 1.4, 1.5)))


class RussoCell(Struct, frozen=True):
    """One run."""

    rule: str
    seed: int
    setting: Setting


class RussoResult(Struct, frozen=True):
    """What the study reports of a run: means, the longest response, and how instances varied."""

    instances: float
    response_s: float
    longest_s: float
    rescales: float
    most_instances: float = 0.0
    part_at_five: float = 0.0  #: Of all decisions, those with five instances.
    part_above_limit: float = 0.0  #: Of all decisions, those with more than 150 images waiting.
    #: What the figures draw, at each decision.
    samples: dict[str, list[float]] = {}


Results = Mapping[str, Sequence[RussoResult]]


def study(runs: int = RUNS) -> StudyPlan[RussoCell, RussoResult]:
    """Calibrate on the backlog threshold, run all three rules."""

    def cells(setting: Setting) -> dict[str, list[RussoCell]]:
        return {rule: [RussoCell(rule, 1 + i, setting) for i in range(runs)] for rule in RULES}

    return StudyPlan(calibrate, findings, cells, run)


def calibrate(bench: Bench, grid: Sequence[Setting] = GRID) -> Setting:
    """The pipeline on which the backlog threshold comes nearest to what the paper measured."""
    rule = "backlog threshold"
    cells = [RussoCell(rule, 0, setting) for setting in grid]
    found = bench.run(run, cells, f"calibrating on {len(grid)} pipelines")

    def apart(one: RussoResult) -> float:
        return sum(abs(log(getattr(one, name) / PAPER[rule][name])) for name in FITTED)

    return grid[found.index(min(found, key=apart))]


def run(cell: RussoCell) -> RussoResult:
    rates = cell.setting.rates()
    pipeline = cell.setting.job().start(rates, executors=1, seed=cell.seed)
    steps: list[Step] = []
    outcome = steer(pipeline, RULES[cell.rule], LIMITS, float(len(rates)), steps.append)
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    samples = {
        "instances": [float(OTHERS + one.fleet.active) for one in seen],
        "response": [one.latency_s or 0.0 for one in seen],
        "images waiting": [one.backlog_records or 0.0 for one in seen],
    }
    there, waiting = samples["instances"], samples["images waiting"]
    return RussoResult(
        instances=OTHERS + mean_level(outcome.paid, outcome.duration_s),
        response_s=mean(pipeline.responses_s),
        longest_s=max(pipeline.responses_s),
        rescales=float(moves(outcome.targets)[0]),
        most_instances=max(there),
        part_at_five=there.count(5.0) / len(there),
        part_above_limit=mean([float(images > HIGH) for images in waiting]),
        samples=samples if cell.seed == 1 else {},
    )


def figures(setting: Setting, results: Results) -> list[Chart]:
    """Figures 4 to 8, of the first run of each rule."""
    rates = setting.rates()
    at_s = [PERIOD_S * i for i in range(len(results["DS2"][0].samples["instances"]))]
    told = Told(TEXT.study, {("images", rule): runs for rule, runs in results.items()})
    load = ChartLine("load", at_s, [rates[min(int(at), len(rates) - 1)] for at in at_s])
    charts = [Chart("Figure 4: the load", "time", "images/s", (load,), note=TEXT.text("Figure 4"))]

    def chart(title: str, rule: str, what: str, unit: str) -> Chart:
        line = ChartLine(rule, at_s, [*results[rule][0].samples[what]])
        note = TEXT.text(title, told) if what != "instances" else ""
        return Chart(f"{title}: {rule}, {what}", "time", unit, (line,), drawn="steps", note=note)

    charts.append(chart("Figure 5", "backlog threshold", "images waiting", "images"))
    for title, rule in zip(DRAWN, ("backlog threshold", "queueing", "DS2"), strict=True):
        charts += [chart(title, rule, "response", "s"), chart(title, rule, "instances", "")]
    return charts


def findings(setting: Setting, results: Results) -> Study:
    """The table of section 5.2, and what is off in the rows that were not fitted."""
    title = "Section 5.2: instances of all three functions, response time"
    table = beside_paper(title, METRICS, PAPER, results)
    unseen = ("DS2", "queueing")
    held_back = {
        name: mean_relative_error([(PAPER[r][name], mean_of(name, results[r])) for r in unseen])
        for name in FITTED
    }
    fitted = {**structs.asdict(setting), "mean_rps": mean(setting.rates())}
    return TEXT.findings(
        [table],
        claims(results),
        [TEXT.calibration("images", fitted, held_back)],
        distances({"": table}),
        figures(setting, results),
        runs=len(results["DS2"]),
        intervals=len(SHAPE),
    )


def claims(results: Results) -> list[Claim]:
    return judge(TEXT, {("images", rule): runs for rule, runs in results.items()})
