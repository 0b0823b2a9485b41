"""What could be saved, as texts and as one page."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from penstock.core.phrases import counted, duration
from penstock.lab.advise.advice import MONTH_HOURS, Advice, Question
from penstock.observe.report.frame import framed, table_section, template, tiles


def row_texts(row: Advice, question: Question) -> dict[str, str]:
    """The figures of a row that says something, by the names of their columns.

    >>> row = Advice(application="app-1", log="l", policy="penstock", paid_executors=6.0,
    ...              needed_executors=4.0, saved_hours=1460.0)
    >>> texts = row_texts(row, Question(("penstock",)))
    >>> texts["saved a month"], texts["late (> 10 s)"]
    ('1,460 h (33 %)', '0.0 %')
    """
    paid, late = row.paid_executors or 0.0, f"late (> {question.goal.slo_s:g} s)"
    saved = f"{row.saved_hours or 0.0:,.0f} h"
    share = (row.saved_hours or 0.0) / (paid * MONTH_HOURS) if paid else 0.0
    texts = {
        "application": f"{row.name} {row.application}".strip(),
        "policy": row.policy,
        "judged": duration(3600.0 * (row.judged_hours or 0.0)),
        "executors paid": f"{paid:.1f}",
        "needed": f"{row.needed_executors or 0.0:.1f}",
        "saved a month": f"{saved} ({100 * share:.0f} %)",
        late: f"{100 * (row.late_fraction or 0.0):.1f} %",
        f"then {late}": f"{100 * (row.needed_late_fraction or 0.0):.1f} %",
        "error": f"{100 * (row.error or 0.0):.1f} %",
    }
    if row.saved_money is not None:
        texts["money a month"] = f"{row.saved_money:,.0f}"
    return texts


def advice_page(rows: Sequence[Advice], question: Question, links: Mapping[str, str]) -> str:
    """One self-contained page, what saves most first; `links` are pages of single logs.

    >>> row = Advice(application="a<b", log="l", cannot_say="it has no streaming query")
    >>> page = advice_page([row], Question(("penstock",)), {})
    >>> "a&lt;b" in page, "it has no streaming query" in page
    (True, True)
    """
    said = [row for row in rows if not row.cannot_say]
    first = [row for row in said if row.policy == question.policies[0]]
    paid = MONTH_HOURS * sum(row.paid_executors or 0.0 for row in first)
    saved = sum(row.saved_hours or 0.0 for row in first)
    logs = counted(len({row.log for row in rows}), "application")
    facts = [
        ("judged", str(len(first)), f"of {logs}"),
        ("paid a month", f"{paid:,.0f} h", "of executors"),
        (f"saved by {question.policies[0]}", f"{saved:,.0f} h", "a month"),
    ]
    if question.in_money:
        money = sum(row.saved_money or 0.0 for row in first)
        facts.append(("money", f"{money:,.0f}", "saved a month"))
    about = (
        f"A month has {MONTH_HOURS:g} hours like those that were judged, at most the last "
        f"{duration(question.last_s)} of each log. The error is that of the simulated job on the "
        "half of the log that it had not seen."
    )
    parts = [tiles(facts), f'<p class="note">{escape(about)}</p>']
    if said:
        texts = [row_texts(row, question) for row in said]
        cells, places = [list(each.values()) for each in texts], [links.get(r.log) for r in said]
        parts.append(_table("What could be saved", texts[0], cells, places))
    for title, field in (
        ("Cannot say, because", "cannot_say"),
        ("Problems", "problem"),
        ("What to change first", "findings"),
    ):
        found = {
            (row.application, text) for row in rows for text in getattr(row, field).split("\n")
        }
        if shown := sorted((name, text) for name, text in found if text):
            parts.append(_table(title, ["application", "what"], shown, kind="facts"))
    title = f"What could be saved on {logs}"
    style = template("comparison.css") + ".facts td { overflow-wrap: anywhere; }"
    return framed(title, "\n".join(parts), style=style)


def _table(
    title: str,
    names: Iterable[str],
    rows: Iterable[Sequence[str]],
    links: Sequence[str | None] = (),
    kind: str = "ranked",
) -> str:
    """A table of figures, which have their names beside them on a phone, or of sentences."""
    first_name, *labels = map(escape, names)
    head = f'<th class="name" scope="col">{first_name}</th>'
    head += "".join(f'<th scope="col">{label}</th>' for label in labels)
    opened = [f'<td class="number" data-label="{label}">' for label in labels]
    body = ""
    for place, (first, *others) in enumerate(rows):
        link = links[place] if links else None
        name = f'<a href="{escape(link)}">{escape(first)}</a>' if link else escape(first)
        cells = "".join(f"{td}{escape(text)}</td>" for td, text in zip(opened, others, strict=True))
        body += f'<tr><th class="name" scope="row">{name}</th>{cells}</tr>'
    return table_section(title, kind, f"<tr>{head}</tr>", body)
