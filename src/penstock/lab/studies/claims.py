"""What a paper says, judged on runs: the condition of each claim is written beside its sentence.

``Holds if:`` in the prose of a study names a metric, groups (queries, jobs, loads) and how rows
compare there: ``workers, q1 | q3: hpa 50|70 > hpa 70|90``. A side may be a number, ``0.55 * a
row``, ``a row + 1600``, ``GROUP/ROW``, ``median``, or ``*``, which is every row that is not
named. ``each`` stands for one row after the other, and ``8 of`` in front asks for that many of all
comparisons. Conditions are separated by semicolons.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.lab.experiments.statistics import interval_95
from penstock.lab.studies.skeleton import Prose, Told
from penstock.lab.studies.study import Claim

Runs = Mapping[tuple[str, str], Sequence[Struct]]  #: By group and row.
#: A claim that takes more than comparisons: whether it holds, by which numbers, and where not.
Computed = tuple[bool, Mapping[str, float], str]

_CONDITION = re.compile(
    r"(?:(?P<needed>\d+) of )?(?P<metric>\w+), (?P<groups>[^:]+): (?P<chain>.+)"
)
_TERM = re.compile(r"(?:(?P<factor>[\d.]+) \* )?(?P<name>.+?)(?: \+ (?P<offset>[\d.]+))?")
_ORDERS = {
    "<": float.__lt__, ">": float.__gt__, "<=": float.__le__, ">=": float.__ge__,
}  # fmt: skip


class Side(NamedTuple):
    """One side of a comparison: its text and value; the row that it is about, and that's number."""

    text: str
    value: float
    row: str = ""
    number: float = 0.0

    @property
    def shown(self) -> str:
        return f"{self.text} ({self.value:.3g})" if self.row or self.text == "median" else self.text


class Verdict(NamedTuple):
    """Whether a condition holds, by which numbers, and the comparisons that are wrong."""

    holds: bool
    evidence: dict[str, float]
    wrong: list[str]


def judge(text: Prose, runs: Runs, computed: Mapping[str, Computed] | None = None) -> list[Claim]:
    """All claims of a study in the order of its prose, with intervals over the single runs."""
    count = min(map(len, runs.values()), default=0)
    single = [{key: group[i : i + 1] for key, group in runs.items()} for i in range(count)]
    claims, told = [], Told(text.study, runs)
    for name, conditions in text.conditions().items():
        if name in (computed or {}):
            claims.append(text.claim(name, *(computed or {})[name], told=told))
        elif not conditions:
            claims.append(text.claim(name, None, {}, told=told))
        else:
            found = verdict(conditions, runs)
            alone = [verdict(conditions, one) for one in single] if count > 1 else []
            evidence, intervals = found.evidence, dict[str, float]()
            if alone:
                for each in evidence:
                    if all(each in one.evidence for one in alone):
                        intervals[each] = interval_95([one.evidence[each] for one in alone])
                part = fmean(one.holds for one in alone)
                evidence = evidence | {"part of single runs in which it holds": part}
            where = "; ".join(found.wrong)
            claims.append(text.claim(name, found.holds, evidence, where, intervals, told))
    return claims


def verdict(conditions: str, runs: Runs) -> Verdict:
    """Whether all conditions hold.

    >>> class Cost(Struct):
    ...     workers: float
    >>> runs = {("q1", "a"): [Cost(2.0), Cost(4.0)], ("q1", "b"): [Cost(8.0)]}
    >>> verdict("workers, q1: 2 * a < b + 0.5", runs)
    Verdict(holds=True, evidence={'q1, a, workers': 3.0, 'q1, b, workers': 8.0}, wrong=[])
    >>> verdict("workers, q1: a > *", runs).wrong
    ['q1: a (3) > b (8)']
    """
    holds, evidence, wrong = True, dict[str, float](), list[str]()
    for condition in conditions.split("; "):
        parts = _CONDITION.fullmatch(condition)
        if parts is None:
            raise ConfigError(f"a claim cannot be judged by '{condition}'")
        metric, results = parts["metric"], list[bool]()
        for group in parts["groups"].split(" | "):
            for sides, orders in _chains(parts["chain"], metric, group, runs):
                pairs = zip(sides, orders, sides[1:], strict=False)
                broken = [
                    f"{group}: {left.shown} {order} {right.shown}"
                    for left, order, right in pairs
                    if not _ORDERS[order](left.value, right.value)
                ]
                results.append(not broken)
                wrong += broken
                for side in sides:
                    if side.row:
                        name = side.row if "/" in side.row else f"{group}, {side.row}"
                        evidence[f"{name}, {metric}"] = side.number
        needed = int(parts["needed"] or len(results))
        if needed < len(results):
            evidence[f"comparisons of {metric} that hold, of {len(results)}"] = float(sum(results))
        holds = holds and sum(results) >= needed
    return Verdict(holds, evidence, [] if holds else wrong)


def _chains(
    text: str, metric: str, group: str, runs: Runs
) -> Iterator[tuple[list[Side], list[str]]]:
    """The comparisons of a condition, one for each of its alternatives."""
    rows = [row for where, row in runs if where == group]
    words = [word.split("|") for word in text.split()]
    chains = [" ".join(word[i % len(word)] for word in words) for i in range(max(map(len, words)))]
    if "each" in text:
        chains = [chain.replace("each", row) for chain in chains for row in rows]
    named = {part for chain in chains for part in re.split(r" [<>]=? ", chain)}

    def value(row: str) -> float:
        place, _, name = row.rpartition("/")
        return fmean(float(getattr(one, metric)) for one in runs[place or group, name])

    def side(term: str, order: str) -> Side:
        if term == "*":
            rest = [row for row in rows if row not in named]
            term = (min if "<" in order else max)(rest, key=value)
        if term == "median":
            return Side(term, median(map(value, rows)))
        parts = _TERM.fullmatch(term)
        if parts is None or parts["name"].replace(".", "").isdigit():
            return Side(term, float(term))
        found = value(parts["name"])
        shown = float(parts["factor"] or 1.0) * found + float(parts["offset"] or 0.0)
        return Side(term, shown, parts["name"], found)

    for chain in chains:
        orders = re.findall(r" ([<>]=?) ", chain)
        terms = re.split(r" [<>]=? ", chain)
        yield [side(*each) for each in zip(terms, [orders[0], *orders], strict=True)], orders
