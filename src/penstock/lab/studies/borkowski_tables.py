"""The tables of Borkowski et al. (2019), and what ours say of its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Protocol

from penstock.lab.experiments.statistics import five_numbers, mean, welch_p
from penstock.lab.studies.study import Box, Boxes, Claim, Comparison, Entry, Metric, Number

SCENARIOS = ("Pyramid", "Square", "Lab")
FILTERS = ("PURE", "GW", "EKF")

_NAMES = ("vm_hours", "events", "image_s", "query_s", "violations")
#: Tables 3 to 5: VM time, scaling events, image and query time (s), SLA violations (thousands).
_PRINTED = {
    ("Pyramid", "PURE"): (8.0, 420.6, 2.7, 0.6, 53.8),
    ("Pyramid", "GW"): (8.4, 304.6, 2.1, 0.5, 51.7),
    ("Pyramid", "EKF"): (8.9, 58.5, 1.5, 0.3, 47.1),
    ("Square", "PURE"): (8.6, 326.1, 4.6, 0.9, 63.2),
    ("Square", "GW"): (9.0, 294.2, 3.9, 0.8, 63.9),
    ("Square", "EKF"): (9.2, 28.5, 1.8, 0.3, 47.6),
    ("Lab", "PURE"): (9.9, 423.45, 3.0, 0.8, 69.9),
    ("Lab", "GW"): (10.6, 288.0, 2.7, 0.5, 67.0),
    ("Lab", "EKF"): (12.1, 54.6, 1.6, 0.3, 63.8),
}
PAPER: dict[str, dict[str, dict[str, float]]] = {
    scenario: {rule: dict(zip(_NAMES, _PRINTED[scenario, rule], strict=True)) for rule in FILTERS}
    for scenario in SCENARIOS
}
METRICS = (
    Metric("vm_hours", "h", 1),
    Metric("events", "", 1),
    Metric("image_s", "s", 2),
    Metric("query_s", "s", 2),
    Metric("violations", "1000", 1),
)
#: What is tested in pairs; the time of a query is that of an image without its work.
_TESTED = ("vm_hours", "events", "image_s", "violations")
_LEVEL = 0.05


class BorkowskiResult(Protocol):
    """One run, as the study reports it."""

    @property
    def vm_hours(self) -> float: ...
    @property
    def events(self) -> float: ...
    @property
    def image_s(self) -> float: ...
    @property
    def query_s(self) -> float: ...
    @property
    def violations(self) -> float: ...


Results = Mapping[tuple[str, str], Sequence[BorkowskiResult]]


def column(results: Results, scenario: str, rule: str, metric: str) -> list[float]:
    """One number of every run of a configuration."""
    return [float(getattr(one, metric)) for one in results[scenario, rule]]


def average(results: Results, scenario: str, rule: str, metric: str) -> float:
    """As the tables print it: a mean over runs, violations in thousands over 20 runs."""
    scale = 20.0 / 1000.0 if metric == "violations" else 1.0
    return scale * mean(column(results, scenario, rule, metric))


def result_table(scenario: str, results: Results) -> Comparison:
    """Table 3, 4 or 5."""
    entries = tuple(
        Entry(
            rule,
            dict(PAPER[scenario][rule]),
            {name: average(results, scenario, rule, name) for name in _NAMES},
        )
        for rule in FILTERS
    )
    number = 3 + SCENARIOS.index(scenario)
    return Comparison(f"Table {number}: {scenario}", METRICS, entries)


def break_even(results: Results) -> Comparison:
    """Equations 20 to 23: what a VM hour may cost for EKF to pay off against GW."""

    def total(rule: str, metric: str) -> float:
        return sum(average(results, scenario, rule, metric) for scenario in SCENARIOS)

    def printed(rule: str, metric: str) -> float:
        return sum(PAPER[scenario][rule][metric] for scenario in SCENARIOS)

    paper = _margins(*(printed("EKF", m) / printed("GW", m) for m in _COMPARED))
    ours = _margins(*(total("EKF", m) / total("GW", m) for m in _COMPARED))
    metrics = tuple(Metric(name, "", 3) for name in paper)
    return Comparison(
        "Break-even of EKF against GW (equations 20 to 23)",
        metrics,
        (Entry("all loads", paper, ours),),
    )


_COMPARED = ("vm_hours", "violations", "image_s")


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
    plots = []
    for metric in METRICS:
        scale = 20.0 / 1000.0 if metric.name == "violations" else 1.0
        boxes = []
        for scenario, rule in product(SCENARIOS, FILTERS):
            values = [scale * value for value in column(results, scenario, rule, metric.name)]
            boxes.append(
                Box(rule, scenario, five_numbers(values), PAPER[scenario][rule][metric.name])
            )
        plots.append(Boxes(_SHOWN[metric.name], metric.unit or "per run", tuple(boxes)))
    return tuple(plots)


_SHOWN = {
    "vm_hours": "VM time",
    "events": "Scaling events",
    "image_s": "Time of an image",
    "query_s": "Time of a query",
    "violations": "SLA violations of 20 runs",
}


def claims(results: Results) -> tuple[Claim, ...]:
    """B1 to B4."""
    return (
        _fewer_events(results),
        _more_vm_time(results),
        _lowest_times(results),
        _significant(results),
    )


def _fewer_events(results: Results) -> Claim:
    evidence = {}
    holds = True
    for scenario, (rule, least) in product(SCENARIOS, (("PURE", 0.8), ("GW", 0.75))):
        ekf = average(results, scenario, "EKF", "events")
        cut = 1.0 - ekf / average(results, scenario, rule, "events")
        evidence[f"{scenario}, against {rule}"] = cut
        holds = holds and cut > least
    reason = (
        "the Kalman filter's corrections after a jump are events as well. How many hangs on the "
        "noise of the gauge: with 0.1 on Square the cut is 87 % against PURE and 84 % against GW, "
        "with 0.05 it is 80 % and 78 %"
    )
    return Claim(
        "B1",
        "EKF cuts scaling events by more than 80 % against PURE and 75 % against GW on every load",
        holds,
        evidence,
        "" if holds else reason,
    )


def _more_vm_time(results: Results) -> Claim:
    evidence = {
        f"{scenario}, against {rule}": average(results, scenario, "EKF", "vm_hours")
        / average(results, scenario, rule, "vm_hours")
        - 1.0
        for scenario, rule in product(SCENARIOS, ("PURE", "GW"))
    }
    holds = all(0.02 <= change <= 0.25 for change in evidence.values())
    reason = (
        "GW comes nearer to EKF than in the paper: while VMs boot it asks for one more each turn, "
        "on Square to the last VM, and comes down only to where cpu is just above the lower "
        "threshold. In the paper the two differ least on Square as well (2 %, p = 0.11). Here it "
        "hangs on the testbed: on the ten that fit best of 72, EKF takes -3 to +4 % against GW on "
        "Square and 0 to +10 % on Pyramid, two runs each. It does not hang on "
        "the stand-in for the trace of Lab: on 13 others made in this way it is -6 to +3 %. The "
        "paper puts the extra VM time down to its a and b, which it does not print. With b half as "
        "large again EKF would take 8 % more than GW on Square, but 14 % more than it does in the "
        "paper."
    )
    return Claim(
        "B2",
        "EKF uses 2 to 25 % more VM time than PURE and GW",
        holds,
        evidence,
        "" if holds else reason,
    )


def _lowest_times(results: Results) -> Claim:
    evidence: dict[str, float] = {}
    holds = True
    for scenario, metric in product(SCENARIOS, ("image_s", "violations")):
        by_rule = {rule: average(results, scenario, rule, metric) for rule in FILTERS}
        evidence |= {f"{scenario}, {metric}, {rule}": v for rule, v in by_rule.items()}
        holds = holds and by_rule["EKF"] == min(by_rule.values())
    reason = (
        "how long images take hangs on how many VMs are there when the load jumps, and that on "
        "how far each filter lets the fleet shrink before"
    )
    return Claim(
        "B3",
        "Processing time and SLA violations are lowest with EKF",
        holds,
        evidence,
        "" if holds else reason,
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
    holds = len(unclear) <= 1
    reason = "these pairs lie closer together here than they scatter from run to run"
    if all(pair.startswith("Lab") for pair in unclear):
        reason += "; all of them are on Lab, whose trace is a stand-in on which few images wait"
    return Claim(
        "B4",
        "Differences between all pairs are significant at p < 0.05 (the paper: all but one)",
        holds,
        evidence | unclear,
        "" if holds else reason,
    )
