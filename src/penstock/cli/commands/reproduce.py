"""``penstock reproduce``: a published study run again, beside what it printed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from msgspec import structs
from rich.console import Console
from rich.status import Status
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.execution import check_where, progress_lines
from penstock.cli.options import Master, Processes, about
from penstock.cli.output import console, file_size, note, print_json
from penstock.cli.views.study_page import VERDICTS, aim, study_page, titled, verdict
from penstock.core.errors import ConfigError, unknown
from penstock.core.files import file_errors, write_whole
from penstock.lab.experiments.process_pool import ItemRunner
from penstock.lab.experiments.sweep import ResumeFile, check_table, write_table
from penstock.lab.studies import STUDIES, check_lab_extra
from penstock.lab.studies import reproduce as run_again
from penstock.lab.studies import study as kinds
from penstock.lab.studies.skeleton import Bench, KeptResult, prose


def reproduce(
    study: Annotated[str, about("reproduce.study")],
    /,
    *,
    html: Annotated[Path | None, about("reproduce.html")] = None,
    rows: Annotated[Path | None, about("reproduce.rows")] = None,
    on: Annotated[Literal["local", "spark"], about("on")] = "local",
    master: Master = None,
    processes: Processes = None,
    resume: Annotated[Path | None, about("resume")] = None,
    claim: Annotated[str | None, about("reproduce.claim")] = None,
    json: Annotated[bool, about("reproduce.json")] = False,
) -> int:
    """Run a published study again and print its tables beside ours. Exits with 1 if a claim fails.

    It also writes a page with tables and charts, to open in any browser.
    """
    names = _names(study, claim)
    check_lab_extra()
    check_where(on, master, processes)
    if rows is not None:
        check_table(rows)
    pages = _places(names, html, in_directory=study == "all")
    studies = []
    kept = nullcontext() if resume is None else ResumeFile(resume, KeptResult)
    with _runner(on, master) as runner, kept as finished:
        for name, page in zip(names, pages, strict=True):
            try:
                found = _run(name, Bench(processes, runner=runner, kept=finished))
            except ConfigError as error:
                if study != "all":
                    raise
                note(f"{name} is left out: {error}")  # such as one that needs Spark
                continue
            chosen = tuple(each for each in found.claims if claim in (None, each.claim))
            found = structs.replace(found, claims=chosen)
            studies.append(found)
            write_whole(page, [study_page(found).encode()])
            if not json:
                show(found, console())
                console().print(f"{file_size(page)}\n")
    if rows is not None:
        write_table(rows, kinds.StudyRow, [row for one in studies for row in one.rows])
    if json:
        print_json(studies if study == "all" else studies[0])
    held = not any(claim.holds is False for one in studies for claim in one.claims)
    return 0 if held and len(studies) == len(names) else 1


def _names(study: str, claim: str | None) -> list[str]:
    """The studies to run: one or all."""
    if study not in ("all", *STUDIES):
        raise unknown("study", study, [*STUDIES, "all"])
    names = list(STUDIES) if study == "all" else [study]
    known = [each for name in names for each in prose(name).conditions()]
    if claim is not None and claim not in known:
        raise unknown("claim", claim, known)
    return names


def _places(names: list[str], html: Path | None, *, in_directory: bool) -> list[Path]:
    """Where each page goes; checked before anything runs, because that takes minutes."""
    if html is None or in_directory:
        places = [(html or Path()) / f"{name}.html" for name in names]
    else:
        places = [html]
    if places[0].is_dir():
        raise ConfigError(f"--html {places[0]} is a directory: name a file in it")
    with file_errors(f"cannot write {places[0]}"):
        places[0].parent.mkdir(parents=True, exist_ok=True)
    return places


@contextmanager
def _runner(on: str, master: str | None) -> Iterator[ItemRunner | None]:
    """Where runs are made on Spark; nothing for processes of this machine."""
    if on == "local":
        yield None
        return
    from penstock.lab.experiments.on_spark import SESSION_SETTINGS, items_on_spark
    from penstock.testbed.sessions import open_session

    with open_session("penstock-reproduce", master, SESSION_SETTINGS) as spark:
        yield items_on_spark(spark)


def _run(name: str, bench: Bench) -> kinds.Study:
    stage = "starting"

    def say(text: str) -> None:
        nonlocal stage
        stage = text
        if status is not None:
            status.update(f"{name}: {text}")

    on_terminal = sys.stderr.isatty()
    status = Status(f"{name}: starting", console=console(stderr=True)) if on_terminal else None
    with status or progress_lines(lambda: f"{name}: {stage}"):
        try:
            return run_again(name, replace(bench, say=say))
        except KeyboardInterrupt:
            kept = bench.kept
            how = "--resume FILE would have kept what was done"
            if kept is not None:
                how = f"{len(kept.rows)} runs are in {kept.path}, the same command continues"
            note(f"{name} was interrupted: {how}")
            raise


def show(study: kinds.Study, screen: Console) -> None:
    """The whole study for people: tables, claims, how near, and what the engine was fitted on."""
    screen.print(Text(study.title, style="bold"))
    screen.print(study.protocol, markup=False)
    screen.print()
    for table in study.tables:
        screen.print(_side_by_side(table))
        screen.print()
    screen.print(_claims(study.claims))
    screen.print(study.summary, style="bold")
    if study.distances:
        screen.print()
        screen.print(_distances(study.distances))
    for calibration in study.calibrations:
        screen.print()
        _print_calibration(calibration, screen)
    screen.print()
    screen.print(Text(f"source: {study.source}", style="dim"))


def _side_by_side(table: kinds.Comparison) -> Table:
    shown = Table(title=table.title, title_justify="left", box=None, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for metric in table.metrics:
        shown.add_column(f"{titled(metric)}\npaper", justify="right", no_wrap=True)
        shown.add_column("\nours", justify="right", no_wrap=True, style="bold")
    for entry in table.entries:
        sides = (entry.paper, entry.ours)
        cells = [_number(s.get(m.name), m.decimals) for m in table.metrics for s in sides]
        shown.add_row(entry.label, *cells)
    return shown


def _claims(claims: tuple[kinds.Claim, ...]) -> Table:
    said = Column("what the paper says, and what was found", overflow="fold")
    shown = Table("", "", said, title="claims", title_justify="left", box=None, pad_edge=False)
    for claim in claims:
        text = Text(claim.text)
        if claim.reason:
            text.append(f"\n{claim.reason}", style="dim")
        mark, colour, _ = VERDICTS[verdict(claim)]
        shown.add_row(Text(mark, colour), claim.claim, text)
    return shown


def _distances(distances: tuple[kinds.Distance, ...]) -> Table:
    numbers = (Column("", justify="right"), Column("aim", justify="right"))
    shown = Table("", *numbers, title="how near", title_justify="left", box=None, pad_edge=False)
    for each in distances:
        style = {True: "green", False: "red", None: ""}[each.reached]
        shown.add_row(each.name, Text(f"{each.value:.2f}", style=style), aim(each))
    return shown


def _print_calibration(calibration: kinds.Calibration, screen: Console) -> None:
    screen.print(Text(f"engine for {calibration.job}: {calibration.text}"))
    found = ", ".join(f"{name} {value:.4g}" for name, value in calibration.fitted.items())
    screen.print(Text(f"  found: {found}", style="dim"))
    if calibration.errors:
        off = ", ".join(f"{name} {value:.1%}" for name, value in calibration.errors.items())
        screen.print(f"  off on what was held back: {off}", markup=False)


def _number(value: kinds.Number, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"
