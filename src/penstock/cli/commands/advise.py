"""``penstock advise``: what would be saved, from event logs."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Annotated

from msgspec import structs
from rich.table import Table

from penstock.cli.execution import progress
from penstock.cli.options import Listed, Master, Slo, about, amount, listed, whole
from penstock.cli.output import console, file_size, note, print_json
from penstock.cli.views.advice_page import advice_page, row_texts
from penstock.core.errors import ConfigError
from penstock.core.files import check_place, write_whole
from penstock.core.journal import read_steps
from penstock.lab.advise.advice import Advice, Answer, Question
from penstock.observe.report.page import MOST_JOURNALS, page
from penstock.policies import DEFAULT_POLICY
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import DEFAULT_BOUNDS, read_policy_spec


def advise(
    *logs: Annotated[str, about("advise.logs")],
    policy: Annotated[Listed, about("advise.policy")] = None,
    min: Annotated[int | None, whole(), about("min")] = None,  # noqa: A002
    max: Annotated[int | None, whole(1), about("advise.max")] = None,  # noqa: A002
    slo: Annotated[Slo, about("slo")] = None,
    last: Annotated[float | None, amount(60.0), about("advise.last")] = None,
    price: Annotated[float | None, amount(unit="MONEY"), about("advise.price")] = None,
    core_price: Annotated[float | None, amount(unit="MONEY"), about("advise.core_price")] = None,
    gb_price: Annotated[float | None, amount(unit="MONEY"), about("advise.gb_price")] = None,
    master: Master = None,
    out: Annotated[str | None, about("advise.out")] = None,
    html: Annotated[Path, about("advise.html")] = Path("advise.html"),
    journals: Annotated[Path | None, about("advise.journals")] = None,
    json: Annotated[bool, about("advise.json")] = False,
) -> int:
    """Say what Penstock would save, from the event logs of jobs that ran without it."""
    if not logs:
        raise ConfigError("advise needs at least one event log, or a directory of them")
    texts = tuple(dict.fromkeys([DEFAULT_POLICY, *listed(policy or ())]))
    prices = {"price": price, "core_price": core_price, "gb_price": gb_price}
    given = {key: value for key, value in prices.items() if value is not None}
    goal = structs.replace(Goal(slo_s=slo or Goal().slo_s), **given)
    least = 1 if min is None else min
    keeps, in_money = journals is not None, bool(given)
    question = Question(texts, goal, least, max, last or 86_400.0, in_money, keeps)
    for text in texts:
        most = max or least + DEFAULT_BOUNDS["max_executors"]
        read_policy_spec(text, {"min_executors": least, "max_executors": most}, goal)
    check_place(html)
    if journals is not None:
        check_place(journals / "page.html")
    from penstock.lab.advise import pipeline
    from penstock.lab.experiments.on_spark import exists, frame
    from penstock.testbed.sessions import open_session

    with open_session("penstock-advise", master, pipeline.SESSION_SETTINGS) as spark:
        if out is not None and exists(spark, out):
            raise ConfigError(f"--out {out} exists already: name another place")
        files = pipeline.find_logs(spark, logs)
        answers = pipeline.answers(spark, files, question)
        with progress("advise", "tasks", lambda: pipeline.tasks_done(spark)):
            found = sorted(answers.map(lambda answer: answer.rows).collect(), key=_order)
        rows = [row for each in found for row in each]
        if out is not None:
            frame(spark, rows, Advice).coalesce(1).write.parquet(out)
        links: dict[str, str] = {}
        if journals is not None:
            for answer in filter(lambda answer: answer.journals, answers.toLocalIterator()):
                kept = _keep_journals(journals, answer, goal.slo_s)
                links[answer.rows[0].log] = os.path.relpath(kept, html.parent)
    write_whole(html, [advice_page(rows, question, links).encode()])
    if json:
        print_json(rows)
    else:
        _print(rows, question)
        console().print(file_size(html))
    problems = dict.fromkeys(row.problem for row in rows if row.problem)
    for problem in problems:
        note(problem)
    return 1 if problems else 0


def _order(rows: list[Advice]) -> tuple[bool, float, str]:
    """What saves most first, then what cannot be said."""
    saved_hours = rows[0].saved_hours
    return saved_hours is None, -(saved_hours or 0.0), rows[0].application


def _keep_journals(directory: Path, answer: Answer, slo_s: float) -> Path:
    """The journals of an application; where the page is whose charts compare them."""
    # By its log: attempts and copies of one application have logs of their own.
    log = answer.rows[0].log.rpartition("/")[2].removeprefix("eventlog_v2_")
    name, runs = re.sub(r"[^\w.-]+", "-", log), []
    for policy, packed in answer.journals.items():
        ending = re.sub(r"[^\w.=,-]+", "-", f".{policy}.jsonl" if policy else ".jsonl")
        place = directory / f"{name}{ending}"
        write_whole(place, [zlib.decompress(packed)])
        runs.append((policy or "as it was", list(read_steps(place))))
    html = page(runs[:MOST_JOURNALS], title=f"{answer.rows[0].name} {name}", slo_s=slo_s)
    write_whole(directory / f"{name}.html", [html.encode()])
    return directory / f"{name}.html"


def _print(rows: list[Advice], question: Question) -> None:
    screen, table = console(), Table(box=None, pad_edge=False)
    for place, row in enumerate(row for row in rows if not row.cannot_say):
        texts = row_texts(row, question)
        for name in texts if place == 0 else ():
            table.add_column(name, justify="left" if name in ("application", "policy") else "right")
        table.add_row(*texts.values())
    if table.row_count:
        screen.print(table)
    for row in (row for row in rows if row.cannot_say):
        screen.print(f"{row.application} {row.policy}: cannot say, because {row.cannot_say}")
