"""What people should hear of without asking: rescales, refusals, loss of sight, no room.

A notice is a line of the log, as text or as JSON, and the body of a webhook.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.core.model import Step
from penstock.observe.formatting import codes, sentence

NoticeKind = Literal["rescale", "refusal", "recommendation", "blind", "seen_again", "no_room"]


class Notice(Struct, frozen=True, omit_defaults=True):
    """One event: what happened, in words and as numbers."""

    kind: NoticeKind
    at_s: float
    text: str
    target: int
    before: int | None = None
    reasons: tuple[str, ...] = ()

    def cloud_event(self, source: str) -> dict[str, Any]:
        """The notice as a CloudEvent; the same notice has the same id.

        >>> event = Notice("no_room", 1_700_000_000.0, "2 of 4 executors", 4).cloud_event("app-1")
        >>> event["type"], event["time"], event["data"]["target"]
        ('penstock.no_room', '2023-11-14T22:13:20+00:00', 4)
        """
        return {
            "specversion": "1.0",
            "id": f"{self.kind}-{self.at_s:.3f}",
            "source": f"/penstock/{source}",
            "type": f"penstock.{self.kind}",
            "time": datetime.fromtimestamp(self.at_s, UTC).isoformat(),
            "datacontenttype": "application/json",
            "data": msgspec.to_builtins(self),
        }


def notices(step: Step, last: Step | None, *, acts: bool = True) -> Iterator[Notice]:
    """What is new since the last step: a state that lasts is told once."""
    decision, was_blind = step.decision, last is not None and last.snapshot is None
    target, reasons = decision.target_executors, tuple(codes(decision))
    if step.snapshot is None:
        if not was_blind:
            yield Notice("blind", step.at_s, decision.reasons[0].text, target, None, reasons)
        return
    before = step.snapshot.fleet.target
    if was_blind:
        yield Notice("seen_again", step.at_s, "the job can be seen again", before)
    if step.receipt is None:
        return
    kind: NoticeKind = "recommendation"
    if acts or step.receipt.accepted:
        kind = "rescale" if step.receipt.accepted else "refusal"
    if kind == "rescale" or last is None or _refused(step) != _refused(last):
        yield Notice(kind, step.at_s, sentence(step), target, before, reasons)


def _refused(step: Step) -> tuple[int, str] | None:
    """What was refused, and why."""
    if step.receipt is None or step.receipt.accepted:
        return None
    return step.decision.target_executors, step.receipt.text


class JsonLines(logging.Formatter):
    """Log records as one JSON object per line; those of a notice carry its fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        notice = getattr(record, "notice", None)
        return msgspec.json.encode(fields | ({"notice": notice} if notice else {})).decode()


def show_log(formatter: logging.Formatter | None = None) -> None:
    """Log what Penstock does on standard error, beside what the job logs."""
    handler, ours = logging.StreamHandler(), logging.getLogger("penstock")
    handler.setFormatter(formatter or logging.Formatter("penstock: %(message)s"))
    ours.handlers[:] = [handler]
    ours.setLevel(logging.INFO)
    ours.propagate = False
