"""docs/growth.md and its figure, from the curves of ``python -m benchmarks.growth``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec
from benchmarks.growth import RESULTS, Curve, Growth

#: Kept snapshots of an application (`HISTORY_SNAPSHOTS`), and days of turns every ten seconds.
HISTORY, TURNS_A_DAY = 4096, 8640
COLOURS = ("#0b62a4", "#c2500a", "#2a8a6a", "#8a4fa3", "#7a7a1a")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 400.0, 250.0, 56.0, 40.0, 34.0
TITLES = {
    "executors": "With executors",
    "queries": "With queries (10 executors)",
    "turns": "With turns of a journal (10 executors)",
    "MB of event log": "With MB of an event log",
}


def load() -> Growth:
    return msgspec.json.decode(RESULTS.read_bytes(), type=Growth, strict=False)


def page() -> str:
    """The page: a table for each thing that grows, and what follows for large ones."""
    found, numbers = load(), _numbers(load())
    texts = tomllib.loads((Path(__file__).parent / "growth.toml").read_text("utf-8"))
    said = {name: text.strip().format(where=found.where, **numbers) for name, text in texts.items()}
    lines = [said["head"], ""]
    for along, title in TITLES.items():
        curves = [each for each in found.curves if each.along == along]
        sizes = list(curves[0].points)
        lines += [f"## {title}", "", f"| {along} | " + " | ".join(f"{at:,}" for at in sizes) + " |"]
        lines += ["|---|" + "---:|" * len(sizes)]
        for each in curves:
            cells = " | ".join(f"{_number(each.points[at])} {each.unit}" for at in sizes)
            lines.append(f"| {each.name} | {cells} |")
        lines += ["", said[along], ""]
    return "\n".join([*lines, said["expected"]]) + "\n"


def _numbers(found: Growth) -> dict[str, object]:
    """What follows from the curves, for the text."""
    at = {(each.along, each.name): each.points for each in found.curves}
    line = at["executors", "a line of the journal"]
    memory = at["executors", "memory of a remembered turn"]
    journal = at["turns", "the journal"]
    log = at["MB of event log", "reading an event log (zstd)"]
    most = max(line)
    remembered = {size: _bytes(kb * 1e3 * HISTORY) for size, kb in memory.items()}
    return {
        "history": HISTORY,
        "turns_a_day": TURNS_A_DAY,
        "remembered": ", ".join(f"{text} at {size:,}" for size, text in remembered.items()),
        "memory": remembered[most],
        "journal_mb_a_day": journal[max(journal)] / max(journal) * TURNS_A_DAY,
        "log_mb_per_s": max(log) / log[max(log)],
        "log_core_h": 1000 * 1000 / (max(log) / log[max(log)]) / 3600,
        "turn_ms": at["executors", "a turn of `penstock`"][most],
        "line_kb": line[most],
        "line_gb_a_day": line[most] * TURNS_A_DAY / 1e6,
        "kept_h": 5 * 64 * 2**20 / (line[most] * 1e3) / 360,
        "store_gb_a_day": 1000 * line[10] * TURNS_A_DAY / 1e6,
    }


def _number(value: float) -> str:
    """Two digits that count.

    >>> _number(2610.0), _number(10.4), _number(0.0369)
    ('2,600', '10', '0.037')
    """
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def chart() -> str:
    """docs/images/growth.svg: a panel for each thing that grows, axes logarithmic."""
    found = load()
    panels = [
        _panel([each for each in found.curves if each.along == along], title)
        for along, title in TITLES.items()
    ]
    drawn = [
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {2 * WIDTH:.0f} {2 * HEIGHT + 150:.0f}">',
        "<style>text { font: 12px system-ui, sans-serif; fill: #5b6670 } path { fill: none }"
        " .title { font-weight: 600; fill: #1a1f24; font-size: 14px } </style>",
        '<rect width="100%" height="100%" rx="8" fill="#fcfcfb"/>',
    ]
    for number, panel in enumerate(panels):
        x, y = WIDTH * (number % 2), (HEIGHT + 75) * (number // 2)
        drawn += [f'<g transform="translate({x:.0f} {y:.0f})">', *panel, "</g>"]
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _panel(curves: Sequence[Curve], title: str) -> Iterator[str]:
    sizes = list(curves[0].points)
    values = [value for each in curves for value in each.points.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    right, floor = WIDTH - 20.0, HEIGHT - BOTTOM

    def x(at: float) -> float:
        share = (math.log10(at) - math.log10(sizes[0])) / (
            math.log10(sizes[-1]) - math.log10(sizes[0])
        )
        return LEFT + (right - LEFT) * share

    def y(value: float) -> float:
        return floor - (floor - TOP) * (math.log10(value) - low) / (high - low)

    yield f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>'
    for power in range(low, high + 1):
        at = y(10.0**power)
        yield f'<path d="M{LEFT} {at:.1f}H{right}" stroke="#dfe3e6"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:,g}</text>'
    for size in sizes:
        yield f'<text x="{x(size):.1f}" y="{floor + 18:.1f}" text-anchor="middle">{size:,}</text>'
    for place, (each, colour) in enumerate(zip(curves, COLOURS, strict=False)):
        path = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in each.points.items())
        yield f'<path d="M{path}" stroke="{colour}" stroke-width="2"/>'
        yield from (
            f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>'
            for at, value in each.points.items()
        )
        text = escape(f"{each.name.replace('`', '')}, {each.unit}")
        below = HEIGHT + 16 * place
        yield f'<path d="M{LEFT} {below + 6:.0f}h16" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{LEFT + 22}" y="{below + 10:.0f}">{text}</text>'
