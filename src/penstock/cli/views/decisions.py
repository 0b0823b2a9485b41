"""A decision of a journal in one line."""

from __future__ import annotations

from penstock.core.model import Fleet, Step
from penstock.core.phrases import executors
from penstock.observe.formatting import codes, instant, move, rate, reasons, seconds


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
        return f"lost {executors(lost)}: {fleet.registered} of {fleet.target} registered"


def decision_line(step: Step, lost: str = "", *, with_codes: bool = False) -> str:
    """When, the size before and after, load and delay, and why."""
    seen = step.snapshot
    load = rate(seen.arrival_rps) if seen else "-"
    delay = seconds(seen.delay_s) if seen else "-"
    refused = "" if step.receipt is None or step.receipt.accepted else " REFUSED"
    code = f"[{', '.join(codes(step.decision))}] " if with_codes else ""
    why = "; ".join(filter(None, (lost, reasons(step.decision))))
    seen_text = f"load {load:>10}  delay {delay:>9}"
    return f"{instant(step.at_s)}  {move(step)}{refused}  {seen_text}  {code}{why}"
