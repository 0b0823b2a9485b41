"""Numbers, instants and decisions as text, the same in every view."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.core import phrases
from penstock.core.model import Decision, Fleet, Step

#: Instants below this are seconds of a simulated run, above it seconds since the epoch.
EPOCH_BEGINS_S = 1e8


def rate(rps: float | None) -> str:
    """A rate in the unit that fits.

    >>> rate(41_234.0), rate(None)
    ('41.2 k/s', '-')
    """
    return "-" if rps is None else phrases.rate(rps)


def amount(records: float) -> str:
    """A number of records in the unit that fits.

    >>> amount(812.0), amount(41_234.0), amount(66_012_345.0)
    ('812', '41.2 k', '66.0 M')
    """
    if records >= 999_950.0:
        return f"{records / 1e6:.1f} M"
    return f"{records / 1e3:.1f} k" if records >= 999.5 else f"{records:.0f}"


def seconds(value: float | None) -> str:
    """A time span.

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
    """When: hours of a simulated run, or date and time of a live one.

    >>> instant(3_725.0), instant(1_700_000_000.0)
    ('01:02:05', '2023-11-14 22:13:20')
    """
    if at_s >= EPOCH_BEGINS_S:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    hours, rest = divmod(int(at_s), 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def move(step: Step) -> str:
    """The size of the fleet and the target that was set, in columns of equal width.

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


def why(step: Step) -> str:
    """The reasons of a decision, and why it was refused if it was."""
    refused = step.receipt is not None and not step.receipt.accepted
    return reasons(step.decision) + (f" ({step.receipt.text})" if step.receipt and refused else "")


def codes(decision: Decision) -> list[str]:
    return [reason.code for reason in decision.reasons]


def sentence(step: Step) -> str:
    """A decision in one line: when, the size before and after, and why.

    >>> from penstock.core.model import Fleet, Reason, Receipt, Snapshot
    >>> decision = Decision.of(5, Reason("load_rises", "900 records/s need 5 executors"))
    >>> sentence(Step(1_700_000_000.0, Snapshot(0.0, Fleet(3, 3, 3)), decision, Receipt(True)))
    '2023-11-14 22:13:20Z 3 -> 5 executors: 900 records/s need 5 executors'
    """
    at = f"{instant(step.at_s)}Z"
    if step.snapshot is None:
        return f"{at} {why(step)}"
    before, after = step.snapshot.fleet.target, step.decision.target_executors
    size = phrases.executors(after)
    return f"{at} {size if before == after else f'{before} -> {size}'}: {why(step)}"


def decision_line(step: Step, lost: str = "", *, with_codes: bool = False) -> str:
    """When, the size before and after, load and delay, and why."""
    seen = step.snapshot
    load = rate(seen.arrival_rps) if seen else "-"
    delay = seconds(seen.delay_s) if seen else "-"
    refused = "" if step.receipt is None or step.receipt.accepted else " REFUSED"
    code = f"[{', '.join(codes(step.decision))}] " if with_codes else ""
    said = "; ".join(filter(None, (lost, reasons(step.decision))))
    seen_text = f"load {load:>10}  delay {delay:>9}"
    return f"{instant(step.at_s)}  {move(step)}{refused}  {seen_text}  {code}{said}"


class Losses:
    """Finds executors that went away although nobody asked for it.

    >>> from penstock.core.model import Decision, Reason, Snapshot
    >>> def turn(target, registered):
    ...     decision = Decision.of(target, Reason("right_size", "holding"))
    ...     return Step(0.0, Snapshot(0.0, Fleet(target, registered, registered)), decision)
    >>> losses = Losses()
    >>> losses.update(turn(4, 4)), losses.update(turn(4, 3)), losses.update(turn(3, 3))
    ('', 'lost 1 executor: 3 of 4 registered', '')
    """

    def __init__(self) -> None:
        self._last: Fleet | None = None

    def update(self, step: Step) -> str:
        """What was lost since the last step; empty if nothing was."""
        if step.snapshot is None:
            return ""
        last, self._last = self._last, step.snapshot.fleet
        if last is None:
            return ""
        fleet = self._last
        lost = min(last.registered, fleet.target) - fleet.registered
        if lost <= 0:
            return ""
        return f"lost {phrases.executors(lost)}: {fleet.registered} of {fleet.target} registered"


def thousandths(value: float) -> str:
    """Three decimals, and never a negative zero.

    >>> thousandths(0.12345), thousandths(-0.0001)
    ('0.123', '0.000')
    """
    return f"{round(value, 3) + 0.0:.3f}"
