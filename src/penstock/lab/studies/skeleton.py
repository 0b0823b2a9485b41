"""What all studies share: reading prose and printed numbers, running cells, putting it together.

A study module makes a `StudyPlan`: which engine it calibrates, which cells it runs, one function
from a cell to its result, and tables, charts and claims from the results. Its prose is beside it
in ``NAME.md``, what the paper printed in ``data/NAME.json``.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from re import fullmatch
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
from msgspec import Raw, Struct, structs

from penstock.core.errors import ConfigError
from penstock.lab.experiments.process_pool import ItemRunner, run_in_processes
from penstock.lab.experiments.statistics import mean
from penstock.lab.experiments.sweep import NO_INFLUENCE, ResumeFile, code_digest
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

    def text(self, section: str, /, told: Mapping[str, Any] | None = None, **values: Any) -> str:
        """A section as one line, with values filled in."""
        line = " ".join(self.sections[section].split())
        return line.format_map(values if told is None else told)

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
        told: Numbers | None = None,
    ) -> Claim:
        """The claim of the section `name`, with the reason of its verdict; `told` fills it in."""
        parts = self._parts(name)
        given = parts.get("By construction", "")
        reasons = {None: [parts.get("Not tested", "")], True: [given], False: [where]}[holds]
        if holds is False:
            reasons.append(parts.get("Why not", ""))
        reason = ". ".join(filter(None, reasons)).format_map({} if told is None else told)
        numbers = {**evidence}, reason, {**(intervals or {})}
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
        self, job: str, fitted: Numbers, errors: Numbers | None = None, **values: Any
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
        **numbers: Any,
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
    """What ``data/STUDY.json`` holds; refused if it is not what ``sha256.json`` was made of."""
    folder = files("penstock.lab.studies").joinpath("data")
    content = folder.joinpath(f"{study}.json").read_bytes()
    hashes = msgspec.json.decode(folder.joinpath("sha256.json").read_bytes())
    if hashes.get(study) != sha256(content).hexdigest():
        raise ConfigError(f"data/{study}.json of the studies was changed: its hash does not match")
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


class Told(dict[str, float]):
    """The numbers that prose names in braces, so that none of them is typed by hand.

    ``{q1, hpa 50, workers:.1f}`` is the mean over runs, with ``least of`` or ``most of`` in front
    one of them; ``{K8/no worker is cold/hpa 50, latency_s:.1f}`` is of an explanation that was
    tried, by the beginnings of its title and of its row.
    """

    def __init__(self, study: str, runs: Mapping[tuple[str, str], Sequence[Struct]]) -> None:
        super().__init__()
        self._study, self._runs = study, runs

    def __missing__(self, name: str) -> float:
        if "/" in name:
            title, row, column = name.split("/")
            return next(
                value or 0.0
                for table in explained(self._study)
                if table.title.startswith(title)
                for entry in table.entries
                if entry.label.startswith(row)
                for metric, value in entry.ours.items()
                if metric == column
            )
        which, _, key = name.rpartition(" of ")
        group, row, metric = key.rsplit(", ", 2)
        values = [float(getattr(one, metric)) for one in self._runs[group, row]]
        return min(values) if which == "least" else max(values) if which else mean(values)


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


class KeptResult(Struct, frozen=True):
    """A finished run as it was written, and the hash of that."""

    sha256: str
    result: Raw


@dataclass(frozen=True)
class Bench:
    """Where a study makes its runs: in processes of this machine, or with another `runner`.

    Those that are in the file `kept` are not made again.
    """

    processes: int | None = None
    say: Say = lambda _: None
    runner: ItemRunner | None = None
    kept: ResumeFile[KeptResult] | None = None

    def run(
        self,
        work: Callable[[Item], Output],
        items: Sequence[Item],
        what: str,
        *,
        measures: bool = False,
    ) -> list[Output]:
        """The results of all items, in their order.

        What `measures` the real thing does so here, one item at a time; its results stay valid
        when our code changes.
        """
        names = [_name(work, item, measures=measures) for item in items] if self.kept else []
        found = dict(self._known(work, names))
        missing = [place for place in range(len(items)) if place not in found]

        def progress(done: int) -> None:
            self.say(f"{what}: {len(items) - len(missing) + done} of {len(items)}")

        def keep(position: int, result: Output) -> None:
            found[missing[position]] = result
            if self.kept is not None:
                written = msgspec.json.encode(result)
                kept = KeptResult(sha256(written).hexdigest(), Raw(written))
                self.kept.add(names[missing[position]], kept)

        self.say(what)
        todo = [items[place] for place in missing]
        if self.runner is None or measures:
            run_in_processes(work, todo, 1 if measures else self.processes, progress, keep)
        else:
            for position, result in enumerate(self.runner(work, todo, progress)):
                keep(position, result)
        return [found[place] for place in range(len(items))]

    def _known(
        self, work: Callable[[Item], Output], names: Sequence[str]
    ) -> Iterator[tuple[int, Output]]:
        """What was done before, by place; refused if it is not what was written."""
        for place, name in enumerate(names):
            if self.kept is not None and (kept := self.kept.rows.get(name)) is not None:
                if sha256(kept.result).hexdigest() != kept.sha256:
                    where = f"run {name} in {self.kept.path}"
                    raise ConfigError(f"{where} was changed: its hash does not match")
                kind = get_type_hints(getattr(work, "func", work))["return"]
                yield place, msgspec.json.decode(kept.result, type=kind)

    def run_groups(
        self, work: Callable[[Item], Output], groups: Mapping[Key, Sequence[Item]], what: str
    ) -> dict[Key, list[Output]]:
        """The same for items in groups, results by group."""
        found = iter(self.run(work, [item for group in groups.values() for item in group], what))
        return {key: [next(found) for _ in group] for key, group in groups.items()}


def _name(work: Callable[[Item], Output], item: Item, *, measures: bool) -> str:
    """A digest of all that a result depends on."""
    function, settings = getattr(work, "func", work), getattr(work, "keywords", None)
    without = tuple(name for name in NO_INFLUENCE if name != "studies")
    code = "" if measures else code_digest(without)
    made = code, function.__module__, function.__qualname__, settings, item
    return sha256(repr(made).encode()).hexdigest()[:32]


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

    def reproduce(self, bench: Bench | None = None) -> Study:
        """Prepare, run all cells, judge."""
        bench = bench or Bench()
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
