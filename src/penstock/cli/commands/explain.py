"""``penstock explain``: a journal in words."""

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from penstock.cli.options import about
from penstock.cli.output import console, note, print_json, read_journal_steps
from penstock.core.errors import ConfigError
from penstock.core.model import Step
from penstock.observe.formatting import EPOCH_BEGINS_S, Losses, codes, decision_line
from penstock.settings.notation import quantity

Kind = Literal["all", "rescale", "hold", "overridden", "blind", "lost"]


def explain(
    journal: Annotated[Path, about("journal")],
    /,
    *,
    since: Annotated[str | None, about("explain.since")] = None,
    until: Annotated[str | None, about("explain.until")] = None,
    kind: Annotated[Kind, about("explain.kind")] = "all",
    code: Annotated[str | None, about("explain.code")] = None,
    json: Annotated[bool, about("explain.json")] = False,
) -> int:
    """Print each decision of a journal with its reasons. Exits with 1 if none matches."""
    steps = read_journal_steps(journal)
    begin = steps[0].at_s
    first = _instant(since, begin, "--since", float("-inf"))
    last = _instant(until, begin, "--until", float("inf"))
    losses = Losses()
    chosen = [
        (step, lost)
        for step, lost in [(step, losses.update(step)) for step in steps]
        if first <= step.at_s <= last
        and (kind == "all" or _is(step, lost, kind))
        and (code is None or code in codes(step.decision))
    ]
    known = sorted({each for step in steps for each in codes(step.decision)})
    if code is not None and code not in known:
        note(f"no decision of {journal} has the code '{code}'; its codes are {', '.join(known)}")
    if json:
        print_json([step for step, _ in chosen])
    else:
        screen = console()
        for step, lost in chosen:
            screen.print(decision_line(step, lost, with_codes=True), soft_wrap=True)
        screen.print(f"{len(chosen)} of {len(steps)} decisions", style="dim")
    return 0 if chosen else 1


def _is(step: Step, lost: str, kind: Kind) -> bool:
    if kind == "lost":
        return bool(lost)
    if kind == "blind" or step.snapshot is None:
        return kind == "blind" and step.snapshot is None
    decision = step.decision
    if kind == "overridden":
        return decision.target_executors != decision.wanted_executors
    return (decision.target_executors != step.snapshot.fleet.target) == (kind == "rescale")


def _instant(text: str | None, begin: float, what: str, otherwise: float) -> float:
    """A time since the start of the journal, a time as it is printed, or a date in UTC."""
    if text is None:
        return otherwise
    if begin < EPOCH_BEGINS_S and (clock := re.fullmatch(r"(\d+):(\d\d):(\d\d)", text)):
        return 3600.0 * int(clock[1]) + 60.0 * int(clock[2]) + int(clock[3])
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + "+00:00").timestamp()
    except ValueError:
        pass
    try:
        return begin + quantity(text, what)
    except ConfigError:
        raise ConfigError(
            f"{what} must be a time like 90min or a date like 2026-11-15T03:00, not '{text}'"
        ) from None
