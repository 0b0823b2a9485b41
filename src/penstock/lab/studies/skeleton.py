"""What all studies share: reading prose and printed numbers, running cells, putting it together.

A study module makes a `StudyPlan`: which engine it calibrates, which cells it runs, one function
from a cell to its result, and tables, charts and claims from the results. Its prose is beside it
in ``NAME.md``, what the paper printed in ``data/NAME.json``.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from re import fullmatch
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, structs

from penstock.lab.experiments.process_pool import ItemRunner, run_in_processes
from penstock.lab.experiments.statistics import mean
from penstock.lab.studies.study import (
    Calibration,
    Claim,
    Comparison,
    Distance,
    Entry,
    Figure,
    Metric,
    Study,
    StudyRow,
)

#: Called now and then with a few words on how far a reproduction has come.
Say = Callable[[str], None]

Item = TypeVar("Item")
Output = TypeVar("Output")
Key = TypeVar("Key", bound=Hashable)

Numbers = Mapping[str, float]
#: What may stand before the colon in a paragraph of a claim.
LABELS = ("Holds if", "By construction", "Not tested", "Why not")
Printed = dict[str, dict[str, dict[str, float]]]  #: Numbers of a paper: table, row, column.


class Prose(Struct, frozen=True):
    """The texts of a study: its title, and sections by their headings."""

    study: str
    title: str
    sections: dict[str, str]

    def text(self, section: str, **values: object) -> str:
        """A section as one line, with values filled in."""
        return " ".join(self.sections[section].split()).format(**values)

    def conditions(self) -> dict[str, str]:
        """What stands after "Holds if:" in the sections of claims: a letter and a number each."""
        names = (name for name in self.sections if fullmatch(r"[A-Z]\d+", name))
        return {name: self._parts(name).get("Holds if", "") for name in names}

    def claim(
        self,
        name: str,
        holds: bool | None,
        evidence: Numbers,
        where: str = "",
        intervals: Numbers | None = None,
    ) -> Claim:
        """The claim of the section `name`, with the reason of its verdict."""
        parts = self._parts(name)
        given = parts.get("By construction", "")
        reasons = {None: [parts.get("Not tested", "")], True: [given], False: [where]}[holds]
        if holds is False:
            reasons.append(parts.get("Why not", ""))
        numbers = {**evidence}, ". ".join(filter(None, reasons)), {**(intervals or {})}
        return Claim(name, parts[""], holds, *numbers, is_given=bool(given))

    def _parts(self, name: str) -> dict[str, str]:
        """The paragraphs of a claim by what stands before their colon; its sentence has nothing."""
        found = {}
        for paragraph in self.sections[name].strip().split("\n\n"):
            label, colon, rest = " ".join(paragraph.split()).partition(": ")
            known = colon and label in LABELS
            found[label if known else ""] = rest if known else " ".join(paragraph.split())
        return found

    def calibration(
        self, job: str, fitted: Numbers, errors: Numbers | None = None, **values: object
    ) -> Calibration:
        """What was fitted, with the text of the section "Calibration"."""
        return Calibration(job, self.text("Calibration", **values), {**fitted}, {**(errors or {})})

    def findings(
        self,
        tables: Iterable[Comparison],
        claims: Iterable[Claim],
        calibrations: Iterable[Calibration],
        distances: Iterable[Distance] = (),
        figures: Iterable[Figure] = (),
        **numbers: object,
    ) -> Study:
        """The study with what came out of its runs; the protocol tells `numbers`."""
        source, protocol = self.text("Source"), self.text("Protocol", **numbers)
        shown = (*tables, *explained(self.study))
        judged = shown, tuple(claims), tuple(distances), tuple(calibrations)
        return Study(self.study, self.title, source, protocol, *judged, tuple(figures))


def prose(study: str) -> Prose:
    """What ``STUDY.md`` says.

    >>> prose("russo2021").title
    'Elastic Pulsar Functions for distributed stream processing'
    """
    text = files("penstock.lab.studies").joinpath(f"{study}.md").read_text(encoding="utf-8")
    title, *sections = text.split("\n## ")
    parted = (section.partition("\n") for section in sections)
    by_heading = {name.strip(): body for name, _, body in parted}
    return Prose(study, title.removeprefix("# ").strip(), by_heading)


def data(study: str, kind: type[Item]) -> Item:
    """What ``data/STUDY.json`` holds."""
    content = files("penstock.lab.studies").joinpath("data", f"{study}.json").read_bytes()
    return msgspec.json.decode(content, type=kind)


class _Tried(Struct, frozen=True):
    study: str
    title: str
    paper: dict[str, float]
    rows: dict[str, dict[str, float]]


def explained(study: str) -> Iterator[Comparison]:
    """Explanations that were tried by experiment (``python -m tools.explain_studies``)."""
    for one in data("explained", list[_Tried]):
        if one.study == study:
            entries = [Entry("the paper", {**one.paper}, {})]
            entries += [Entry(name, {}, {**row}) for name, row in one.rows.items()]
            yield Comparison(one.title, tuple(map(Metric, one.paper)), tuple(entries))


class _PrintedTables(Struct, frozen=True):
    columns: list[str]
    tables: dict[str, dict[str, list[float | None]]]


def printed(study: str) -> Printed:
    """The tables of a paper.

    >>> printed("russo2021")["section 5.2"]["DS2"]
    {'instances': 4.5, 'response_s': 2.7, 'longest_s': 26.0}
    """
    found = data(study, _PrintedTables)

    def by_column(row: list[float | None]) -> dict[str, float]:
        named = zip(found.columns, row, strict=True)
        return {name: value for name, value in named if value is not None}

    return {
        table: {label: by_column(row) for label, row in rows.items()}
        for table, rows in found.tables.items()
    }


@dataclass(frozen=True)
class Bench:
    """Where a study makes its runs: in processes of this machine, or with another `runner`."""

    processes: int | None = None
    say: Say = lambda _: None
    runner: ItemRunner | None = None

    def run(self, work: Callable[[Item], Output], items: Sequence[Item], what: str) -> list[Output]:
        """The results of all items, in their order."""
        self.say(what)

        def progress(done: int) -> None:
            self.say(f"{what}: {done} of {len(items)}")

        if self.runner is not None:
            return self.runner(work, items, progress)
        return run_in_processes(work, items, self.processes, progress)

    def run_groups(
        self, work: Callable[[Item], Output], groups: Mapping[Key, Sequence[Item]], what: str
    ) -> dict[Key, list[Output]]:
        """The same for items in groups, results by group."""
        found = iter(self.run(work, [item for group in groups.values() for item in group], what))
        return {key: [next(found) for _ in group] for key, group in groups.items()}


@dataclass(frozen=True)
class StudyPlan(Generic[Item, Output]):
    """A study that can be run.

    `prepare` measures or fits what has to be known before the runs. `cells` gives the runs in
    groups, none for a study that only measures; `run` makes one of them, in any process. `findings`
    come from what was prepared and from the results by group.
    """

    prepare: Callable[[Bench], Any]
    findings: Callable[[Any, Mapping[Any, Sequence[Output]]], Study]
    cells: Callable[[Any], Mapping[Any, Sequence[Item]]] = lambda _: {}
    run: Callable[[Item], Output] | None = None

    def reproduce(
        self,
        processes: int | None = None,
        say: Say = lambda _: None,
        runner: ItemRunner | None = None,
    ) -> Study:
        """Prepare, run all cells, judge."""
        bench = Bench(processes, say, runner)
        prepared = self.prepare(bench)
        if self.run is None:
            return self.findings(prepared, {})
        groups = self.cells(prepared)
        runs = sum(map(len, groups.values()))
        results = bench.run_groups(self.run, groups, f"{runs} runs")
        study = self.findings(prepared, results)
        return structs.replace(study, rows=tuple(_rows(study.name, results)))


def _rows(study: str, results: Mapping[Any, Sequence[Any]]) -> Iterator[StudyRow]:
    """Every number of every run."""
    for key, runs in results.items():
        group, row = key if isinstance(key, tuple) else ("", key)
        for number, one in enumerate(runs):
            for name, value in structs.asdict(one).items():
                if isinstance(value, float):
                    yield StudyRow(study, group, row, number, name, value)


def mean_of(name: str, results: Sequence[Struct]) -> float:
    return mean([getattr(one, name) for one in results])


def beside_paper(
    title: str,
    metrics: Sequence[Metric],
    paper: Mapping[str, Mapping[str, float]],
    results: Mapping[str, Sequence[Struct]],
) -> Comparison:
    """A table of the paper with the means of our runs, by the label of a row."""
    ours = {
        label: {metric.name: mean_of(metric.name, results[label]) for metric in metrics}
        for label in paper
    }
    entries = tuple(Entry(label, {**row}, {**ours[label]}) for label, row in paper.items())
    return Comparison(title, tuple(metrics), entries)
