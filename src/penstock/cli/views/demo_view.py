"""A live run on the screen, or as plain lines where there is no terminal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.output import console
from penstock.cli.views.chart import LABEL_WIDTH, charts
from penstock.core.model import Snapshot, Step
from penstock.observe.formatting import instant, move, rate, reasons, seconds, why
from penstock.testbed.demo.attached import AttachedDemo
from penstock.testbed.demo.plan import MAX_EXECUTORS, SLO_S, DemoPlan

WIDEST = 110
DECISIONS = 5
PLAIN_EVERY_S = 5.0
THROUGHPUT_S = 10.0


class PlainView:
    """A line every five seconds, one for each rescale, one for each warning."""

    def __init__(self, shown: AttachedDemo, screen: Console | None = None) -> None:
        self._shown = shown
        self._screen = screen or console()
        self._seen = self._warned = 0
        self._next_at_s = 0.0

    def update(self, _now_s: float) -> None:
        for line in self.lines():
            self._screen.print(line, soft_wrap=True)

    def lines(self) -> list[str]:
        """What is new since the last call."""
        steps, warnings = list(self._shown.steps), list(self._shown.warnings)
        found = [f"warning: {text}" for text in warnings[self._warned :]]
        for place, step in enumerate(steps[self._seen :], self._seen):
            at_s = step.at_s - steps[0].at_s
            if at_s >= self._next_at_s:
                self._next_at_s = at_s + PLAIN_EVERY_S - 0.5
                found.append(f"{instant(at_s)}  {facts(step, throughput_rps(steps[: place + 1]))}")
            if step.receipt is not None:
                found.append(f"{instant(at_s)}  {move(step)} {why(step)}")
        self._seen, self._warned = len(steps), len(warnings)
        return found


def throughput_rps(steps: Sequence[Step], window_s: float = THROUGHPUT_S) -> float | None:
    """What was processed in the last seconds: one turn may see no batch end.

    >>> from penstock.core.model import Decision, Fleet, Reason
    >>> hold = Decision.of(1, Reason("right_size", "holding"))
    >>> def turn(at_s, rps):
    ...     return Step(at_s, Snapshot(at_s, Fleet(1, 1, 1), throughput_rps=rps), hold)
    >>> throughput_rps([turn(0.0, None), turn(5.0, 0.0), turn(10.0, 800.0)], window_s=10.0)
    400.0
    """
    done = span_s = 0.0
    for before, step in reversed(list(pairwise(steps))):
        if step.at_s <= steps[-1].at_s - window_s:
            break
        if step.snapshot is not None and step.snapshot.throughput_rps is not None:
            done += step.snapshot.throughput_rps * (step.at_s - before.at_s)
            span_s += step.at_s - before.at_s
    return done / span_s if span_s else None


def facts(step: Step, done_rps: float | None) -> str:
    """What was seen at a turn, in one line."""
    seen = step.snapshot
    if seen is None:
        return reasons(step.decision)
    fleet = seen.fleet
    return (
        f"load {rate(seen.arrival_rps):>9}  done {rate(done_rps):>9}  "
        f"lag {records(seen.backlog_records):>7}  delay {seconds(seen.delay_s):>7}  "
        f"executors {fleet.target} wanted {fleet.registered} registered {fleet.active} working"
    )


def records(count: float | None) -> str:
    """A number of records, such as 12,345, or a dash where it was not measured."""
    return "-" if count is None else f"{count:,.0f}"


@contextmanager
def live_view(
    shown: AttachedDemo, screen: Console, label: str
) -> Iterator[Callable[[float], None]]:
    """The run as a panel; the function that it gives draws it again."""
    begin_s: float | None = None
    with Live(console=screen, auto_refresh=False) as live:

        def update(now_s: float) -> None:
            nonlocal begin_s
            begin_s = now_s if begin_s is None else begin_s
            width = min(screen.width, WIDEST)
            live.update(draw(shown, label, now_s - begin_s, width), refresh=True)

        yield update


def draw(shown: AttachedDemo, label: str, elapsed_s: float, width: int) -> Panel:
    """The whole view: numbers, three charts, and the last decisions in words."""
    steps, plan = list(shown.steps), shown.plan
    seen = [step.snapshot for step in steps if step.snapshot is not None]
    inner = max(20, width - 4)
    parts: list[Text | Table] = [
        _last_figures(seen[-1] if seen else None, throughput_rps(steps)),
        Text(),
        *_charts(seen, plan, inner - LABEL_WIDTH),
        Text(),
        _decisions(steps),
    ]
    parts += [Text(f"warning: {line}", style="yellow") for line in list(shown.warnings)[-2:]]
    return Panel(
        Group(*parts),
        title=f"{label} · {plan.job} · {instant(elapsed_s)} of {instant(float(plan.load_s))}",
        subtitle=plan.work,
        width=width,
        border_style="dim",
    )


def _last_figures(seen: Snapshot | None, done_rps: float | None) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    for name in ("load", "throughput", "lag", "delay", "executors"):
        table.add_column(name, no_wrap=True)
    if seen is None:
        table.add_row(*["-"] * 5)
        return table
    late, fleet = (seen.delay_s or 0.0) > SLO_S, seen.fleet
    table.add_row(
        rate(seen.arrival_rps),
        rate(done_rps),
        f"{records(seen.backlog_records)} records",
        Text(seconds(seen.delay_s), style="bold red" if late else ""),
        f"{fleet.target} wanted  {fleet.registered} registered  {fleet.active} working",
    )
    return table


def _charts(seen: Sequence[Snapshot], plan: DemoPlan, width: int) -> list[Text]:
    load_s, peak_rps = float(plan.load_s), plan.peak_rps
    load = over_time([(at.at_s, at.arrival_rps or 0.0) for at in seen], load_s, width)
    fleet = over_time([(at.at_s, float(at.fleet.active)) for at in seen], load_s, width)
    delay = over_time([(at.at_s, at.delay_s or 0.0) for at in seen], load_s, width)
    return charts(load, fleet, delay, (peak_rps, MAX_EXECUTORS, SLO_S))


def over_time(values: Sequence[tuple[float, float]], load_s: float, width: int) -> list[float]:
    """A column for each part of the whole run so far; a value holds until the next one.

    >>> over_time([(100.0, 1.0), (105.0, 3.0), (110.0, 2.0)], load_s=20.0, width=8)
    [1.0, 1.0, 3.0, 3.0, 2.0]
    """
    if not values:
        return []
    begin_s, found, place = values[0][0], list[float](), 0
    columns = min(width, 1 + int((values[-1][0] - begin_s) / load_s * width))
    for column in range(columns):
        at_s = begin_s + column * load_s / width
        while place + 1 < len(values) and values[place + 1][0] <= at_s:
            place += 1
        found.append(values[place][1])
    return found


def _decisions(steps: Sequence[Step]) -> Table:
    """The last rescales, and the latest decision."""
    table = Table(box=None, pad_edge=False, show_header=False, expand=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, style="bold")
    table.add_column(ratio=1)
    moved = [step for step in steps if step.receipt is not None][-DECISIONS:]
    last = steps[-1:] if not moved or moved[-1] is not steps[-1] else []
    for step in [*moved, *last]:
        text = Text(why(step), overflow="ellipsis", no_wrap=False)
        table.add_row(instant(step.at_s - steps[0].at_s), move(step), text)
    return table
