"""A run as columns of blocks: load, fleet and delay over the same time."""

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
    lines = charts(load, fleet, delay, (max(load, default=1.0), max_executors, slo_s))
    if steps:
        last = steps[-1]
        lines += [Text(), Text(f"{instant(last.at_s)}  {last.decision.reasons[0].text}")]
    return Panel(Group(*lines), title=title, width=width, border_style="dim")


def charts(
    load_rps: Sequence[float],
    fleet: Sequence[float],
    delay_s: Sequence[float],
    tops: tuple[float, int, float],
) -> list[Text]:
    """Load, fleet and delay, red beyond the SLO; `tops` are the top load, top fleet and the SLO."""
    peak_rps, max_executors, slo_s = tops
    worst_s = max(delay_s, default=0.0)
    lines = _chart(["load", rate(peak_rps), "", ""], load_rps, peak_rps, "cyan")
    lines += _chart(["executors", str(max_executors), "", ""], fleet, max_executors, "green")
    labels = ["delay", seconds(worst_s), f"SLO {slo_s:g} s"]
    late = _chart(labels, delay_s, max(worst_s, slo_s), "yellow")
    for line in late:
        for place, value in enumerate(delay_s, LABEL_WIDTH):
            if value > slo_s:
                line.stylize("bold red", place, place + 1)
    return lines + late


def _chart(
    labels: Sequence[str], values: Sequence[float], ceiling: float, style: str
) -> list[Text]:
    return [
        Text.assemble((f"{label:>{LABEL_WIDTH - 1}} ", "dim"), (row, style))
        for label, row in zip(labels, rows(values, ceiling, len(labels)), strict=True)
    ]
