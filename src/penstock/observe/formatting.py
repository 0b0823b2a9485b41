"""Numbers and instants in words, the same in every view."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.core.model import Decision, Step
from penstock.observe.report.series import EPOCH_BEGINS_S


def rate(rps: float | None) -> str:
    """A rate for people.

    >>> rate(41_234.0), rate(812.0), rate(None)
    ('41.2 k/s', '812 /s', '-')
    """
    if rps is None:
        return "-"
    if rps >= 1e6:
        return f"{rps / 1e6:.2f} M/s"
    return f"{rps / 1e3:.1f} k/s" if rps >= 1e3 else f"{rps:.0f} /s"


def seconds(value: float | None) -> str:
    """A time span for people.

    >>> seconds(0.25), seconds(12.3), seconds(185.0), seconds(7_260.0), seconds(None)
    ('0.2 s', '12.3 s', '3 min 05 s', '2 h 01 min', '-')
    """
    if value is None:
        return "-"
    if value < 100.0:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def instant(at_s: float) -> str:
    """When: hours of a simulated run, or date and time of a real one.

    >>> instant(3_725.0), instant(1_700_000_000.0)
    ('01:02:05', '2023-11-14 22:13:20')
    """
    if at_s >= EPOCH_BEGINS_S:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    hours, rest = divmod(int(at_s), 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def move(step: Step) -> str:
    """What was done with the fleet.

    >>> from penstock.core.model import Fleet, Reason, Snapshot
    >>> snapshot = Snapshot(0.0, Fleet(4, 4, 4))
    >>> move(Step(0.0, snapshot, Decision.of(6, Reason("load_rises", "load rises"))))
    ' 4 → 6 '
    """
    target = step.decision.target_executors
    if step.snapshot is None:
        return "  ?   "
    fleet = step.snapshot.fleet.target
    return f"{fleet:>2} = {fleet:<2}" if target == fleet else f"{fleet:>2} → {target:<2}"


def reasons(decision: Decision) -> str:
    """All reasons of a decision, the policy's first, in one line."""
    return "; ".join(reason.text for reason in decision.reasons)


def codes(decision: Decision) -> list[str]:
    return [reason.code for reason in decision.reasons]


def thousandths(value: float) -> str:
    """Three digits, and nothing below nothing.

    >>> thousandths(0.12345), thousandths(-0.0001)
    ('0.123', '0.000')
    """
    return f"{round(value, 3) + 0.0:.3f}"
