"""The decisions of a run as rows of a table: equal decisions in a row are one row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from penstock.core.model import Step
from penstock.observe.report.series import begin_s

Kind = Literal["up", "down", "hold", "refused", "blind"]

#: The most rows on a page; holds are left out first.
MOST_ROWS = 3000


class DecisionRow(Struct, frozen=True):
    """One or more equal decisions in a row; text, load and delay are those of the first."""

    at_s: float
    until_s: float
    turns: int
    kind: Kind
    before: int | None
    after: int
    wanted: int
    codes: tuple[str, ...]
    text: str
    load_rps: float | None
    delay_s: float | None


def kind_of(step: Step) -> Kind:
    """What a turn did with the fleet.

    >>> from penstock.core.model import Decision, Fleet, Reason, Receipt, Snapshot
    >>> seen = Snapshot(0.0, Fleet(4, 4, 4))
    >>> grow = Decision.of(6, Reason("load_rises", "load rises"))
    >>> [kind_of(Step(0.0, seen, grow, Receipt(accepted))) for accepted in (True, False)]
    ['up', 'refused']
    >>> kind_of(Step(0.0, None, grow))
    'blind'
    """
    if step.snapshot is None:
        return "blind"
    before, after = step.snapshot.fleet.target, step.decision.target_executors
    if before == after:
        return "hold"
    if step.receipt is not None and not step.receipt.accepted:
        return "refused"
    return "up" if after > before else "down"


def rows(steps: Sequence[Step]) -> list[DecisionRow]:
    """All decisions, oldest first."""
    zero_s = begin_s(steps)
    return [_row(list(equal), zero_s) for _, equal in groupby(steps, _key)]


def weightiest(found: Sequence[DecisionRow], most: int = MOST_ROWS) -> list[DecisionRow]:
    """At most `most` rows, oldest first; the latest holds are left out first."""
    if len(found) <= most:
        return list(found)
    by_weight = sorted(range(len(found)), key=lambda place: (found[place].kind == "hold", place))
    return [found[place] for place in sorted(by_weight[:most])]


def _key(step: Step) -> tuple[object, ...]:
    decision, seen = step.decision, step.snapshot
    return (
        kind_of(step),
        None if seen is None else seen.fleet.target,
        decision.target_executors,
        decision.wanted_executors,
        tuple(reason.code for reason in decision.reasons),
    )


def _row(equal: Sequence[Step], zero_s: float) -> DecisionRow:
    first = equal[0]
    decision, seen, kind = first.decision, first.snapshot, kind_of(first)
    texts = [reason.text for reason in decision.reasons]
    if kind == "refused" and first.receipt is not None and first.receipt.text:
        texts.append(f"refused: {first.receipt.text}")
    return DecisionRow(
        at_s=round(first.at_s - zero_s, 2),
        until_s=round(equal[-1].at_s - zero_s, 2),
        turns=len(equal),
        kind=kind,
        before=None if seen is None else seen.fleet.target,
        after=decision.target_executors,
        wanted=decision.wanted_executors,
        codes=tuple(reason.code for reason in decision.reasons),
        text="; ".join(texts),
        load_rps=None if seen is None else seen.arrival_rps,
        delay_s=None if seen is None else seen.delay_s,
    )
