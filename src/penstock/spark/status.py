"""How a scaler and its job are, in numbers and in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from penstock.core.model import Step
from penstock.settings.live import Mode

State = Literal["running", "paused", "stopped", "failed"]


class Status(Struct, frozen=True):
    """How the job and its scaler are. Counts are those of the last look."""

    state: State
    mode: Mode
    policy: str
    target: int | None = None
    registered: int | None = None
    active: int | None = None
    is_settled: bool = True
    delay_s: float | None = None
    backlog_records: float | None = None
    decisions: int = 0
    rescales: int = 0
    repairs: int = 0
    losses: int = 0
    last: str = ""
    error: str = ""


def sentence(step: Step) -> str:
    """One decision in one line: when, from how many to how many, and why.

    >>> from penstock.core.model import Decision, Fleet, Reason, Receipt, Snapshot
    >>> wish = Decision.of(5, Reason("load_rises", "900 records/s need 5 executors"))
    >>> sentence(Step(1_700_000_000.0, Snapshot(0.0, Fleet(3, 3, 3)), wish, Receipt(True)))
    '22:13:20Z 3 -> 5 executors: 900 records/s need 5 executors'
    """
    at = datetime.fromtimestamp(step.at_s, UTC).strftime("%H:%M:%SZ")
    why = "; ".join(reason.text for reason in step.decision.reasons)
    if step.snapshot is None:
        return f"{at} {why}"
    before, after = step.snapshot.fleet.target, step.decision.target_executors
    size = f"{before} executors" if before == after else f"{before} -> {after} executors"
    refused = step.receipt is not None and not step.receipt.accepted
    return f"{at} {size}: {why}" + (f" ({step.receipt.text})" if step.receipt and refused else "")
