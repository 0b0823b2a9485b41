"""A tournament as one page: who ranks where, what the cost is made of, regret on each load."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby, zip_longest
from math import log1p

from penstock.cli.views.ranking import columns
from penstock.core.phrases import counted
from penstock.lab.experiments.tournament import Standing
from penstock.observe.formatting import thousandths
from penstock.observe.report.frame import framed, table_section, template
from penstock.settings.goal import Goal

Loads = Sequence[Sequence[Standing]]

#: A bar that would be longer than this many times the shortest is broken off, so that the
#: others can be distinguished.
LONGEST_BAR = 4.0
#: Below this, regret is drawn on a straight scale, above it on a logarithmic one.
STRAIGHT_TO = 0.1
#: Columns of the ranking that the page draws or leaves out.
DRAWN = ("cost", "± 95 %", "mean")
TICKS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)


def comparison_page(table: Sequence[Standing], goal: Goal, notes: Sequence[str] = ()) -> str:
    """One self-contained HTML page; it loads nothing, and all text in it is escaped.

    >>> one = Standing("a<b", "sine", "micro-batch", 1, 10.0, 2.0, 1.0, 2.0, 3.0, 0.01, 4, 6, 12.0,
    ...                0.0, 0.2)
    >>> page = comparison_page([one], Goal())
    >>> "a&lt;b" in page, "a<b" in page
    (True, False)
    """
    loads = [list(group) for _, group in groupby(table, key=lambda s: (s.workload, s.engine))]
    policies = dict.fromkeys(standing.policy for standing in table)
    on = _name(loads[0][0]) if len(loads) == 1 else f"{len(loads)} loads"
    title = f"{counted(len(policies), 'policy', plural='policies')} on {on}"
    parts = [
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        _across(loads) if len(loads) > 1 else "",
        *(_load(group, goal) for group in loads),
    ]
    return framed(title, "\n".join(filter(None, parts)), style=template("comparison.css"))


def _load(group: Sequence[Standing], goal: Goal) -> str:
    """The ranking on one load, with what each cost is made of."""
    top = min(group[-1].cost, LONGEST_BAR * group[0].cost) or 1.0
    numbers = [
        column
        for column in columns(goal)
        if column.name not in DRAWN and any(column.text_of(row) != "-" for row in group)
    ]
    head = _heads("", "policy", "cost", "what it is made of", *(each.name for each in numbers))
    body = "".join(
        f'<tr{" class=best" if rank == 1 else ""}><td class="rank">{rank}</td>'
        f'<th class="name" scope="row">{escape(row.policy)}</th>'
        f'<td class="number cost" data-label="cost">{_cost(row)}</td>'
        f'<td class="drawn">{_bar(row, goal, top)}</td>'
        + "".join(_cell(column.name, column.text_of(row)) for column in numbers)
        + "</tr>"
        for rank, row in enumerate(group, start=1)
    )
    seeds = f"mean of {group[0].seeds} seeds, " if group[0].seeds > 1 else ""
    keys = (
        '<p class="keys">'
        '<span><i class="part-hours"></i>executors</span>'
        f'<span><i class="part-late"></i>late records (over {goal.slo_s:g} s)</span>'
        '<span><i class="part-moves"></i>moves</span>'
        f"<span>{seeds}cheapest first; a bar beyond {LONGEST_BAR:g} times the first is broken off"
        "</span></p>"
    )
    return table_section(_name(group[0]), "ranked", head, body, keys)


def cost_parts(row: Standing, goal: Goal) -> tuple[float, float, float]:
    """What of the cost is for executors, for late records and for moves.

    >>> one = Standing("hpa", "sine", "micro-batch", 1, 10.0, 2.0, 1.0, 2.0, 3.0, 0.01, 4, 6, 12.0,
    ...                0.0, None)
    >>> [round(part, 2) for part in cost_parts(one, Goal())]
    [10.0, 1.9, 0.1]
    """
    hours, moves = row.executor_hours * goal.executor_price, row.moved_executors * goal.move_price
    return hours, max(0.0, row.cost - hours - moves), moves


def _bar(row: Standing, goal: Goal, top: float) -> str:
    parts = zip(("hours", "late", "moves"), cost_parts(row, goal), strict=True)
    drawn, begin, texts = "", 0.0, []
    for name, value in parts:
        width = max(0.0, min(begin + value, top) - min(begin, top))
        begin += value
        texts.append(f"{name} {value:.1f}")
        if width > 0.0:
            drawn += f'<i class="part-{name}" style="width:{100.0 * width / top:.2f}%"></i>'
    beyond = " beyond" if row.cost > top * 1.0001 else ""
    about = escape(f"{row.policy}: cost {row.cost:.1f} of {', '.join(texts)}")
    return (
        f'<div class="parts{beyond}" role="img" aria-label="{about}" title="{about}">{drawn}</div>'
    )


def _cost(row: Standing) -> str:
    interval = f" <small>± {row.cost_interval:.1f}</small>" if row.seeds > 2 else ""
    return f"{row.cost:.1f}{interval}"


def _across(loads: Loads) -> str:
    """Who does well everywhere: mean and worst, drawn and in numbers."""
    known = all(row.regret is not None for group in loads for row in group)
    word = "regret" if known else "above the cheapest"
    excess: dict[str, list[float | None]] = {}
    for place, group in enumerate(loads):
        for row in group:
            values = excess.setdefault(row.policy, [None] * len(loads))
            values[place] = row.regret if known else above(row, group)
    excess = dict(sorted(excess.items(), key=lambda item: _mean(item[1])))
    top = max(value for values in excess.values() for value in values if value is not None)
    wins = [group[0].policy for group in loads]
    body = "".join(
        f'<tr{" class=best" if rank == 1 else ""}><td class="rank">{rank}</td>'
        f'<th class="name" scope="row">{escape(policy)}</th>'
        f'<td class="number cost" data-label="mean {word}">{thousandths(_mean(values))}</td>'
        f'<td class="drawn">{_strip(values, loads, top)}</td>'
        + _cell(f"worst {word}", thousandths(max(v for v in values if v is not None)))
        + _cell("won", str(wins.count(policy)))
        + "</tr>"
        for rank, (policy, values) in enumerate(excess.items(), start=1)
    )
    scale = (
        '<tr class="scale-row"><td></td><th></th><td></td>'
        f'<td class="drawn">{_scale(top)}</td><td></td><td></td></tr>'
    )
    head = _heads("", "policy", f"mean {word}", f"{word} on each load", f"worst {word}", "won")
    about = "" if known else f"<span>{word} = cost / cost of the cheapest on that load - 1</span>"
    keys = (
        '<p class="keys"><span><i class="round"></i>one load</span>'
        '<span><i class="stroke"></i>mean of all</span>'
        f"{about}</p>"
    )
    overall = table_section(f"Over all {len(loads)} loads", "ranked", head, body + scale, keys)
    return overall + _matrix(excess, loads, word)


def above(row: Standing, group: Sequence[Standing]) -> float:
    """How far a cost is above the lowest of its group."""
    return row.cost / group[0].cost - 1.0 if group[0].cost > 0.0 else 0.0


def _matrix(excess: Mapping[str, Sequence[float | None]], loads: Loads, word: str) -> str:
    lows = [
        min(value for value in column if value is not None)
        for column in zip(*excess.values(), strict=True)
    ]

    def cell(value: float | None, low: float) -> str:
        if value is None:
            return "<td></td>"
        if value == low:
            return f'<td class="best">{thousandths(value)}</td>'
        return f'<td style="--heat:{min(60.0, 30.0 * log1p(value)):.0f}%">{thousandths(value)}</td>'

    names = "".join(f'<th scope="col">{escape(_name(group[0]))}</th>' for group in loads)
    head = f"<tr><td></td>{names}</tr>"
    body = "".join(
        f'<tr><th scope="row">{escape(policy)}</th>' + "".join(map(cell, values, lows)) + "</tr>"
        for policy, values in excess.items()
    )
    return table_section(f"{word.capitalize()} per load", "matrix", head, body)


def _strip(values: Sequence[float | None], loads: Loads, top: float) -> str:
    dots = "".join(
        f'<i style="left:{_at(value, top):.1f}%" '
        f'title="{escape(_name(group[0]))}: {thousandths(value)}"></i>'
        for value, group in zip(values, loads, strict=True)
        if value is not None
    )
    mean = f'<i class="mean" style="left:{_at(_mean(values), top):.1f}%"></i>'
    return f'<div class="strip" aria-hidden="true">{dots}{mean}</div>'


def _scale(top: float) -> str:
    """Ticks of the strips, none so near to another that they touch."""
    kept: list[float] = []
    for tick in TICKS:
        if tick <= top and (not kept or _at(tick, top) - _at(kept[-1], top) >= 9.0):
            kept.append(tick)
    marks = "".join(f'<span style="left:{_at(tick, top):.1f}%">{tick:g}</span>' for tick in kept)
    return f'<div class="scale" aria-hidden="true">{marks}</div>'


def _at(value: float, top: float) -> float:
    """Where on a strip, in percent of its length."""
    if top <= 0.0:
        return 2.0
    return 2.0 + 96.0 * log1p(max(0.0, value) / STRAIGHT_TO) / log1p(top / STRAIGHT_TO)


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known)


def _name(row: Standing) -> str:
    return f"{row.workload} on {row.engine}"


def _heads(*names: str) -> str:
    kinds = ("rank", "name", "number", "drawn")
    heads = zip_longest(names, kinds[: len(names)], fillvalue="number")
    cells = (f'<th scope="col" class="{kind}">{escape(name)}</th>' for name, kind in heads)
    return f"<tr>{''.join(cells)}</tr>"


def _cell(name: str, text: str) -> str:
    return f'<td class="number" data-label="{escape(name)}">{text}</td>'
