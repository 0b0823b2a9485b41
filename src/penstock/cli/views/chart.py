"""A run as columns of blocks: load, fleet and delay over the same time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from penstock.core.model import Step
from penstock.observe.formatting import instant, rate, seconds

BLOCKS = " ▁▂▃▄▅▆▇█"
LABEL_WIDTH = 12


def columns(values: Sequence[float], width: int) -> list[float]:
    """The largest value of each of `width` equal spans, so that no spike is lost.

    >>> columns([1.0, 5.0, 2.0, 3.0], 2)
    [5.0, 3.0]
    """
    if len(values) <= width:
        return list(values)
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    return [max(values[low:high]) for low, high in itertools.pairwise(edges)]


def rows(values: Sequence[float], ceiling: float, height: int) -> list[str]:
    """Columns of blocks, top row first.

    >>> rows([0.0, 1.0, 2.0], ceiling=2.0, height=1)
    [' ▄█']
    """
    top = max(ceiling, 1e-9)
    eighths = [round(8 * height * min(value, top) / top) for value in values]
    return [
        "".join(BLOCKS[min(8, max(0, column - 8 * level))] for column in eighths)
        for level in range(height - 1, -1, -1)
    ]


def panel(steps: Sequence[Step], slo_s: float, max_executors: int, width: int, title: str) -> Panel:
    """Three charts of a run, and its last decision in words."""
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    inner = max(20, width - LABEL_WIDTH - 4)
    load = columns([snapshot.arrival_rps or 0.0 for snapshot in seen], inner)
    fleet = columns([float(snapshot.fleet.target) for snapshot in seen], inner)
    delay = columns([snapshot.delay_s or 0.0 for snapshot in seen], inner)
    lines: list[Text] = []
    lines += _chart("load", rate(max(load, default=0.0)), load, max(load, default=1.0), "cyan")
    lines += _chart("executors", str(max_executors), fleet, float(max_executors), "green")
    lines += _delay_chart(delay, slo_s)
    lines.append(Text())
    if steps:
        last = steps[-1]
        lines.append(Text(f"{instant(last.at_s)}  {last.decision.reasons[0].text}"))
    return Panel(Group(*lines), title=title, width=width, border_style="dim")


def _chart(
    name: str, top: str, values: Sequence[float], ceiling: float, style: str, height: int = 4
) -> list[Text]:
    labels = [name, top, *[""] * height][:height]
    return [
        Text.assemble((f"{label:>{LABEL_WIDTH - 1}} ", "dim"), (row, style))
        for label, row in zip(labels, rows(values, ceiling, height), strict=True)
    ]


def _delay_chart(values: Sequence[float], slo_s: float) -> list[Text]:
    """Delay against the SLO: the columns that break it are red."""
    worst = max(values, default=0.0)
    lines = _chart("delay", seconds(worst), values, max(worst, slo_s), "yellow", height=3)
    for line in lines:
        for index, value in enumerate(values):
            if value > slo_s:
                line.stylize("bold red", LABEL_WIDTH + index, LABEL_WIDTH + index + 1)
    lines[2] = (
        Text.assemble((f"{f'SLO {slo_s:g} s':>{LABEL_WIDTH - 1}} ", "dim")) + lines[2][LABEL_WIDTH:]
    )
    return lines
