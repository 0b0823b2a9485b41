"""The table of a tournament, as wide as the screen allows and no wider."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.lab.experiments.tournament import Standing
from penstock.observe.formatting import thousandths
from penstock.settings.goal import Goal

GAP = 2


class RankingColumn(NamedTuple):
    """A column, and its rank when room is short: the highest is left out first."""

    name: str
    text_of: Callable[[Standing], str]
    gives_way: int


def columns(goal: Goal) -> list[RankingColumn]:
    """All columns, in the order of the table."""
    return [
        RankingColumn("cost", lambda s: f"{s.cost:.1f}", 0),
        RankingColumn("± 95 %", lambda s: f"{s.cost_interval:.1f}" if s.seeds > 2 else "-", 5),
        RankingColumn("regret", lambda s: "-" if s.regret is None else thousandths(s.regret), 2),
        RankingColumn("exec-h", lambda s: f"{s.executor_hours:.1f}", 3),
        RankingColumn("mean", lambda s: f"{s.mean_executors:.1f}", 9),
        RankingColumn("p50 s", lambda s: f"{s.p50_s:.1f}", 8),
        RankingColumn("p95 s", lambda s: f"{s.p95_s:.1f}", 4),
        RankingColumn("p99 s", lambda s: f"{s.p99_s:.1f}", 7),
        RankingColumn(f"late % > {goal.slo_s:g} s", lambda s: f"{100 * s.late_fraction:.2f}", 1),
        RankingColumn("rescales", lambda s: f"{s.rescales:.0f}", 6),
        RankingColumn("moved", lambda s: f"{s.moved_executors:.0f}", 10),
    ]


def ranking(group: Sequence[Standing], goal: Goal, width: int) -> list[RenderableType]:
    """The table, cheapest first, and what it has no room for; long names are folded, never cut."""
    shown, left_out = fitting(group, goal, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("policy", overflow="fold")
    for column in shown:
        table.add_column(column.name, justify="right", no_wrap=True)
    for rank, row in enumerate(group, start=1):
        numbers = [column.text_of(row) for column in shown]
        table.add_row(str(rank), Text(row.policy), *numbers, style="bold" if rank == 1 else "")
    if not left_out:
        return [table]
    names = ", ".join(column.name for column in left_out)
    return [table, Text(f"no room for {names}: widen the screen, or use --json", style="dim")]


def fitting(
    group: Sequence[Standing], goal: Goal, width: int
) -> tuple[list[RankingColumn], list[RankingColumn]]:
    """The columns that fit beside the names, and those that do not; empty ones are neither."""
    shown = [each for each in columns(goal) if any(each.text_of(row) != "-" for row in group)]
    left_out: list[RankingColumn] = []
    # Beyond this much, a name is folded rather than all numbers given up for it.
    names = min(max(len(row.policy) for row in group), max(12, width // 2))
    ranks = len(str(len(group)))

    def needed(column: RankingColumn) -> int:
        return max(len(column.name), *(len(column.text_of(row)) for row in group))

    while len(shown) > 1 and ranks + names + sum(needed(c) + GAP for c in shown) + GAP > width:
        first = max(shown, key=lambda column: column.gives_way)
        shown.remove(first)
        left_out.append(first)
    return shown, left_out
