"""The tables of Borkowski et al. (2019), and what ours say of its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

from msgspec import Struct

from penstock.lab.experiments.statistics import five_numbers, welch_p
from penstock.lab.studies.skeleton import beside_paper, mean_of, printed, prose
from penstock.lab.studies.study import Box, Boxes, Claim, Comparison, Entry, Metric, Number

TEXT = prose("borkowski2019")
#: By load and filter.
PAPER = printed("borkowski2019")
SCENARIOS = tuple(PAPER)
FILTERS = ("PURE", "GW", "EKF")
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


class BorkowskiRun(Struct, frozen=True):
    """What the study reports of a run. VM time counts VMs that run, not those that boot.

    `violations` are as in the tables: thousands over 20 runs like this one.
    """

    vm_hours: float
    events: float
    image_s: float
    query_s: float
    violations: float


#: Runs by load and filter.
Results = Mapping[tuple[str, str], Sequence[BorkowskiRun]]


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
        found.append(Boxes(title, metric.unit or "per run", tuple(boxes)))
    return tuple(found)


def claims(results: Results) -> tuple[Claim, ...]:
    """B1 to B4."""

    def change(scenario: str, rule: str, metric: str) -> float:
        """EKF against another filter."""
        ours, other = (mean_of(metric, results[scenario, each]) for each in ("EKF", rule))
        return ours / other - 1.0

    pairs = list(product(SCENARIOS, ("PURE", "GW")))
    cuts = {(name, rule): -change(name, rule, "events") for name, rule in pairs}
    fewer = all(cut > {"PURE": 0.8, "GW": 0.75}[rule] for (_, rule), cut in cuts.items())
    more = {f"{name}, against {rule}": change(name, rule, "vm_hours") for name, rule in pairs}
    lowest, times = True, dict[str, float]()
    for scenario, metric in product(SCENARIOS, ("image_s", "violations")):
        by_rule = {rule: mean_of(metric, results[scenario, rule]) for rule in FILTERS}
        times |= {f"{scenario}, {metric}, {rule}": value for rule, value in by_rule.items()}
        lowest = lowest and by_rule["EKF"] == min(by_rule.values())
    return (
        TEXT.claim("B1", fewer, {f"{name}, against {rule}": c for (name, rule), c in cuts.items()}),
        TEXT.claim("B2", all(0.02 <= part <= 0.25 for part in more.values()), more),
        TEXT.claim("B3", lowest, times),
        _significant(results),
    )


def _significant(results: Results) -> Claim:
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
    on_lab = all(pair.startswith("Lab") for pair in unclear)
    where = TEXT.text("B4 on Lab alone") if on_lab else ""
    return TEXT.claim("B4", len(unclear) <= 1, evidence | unclear, where)
