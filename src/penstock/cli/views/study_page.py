"""A reproduced study as one page: claims, charts, the paper's tables beside ours, the fit."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

from penstock.lab.studies import study as kinds
from penstock.lab.studies.study import Claim, Distance, Metric, Study
from penstock.observe.report.frame import framed, table_section, template, tiles

NO_SCRIPT = (
    '<noscript><p class="note">The charts are drawn by a script inside this page, which is '
    "switched off here.</p></noscript>"
)
REACHED = {True: "reached", False: "missed", None: ""}


def study_page(study: Study) -> str:
    """One self-contained HTML page; it loads nothing, and all text in it is escaped.

    >>> from penstock.lab.studies.study import Claim, Study
    >>> held = Claim("X1", "more is < less", True, {"more": 2.0})
    >>> page = study_page(Study("x2024", "A study", "its authors", "one run", (), (held,)))
    >>> "<title>A study</title>" in page, "more is &lt; less" in page
    (True, True)
    """
    parts = (
        f'<p class="note">{escape(study.protocol)}</p>',
        _tiles(study),
        _claims(study),
        figure_grid(study.figures, []),
        *map(_side_by_side, study.tables),
        _distances(study.distances),
        *map(_calibration, study.calibrations),
        f'<p class="hint">Source: {escape(study.source)}</p>',
        NO_SCRIPT if study.figures else "",
    )
    return framed(
        study.title,
        "\n".join(part for part in parts if part),
        style=template("study.css"),
        script=template("charts.js") + template("study.js"),
        data=study.figures,
    )


def _tiles(study: Study) -> str:
    reached = [one.reached for one in study.distances if one.reached is not None]
    errors = [
        (f"off on held-back {name}", f"{off:.1%}", each.job)
        for each in study.calibrations
        for name, off in each.errors.items()
    ]
    facts = [("claims that hold", f"{study.held} of {len(study.counted)}", "")]
    if reached:
        facts.append(("aims reached", f"{sum(reached)} of {len(reached)}", "rank correlations"))
    return tiles([*facts, *errors[:6]])


def verdict(claim: Claim) -> str:
    """How a claim came out, in a word.

    >>> verdict(Claim("X1", "", None, {})), verdict(Claim("X2", "", True, {}, is_given=True))
    ('open', 'given')
    """
    if claim.holds is None:
        return "open"
    return "fails" if not claim.holds else "given" if claim.is_given else "holds"


#: The mark of each verdict, its colour on a screen, and what is said of it.
VERDICTS = {
    "holds": ("✓", "green", ""),
    "fails": ("✗", "red", "does not hold"),
    "given": ("=", "dim", "holds by construction"),
    "open": ("?", "dim", "cannot be tested here"),
}


def _claims(study: Study) -> str:
    items = "".join(map(_claim, study.claims))
    return (
        f"<section><h2>Claims</h2><p>{escape(study.summary)}.</p>"
        f'<ul class="claims">{items}</ul></section>'
    )


def _claim(one: Claim) -> str:
    name = verdict(one)
    mark, _, words = VERDICTS[name]
    why = ": ".join(filter(None, (words, one.reason)))
    return (
        f'<li><span class="{name}">{mark}</span><b>{escape(one.claim)}</b>'
        f"<div><p>{escape(one.text)}</p>"
        + (f'<p class="why">{escape(why)}</p>' if why else "")
        + (
            f"<details><summary>evidence</summary>"
            f"{_numbers(one.evidence, intervals=one.intervals)}</details>"
            if one.evidence
            else ""
        )
        + "</div></li>"
    )


def _short(value: float, digits: int = 4) -> str:
    """All digits before the point, and no more after it than make up `digits`.

    >>> _short(2448000.4), _short(5.91672), _short(162.3, 2)
    ('2,448,000', '5.917', '162')
    """
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _numbers(
    values: Mapping[str, float],
    shown: Callable[[float], str] = _short,
    intervals: Mapping[str, float] | None = None,
) -> str:
    half = {name: f" ± {_short(width, 2)}" for name, width in (intervals or {}).items() if width}
    rows = (
        f"<dt>{escape(name)}</dt><dd>{shown(value)}{half.get(name, '')}</dd>"
        for name, value in values.items()
    )
    return f'<dl class="evidence">{"".join(f"<div>{row}</div>" for row in rows)}</dl>'


def figure_grid(shown: Sequence[kinds.Figure], page: list[kinds.Figure]) -> str:
    """Places for figures side by side; `page` is the list of all of the page, which grows."""
    sections = ""
    for one in shown:
        is_wide = isinstance(one, kinds.Bars) and one.wide
        sections += (
            f"<section{' class=wide' if is_wide else ''}>"
            f'<figure data-figure="{len(page)}"></figure>'
            + (f'<p class="hint">{escape(one.note)}</p>' if one.note else "")
            + "</section>"
        )
        page.append(one)
    return f'<div class="figures">{sections}</div>' if shown else ""


def _side_by_side(table: kinds.Comparison) -> str:
    printed = any(value is not None for entry in table.entries for value in entry.paper.values())
    sides = ("paper", "ours") if printed else ("ours",)
    names = "".join(
        f'<th colspan="{len(sides)}" scope="colgroup">{escape(titled(metric))}</th>'
        for metric in table.metrics
    )
    heads = "".join(f'<th scope="col">{side}</th>' for _ in table.metrics for side in sides)
    rows = "".join(
        f'<tr><th scope="row">{escape(entry.label)}</th>'
        + "".join(
            f'<td class="{side}-side{" ours" if side == "ours" else ""}">'
            f"{_number(getattr(entry, side).get(metric.name), metric.decimals)}</td>"
            for metric in table.metrics
            for side in sides
        )
        + "</tr>"
        for entry in table.entries
    )
    head = f"<tr><th></th>{names}</tr>" + (f"<tr><th></th>{heads}</tr>" if printed else "")
    return table_section(table.title, "side", head, rows)


def titled(metric: Metric) -> str:
    """What stands over a column: the name, and its unit once.

    >>> titled(Metric("response_s", "s")), titled(Metric("instances"))
    ('response, s', 'instances')
    """
    if not metric.unit:
        return metric.name
    return f"{metric.name.removesuffix('_' + metric.unit)}, {metric.unit}"


def _number(value: float | None, decimals: int) -> str:
    return "–" if value is None else f"{value:,.{decimals}f}"


def _distances(distances: tuple[Distance, ...]) -> str:
    if not distances:
        return ""
    aimed = any(one.aim is not None for one in distances)
    head = '<th></th><th scope="col">value</th>' + ('<th scope="col">aim</th>' if aimed else "")
    rows = "".join(
        f'<tr><th scope="row">{escape(one.name)}</th>'
        f'<td class="{REACHED[one.reached]}">{one.value:.2f}</td>'
        + (f"<td>{aim(one)}</td>" if aimed else "")
        + "</tr>"
        for one in distances
    )
    return table_section("How near", "side", f"<tr>{head}</tr>", rows)


def aim(one: Distance) -> str:
    """What was aimed at, nothing where nothing was.

    >>> aim(Distance("error", 0.3, 0.25, more_is_better=False)), aim(Distance("error", 0.3))
    ('≤ 0.25', '')
    """
    if one.aim is None:
        return ""
    return f"{'≥' if one.more_is_better else '≤'} {one.aim:g}"


def _calibration(one: kinds.Calibration) -> str:
    off = _numbers(one.errors, "{:.1%}".format)
    judged = f"<h3>Off on what was held back</h3>{off}" if one.errors else ""
    return (
        f"<section><h2>The engine for {escape(one.job)}</h2><p>{escape(one.text)}</p>"
        f"<details open><summary>what was found</summary>{_numbers(one.fitted)}</details>"
        f"{judged}</section>"
    )
