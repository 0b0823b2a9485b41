"""A journal as an animated SVG: load, fleet and delay as they grew, each rescale in words.

The charts are drawn complete, and a cover that moves to the right uncovers them: where nothing
moves (a printed page, a reader who wants no motion) the whole run is there.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from penstock.core.model import Snapshot, Step
from penstock.observe.formatting import instant, move, why

#: How long the run takes to pass, and how long its end stays, in seconds.
LAPSE_S, STAY_S = 30.0, 5.0
WIDTH, LEFT, RIGHT = 860.0, 64.0, 28.0
PLOT = WIDTH - LEFT - RIGHT
TOP, HEIGHT, GAP = 58.0, 92.0, 44.0
LINE_CHARACTERS, MOST_LINES = 112, 3

STYLE = """\
svg { --back: #fcfcfb; --ink: #1a1f24; --soft: #5b6670; --grid: #dfe3e6; --load: #0b62a4;
  --fleet: #c2500a; --active: #cfe6df; --late: #b3261e; }
@media (prefers-color-scheme: dark) { svg { --back: #14181c; --ink: #e6e9ec; --soft: #9aa5af;
  --grid: #2c343b; --load: #6cb2ee; --fleet: #f0944d; --active: #1f4a41; --late: #f2837b; } }
text { font: 13px system-ui, sans-serif; fill: var(--soft); }
.title { font-size: 17px; font-weight: 600; fill: var(--ink); }
.name { font-weight: 600; fill: var(--ink); }
.said { font-size: 14px; fill: var(--ink); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
"""


class Panel(NamedTuple):
    """One chart: its name, its unit, its largest value, and where it begins from above."""

    name: str
    unit: str
    ceiling: float
    top: float

    def y(self, value: float) -> float:
        return self.top + HEIGHT * (1.0 - min(value, self.ceiling) / self.ceiling)


def timelapse(steps: Sequence[Step], title: str, slo_s: float) -> str:
    """The animated SVG of a run."""
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    begin_s, span_s = seen[0].at_s, seen[-1].at_s - seen[0].at_s

    def x(at_s: float) -> float:
        return LEFT + PLOT * (at_s - begin_s) / span_s

    load = _panel("Load", "records/s", [at.arrival_rps or 0.0 for at in seen], 0)
    largest = max(at.fleet.target for at in seen)
    fleet = _panel("Executors", "", [2.0 * (largest // 2 + 1)], 1)
    delays = [at.delay_s or 0.0 for at in seen]
    delay = _panel("Delay of the oldest record", "s", [*delays, 1.2 * slo_s], 2)
    bottom = delay.top + HEIGHT
    captions = list(_captions(steps, begin_s, span_s))
    height = bottom + 48 + 19 * MOST_LINES
    moving = [
        "@keyframes uncover { 0% { transform: none } "
        f"{_percent(LAPSE_S)}, 100% {{ transform: translateX({PLOT + 8:.0f}px) }} }}",
        f".cover {{ animation: uncover {LAPSE_S + STAY_S:g}s linear infinite;"
        f" transform: translateX({PLOT + 8:.0f}px); }}",
        *(keyframes for _, keyframes in captions),
        "@media (prefers-reduced-motion: reduce) { * { animation: none !important } }",
    ]
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" '
        f'role="img"><title>{escape(title)}</title>',
        f"<style>{STYLE}" + "\n".join(moving) + "</style>",
        '<rect width="100%" height="100%" rx="8" fill="var(--back)"/>',
        f'<text class="title" x="18" y="30">{escape(title)}</text>',
        _area(seen, x, fleet),
        _line(seen, x, load, lambda at: at.arrival_rps, "load"),
        _steps(seen, x, fleet),
        f'<rect x="{LEFT}" y="{delay.top:.1f}" width="{PLOT}" '
        f'height="{delay.y(slo_s) - delay.top:.1f}" fill="var(--late)" opacity="0.12"/>',
        _line(seen, x, delay, lambda at: at.delay_s, "load"),
        f'<svg x="{LEFT + 1}" y="{TOP - 8}" width="{PLOT + 8}" height="{bottom - TOP + 16:.0f}">'
        '<rect class="cover" width="100%" height="100%" fill="var(--back)"/></svg>',
        *_frame(load), *_frame(fleet), *_frame(delay),
        f'<text x="{WIDTH - RIGHT}" y="{delay.y(slo_s) - 4:.1f}" text-anchor="end" '
        f'style="fill:var(--late)">SLO {slo_s:g} s</text>',
        *_times(span_s, bottom),
        *(text for text, _ in captions),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(part for part in drawn if part) + "\n"


def _percent(at_s: float) -> str:
    return f"{100.0 * at_s / (LAPSE_S + STAY_S):.2f}%"


def _panel(name: str, unit: str, values: Sequence[float], place: int) -> Panel:
    return Panel(name, unit, _rounded_up(max(values)), TOP + 14 + place * (HEIGHT + GAP))


def _rounded_up(value: float) -> float:
    """The next number with one digit, so that an axis ends at a round one.

    >>> _rounded_up(3391.0), _rounded_up(8.0), _rounded_up(0.0)
    (4000.0, 8.0, 1.0)
    """
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return math.ceil(value / unit) * unit


def _line(
    seen: Sequence[Snapshot],
    x: Callable[[float], float],
    panel: Panel,
    value: Callable[[Snapshot], float | None],
    colour: str,
) -> str:
    """A line through what was measured, with gaps where nothing was."""
    path, pen = [], "M"
    for at in seen:
        if (found := value(at)) is None:
            pen = "M"
        else:
            path.append(f"{pen}{x(at.at_s):.1f} {panel.y(found):.1f}")
            pen = "L"
    return f'<path class="line" style="stroke:var(--{colour})" d="{"".join(path)}"/>'


def _steps(seen: Sequence[Snapshot], x: Callable[[float], float], panel: Panel) -> str:
    path = "".join(f"H{x(at.at_s):.1f}V{panel.y(at.fleet.target):.1f}" for at in seen)
    start = f"M{LEFT} {panel.y(seen[0].fleet.target):.1f}"
    return f'<path class="line" style="stroke:var(--fleet)" d="{start}{path}"/>'


def _area(seen: Sequence[Snapshot], x: Callable[[float], float], panel: Panel) -> str:
    path = "".join(f"H{x(at.at_s):.1f}V{panel.y(at.fleet.active):.1f}" for at in seen)
    floor = panel.top + HEIGHT
    return f'<path fill="var(--active)" d="M{LEFT} {floor:.1f}{path}V{floor:.1f}Z"/>'


def _frame(panel: Panel) -> Iterator[str]:
    """Name, axis and grid of a chart."""
    unit = f" ({panel.unit})" if panel.unit else ""
    yield f'<text x="{LEFT}" y="{panel.top - 8:.1f}"><tspan class="name">{panel.name}</tspan>{unit}'
    if panel.name == "Executors":
        yield (
            '<tspan dx="12" style="fill:var(--fleet)">&#9472; requested</tspan>'
            '<tspan dx="12" style="fill:var(--active)">&#9632;</tspan><tspan> at work</tspan>'
        )
    yield "</text>"
    for share in (0.0, 0.5, 1.0):
        value = share * panel.ceiling
        yield (
            f'<path d="M{LEFT} {panel.y(value):.1f}H{WIDTH - RIGHT}" stroke="var(--grid)"/>'
            f'<text x="{LEFT - 8}" y="{panel.y(value) + 4:.1f}" text-anchor="end">{value:,g}</text>'
        )


def _times(span_s: float, bottom: float) -> Iterator[str]:
    for minute in range(int(span_s // 60) + 1):
        x = LEFT + PLOT * 60.0 * minute / span_s
        yield f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{minute} min</text>'


def _captions(steps: Sequence[Step], begin_s: float, span_s: float) -> Iterator[tuple[str, str]]:
    """Each rescale in words with the rule that shows it until the next one."""
    moves = [step for step in steps if step.receipt is not None and step.receipt.accepted]
    y = TOP + 14 + 3 * HEIGHT + 2 * GAP + 46
    starts = [LAPSE_S * (step.at_s - begin_s) / span_s for step in moves]
    for number, (step, start_s) in enumerate(zip(moves, starts, strict=True)):
        words = f"{instant(step.at_s - begin_s)}   {move(step)}   {why(step)}"
        lines = textwrap.wrap(words, LINE_CHARACTERS, max_lines=MOST_LINES, placeholder=" ...")
        is_last = number + 1 == len(moves)
        spans = "".join(
            f'<tspan x="18" dy="{19 if place else 0}">{escape(line)}</tspan>'
            for place, line in enumerate(lines)
        )
        hidden = "" if is_last else ' style="opacity:0"'
        ended = "" if is_last else f"{_percent(starts[number + 1])} {{ opacity: 0 }} "
        last = "1" if is_last else "0"
        yield (
            f'<text class="said c{number}" y="{y:.1f}"{hidden}>{spans}</text>',
            f"@keyframes c{number} {{ 0% {{ opacity: 0 }} {_percent(start_s)} {{ opacity: 1 }} "
            f"{ended}100% {{ opacity: {last} }} }} "
            f".c{number} {{ animation: c{number} {LAPSE_S + STAY_S:g}s step-end infinite; }}",
        )
