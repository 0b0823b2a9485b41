"""``penstock explain``: a journal in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from penstock.cli.views.output import console, print_json
from penstock.core.errors import ConfigError
from penstock.core.journal import read_header, read_rotated
from penstock.core.model import Step
from penstock.observe.formatting import codes, instant, move, rate, reasons, seconds
from penstock.settings.notation import quantity

Kind = Literal["all", "rescale", "hold", "bent", "blind"]


def explain(
    journal: Path,
    /,
    *,
    since: str | None = None,
    until: str | None = None,
    kind: Kind = "all",
    code: str | None = None,
    json: Annotated[bool, Parameter(help="The matching steps as JSON.")] = False,
) -> int:
    """Tell each decision of a journal in words. Exits with 1 if none matches.

    Parameters
    ----------
    journal
        A journal written by simulate or by a live run.
    since
        Only from here on: a span since the start (90min), or a date and time in UTC.
    until
        Only up to here.
    kind
        rescale: the fleet changed; hold: it stayed; bent: a guard overruled the policy; blind:
        nothing could be seen.
    code
        Only decisions with this reason code.
    """
    read_header(journal)
    steps = list(read_rotated(journal))
    if not steps:
        raise ConfigError(f"journal {journal} holds no step")
    begin = steps[0].at_s
    first = _instant(since, begin, "--since", float("-inf"))
    last = _instant(until, begin, "--until", float("inf"))
    chosen = [
        step
        for step in steps
        if first <= step.at_s <= last
        and _is(step, kind)
        and (code is None or code in codes(step.decision))
    ]
    if json:
        print_json(chosen)
    else:
        _tell(chosen, len(steps))
    return 0 if chosen else 1


def _is(step: Step, kind: Kind) -> bool:
    if kind == "all":
        return True
    if kind == "blind":
        return step.snapshot is None
    if step.snapshot is None:
        return False
    decision = step.decision
    if kind == "bent":
        return decision.target_executors != decision.wanted_executors
    return (decision.target_executors != step.snapshot.fleet.target) == (kind == "rescale")


def _tell(chosen: Sequence[Step], total: int) -> None:
    screen = console()
    for step in chosen:
        seen = step.snapshot
        load = rate(seen.arrival_rps) if seen else "-"
        delay = seconds(seen.delay_s) if seen else "-"
        refused = "" if step.receipt is None or step.receipt.accepted else " REFUSED"
        screen.print(
            f"{instant(step.at_s)}  {move(step)}{refused}  load {load:>10}  delay {delay:>9}  "
            f"[{', '.join(codes(step.decision))}] {reasons(step.decision)}",
            markup=False,
            soft_wrap=True,
        )
    screen.print(f"{len(chosen)} of {total} decisions", style="dim")


def _instant(text: str | None, begin: float, what: str, otherwise: float) -> float:
    """A span since the start of the journal, or a date and time in UTC."""
    if text is None:
        return otherwise
    try:
        return datetime.fromisoformat(text + "+00:00").timestamp()
    except ValueError:
        pass
    try:
        return begin + quantity(text, what)
    except ConfigError:
        raise ConfigError(
            f"{what} must be a span like 90min or a date like 2026-11-15T03:00, not '{text}'"
        ) from None
