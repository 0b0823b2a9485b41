"""What all studies share: reading prose and printed numbers, running cells, putting it together.

A study module makes a `StudyPlan`: which engine it calibrates, which cells it runs, one function
from a cell to its result, and tables, charts and claims from the results. Its prose is beside it
in ``NAME.md``, what the paper printed in ``data/NAME.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.statistics import mean
from penstock.lab.studies.study import (
    Bars,
    Boxes,
    Calibration,
    Chart,
    Claim,
    Comparison,
    Distance,
    Entry,
    Metric,
    Number,
    Study,
)

#: Called now and then with a few words on how far a reproduction has come.
Say = Callable[[str], None]

Item = TypeVar("Item")
Output = TypeVar("Output")
Key = TypeVar("Key", bound=Hashable)

#: Numbers of a paper: table, row, column.
Printed = dict[str, dict[str, dict[str, float]]]


class Prose(Struct, frozen=True):
    """The texts of a study: its title, and sections by their headings."""

    title: str
    sections: dict[str, str]

    def text(self, section: str, **values: object) -> str:
        """A section as one line, with values filled in."""
        return " ".join(self.sections[section].split()).format(**values)

    def claim(
        self, name: str, holds: bool, evidence: Mapping[str, float], where: str = ""
    ) -> Claim:
        """The claim of the section `name`, with the reason after "Why not:" if it does not hold."""
        text, _, reason = self.text(name, where=where).partition(" Why not: ")
        return Claim(name, text, holds, dict(evidence), "" if holds else reason)


def prose(study: str) -> Prose:
    """What ``STUDY.md`` says.

    >>> prose("russo2021").title
    'Elastic Pulsar Functions for distributed stream processing'
    """
    text = files("penstock.lab.studies").joinpath(f"{study}.md").read_text(encoding="utf-8")
    title, *sections = text.split("\n## ")
    parted = (section.partition("\n") for section in sections)
    return Prose(title.removeprefix("# ").strip(), {name.strip(): body for name, _, body in parted})


def data(study: str, kind: type[Item]) -> Item:
    """What ``data/STUDY.json`` holds."""
    content = files("penstock.lab.studies").joinpath("data", f"{study}.json").read_bytes()
    return msgspec.json.decode(content, type=kind)


class _PrintedTables(Struct, frozen=True):
    source: str
    columns: list[str]
    tables: dict[str, dict[str, list[Number]]]


def printed(study: str) -> Printed:
    """The tables of a paper.

    >>> printed("russo2021")["section 5.2"]["DS2"]
    {'instances': 4.5, 'response_s': 2.7, 'longest_s': 26.0}
    """
    found = data(study, _PrintedTables)
    return {
        table: {
            row: {
                name: value
                for name, value in zip(found.columns, values, strict=True)
                if value is not None
            }
            for row, values in rows.items()
        }
        for table, rows in found.tables.items()
    }


@dataclass(frozen=True)
class Bench:
    """Where a study makes its runs: in processes of this machine."""

    processes: int | None = None
    say: Say = lambda _: None

    def run(self, work: Callable[[Item], Output], items: Sequence[Item], what: str) -> list[Output]:
        """The results of all items, in their order."""
        self.say(what)
        return run_in_processes(
            work, items, self.processes, lambda done: self.say(f"{what}: {done} of {len(items)}")
        )

    def run_groups(
        self, work: Callable[[Item], Output], groups: Mapping[Key, Sequence[Item]], what: str
    ) -> dict[Key, list[Output]]:
        """The same for items in groups, results by group."""
        found = iter(self.run(work, [item for group in groups.values() for item in group], what))
        return {key: [next(found) for _ in group] for key, group in groups.items()}


@dataclass(frozen=True)
class Findings:
    """What comes out of the runs; `numbers` are filled into the text of the protocol."""

    tables: Sequence[Comparison]
    claims: Sequence[Claim]
    calibrations: Sequence[Calibration]
    figures: Sequence[Chart | Boxes | Bars] = ()
    distances: Iterable[Distance] = ()
    numbers: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyPlan(Generic[Item, Output]):
    """A study that can be run.

    Parameters
    ----------
    name
        As in ``NAME.md`` and on the command line.
    prepare
        What has to be measured or fitted before the runs.
    findings
        From what was prepared, and the results by group.
    cells
        From what was prepared: the runs, in groups; none for a study that only measures.
    run
        From a cell to its result, in any process.
    """

    name: str
    prepare: Callable[[Bench], Any]
    findings: Callable[[Any, Mapping[Any, Sequence[Output]]], Findings]
    cells: Callable[[Any], Mapping[Any, Sequence[Item]]] = lambda _: {}
    run: Callable[[Item], Output] | None = None

    def reproduce(self, processes: int | None = None, say: Say = lambda _: None) -> Study:
        """Prepare, run all cells, judge."""
        bench = Bench(processes, say)
        prepared = self.prepare(bench)
        groups = self.cells(prepared)
        results = {}
        if self.run is not None:
            runs = sum(map(len, groups.values()))
            results = bench.run_groups(self.run, groups, f"{runs} runs")
        found = self.findings(prepared, results)
        texts = prose(self.name)
        return Study(
            name=self.name,
            title=texts.title,
            source=texts.text("Source"),
            protocol=texts.text("Protocol", **found.numbers),
            tables=tuple(found.tables),
            claims=tuple(found.claims),
            distances=tuple(found.distances),
            calibrations=tuple(found.calibrations),
            figures=tuple(found.figures),
        )


def means(results: Sequence[Struct], names: Iterable[str]) -> dict[str, Number]:
    """The mean of each of these fields over runs."""
    return {name: mean([getattr(one, name) for one in results]) for name in names}


def beside_paper(
    title: str,
    metrics: Sequence[Metric],
    paper: Mapping[str, Mapping[str, float]],
    results: Mapping[str, Sequence[Struct]],
) -> Comparison:
    """A table of the paper with the means of our runs, by the label of a row."""
    names = [metric.name for metric in metrics]
    entries = [Entry(label, {**row}, means(results[label], names)) for label, row in paper.items()]
    return Comparison(title, tuple(metrics), tuple(entries))
